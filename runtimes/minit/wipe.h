/*
 * Removes what a call left in /tmp, /dev/shm and of System V's shared memory, semaphores and message queues, in slices,
 * so that PID 1 keeps answering meanwhile.
 */
#ifndef MINIT_WIPE_H
#define MINIT_WIPE_H

#include <stdbool.h>

/* Whether anything lies there. */
bool wipe_needed(void);
/* Removes some thousand entries at most. True: go on later; false: nothing is left that could be removed. */
bool wipe_slice(void);

#endif
