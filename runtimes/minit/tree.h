/*
 * The processes of a command, found by walking /proc: all that descend from it or from its guard, and all of its
 * session. A snapshot misses what is forked meanwhile, so whoever wants them gone asks again until nothing is found.
 */
#ifndef MINIT_TREE_H
#define MINIT_TREE_H

#include <stdbool.h>
#include <sys/types.h>

/* Signals them all. Returns how many there were. A 0 stands for what does not exist. */
int tree_signal(pid_t guard, pid_t command, pid_t session, int signal);
/* Kills them all; with `stop`, halts them first until none is left to fork, which ends a fork bomb for certain. */
int tree_kill(pid_t guard, pid_t command, pid_t session, bool stop);

#endif
