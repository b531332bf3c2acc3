/*
 * What the parts of PID 1 share: its server, whether it has children, its limit on descriptors. The loop (init.c) and what
 * runs in it (exec.c, resident.c, container.c) both stand on this.
 */
#ifndef MINIT_PID1_H
#define MINIT_PID1_H

#include <stdbool.h>

#include "frame.h"

extern struct server server;
extern bool has_children; /* as the last reaping found it; whoever starts a process sets it */

/* Notes the limit on descriptors. Call it before anything else runs. False with errno. */
bool keep_files_limit(void);
/*
 * A command of the same uid can lower the limits of PID 1. A soft one is put back; false: the hard one was lowered,
 * and that is for good. Asked for before everything that needs descriptors on behalf of a command.
 */
bool restore_files_limit(void);
void send_error(struct conn *c, uint32_t id, int error, const char *message);

#endif
