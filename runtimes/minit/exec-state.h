/* State shared by exec.c and exec-output.c: a requested command, and its output on the way to the requester. */
#ifndef MINIT_EXEC_STATE_H
#define MINIT_EXEC_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"
#include "proc.h"

enum { SUBJECT_MAX = 208 }; /* of a command's name and directory, what a failed start names */

enum state { FREE, STARTING, RUNNING, ENDED, WIPING };

struct exec {
  enum state state;
  struct proc proc;
  struct conn *conn; /* NULL: the connection is gone and nobody is told */
  uint32_t id, flags, result, grace_ms;
  struct buf gathered[2];
  int reads_left[2]; /* of an ended command's pipes; -1: not known yet */
  uint64_t deadline_us, kill_us; /* UINT64_MAX: none; kill_us is set while the tree is being ended */
  bool tells_start;
  uint32_t early_signal; /* came before the command ran; 0: none */
  char name[SUBJECT_MAX], cwd[SUBJECT_MAX];
  int kill_rounds;
  struct ending ending;
  uint64_t ended_us;
};

/* True while output is read. The output of a command without a connection is not read: it ends, unless detached. */
bool exec_wants_output(const struct exec *e);
/* Sends what was gathered, and these bytes. */
void exec_send_output(struct exec *e, int stream, const uint8_t *bytes, size_t len);
/* Reads a stream once, to be sent at once or gathered. */
enum proc_read exec_forward(struct exec *e, int stream);
/* Reads what is in the pipes of an ended command, never waiting for their end. False: the reader is too slow. */
bool exec_drain(struct exec *e);

#endif
