/*
 * The frames between the daemon and a resident process, checked in both directions, and the process's output. Leaves to
 * resident.c the life of the process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "pid1.h"
#include "protocol.h"
#include "resident-state.h"
#include "resident.h"

enum {
  CONTENT_HEAD_MAX = 8, /* of the process's frames, before the content */
  FRAME_COST = 1,
  PIECE_COST = 3,       /* of each CALL_CHUNK and CALL_LOG to the daemon, also: a call may have any number of them */
  COST_BYTES = 64,      /* of the instance's log, which has no cap, cost 1 more */
};

static struct call *find_call(uint32_t id) {
  for (int i = 0; i < resident.concurrency; i++) {
    if (resident.calls[i].id == id) return &resident.calls[i];
  }
  return NULL;
}

bool resident_blocked(void) {
  return resident.credit <= 0 || resident.conn == NULL || buf_len(&resident.conn->out) > OUT_PAUSE;
}

void resident_send_result(struct call *call, uint32_t status, const uint8_t *bytes, size_t len) {
  struct wire_result result = {.flags = call->flags, .status = status, .duration_us = now_us() - call->started_us};
  conn_send(resident.conn, CALL_RESULT, call->id, &result, sizeof result, bytes, len);
  call->id = 0;
  resident.calls_count--;
}

static void charge(size_t cost) { resident.credit -= (int32_t)cost; }

/* Logs */

static uint32_t within(uint32_t *left, size_t len, uint32_t flag, struct call *call) {
  uint32_t kept = len > *left ? *left : (uint32_t)len;
  if (kept < len) call->flags |= flag;
  *left -= kept;
  return kept;
}

/* `id`: of the call, or if `call` is NULL, of one that was answered, or 0. */
static void send_log(struct call *call, uint32_t id, uint8_t stream, const uint8_t *bytes, size_t len) {
  size_t kept = call == NULL ? len : within(&call->log_left, len, RESULT_STDERR_TRUNCATED, call);
  if (kept == 0) return;
  struct wire_call_log head = {.stream = stream};
  charge(PIECE_COST + (call == NULL ? kept / COST_BYTES : 0));
  conn_send(resident.conn, CALL_LOG, id, &head, sizeof head, bytes, kept);
}

void resident_send_log(struct call *call, uint8_t stream, const uint8_t *bytes, size_t len) {
  send_log(call, call == NULL ? 0 : call->id, stream, bytes, len);
}

/* Returns the call that standard output and error belong to; NULL: the instance. */
static struct call *sole_call(void) {
  if (resident.calls_count != 1) return NULL;
  struct call *call = resident.calls;
  while (call->id == 0) call++;
  return call;
}

enum proc_read resident_read_output(int stream) {
  const uint8_t *bytes;
  size_t len;
  enum proc_read got = proc_read(&resident.proc, stream, &bytes, &len);
  if (len > 0) resident_send_log(sole_call(), (uint8_t)(LOG_OF_STDOUT + stream), bytes, len);
  return got;
}

void resident_drain_output(void) {
  for (int stream = 0; stream < 2; stream++) {
    if (resident_read_output(stream) != READ_FULL) continue;
    int left = proc_reads_left(&resident.proc, stream) - 1;
    while (left-- > 0 && resident_read_output(stream) == READ_FULL) continue;
  }
}

void resident_drain_sole(void) {
  if (resident.calls_count == 1 || resident.calls_count == 2) resident_drain_output();
}

/* Frames of the process */

void resident_send_open(void) {
  struct wire_opened opened = {(uint32_t)resident.proc.pid, resident.open_us};
  conn_send(resident.conn, CALL_OPEN, resident.id, &opened, sizeof opened, NULL, 0);
}

static bool take_open(uint32_t id, struct cursor *body) {
  uint32_t version;
  if (resident.state != OPENING || id != 0 || !take_bytes(body, &version, sizeof version)) return false;
  if (version != CALL_VERSION || body->left > 0) return false;
  resident.state = SERVING;
  resident.deadline_us = UINT64_MAX;
  resident.open_us = now_us() - resident.proc.started_us;
  resident_send_open();
  return true;
}

/* R4. Returns false for a frame that the process may not send. */
static bool take_frame(uint8_t type, uint32_t id, struct cursor *body) {
  if (type == CALL_OPEN) return take_open(id, body);
  if (resident.state != SERVING) return false;
  struct call *call = id == 0 ? NULL : find_call(id);
  if (type == CALL_LOG) {
    struct wire_call_log log;
    if (!take_bytes(body, &log, sizeof log) || body->left > CALL_CHUNK_MAX) return false;
    if (log.stream != LOG_OF_STDOUT && log.stream != LOG_OF_STDERR) return false;
    send_log(call, call == NULL ? id : call->id, log.stream, body->at, body->left);
    return true;
  }
  uint32_t status = 0;
  if (call == NULL || (type != CALL_CHUNK && type != CALL_RESULT)) return false;
  if (type == CALL_RESULT && !take_bytes(body, &status, sizeof status)) return false;
  if (body->left > CALL_CHUNK_MAX) return false;
  uint32_t kept = within(&call->result_left, body->left, RESULT_TRUNCATED, call);
  if (type == CALL_CHUNK) {
    if (kept == 0) return true;
    charge(PIECE_COST);
    conn_send(resident.conn, CALL_CHUNK, id, body->at, kept, NULL, 0);
    return true;
  }
  resident_drain_sole();
  resident_send_result(call, status, body->at, kept);
  return true;
}

bool resident_take_frames(void) {
  struct buf *in = &resident.peer.in;
  while (buf_len(in) >= 4 && resident.credit > 0) {
    const uint8_t *at = in->data + in->start;
    uint32_t len, id;
    memcpy(&len, at, sizeof len);
    if (len < FRAME_HEAD - 4 || len > FRAME_HEAD - 4 + CONTENT_HEAD_MAX + CALL_CHUNK_MAX) return false;
    if (buf_len(in) < 4 + (size_t)len) {
      if (!buf_reserve(in, 4 + len - buf_len(in))) resident_end(RESULT_CANCELLED, NULL);
      break;
    }
    memcpy(&id, at + 5, sizeof id);
    struct cursor body = {.at = at + FRAME_HEAD, .left = len - (FRAME_HEAD - 4)};
    charge(FRAME_COST);
    if (!take_frame(at[4], id, &body)) return false;
    buf_take(in, 4 + (size_t)len);
  }
  return true;
}

bool resident_receive(size_t *got) {
  struct buf *in = &resident.peer.in;
  if (resident.peer.fd < 0 || resident.state == ENDING) return false;
  if (!buf_reserve(in, 1)) {
    resident_end(RESULT_CANCELLED, NULL);
    return false;
  }
  size_t room = in->cap - in->end;
  ssize_t n = recv(resident.peer.fd, in->data + in->end, room, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    resident_hang_up();
    return false;
  }
  in->end += (size_t)n;
  *got += (size_t)n;
  if (!resident_take_frames()) resident_end(RESULT_BROKEN, NULL);
  return (size_t)n == room;
}

/* Frames of the daemon */

static void queue(uint8_t type, uint32_t id, const void *head, size_t head_len, const struct cursor *body) {
  conn_send(&resident.peer, type, id, head, head_len, body->at, body->left);
  if (buf_len(&resident.peer.out) > CALL_QUEUE_MAX) resident.conn->held = true;
  if (resident.peer.dead) resident_end(RESULT_CANCELLED, NULL);
}

static void begin_call(struct conn *c, uint32_t id, struct cursor *body) {
  struct wire_call wire;
  bool read = take_bytes(body, &wire, sizeof wire) && body->left <= CALL_CHUNK_MAX;
  if (!read || id == 0 || find_call(id) != NULL) {
    c->dead = true;
    return;
  }
  struct call *call = find_call(0);
  if (call == NULL || resident.state == OPENING) {
    send_error(c, id, EBUSY, call == NULL ? "too many calls" : "the process is not open");
    return;
  }
  /* With at most one call in flight, the output in the pipes does not belong to the new call. */
  if (resident.calls_count <= 1 && !resident_blocked()) resident_drain_output();
  uint64_t now = now_us();
  *call = (struct call){
      .id = id,
      .is_fed = (wire.flags & CALL_MORE) == 0,
      .started_us = now,
      .deadline_us = wire.timeout_ms == 0 ? UINT64_MAX : now + (uint64_t)wire.timeout_ms * 1000,
      .result_left = wire.result_max,
      .log_left = wire.log_max,
  };
  resident.calls_count++;
  uint32_t head[] = {wire.flags & CALL_MORE, wire.timeout_ms};
  queue(CALL_BEGIN, id, head, sizeof head, body);
}

void resident_request(struct conn *c, uint8_t type, uint32_t id, struct cursor *body) {
  if (resident.conn != c || resident.state == NONE || resident.state == ENDING) {
    /* The daemon may send until it has read EXIT. */
    if (type == CALL_BEGIN) send_error(c, id, ESRCH, "no process serves");
    return;
  }
  if (type == CALL_BEGIN) {
    begin_call(c, id, body);
    return;
  }
  struct call *call = id == 0 ? NULL : find_call(id);
  if (body->left > CALL_CHUNK_MAX || (type == CALL_END && body->left > 0) || (call != NULL && call->is_fed)) {
    c->dead = true;
    return;
  }
  /* The call may have ended before all of its request was sent. */
  if (call == NULL) return;
  call->is_fed = type == CALL_END;
  queue(type, id, NULL, 0, body);
}

