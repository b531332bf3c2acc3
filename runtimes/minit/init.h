/* PID 1 of an instance and of an API container. */
#ifndef MINIT_INIT_H
#define MINIT_INIT_H

#include "container.h"

/* Serve as PID 1 on the listening socket at fd 3, and return only by ending the process. */
int init_main(void);
/* `argv` is the main command, NULL where there is none. */
int container_main(char **argv, const struct container_options *options);

#endif
