/*
 * The commands that connections ask for: each from its request to its EXIT. Leaves to proc.c how one is started, fed
 * and read, to init.c the loop and the reaping.
 *
 * E1 At most one SOLE command exists; it owns the container from EXEC to IDLE, and whatever else runs dies with it.
 * E2 EXIT is sent after the last byte of output; for a SOLE command also after every other process is gone.
 * E3 Nothing here waits: killing, draining and wiping go on in turns of the loop.
 * E4 A command that is not SOLE has a guard (P4 of proc.h). Where it is ended from outside, by its deadline, by KILL
 *    or by the end of its connection, EXIT comes after everything below the guard is gone; where it ends by itself,
 *    what it left running stays.
 * E5 A command does not outlive the connection that asked for it, unless it is DETACHED.
 */
#ifndef MINIT_EXEC_H
#define MINIT_EXEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "frame.h"

enum { EXECS_MAX = 256 };

/* `is_run`: RUN, not EXEC. `is_serving`: a resident process has the container. */
void exec_start(struct conn *c, uint32_t id, struct cursor *body, bool is_run, bool is_serving);
void exec_input(struct conn *c, uint32_t id, struct cursor *body);
void exec_input_end(struct conn *c, uint32_t id);
void exec_resize(struct conn *c, uint32_t id, struct cursor *body);
void exec_kill(struct conn *c, uint32_t id, uint32_t signal);
bool exec_is_guard(pid_t pid);

void execs_event(uint32_t tag, uint32_t slot);
void execs_reaped(pid_t pid, int status, const struct rusage *usage);
void execs_turn(uint64_t now);
uint64_t execs_wake_us(void);
void execs_closed(struct conn *c);
bool execs_any(void);
/* A SOLE command ended in a way after which the container is not used again. */
bool execs_spoiled(void);

#endif
