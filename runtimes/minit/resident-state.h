/* State shared by resident.c and resident-frames.c: the resident process and its calls in flight. */
#ifndef MINIT_RESIDENT_STATE_H
#define MINIT_RESIDENT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"
#include "proc.h"
#include "protocol.h"

enum resident_state { NONE, OPENING, SERVING, ENDING };

struct call {
  uint32_t id; /* 0: free */
  uint32_t flags; /* of its CALL_RESULT */
  bool is_fed; /* CALL_END came, or nothing follows CALL_BEGIN */
  uint64_t started_us, deadline_us;
  uint32_t result_left, log_left;
};

struct resident {
  enum resident_state state;
  struct conn *conn; /* NULL: the connection is gone; while SERVING, another one may take the process over */
  uint32_t id, result;
  struct proc proc;
  struct conn peer; /* the socket of the process; `fd` -1: closed */
  int concurrency, calls_count;
  struct call calls[CALLS_MAX];
  uint64_t open_us;     /* from SERVE to CALL_OPEN */
  uint64_t deadline_us; /* of CALL_OPEN, later of the process's end after that of its socket */
  uint64_t kill_us;
  int32_t credit;     /* frames that the process may send; below 0: a debt */
  uint64_t credit_us; /* when there is more */
  struct ending ending;
  uint64_t ended_us;
};

extern struct resident resident;

/* R2, R3: ends the process and all calls. `late`: the call whose deadline passed. */
void resident_end(uint32_t why, const struct call *late);
/* Closes the socket. The process may outlive it only for HANG_UP_US. */
void resident_hang_up(void);

/* resident-frames.c */

/* F1: frames and output of the process wait while no daemon reads them, and without credit. */
bool resident_blocked(void);
/* Sends CALL_OPEN. */
void resident_send_open(void);
/* Sends CALL_RESULT. The call is in flight no more. */
void resident_send_result(struct call *call, uint32_t status, const uint8_t *bytes, size_t len);
/* `call` NULL: the log of the instance. */
void resident_send_log(struct call *call, uint8_t stream, const uint8_t *bytes, size_t len);
/* Reads a pipe of the process once. */
enum proc_read resident_read_output(int stream);
/* Reads what the pipes hold now. */
void resident_drain_output(void);
/* R6: reads the output of the only call in flight before it ends, and of the instance before a call is the only one. */
void resident_drain_sole(void);
/* Reads the socket once and adds the bytes to `got`. Returns true if more may wait. */
bool resident_receive(size_t *got);
/* Passes on all complete frames. Returns false at a frame that is not allowed. */
bool resident_take_frames(void);

#endif
