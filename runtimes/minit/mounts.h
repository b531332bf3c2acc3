/*
 * The launcher's mounts: the storage pool (a btrfs, see storage-pool.h) on its loop device, and the overlays of containers.
 * All in the launcher's own mount namespace, so that they end with it unless a container holds them.
 *
 * Every request may wait for a disk, so the launcher runs it in a child that shares its descriptor table.
 */
#ifndef MINIT_MOUNTS_H
#define MINIT_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"
#include "storage-wire.h"

/* Gives the launcher its mount namespace; with `private_tmp` a /tmp in it. False with errno. */
bool mounts_unshare(bool private_tmp);
/* Opens a subvolume of the storage pool by its name. -1 with errno. */
int mounts_open_subvolume(const char *name);
/* True if a mount namespace is neither the launcher's nor the one in which it was started. */
bool mounts_are_foreign(int namespace_fd);
/* Room for the results of so many requests at once. False with errno. */
bool storage_init(int jobs_max);
/* Starts the child that carries it out. Returns its pid, or -1 with errno. */
pid_t storage_start(long job, const struct storage_request *request);
/* Sends what the child left when it ended. */
void storage_finish(long job, struct conn *c, uint32_t id);
void storage_refuse(struct conn *c, uint32_t id, int error);

#endif
