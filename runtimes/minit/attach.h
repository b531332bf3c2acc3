/*
 * ATTACH: gives a running instance the files of a function's version: a tree of code and secrets, both read-only. The
 * mounts are made in the launcher's mount namespace and moved into the instance's, so none stays on the host.
 *
 * T1 The process whose namespace is entered is in the instance's control group: the group is read again while a pidfd
 *    keeps the number from being another's. The namespace is neither the launcher's nor the host's.
 * T2 No path of a stranger is resolved: the tree is its subvolume, the mount points are directories of the image without
 *    a link on the way. What is mounted already stays: a second request is refused.
 * T3 A child does the work with descriptors and a mount namespace of its own, so a request that fails or is killed leaves
 *    neither a descriptor nor a mount in the launcher.
 * T4 Secrets are in memory that the kernel never writes to a disk: ramfs, which unlike tmpfs is not swapped.
 */
#ifndef MINIT_ATTACH_H
#define MINIT_ATTACH_H

#include <stdint.h>

#include "frame.h"

/* Carries the request out and answers it. The launcher does nothing else meanwhile: some 50 microseconds. */
void attach_request(struct conn *c, uint32_t id, struct cursor *body);

#endif
