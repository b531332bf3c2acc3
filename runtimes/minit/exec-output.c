#define _GNU_SOURCE
#include <unistd.h>

#include "exec-state.h"
#include "pid1.h"
#include "protocol.h"

static bool is_blocked(const struct exec *e) { return e->conn != NULL && buf_len(&e->conn->out) > OUT_PAUSE; }

bool exec_wants_output(const struct exec *e) {
  return (e->conn != NULL || (e->flags & EXEC_DETACHED)) && !is_blocked(e);
}

void exec_send_output(struct exec *e, int stream, const uint8_t *bytes, size_t len) {
  struct buf *gathered = &e->gathered[stream];
  size_t before = buf_len(gathered);
  if (before + len == 0) return;
  uint8_t type = stream == 0 ? STDOUT : STDERR;
  const uint8_t *first = before == 0 ? NULL : gathered->data + gathered->start;
  if (before + len <= OUTPUT_FRAME_MAX) {
    conn_send(e->conn, type, e->id, first, before, bytes, len);
  } else {
    conn_send(e->conn, type, e->id, first, before, NULL, 0);
    conn_send(e->conn, type, e->id, bytes, len, NULL, 0);
  }
  buf_take(gathered, before);
}

/* One read, straight into what is to be sent. */
static enum proc_read forward_stream(struct exec *e, int stream) {
  uint8_t *room = conn_room(e->conn, OUTPUT_FRAME_MAX);
  if (room == NULL) return READ_NONE;
  size_t len;
  enum proc_read got = proc_read_into(&e->proc, stream, room, OUTPUT_FRAME_MAX, &len);
  if (len > 0) conn_commit(e->conn, stream == 0 ? STDOUT : STDERR, e->id, len);
  return got;
}

enum proc_read exec_forward(struct exec *e, int stream) {
  if ((e->flags & EXEC_STREAM) && e->conn != NULL) return forward_stream(e, stream);
  const uint8_t *bytes;
  size_t len;
  enum proc_read got = proc_read(&e->proc, stream, &bytes, &len);
  if (len == 0 || e->conn == NULL) return got;
  bool full = buf_len(&e->gathered[stream]) + len >= OUTPUT_FRAME_MAX;
  if (full || !buf_append(&e->gathered[stream], bytes, len)) exec_send_output(e, stream, bytes, len);
  return got;
}

bool exec_drain(struct exec *e) {
  for (int stream = 0; stream < 2; stream++) {
    int *fd = &e->proc.out_fd[stream], *left = &e->reads_left[stream];
    /* A background process may go on writing, so what the pipe holds at once is the bound. */
    for (bool more = *fd >= 0 && e->conn != NULL; more && *left != 0;) {
      if (is_blocked(e)) return false;
      const uint8_t *bytes;
      size_t len;
      enum proc_read got = proc_read(&e->proc, stream, &bytes, &len);
      exec_send_output(e, stream, bytes, len);
      more = got == READ_FULL || (got == READ_SOME && e->proc.is_terminal);
      if (more && *left < 0) *left = proc_reads_left(&e->proc, stream);
      if (*left > 0) --*left;
    }
    exec_send_output(e, stream, NULL, 0);
    if (*fd >= 0) close(*fd);
    *fd = -1;
    e->proc.out_watched[stream] = false;
  }
  return true;
}
