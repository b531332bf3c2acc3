/*
 * State that the parts of PID 1 share: its server, a flag for children, whom commands run as, its limit on descriptors. The loop (init.c) uses it,
 * and so do the parts that run in the loop (exec.c, resident.c, container.c).
 */
#ifndef MINIT_PID1_H
#define MINIT_PID1_H

#include <stdbool.h>

#include "frame.h"
#include "identity.h"

extern struct server server;
extern struct identity *identity; /* of a container's commands; NULL: as PID 1, with the environments that they were given */
extern bool has_children; /* as the last reaping found it; whoever starts a process sets it */

/* Keeps the limit on descriptors for restore_files_limit. Runs before any command. False with errno. */
bool keep_files_limit(void);
/*
 * Restores the soft limit: a command of the same uid can lower the limits of PID 1. False: the hard limit was lowered,
 * which cannot be undone. Runs before each work that needs descriptors on behalf of a command.
 */
bool restore_files_limit(void);
void send_error(struct conn *c, uint32_t id, int error, const char *message);

#endif
