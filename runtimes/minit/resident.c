#define _GNU_SOURCE
#include "resident.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pid1.h"
#include "proc.h"
#include "protocol.h"

enum {
  READS_PER_EVENT = 4,
  BYTES_AT_END = 512 * 1024, /* more than a socket holds: a child that goes on writing is not waited for */
  KILL_AGAIN_US = 5000,
  HANG_UP_US = 100 * 1000,   /* between the end of the socket and that of the process, before it counts as a breach */
  CONTENT_HEAD_MAX = 8,      /* of the process's frames, before the content */
  FRAMES_MAX = 128,          /* of the process in FRAMES_US: each costs the daemon time, however small it is */
  FRAMES_US = 1000,
};

enum state { NONE, OPENING, SERVING, ENDING };

struct call {
  uint32_t id; /* 0: free */
  uint32_t flags; /* of its CALL_RESULT */
  bool is_fed; /* CALL_END came, or nothing follows CALL_BEGIN */
  uint64_t started_us, deadline_us;
  uint32_t result_left, log_left;
};

static struct {
  enum state state;
  struct conn *conn; /* NULL: the connection is gone */
  uint32_t id, result;
  struct proc proc;
  struct conn peer; /* the socket of the process; `fd` -1: closed */
  int concurrency, calls_count;
  struct call calls[CALLS_MAX];
  uint64_t deadline_us; /* of CALL_OPEN, later of the process's end after that of its socket */
  uint64_t kill_us;
  uint32_t frames_left; /* until `frames_us` */
  uint64_t frames_us;
  struct ending ending;
  uint64_t ended_us;
} resident = {.peer.fd = -1};
static bool is_spoiled;

bool resident_any(void) { return resident.state != NONE; }

bool resident_spoiled(void) { return is_spoiled; }

static struct call *find_call(uint32_t id) {
  for (int i = 0; i < resident.concurrency; i++) {
    if (resident.calls[i].id == id) return &resident.calls[i];
  }
  return NULL;
}

/* F1: frames of the process wait while the daemon does not read, and after FRAMES_MAX of them. */
static bool is_blocked(void) {
  return resident.frames_left == 0 || (resident.conn != NULL && buf_len(&resident.conn->out) > OUT_PAUSE);
}

static void send_result(struct call *call, uint32_t status, const uint8_t *bytes, size_t len) {
  struct wire_result result = {.flags = call->flags, .status = status, .duration_us = now_us() - call->started_us};
  conn_send(resident.conn, CALL_RESULT, call->id, &result, sizeof result, bytes, len);
  call->id = 0;
  resident.calls_count--;
}

static void close_socket(void) {
  if (resident.peer.fd >= 0) close(resident.peer.fd);
  buf_free(&resident.peer.in);
  buf_free(&resident.peer.out);
  resident.peer = (struct conn){.fd = -1};
}

static void drain_output_of_sole(void);

/* R2, R3. `late`: the call whose deadline passed. */
static void end(uint32_t why, const struct call *late) {
  if (resident.state == NONE || resident.state == ENDING) return;
  drain_output_of_sole();
  resident.state = ENDING;
  resident.result |= why != 0 || !has_children ? why : RESULT_STRAYS;
  /* Kills before it closes the socket: the process would notice the end of the socket. */
  if (has_children) kill(-1, SIGKILL);
  resident.kill_us = now_us() + KILL_AGAIN_US;
  is_spoiled = true;
  for (int i = 0; i < resident.concurrency; i++) {
    struct call *call = &resident.calls[i];
    if (call->id == 0) continue;
    call->flags |= call == late ? RESULT_TIMED_OUT : RESULT_CANCELLED;
    send_result(call, 0, NULL, 0);
  }
  close_socket();
}

/* Logs */

static uint32_t within(uint32_t *left, size_t len, uint32_t flag, struct call *call) {
  uint32_t kept = len > *left ? *left : (uint32_t)len;
  if (kept < len) call->flags |= flag;
  *left -= kept;
  return kept;
}

static void send_log(struct call *call, uint8_t stream, const uint8_t *bytes, size_t len) {
  size_t kept = call == NULL ? len : within(&call->log_left, len, RESULT_STDERR_TRUNCATED, call);
  struct wire_call_log head = {.stream = stream};
  if (kept > 0) conn_send(resident.conn, CALL_LOG, call == NULL ? 0 : call->id, &head, sizeof head, bytes, kept);
}

/* Returns the call that standard output and error belong to; NULL: the instance. */
static struct call *sole_call(void) {
  if (resident.calls_count != 1) return NULL;
  struct call *call = resident.calls;
  while (call->id == 0) call++;
  return call;
}

static enum proc_read read_output(int stream) {
  const uint8_t *bytes;
  size_t len;
  enum proc_read got = proc_read(&resident.proc, stream, &bytes, &len);
  if (len > 0) send_log(sole_call(), (uint8_t)(LOG_OF_STDOUT + stream), bytes, len);
  return got;
}

/* Reads what the pipes hold now. */
static void drain_output(void) {
  for (int stream = 0; stream < 2; stream++) {
    if (read_output(stream) != READ_FULL) continue;
    for (int left = proc_reads_left(&resident.proc, stream); left > 1 && read_output(stream) == READ_FULL; left--) continue;
  }
}

/* Before that call ends or another one begins: the pipes hold its output. */
static void drain_output_of_sole(void) {
  if (resident.calls_count == 1) drain_output();
}

/* Frames of the process */

static bool take_open(uint32_t id, struct cursor *body) {
  uint32_t version;
  if (resident.state != OPENING || id != 0 || !take_bytes(body, &version, sizeof version)) return false;
  if (version != CALL_VERSION || body->left > 0) return false;
  struct wire_opened opened = {(uint32_t)resident.proc.pid, now_us() - resident.proc.started_us};
  resident.state = SERVING;
  resident.deadline_us = UINT64_MAX;
  conn_send(resident.conn, CALL_OPEN, resident.id, &opened, sizeof opened, NULL, 0);
  return true;
}

/* R4. Returns false for a frame that the process may not send. */
static bool take_frame(uint8_t type, uint32_t id, struct cursor *body) {
  if (type == CALL_OPEN) return take_open(id, body);
  if (resident.state != SERVING) return false;
  struct call *call = id == 0 ? NULL : find_call(id);
  if (type == CALL_LOG) {
    struct wire_call_log log;
    if (!take_bytes(body, &log, sizeof log) || body->left > CALL_CHUNK_MAX || (id != 0 && call == NULL)) return false;
    if (log.stream != LOG_OF_STDOUT && log.stream != LOG_OF_STDERR) return false;
    send_log(call, log.stream, body->at, body->left);
    return true;
  }
  uint32_t status = 0;
  if (call == NULL || (type != CALL_CHUNK && type != CALL_RESULT)) return false;
  if (type == CALL_RESULT && !take_bytes(body, &status, sizeof status)) return false;
  if (body->left > CALL_CHUNK_MAX) return false;
  uint32_t kept = within(&call->result_left, body->left, RESULT_TRUNCATED, call);
  if (type == CALL_CHUNK) {
    if (kept > 0) conn_send(resident.conn, CALL_CHUNK, id, body->at, kept, NULL, 0);
    return true;
  }
  drain_output_of_sole();
  send_result(call, status, body->at, kept);
  return true;
}

/* Passes on all complete frames. Returns false at a frame that is not allowed. */
static bool take_frames(void) {
  struct buf *in = &resident.peer.in;
  while (buf_len(in) >= 4 && resident.frames_left > 0) {
    const uint8_t *at = in->data + in->start;
    uint32_t len, id;
    memcpy(&len, at, sizeof len);
    if (len < FRAME_HEAD - 4 || len > FRAME_HEAD - 4 + CONTENT_HEAD_MAX + CALL_CHUNK_MAX) return false;
    if (buf_len(in) < 4 + (size_t)len) {
      if (!buf_reserve(in, 4 + len - buf_len(in))) end(RESULT_CANCELLED, NULL);
      break;
    }
    memcpy(&id, at + 5, sizeof id);
    struct cursor body = {.at = at + FRAME_HEAD, .left = len - (FRAME_HEAD - 4)};
    resident.frames_left--;
    if (!take_frame(at[4], id, &body)) return false;
    buf_take(in, 4 + (size_t)len);
  }
  return true;
}

/* Reads once and adds the bytes to `got`. Returns true if more may wait. */
static bool receive(size_t *got) {
  struct buf *in = &resident.peer.in;
  if (resident.peer.fd < 0 || resident.state == ENDING) return false;
  if (!buf_reserve(in, 1)) {
    end(RESULT_CANCELLED, NULL);
    return false;
  }
  size_t room = in->cap - in->end;
  ssize_t n = recv(resident.peer.fd, in->data + in->end, room, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    close_socket();
    resident.deadline_us = now_us() + HANG_UP_US;
    return false;
  }
  in->end += (size_t)n;
  *got += (size_t)n;
  if (!take_frames()) end(RESULT_BROKEN, NULL);
  return (size_t)n == room;
}

/* The next read notices an end of the socket. */
static void flush(void) {
  if (resident.peer.fd >= 0) conn_flush(&resident.peer);
  if (!resident.peer.dead) return;
  resident.peer.dead = false;
  buf_free(&resident.peer.out);
}

/* Requests */

static void queue(uint8_t type, uint32_t id, const void *head, size_t head_len, const struct cursor *body) {
  conn_send(&resident.peer, type, id, head, head_len, body->at, body->left);
  if (buf_len(&resident.peer.out) > CALL_QUEUE_MAX) resident.conn->held = true;
  if (resident.peer.dead) end(RESULT_CANCELLED, NULL);
}

static const char *why_refused(const struct wire_serve *request, bool is_taken, int *error) {
  *error = EINVAL;
  if (request->argc == 0) return "no command";
  if (request->concurrency == 0 || request->concurrency > CALLS_MAX) return "no such concurrency";
  *error = EBUSY;
  return is_taken || resident_any() || is_spoiled ? "the container is in use" : NULL;
}

static void fail_start(const struct command *command) {
  char text[512];
  size_t len = proc_failure(&resident.proc, command, text, sizeof text);
  send_log(NULL, LOG_OF_STDERR, (const uint8_t *)text, len);
  resident.ended_us = now_us();
  end(RESULT_SPAWN_FAILED, NULL);
}

void resident_serve(struct conn *c, uint32_t id, struct cursor *body, bool is_taken) {
  struct wire_serve request;
  struct command command;
  if (!take_bytes(body, &request, sizeof request) || !command_read(body, request.argc, request.envc, &command)) {
    c->dead = true;
    return;
  }
  int error, ends[2] = {-1, -1};
  const char *refusal = why_refused(&request, is_taken, &error);
  if (refusal == NULL && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    error = errno;
    refusal = "no socket";
  }
  if (refusal != NULL) {
    send_error(c, id, error, refusal);
    return;
  }
  memset(resident.calls, 0, sizeof resident.calls);
  resident.state = OPENING;
  resident.conn = c;
  resident.id = id;
  resident.result = 0;
  resident.proc = (struct proc){.out_left = {UINT32_MAX, UINT32_MAX}};
  resident.peer = (struct conn){.fd = ends[0]};
  resident.concurrency = request.concurrency;
  resident.calls_count = 0;
  resident.frames_left = FRAMES_MAX;
  resident.frames_us = 0;
  resident.deadline_us = request.timeout_ms == 0 ? UINT64_MAX : now_us() + (uint64_t)request.timeout_ms * 1000;
  resident.ending = (struct ending){0};
  struct start start = {
      .command = &command,
      .refused = restore_files_limit() ? 0 : EMFILE,
      .null_fd = STDIN_FILENO,
      .passed = &ends[1],
      .passed_count = 1,
  };
  bool started = proc_start(&resident.proc, &start);
  close(ends[1]);
  if (!started) {
    fail_start(&command);
    return;
  }
  has_children = true;
  resident.proc.watch_us = 0;
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
  /* With a call in flight, or none, the pipes hold output that is not of this one. */
  if (resident.calls_count <= 1 && !is_blocked()) drain_output();
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

bool resident_kill(const struct conn *c, uint32_t id) {
  if (resident.state == NONE || resident.conn != c || resident.id != id) return false;
  end(RESULT_CANCELLED, NULL);
  return true;
}

/* The loop's turns */

void resident_event(uint32_t tag) {
  if (resident.state == NONE) return;
  if (tag == TAG_STDOUT || tag == TAG_STDERR) {
    for (int i = 0; i < READS_PER_EVENT && !is_blocked(); i++) {
      if (read_output(tag == TAG_STDOUT ? 0 : 1) != READ_FULL) return;
    }
  } else if (tag == TAG_RESIDENT) {
    size_t got = 0;
    for (int i = 0; i < READS_PER_EVENT && !is_blocked() && receive(&got); i++) continue;
  }
}

void resident_reaped(pid_t pid, int status, const struct rusage *usage) {
  if (resident.state == NONE || pid != resident.proc.pid) return;
  resident.proc.pid = 0;
  resident.ending = proc_ending(status, usage);
  resident.ended_us = now_us();
}

/* Kills until no process is left, then sends the rest of the output and EXIT. */
static void finish(uint64_t now) {
  if (has_children) {
    proc_watch(&resident.proc, &server, RESIDENT_SLOT, false);
    if (now < resident.kill_us) return;
    kill(-1, SIGKILL);
    resident.kill_us = now + KILL_AGAIN_US;
    return;
  }
  drain_output();
  proc_close(&resident.proc);
  int status = resident.ending.status;
  bool failed = (resident.result & RESULT_SPAWN_FAILED) != 0;
  bool missing = failed && resident.proc.error == ENOENT && *resident.proc.failed_at == 0;
  struct wire_exit exit = {
      .exit_code = failed ? (missing ? 127 : 126) : exit_code_of(status),
      .signal = !failed && WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0,
      .flags = resident.result,
      .error = (uint32_t)resident.proc.error,
      .duration_us = resident.ended_us - resident.proc.started_us,
      .cpu_us = resident.ending.cpu_us,
      .maxrss_kb = resident.ending.maxrss_kb,
      .spawn_us = resident.proc.spawn_us,
  };
  conn_send(resident.conn, EXIT, resident.id, &exit, sizeof exit, NULL, 0);
  resident.state = NONE;
  proc_trim();
}

static void check_deadlines(uint64_t now) {
  if (now >= resident.deadline_us) {
    end(resident.state == OPENING && resident.peer.fd >= 0 ? RESULT_TIMED_OUT : RESULT_BROKEN, NULL);
    return;
  }
  for (int i = 0; i < resident.concurrency && resident.calls_count > 0; i++) {
    struct call *call = &resident.calls[i];
    if (call->id == 0 || now < call->deadline_us) continue;
    end(RESULT_TIMED_OUT, call);
    return;
  }
}

static bool watch(void) {
  uint32_t wanted = (is_blocked() ? 0 : EPOLLIN) | (buf_len(&resident.peer.out) > 0 ? EPOLLOUT : 0);
  bool same = resident.peer.fd < 0 || wanted == resident.peer.events;
  int op = wanted == 0 ? EPOLL_CTL_DEL : resident.peer.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (!same && !server_watch(&server, op, resident.peer.fd, wanted, TAG_RESIDENT, RESIDENT_SLOT)) return false;
  if (!same) resident.peer.events = wanted;
  return proc_watch(&resident.proc, &server, RESIDENT_SLOT, !is_blocked());
}

/* Lets the process send `count` frames more. Those that were read before come first. */
static void allow_frames(uint32_t count) {
  resident.frames_left = count;
  if (resident.state != ENDING && !take_frames()) end(RESULT_BROKEN, NULL);
}

void resident_turn(uint64_t now) {
  if (resident.state == NONE) return;
  if (now >= resident.frames_us) {
    resident.frames_us = now + FRAMES_US;
    allow_frames(FRAMES_MAX);
  }
  if (resident.state != ENDING && resident.proc.pid == 0) {
    size_t got = 0;
    allow_frames(UINT32_MAX);
    while (got < BYTES_AT_END && receive(&got)) continue;
    end(0, NULL);
  }
  if (resident.state != ENDING) check_deadlines(now);
  if (resident.state != ENDING) {
    flush();
    if (!watch()) end(RESULT_CANCELLED, NULL);
    if (resident.conn != NULL && buf_len(&resident.peer.out) > CALL_QUEUE_MAX) resident.conn->held = true;
  }
  if (resident.state == ENDING) finish(now);
}

uint64_t resident_wake_us(void) {
  if (resident.state == NONE) return UINT64_MAX;
  if (resident.state == ENDING) return has_children ? resident.kill_us : 0;
  uint64_t wake = resident.deadline_us;
  if (resident.frames_left == 0 && resident.frames_us < wake) wake = resident.frames_us;
  for (int i = 0; i < resident.concurrency && resident.calls_count > 0; i++) {
    const struct call *call = &resident.calls[i];
    if (call->id != 0 && call->deadline_us < wake) wake = call->deadline_us;
  }
  return wake;
}

void resident_closed(struct conn *c) {
  if (resident.state == NONE || resident.conn != c) return;
  resident.conn = NULL;
  end(RESULT_CANCELLED, NULL);
}
