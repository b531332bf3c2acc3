/* Loop devices: the storage pool's file as a disk. */
#ifndef MINIT_LOOP_H
#define MINIT_LOOP_H

#include "storage-wire.h"

/*
 * Attaches the file to a loop device that goes with its last user, or finds the one that still has it: two devices on one
 * file would show the kernel one file system twice. Returns the device opened, its path in `path`; -1 when that failed.
 */
int loop_attach(const char *file, char *path, unsigned path_size, struct storage_result *result);

#endif
