/*
 * The main command of an API container, its log and its exit record, none of which needs the daemon. Leaves commands
 * that the daemon asks for to exec.c.
 *
 * M1 The container ends when its main command has ended or when it is asked to: everything in it is killed, what lies
 *    in the pipes is logged, the exit record is written, and PID 1 exits with the same code.
 * M2 Without a main command it runs until it is asked to end.
 * M3 The record is emptied at the start: what is in it is about this run.
 * M4 With a user (identity.h) commands run as that one, unless the daemon asks for another one. A user that is not found ends
 *    the container at once.
 * M5 A container whose main command could not be started greets nobody: a connection to it ends without READY, after the
 *    exit record is written. Whoever started it thereby learns of the end and never takes it for a running one.
 * M6 At most one connection is attached: it gets the output as it is written, and the log gets it too. A reader that does not
 *    take it holds the command back by its pipes, and nothing else. Without a reader nothing waits: output goes to the log.
 * M7 Where the start asks for it, output waits in the pipes until somebody is attached, `hold_ms` at most, also that of a
 *    command that has ended meanwhile: none of it is lost to the first reader.
 * M8 The end waits for a reader that takes what is left, but for DRAIN_ASKED_US at most once the container is asked to end.
 * M9 Only the reader for whom output waited (M7) holds the command back for as long as it likes. Another one that takes nothing
 *    for `stall_ms` is told so by ERROR and detached.
 */
#ifndef MINIT_CONTAINER_H
#define MINIT_CONTAINER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "exec.h"
#include "protocol.h"

enum {
  LOG_FD = 4, /* the first of LOG_SEGMENTS */
  RECORD_FD = LOG_FD + LOG_SEGMENTS,
  CONTAINER_FDS_END,
  CONTAINER_SLOT = EXECS_MAX, /* of the main command's events */
};

struct container_options {
  const char *user;   /* as of identity_find; NULL: root */
  bool finds_home;    /* environments without HOME get the user's home directory */
  bool drops_home;    /* HOME of this process's environment is the OCI runtime's, and none of the container's */
  bool is_restricted; /* no command has a capability, root neither */
  uint32_t hold_ms;   /* M7; 0: output does not wait */
  uint32_t stall_ms;  /* M9; 0: without a bound */
  bool has_stdin;     /* of the main command, from the first reader; else it is /dev/null */
};

/* Starts the main command, if there is one (argv not NULL), with this process's environment and directory. */
void container_start(char **argv, const struct container_options *options);
/* Signals the main command. Returns 0 or an errno. */
int container_signal(uint32_t signal);
/* Ends the container by force. */
void container_kill(void);
bool container_is_ending(void);
/* The main command could not be started: nobody is greeted (M5). */
bool container_is_refused(void);
void container_reaped(pid_t pid, int status);
void container_event(uint32_t tag);
/* MAIN_ATTACH, and the input that follows. Returns false where `id` is not that of the attached reader. */
void container_attach(struct conn *c, uint32_t id, struct cursor *body);
bool container_input(struct conn *c, uint32_t id, const struct cursor *body);
bool container_input_end(const struct conn *c, uint32_t id);
void container_closed(const struct conn *c);
void container_turn(uint64_t now);
uint64_t container_wake_us(void);

#endif
