/*
 * The store area: a btrfs with one subvolume per container and volume. Everything by ioctl on a descriptor of its root; no
 * path inside a subvolume is ever resolved.
 *
 * A1 A subvolume comes with its quota and its place in the area's total in one transaction, and goes in one: a crash leaves
 *    it whole or not at all. What was made inside of it goes before it.
 * A2 Names are `<kind>/<id>`, kind one of three, id of [a-z0-9_-].
 */
#ifndef MINIT_AREA_H
#define MINIT_AREA_H

#include "mounts.h"

/* Mounts it and makes what it lacks; one that is open already (`area_fd` is not -1) is opened once more. */
void area_open(const struct storage_request *request, int area_fd, struct storage_result *result);
void area_create(int area_fd, const struct storage_request *request, struct storage_result *result);
void area_snapshot(int area_fd, const struct storage_request *request, struct storage_result *result);
void area_delete(int area_fd, const struct storage_request *request, struct storage_result *result);
void area_limit(int area_fd, const struct storage_request *request, struct storage_result *result);
void area_usage(int area_fd, const struct storage_request *request, struct storage_result *result);
void area_list(int area_fd, const struct storage_request *request, struct storage_result *result);

#endif
