/*
 * What stays of a program that has started another one in its place: it waits for its only child and ends as that did. A resident
 * process that starts anew keeps its process id so, which PID 1 watches.
 */
#ifndef MINIT_AWAIT_H
#define MINIT_AWAIT_H

/* Ends with the child's exit code, or by the child's signal; with 1 if there is no child. */
int await_main(void);

#endif
