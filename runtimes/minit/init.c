/*
 * PID 1 of a container: runs commands for the daemon, reaps, ends process trees, wipes. It runs as the container's
 * own unprivileged uid beside untrusted commands, so it trusts nothing that a command can touch.
 *
 * I1 kill(-1) is sent only as PID 1 of a pid namespace: init_main refuses to run as anything else.
 * I2 At most one SOLE command exists; it owns the container from EXEC to IDLE, and whatever else runs dies with it.
 * I3 EXIT is sent after the last byte of output; for a SOLE command also after every other process is gone.
 * I4 Nothing here waits: killing, draining and wiping go on in turns of the loop, and PING is answered meanwhile.
 * I5 A command does not outlive the connection that asked for it; the container does. READY tells the next daemon
 *    whether it is idle and clean.
 */
#define _GNU_SOURCE
#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame.h"
#include "proc.h"
#include "protocol.h"
#include "wipe.h"

enum {
  LISTEN_FD = 3,
  INIT_CONNECTIONS_MAX = 8,
  EXECS_MAX = 256,
  STDIN_QUEUE_MAX = 1024 * 1024, /* above this the connection is not read: its later frames wait for the command */
  KILL_AGAIN_US = 5000,
  KILL_ROUNDS_MAX = 200, /* a zombie whose parent left the session cannot be killed away */
};

enum state { FREE, RUNNING, ENDED, WIPING };

struct exec {
  enum state state;
  struct proc proc;
  struct conn *conn; /* NULL: the connection is gone and nobody is told */
  uint32_t id, flags, result;
  struct buf gathered[2];
  pid_t session;
  uint64_t deadline_us, kill_us; /* UINT64_MAX: none; kill_us is set while the tree is being killed */
  int kill_rounds;
  int status;
  uint64_t ended_us, cpu_us, maxrss_kb;
};

static struct server server;
static struct exec execs[EXECS_MAX];
static int execs_top; /* slots from here on are free */
static struct exec *sole;
static bool has_children;
static bool is_spoiled; /* a SOLE command ended in a way after which the container is not used again */
static struct rlimit files_limit; /* as it was at the start */
static struct wire_ready ready = {.version = PROTOCOL_VERSION};

static void send_error(struct conn *c, uint32_t id, int error, const char *message) {
  struct PACKED {
    uint32_t error, len;
  } head = {(uint32_t)error, (uint32_t)strlen(message) + 1};
  conn_send(c, ERROR, id, &head, sizeof head, message, head.len);
}

static struct exec *find_exec(const struct conn *c, uint32_t id) {
  for (int i = 0; i < execs_top; i++) {
    if (execs[i].state == RUNNING && execs[i].conn == c && execs[i].id == id) return &execs[i];
  }
  return NULL;
}

static struct exec *free_exec(void) {
  for (int i = 0; i < EXECS_MAX; i++) {
    if (execs[i].state != FREE) continue;
    if (i >= execs_top) execs_top = i + 1;
    return &execs[i];
  }
  return NULL;
}

/* Output */

static bool is_blocked(const struct exec *e) { return e->conn != NULL && buf_len(&e->conn->out) > OUT_PAUSE; }

static void send_output(struct exec *e, int stream, const uint8_t *bytes, size_t len) {
  struct buf *gathered = &e->gathered[stream];
  size_t before = buf_len(gathered);
  if (before + len == 0) return;
  uint8_t type = stream == 0 ? STDOUT : STDERR;
  if (before + len <= OUTPUT_FRAME_MAX) {
    conn_send(e->conn, type, e->id, gathered->data + gathered->start, before, bytes, len);
  } else {
    conn_send(e->conn, type, e->id, gathered->data + gathered->start, before, NULL, 0);
    conn_send(e->conn, type, e->id, bytes, len, NULL, 0);
  }
  buf_take(gathered, before);
}

/* One read of one stream while the command runs. */
static void forward(struct exec *e, int stream) {
  const uint8_t *bytes;
  size_t len;
  proc_read(&e->proc, stream, &bytes, &len);
  if (len == 0) return;
  bool full = buf_len(&e->gathered[stream]) + len >= OUTPUT_FRAME_MAX;
  if (!(e->flags & EXEC_STREAM) && !full && buf_append(&e->gathered[stream], bytes, len)) return;
  send_output(e, stream, bytes, len);
}

/* Reads what is in the pipes of an ended command, never waiting for their end. False: the reader is too slow. */
static bool drain(struct exec *e) {
  for (int stream = 0; stream < 2; stream++) {
    int fd = e->proc.out_fd[stream];
    enum proc_read got = fd < 0 || e->conn == NULL ? READ_END : READ_FULL;
    /* A background process may go on writing, so one pipe's capacity is the bound. */
    for (int left = -1; got == READ_FULL && left != 0;) {
      if (is_blocked(e)) return false;
      const uint8_t *bytes;
      size_t len;
      got = proc_read(&e->proc, stream, &bytes, &len);
      send_output(e, stream, bytes, len);
      if (got != READ_FULL) break;
      if (left < 0) left = fcntl(fd, F_GETPIPE_SZ) / SCRATCH_BYTES + 1;
      left--;
    }
    send_output(e, stream, NULL, 0);
    if (e->proc.out_fd[stream] >= 0) close(e->proc.out_fd[stream]);
    e->proc.out_fd[stream] = -1;
  }
  return true;
}

/* Limits */

/*
 * A command of the same uid can lower the limits of PID 1. A soft one is put back; false: the hard one was lowered,
 * and that is for good. Asked for before everything that needs descriptors on behalf of the next command.
 */
static bool restore_files_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < files_limit.rlim_max) return false;
  return limit.rlim_cur == files_limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &files_limit) == 0;
}

/* Killing */

/* Kills every process of the session. Returns how many were found. */
static int kill_session(pid_t session) {
  kill(-session, SIGKILL);
  restore_files_limit();
  int dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return 0;
  char list[4096] __attribute__((aligned(8)));
  int found = 0;
  ssize_t n;
  while ((n = getdents64(dir, list, sizeof list)) > 0) {
    for (ssize_t at = 0; at < n;) {
      const struct dirent64 *entry = (const struct dirent64 *)(list + at);
      at += entry->d_reclen;
      pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
      if (pid <= 1 || getsid(pid) != session) continue;
      kill(pid, SIGKILL);
      found++;
    }
  }
  close(dir);
  return found;
}

/* One round of ending the tree; more follow until nothing is left. Returns false when nothing is. */
static bool kill_round(struct exec *e, uint64_t now) {
  bool left;
  if (e->flags & EXEC_SOLE) {
    left = has_children;
    if (left) kill(-1, SIGKILL);
  } else {
    left = kill_session(e->session) > 0 && ++e->kill_rounds < KILL_ROUNDS_MAX;
  }
  e->kill_us = now + KILL_AGAIN_US;
  return left;
}

static void cancel(struct exec *e, uint32_t why) {
  if (e->state != RUNNING) return;
  e->result |= why;
  kill_round(e, now_us());
}

static void record_end(struct exec *e, int status, const struct rusage *usage) {
  e->state = ENDED;
  e->proc.pid = 0;
  e->status = status;
  e->ended_us = now_us();
  e->cpu_us = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
              (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
  e->maxrss_kb = (uint64_t)usage->ru_maxrss;
}

static void reap(void) {
  for (;;) {
    int status;
    struct rusage usage;
    pid_t pid = wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    has_children = pid >= 0;
    if (pid <= 0) return;
    for (int i = 0; i < execs_top; i++) {
      if (execs[i].state == RUNNING && execs[i].proc.pid == pid) record_end(&execs[i], status, &usage);
    }
  }
}

/* Ending */

static void release(struct exec *e) {
  if (e == sole) sole = NULL;
  e->state = FREE;
  while (execs_top > 0 && execs[execs_top - 1].state == FREE) execs_top--;
  if (execs_top == 0) proc_trim();
}

static void send_exit(struct exec *e) {
  if (e->proc.truncated[0]) e->result |= RESULT_STDOUT_TRUNCATED;
  if (e->proc.truncated[1]) e->result |= RESULT_STDERR_TRUNCATED;
  bool failed = (e->result & RESULT_SPAWN_FAILED) != 0;
  bool missing = failed && e->proc.error == ENOENT && *e->proc.failed_at == 0;
  bool ended = (e->result & (RESULT_TIMED_OUT | RESULT_CANCELLED)) != 0;
  if ((e->flags & EXEC_SOLE) && (ended || (failed && !missing))) is_spoiled = true;
  struct wire_exit exit = {
      .exit_code = failed ? (missing ? 127 : 126) : exit_code_of(e->status),
      .signal = !failed && WIFSIGNALED(e->status) ? (uint32_t)WTERMSIG(e->status) : 0,
      .flags = e->result,
      .error = (uint32_t)e->proc.error,
      .duration_us = e->ended_us - e->proc.started_us,
      .cpu_us = e->cpu_us,
      .maxrss_kb = e->maxrss_kb,
      .spawn_us = e->proc.spawn_us,
  };
  conn_send(e->conn, EXIT, e->id, &exit, sizeof exit, NULL, 0);
}

static void send_idle(struct exec *e) {
  if (e->flags & EXEC_SOLE) conn_send(e->conn, IDLE, e->id, NULL, 0, NULL, 0);
  release(e);
}

/* The main process is gone: strays, then output, then EXIT, then the wipe. Each step may need several turns. */
static void finish(struct exec *e, uint64_t now) {
  if ((e->flags & EXEC_SOLE) && has_children) {
    if (e->kill_us == UINT64_MAX) e->result |= RESULT_STRAYS;
    if (e->kill_us == UINT64_MAX || now >= e->kill_us) kill_round(e, now);
    return;
  }
  if (!(e->flags & EXEC_SOLE) && e->kill_us != UINT64_MAX) {
    if (now < e->kill_us && !server.child_ended) return;
    if (kill_round(e, now)) return;
  }
  e->kill_us = UINT64_MAX;
  if (!drain(e)) return;
  proc_close(&e->proc);
  buf_free(&e->gathered[0]);
  buf_free(&e->gathered[1]);
  send_exit(e);
  /* A wipe that lacks descriptors leaves things behind, but then no command starts any more. */
  if (e->flags & EXEC_WIPE) restore_files_limit();
  if (!(e->flags & EXEC_WIPE) || !wipe_needed()) {
    send_idle(e);
    return;
  }
  if (e->conn != NULL) conn_flush(e->conn);
  e->state = WIPING;
}

static void advance(struct exec *e, uint64_t now) {
  if (e->state == RUNNING) {
    if (e->kill_us == UINT64_MAX && now >= e->deadline_us) cancel(e, RESULT_TIMED_OUT);
    else if (now >= e->kill_us) kill_round(e, now);
    bool output = now >= e->proc.watch_us && e->conn != NULL && !is_blocked(e);
    if (!proc_watch(&e->proc, &server, (uint32_t)(e - execs), output)) cancel(e, RESULT_CANCELLED);
    if (e->conn != NULL && buf_len(&e->proc.in) > STDIN_QUEUE_MAX) e->conn->held = true;
  } else if (e->state == ENDED) {
    finish(e, now);
  } else if (e->state == WIPING && !wipe_slice()) {
    send_idle(e);
  }
}

/* Requests */

static void start_exec(struct conn *c, uint32_t id, struct cursor *payload) {
  struct wire_exec request;
  struct command command;
  if (!take_bytes(payload, &request, sizeof request) || !command_read(payload, request.argc, request.envc, &command)) {
    c->dead = true;
    return;
  }
  struct exec *e = NULL;
  if (request.argc == 0) {
    send_error(c, id, EINVAL, "no command");
  } else if (find_exec(c, id) != NULL) {
    send_error(c, id, EEXIST, "a command with this id is running");
  } else if (sole != NULL && ((request.flags & EXEC_SOLE) || sole->state == ENDED || sole->kill_us != UINT64_MAX)) {
    send_error(c, id, EBUSY, "a sole command has the container");
  } else if ((e = free_exec()) == NULL) {
    send_error(c, id, EBUSY, "too many commands");
  }
  if (e == NULL) return;
  *e = (struct exec){.conn = c, .id = id, .flags = request.flags, .deadline_us = UINT64_MAX, .kill_us = UINT64_MAX};
  memcpy(e->proc.out_left, request.output_max, sizeof request.output_max);
  if (request.flags & EXEC_SOLE) sole = e;
  struct start start = {
      .command = &command,
      .input = payload->at,
      .input_len = payload->left,
      .input_open = (request.flags & EXEC_STDIN_OPEN) != 0,
      .refused = restore_files_limit() ? 0 : EMFILE,
      .null_fd = STDIN_FILENO,
  };
  if (!proc_start(&e->proc, &start)) {
    char text[512];
    size_t len = proc_failure(&e->proc, &command, text, sizeof text);
    if (len > e->proc.out_left[1]) len = e->proc.out_left[1];
    send_output(e, 1, (const uint8_t *)text, len);
    e->state = ENDED;
    e->result = RESULT_SPAWN_FAILED;
    e->ended_us = now_us();
    return;
  }
  has_children = true;
  e->state = RUNNING;
  e->session = e->proc.pid;
  if (request.timeout_ms > 0) e->deadline_us = e->proc.started_us + (uint64_t)request.timeout_ms * 1000;
  uint32_t pid = (uint32_t)e->proc.pid;
  if (request.flags & EXEC_STREAM) {
    e->proc.watch_us = 0;
    conn_send(c, STARTED, id, &pid, sizeof pid, NULL, 0);
  }
}

static void kill_exec(struct conn *c, uint32_t id, struct cursor *payload) {
  uint32_t signal;
  if (!take_bytes(payload, &signal, sizeof signal)) {
    c->dead = true;
    return;
  }
  struct exec *e = find_exec(c, id);
  if (e == NULL) return;
  if (signal == SIGKILL) {
    cancel(e, RESULT_CANCELLED);
  } else if (signal == 0 || signal >= NSIG || kill(e->flags & EXEC_SOLE ? -1 : -e->session, (int)signal) != 0) {
    send_error(c, id, EINVAL, "signal not sent");
  } else if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT) {
    e->result |= RESULT_CANCELLED;
  }
}

static void on_frame(struct conn *c, uint8_t type, uint32_t id, struct cursor *payload) {
  if (type == EXEC) {
    start_exec(c, id, payload);
  } else if (type == PING) {
    conn_send(c, PONG, id, NULL, 0, NULL, 0);
  } else if (type == STDIN) {
    struct exec *e = find_exec(c, id);
    if (e != NULL && !proc_write(&e->proc, payload->at, payload->left)) cancel(e, RESULT_CANCELLED);
    if (e != NULL && buf_len(&e->proc.in) > STDIN_QUEUE_MAX) c->held = true;
  } else if (type == STDIN_CLOSE) {
    struct exec *e = find_exec(c, id);
    if (e != NULL) proc_write_end(&e->proc);
  } else if (type == KILL) {
    kill_exec(c, id, payload);
  } else if (type == SHUTDOWN) {
    /* The kernel kills and reaps the rest of a pid namespace before its PID 1 is gone. */
    kill(-1, SIGKILL);
    reap();
    _exit(0);
  } else {
    c->dead = true;
  }
}

static void on_event(uint32_t tag, uint32_t slot) {
  struct exec *e = &execs[slot];
  if (e->state != RUNNING) return;
  if (tag == TAG_STDIN) proc_feed(&e->proc);
  else if (!is_blocked(e)) forward(e, tag == TAG_STDOUT ? 0 : 1);
}

static void on_turn(uint64_t now) {
  for (int i = 0; i < INIT_CONNECTIONS_MAX; i++) server.conns[i].held = false;
  if (server.child_ended) reap();
  for (int i = 0; i < execs_top; i++) advance(&execs[i], now);
  server.child_ended = false;
}

static uint64_t next_wake_us(void) {
  uint64_t wake = UINT64_MAX;
  for (int i = 0; i < execs_top; i++) {
    const struct exec *e = &execs[i];
    if (e->state == FREE) continue;
    if (e->state == WIPING) return 0;
    uint64_t at = e->kill_us;
    if (e->state == RUNNING && at == UINT64_MAX) at = e->deadline_us;
    if (at < wake) wake = at;
    bool unwatched = e->state == RUNNING && e->conn != NULL && !is_blocked(e) && proc_unwatched(&e->proc);
    if (unwatched && e->proc.watch_us < wake) wake = e->proc.watch_us;
  }
  return wake;
}

static void on_open(struct conn *c) {
  bool busy = execs_top > 0;
  for (int i = 0; i < INIT_CONNECTIONS_MAX; i++) busy = busy || (server.conns[i].fd >= 0 && &server.conns[i] != c);
  bool spoiled = is_spoiled || !restore_files_limit();
  ready.flags = (busy ? READY_BUSY : 0) | (spoiled ? READY_SPOILED : 0);
  conn_send(c, READY, 0, &ready, sizeof ready, NULL, 0);
}

/* Who asked is gone: what runs for it ends (I5). A command that had ended by itself is cleaned up after as usual. */
static void on_close(struct conn *c) {
  for (int i = 0; i < execs_top; i++) {
    if (execs[i].state == FREE || execs[i].conn != c) continue;
    cancel(&execs[i], RESULT_CANCELLED);
    execs[i].conn = NULL;
  }
}

/* A peer outside the pid namespace has no pid in it. */
static bool may_connect(int fd) {
  struct ucred peer;
  socklen_t len = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid == 0;
}

int init_main(void) {
  if (getpid() != 1) {
    errno = EPERM;
    fatal("init runs only as PID 1 of a pid namespace");
  }
  int listening = 0;
  socklen_t len = sizeof listening;
  bool asked = getsockopt(LISTEN_FD, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0;
  if (!asked || !listening) fatal("fd 3 is no listening socket");
  if (close_range(LISTEN_FD + 1, ~0U, 0) != 0) fatal("close_range");
  if (fcntl(LISTEN_FD, F_SETFD, FD_CLOEXEC) != 0 || fcntl(LISTEN_FD, F_SETFL, O_NONBLOCK) != 0) fatal("fcntl");
  /* Not dumpable: a command with the same uid can neither trace PID 1 nor look into its /proc. */
  struct rlimit no_core = {0, 0};
  if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_NAME, "minit") != 0) fatal("prctl");
  if (setrlimit(RLIMIT_CORE, &no_core) != 0) fatal("setrlimit");
  if (getrlimit(RLIMIT_NOFILE, &files_limit) != 0) fatal("getrlimit");
  if (getrandom(ready.nonce, sizeof ready.nonce, 0) != sizeof ready.nonce) fatal("getrandom");
  if (chdir("/") != 0) fatal("chdir /");
  umask(022);
  int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd < 0) fatal("/dev/null");
  for (int fd = 0; fd <= 2; fd++) {
    if (null_fd != fd && dup2(null_fd, fd) < 0) fatal("dup2");
  }
  if (null_fd > 2) close(null_fd);
  else if (fcntl(null_fd, F_SETFD, 0) != 0) fatal("fcntl");
  server = (struct server){
      .listen_fd = LISTEN_FD,
      .connections_max = INIT_CONNECTIONS_MAX,
      .may_connect = may_connect,
      .on_open = on_open,
      .on_frame = on_frame,
      .on_close = on_close,
      .on_event = on_event,
      .on_turn = on_turn,
      .next_wake_us = next_wake_us,
  };
  reset_signals();
  if (!server_init(&server)) fatal("epoll");
  server_run(&server);
}
