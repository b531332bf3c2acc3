/*
 * Roots of containers: an image below, a directory of the storage pool above. With a user namespace every layer is a mount
 * that shows its ids as that namespace's, and the overlay works with them: what is written there as its root is root's on
 * the disk. Nothing on the disk depends on the range, so that another one may follow, or none.
 */
#ifndef MINIT_OVERLAY_H
#define MINIT_OVERLAY_H

#include "storage-wire.h"

/* OVERLAY_MOUNT. Runs in a child of its own, which ends after it: it may be in another namespace then. */
void overlay_mount(const struct storage_request *request, struct storage_result *result);

#endif
