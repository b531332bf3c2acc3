/* What the parts of PID 1 share. */
#ifndef MINIT_INIT_H
#define MINIT_INIT_H

#include <stdbool.h>

#include "frame.h"

extern struct server server;
extern bool has_children; /* as the last reaping found it; whoever starts a process sets it */

/*
 * A command of the same uid can lower the limits of PID 1. A soft one is put back; false: the hard one was lowered,
 * and that is for good. Asked for before everything that needs descriptors on behalf of a command.
 */
bool restore_files_limit(void);
void send_error(struct conn *c, uint32_t id, int error, const char *message);

/* Serve as PID 1 on the listening socket at fd 3, and return only by ending the process. */
int init_main(void);
/* `argv` is the main command, NULL where there is none. */
int container_main(char **argv);

#endif
