/*
 * The storage pool: a btrfs with one subvolume per container, volume, snapshot and tree of code. It works by ioctl on a
 * descriptor of the root, and resolves no path inside a subvolume.
 *
 * A1 A subvolume comes with its quota and its place in the pool's total in one transaction, and goes in one: a crash leaves
 *    it whole or not at all. What was made inside of it goes before it.
 * A2 Names are `<kind>/<id>`, kind one of four, id of [a-z0-9_-].
 */
#ifndef MINIT_STORAGE_POOL_H
#define MINIT_STORAGE_POOL_H

#include "storage-wire.h"

/* Mounts the pool and makes the missing parts. A pool that is already open (`pool_fd` is not -1) is opened once more. */
void storage_pool_open(const struct storage_request *request, int pool_fd, struct storage_result *result);
void storage_pool_create(int pool_fd, const struct storage_request *request, struct storage_result *result);
void storage_pool_snapshot(int pool_fd, const struct storage_request *request, struct storage_result *result);
void storage_pool_delete(int pool_fd, const struct storage_request *request, struct storage_result *result);
void storage_pool_limit(int pool_fd, const struct storage_request *request, struct storage_result *result);
void storage_pool_usage(int pool_fd, const struct storage_request *request, struct storage_result *result);
/* Snapshots `source` as `name`, without a limit of its own. Returns errno, 0 when done. */
int storage_pool_take(int pool_fd, const char *source, const char *name, uint64_t owner, bool read_only);
/* Removes the subvolume of that name with all in it. Returns errno; 0 also when there is none. */
int storage_pool_remove(int pool_fd, const char *name);
/* Bytes of the subvolume that were written and wait in memory; 0 where that is unknown. */
uint64_t storage_pool_waiting(int pool_fd, const char *name);
/* Opens the subvolume of that name. -1 with errno. */
int storage_pool_open_subvolume(int pool_fd, const char *name);
/*
 * Gives a subvolume another name of the same kind, or exchanges the names of two. Done already: the old name is gone and the
 * new one is there.
 */
void storage_pool_rename(int pool_fd, const struct storage_request *request, struct storage_result *result);
void storage_pool_list(int pool_fd, const struct storage_request *request, struct storage_result *result);

#endif
