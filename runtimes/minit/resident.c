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
#include "protocol.h"
#include "resident-state.h"

enum {
  READS_PER_EVENT = 4,
  BYTES_AT_END = 512 * 1024, /* more than a socket holds: a child that goes on writing is not waited for */
  KILL_AGAIN_US = 5000,
  HANG_UP_US = 100 * 1000,   /* between the end of the socket and that of the process, before it counts as a breach */
  CREDIT = 1024,             /* frames of the process in CREDIT_US, which bounds how often the daemon wakes for them */
  CREDIT_US = 8000,
};

struct resident resident = {.peer.fd = -1};
static bool is_spoiled;

bool resident_any(void) { return resident.state != NONE; }

bool resident_waits(void) { return resident.state == SERVING && resident.conn == NULL; }

bool resident_spoiled(void) { return is_spoiled; }

static void close_socket(void) {
  if (resident.peer.fd >= 0) close(resident.peer.fd);
  buf_free(&resident.peer.in);
  buf_free(&resident.peer.out);
  resident.peer = (struct conn){.fd = -1};
}

void resident_hang_up(void) {
  close_socket();
  resident.deadline_us = now_us() + HANG_UP_US;
}

void resident_end(uint32_t why, const struct call *late) {
  if (resident.state == NONE || resident.state == ENDING) return;
  resident_drain_sole();
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
    resident_send_result(call, 0, NULL, 0);
  }
  close_socket();
}

/* Requests */

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
  resident_send_log(NULL, LOG_OF_STDERR, (const uint8_t *)text, len);
  resident.ended_us = now_us();
  resident_end(RESULT_SPAWN_FAILED, NULL);
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
  resident.credit = CREDIT;
  resident.credit_us = 0;
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

void resident_take(struct conn *c, uint32_t id, const struct cursor *body) {
  if (body->left > 0) {
    c->dead = true;
  } else if (!resident_waits()) {
    bool has_other = resident.state == SERVING;
    send_error(c, id, has_other ? EBUSY : ESRCH, has_other ? "another connection has the process" : "no process serves");
  } else {
    resident.conn = c;
    resident.id = id;
    resident_send_open();
  }
}

bool resident_kill(const struct conn *c, uint32_t id) {
  if (resident.state == NONE || resident.conn != c || resident.id != id) return false;
  resident_end(RESULT_CANCELLED, NULL);
  return true;
}

/* The loop's turns */

void resident_event(uint32_t tag) {
  if (resident.state == NONE) return;
  if (tag == TAG_STDOUT || tag == TAG_STDERR) {
    /* R6: frames that came before this output are taken first. */
    size_t got = 0;
    for (int i = 0; i < READS_PER_EVENT && !resident_blocked() && resident_receive(&got); i++) continue;
    for (int i = 0; i < READS_PER_EVENT && !resident_blocked(); i++) {
      if (resident_read_output(tag == TAG_STDOUT ? 0 : 1) != READ_FULL) return;
    }
  } else if (tag == TAG_RESIDENT && resident_waits()) {
    resident_hang_up();
  } else if (tag == TAG_RESIDENT) {
    size_t got = 0;
    for (int i = 0; i < READS_PER_EVENT && !resident_blocked() && resident_receive(&got); i++) continue;
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
  resident_drain_output();
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
    resident_end(resident.state == OPENING && resident.peer.fd >= 0 ? RESULT_TIMED_OUT : RESULT_BROKEN, NULL);
    return;
  }
  for (int i = 0; i < resident.concurrency && resident.calls_count > 0; i++) {
    struct call *call = &resident.calls[i];
    if (call->id == 0 || now < call->deadline_us) continue;
    resident_end(RESULT_TIMED_OUT, call);
    return;
  }
}

/* The next read notices an end of the socket. */
static void flush(void) {
  if (resident.peer.fd >= 0) conn_flush(&resident.peer);
  if (!resident.peer.dead) return;
  resident.peer.dead = false;
  buf_free(&resident.peer.out);
}

/* While no daemon reads, only the end of the socket is watched. */
static bool watch(void) {
  uint32_t wanted = (resident_blocked() ? 0 : EPOLLIN) | (buf_len(&resident.peer.out) > 0 ? EPOLLOUT : 0);
  if (resident_waits()) wanted = EPOLLRDHUP;
  bool same = resident.peer.fd < 0 || wanted == resident.peer.events;
  int op = wanted == 0 ? EPOLL_CTL_DEL : resident.peer.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (!same && !server_watch(&server, op, resident.peer.fd, wanted, TAG_RESIDENT, RESIDENT_SLOT)) return false;
  if (!same) resident.peer.events = wanted;
  return proc_watch(&resident.proc, &server, RESIDENT_SLOT, !resident_blocked());
}

/* Frames that were read before come first. */
static void give_credit(int32_t credit) {
  resident.credit = credit;
  if (resident.state != ENDING && !resident_take_frames()) resident_end(RESULT_BROKEN, NULL);
}

void resident_turn(uint64_t now) {
  if (resident.state == NONE) return;
  if (now >= resident.credit_us) {
    resident.credit_us = now + CREDIT_US;
    give_credit(resident.credit > 0 ? CREDIT : resident.credit + CREDIT);
  }
  if (resident.state != ENDING && resident.proc.pid == 0) {
    size_t got = 0;
    give_credit(INT32_MAX);
    while (got < BYTES_AT_END && resident_receive(&got)) continue;
    resident_end(0, NULL);
  }
  if (resident.state != ENDING) check_deadlines(now);
  if (resident.state != ENDING) {
    flush();
    if (!watch()) resident_end(RESULT_CANCELLED, NULL);
    if (resident.conn != NULL && buf_len(&resident.peer.out) > CALL_QUEUE_MAX) resident.conn->held = true;
  }
  if (resident.state == ENDING) finish(now);
}

uint64_t resident_wake_us(void) {
  if (resident.state == NONE) return UINT64_MAX;
  if (resident.state == ENDING) return has_children ? resident.kill_us : 0;
  uint64_t wake = resident.deadline_us;
  if (resident.credit <= 0 && resident.credit_us < wake) wake = resident.credit_us;
  for (int i = 0; i < resident.concurrency && resident.calls_count > 0; i++) {
    const struct call *call = &resident.calls[i];
    if (call->id != 0 && call->deadline_us < wake) wake = call->deadline_us;
  }
  return wake;
}

void resident_closed(struct conn *c) {
  if (resident.state == NONE || resident.conn != c) return;
  resident.conn = NULL;
  bool stays = resident.state == SERVING && resident.calls_count == 0 && resident.peer.fd >= 0 && resident.proc.pid > 0;
  if (!stays || !watch()) resident_end(RESULT_CANCELLED, NULL);
}
