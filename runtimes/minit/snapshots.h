/*
 * Snapshots of several subvolumes at one moment, while the processes that write to them are frozen.
 *
 * F1 Whatever fails, the group is thawed. If this process is killed meanwhile, the daemon thaws what it finds frozen.
 * F2 All snapshots are made, or none is left.
 * F3 What waits in memory is written before the freeze, since a snapshot writes the rest while the processes wait.
 */
#ifndef MINIT_SNAPSHOTS_H
#define MINIT_SNAPSHOTS_H

#include "storage-wire.h"

void snapshots_take(int pool_fd, const struct storage_request *request, struct storage_result *result);

#endif
