/*
 * PID 1: the loop of an instance, in which the daemon runs commands one by one, and of an API container. It runs beside
 * untrusted commands, of an instance with their uid, so it trusts nothing that a command can touch. Leaves commands to
 * exec.c, the process that serves calls to resident.c, and a container's main command to container.c.
 *
 * I1 kill(-1) is sent only as PID 1 of a pid namespace: nothing else is served.
 * I2 Nothing here waits, and PING is answered whatever runs.
 * I3 Commands end with the connection that asked for them; the container does not, nor does an idle resident process.
 *    READY tells the next daemon whether the container is idle and clean, and whether such a process waits.
 */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container.h"
#include "exec.h"
#include "pid1.h"
#include "protocol.h"
#include "resident.h"

enum {
  LISTEN_FD = 3,
  INSTANCE_CONNECTIONS_MAX = 8,
  CONTAINER_CONNECTIONS_MAX = 300, /* one per command, and some for other requests */
};

static bool is_container;
static struct wire_ready ready = {.version = PROTOCOL_VERSION};

static void reap(void) {
  for (;;) {
    int status;
    struct rusage usage;
    pid_t pid = wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    has_children = pid >= 0;
    if (pid <= 0) return;
    execs_reaped(pid, status, &usage);
    resident_reaped(pid, status, &usage);
    if (is_container) container_reaped(pid, status);
  }
}

/* Requests */

static void signal_pid(struct conn *c, uint32_t id, struct cursor *body) {
  struct wire_signal_pid wire;
  if (!take_bytes(body, &wire, sizeof wire)) {
    c->dead = true;
    return;
  }
  uint32_t error = 0;
  bool allowed = wire.pid > 1 && wire.signal > 0 && wire.signal < NSIG;
  if (!allowed) error = EINVAL;
  else if (exec_is_guard(wire.pid)) error = EPERM;
  else if (kill(wire.pid, (int)wire.signal) != 0) error = (uint32_t)errno;
  conn_send(c, SIGNALLED, id, &error, sizeof error, NULL, 0);
}

static void kill_request(struct conn *c, uint32_t id, struct cursor *body) {
  uint32_t signal;
  if (!take_bytes(body, &signal, sizeof signal)) {
    c->dead = true;
  } else if (id == 0 && is_container) {
    uint32_t error = (uint32_t)container_signal(signal);
    conn_send(c, SIGNALLED, id, &error, sizeof error, NULL, 0);
  } else if (!resident_kill(c, id)) {
    exec_kill(c, id, signal);
  }
}

static void shut_down(void) {
  if (is_container) {
    container_kill();
    return;
  }
  /* The kernel kills and reaps the rest of a pid namespace before its PID 1 is gone. */
  kill(-1, SIGKILL);
  reap();
  _exit(0);
}

static void input(struct conn *c, uint32_t id, struct cursor *body) {
  if (!is_container || !container_input(c, id, body)) exec_input(c, id, body);
}

static void input_end(struct conn *c, uint32_t id) {
  if (!is_container || !container_input_end(c, id)) exec_input_end(c, id);
}

static void on_frame(struct conn *c, uint8_t type, uint32_t id, struct cursor *body) {
  if (type == PING) conn_send(c, PONG, id, NULL, 0, NULL, 0);
  else if (type == EXEC && !is_container) exec_start(c, id, body, false, resident_any());
  else if (type == SERVE && !is_container) resident_serve(c, id, body, execs_any());
  else if (type == SERVE_TAKE && !is_container) resident_take(c, id, body);
  else if (type >= CALL_BEGIN && type <= CALL_END && !is_container) resident_request(c, type, id, body);
  else if (type == RUN && is_container && container_is_ending()) send_error(c, id, ESHUTDOWN, "the container is ending");
  else if (type == RUN && is_container) exec_start(c, id, body, true, false);
  else if (type == MAIN_ATTACH && is_container) container_attach(c, id, body);
  else if (type == STDIN) input(c, id, body);
  else if (type == STDIN_CLOSE) input_end(c, id);
  else if (type == KILL) kill_request(c, id, body);
  else if (type == SHUTDOWN) shut_down();
  else if (type == RESIZE && is_container) exec_resize(c, id, body);
  else if (type == SIGNAL_PID && is_container) signal_pid(c, id, body);
  else c->dead = true;
}

/* The loop's hooks */

static void on_event(uint32_t tag, uint32_t slot) {
  if (slot == CONTAINER_SLOT) container_event(tag);
  else if (slot == RESIDENT_SLOT) resident_event(tag);
  else execs_event(tag, slot);
}

static void on_turn(uint64_t now) {
  for (int i = 0; i < server.conns_top; i++) server.conns[i].held = false;
  if (server.child_ended) reap();
  execs_turn(now);
  resident_turn(now);
  if (is_container) container_turn(now);
  server.child_ended = false;
}

static uint64_t next_wake_us(void) {
  uint64_t wake = execs_wake_us();
  uint64_t other = is_container ? container_wake_us() : resident_wake_us();
  return other < wake ? other : wake;
}

static void on_close(struct conn *c) {
  execs_closed(c);
  resident_closed(c);
  if (is_container) container_closed(c);
}

static void on_open(struct conn *c) {
  if (is_container && container_is_refused()) return;
  bool busy = execs_any() || (resident_any() && !resident_waits());
  for (int i = 0; i < server.conns_top; i++) busy = busy || (server.conns[i].fd >= 0 && &server.conns[i] != c);
  bool spoiled = execs_spoiled() || resident_spoiled() || !restore_files_limit();
  ready.flags = (busy ? READY_BUSY : 0) | (spoiled ? READY_SPOILED : 0) | (resident_waits() ? READY_RESIDENT : 0);
  if (is_container) ready.flags |= READY_ATTACH | READY_USER;
  conn_send(c, READY, 0, &ready, sizeof ready, NULL, 0);
}

/* A peer outside the pid namespace has no pid in it. */
static bool may_connect(int fd) {
  struct ucred peer;
  socklen_t len = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid == 0;
}

static const struct server hooks = {
    .may_connect = may_connect,
    .on_open = on_open,
    .on_frame = on_frame,
    .on_close = on_close,
    .on_event = on_event,
    .on_turn = on_turn,
    .next_wake_us = next_wake_us,
};

/* Up to the point where nothing but the loop is missing. Descriptors from `first_free` on are nobody's. */
static void set_up(unsigned first_free) {
  if (getpid() != 1) {
    errno = EPERM;
    fatal("init runs only as PID 1 of a pid namespace");
  }
  int listening = 0;
  socklen_t len = sizeof listening;
  bool asked = getsockopt(LISTEN_FD, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0;
  if (!asked || !listening) fatal("fd 3 is no listening socket");
  if (close_range(first_free, ~0U, 0) != 0) fatal("close_range");
  if (fcntl(LISTEN_FD, F_SETFD, FD_CLOEXEC) != 0 || fcntl(LISTEN_FD, F_SETFL, O_NONBLOCK) != 0) fatal("fcntl");
  /* Not dumpable: a command with the same uid can neither trace PID 1 nor look into its /proc. */
  struct rlimit no_core = {0, 0};
  if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_NAME, "minit") != 0) fatal("prctl");
  if (setrlimit(RLIMIT_CORE, &no_core) != 0) fatal("setrlimit");
  if (!keep_files_limit()) fatal("getrlimit");
  if (getrandom(ready.nonce, sizeof ready.nonce, 0) != sizeof ready.nonce) fatal("getrandom");
  umask(022);
  int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd < 0) fatal("/dev/null");
  for (int fd = 0; fd <= 2; fd++) {
    if (null_fd != fd && dup2(null_fd, fd) < 0) fatal("dup2");
  }
  if (null_fd > 2) close(null_fd);
  else if (fcntl(null_fd, F_SETFD, 0) != 0) fatal("fcntl");
  server = hooks;
  server.listen_fd = LISTEN_FD;
  server.connections_max = is_container ? CONTAINER_CONNECTIONS_MAX : INSTANCE_CONNECTIONS_MAX;
  reset_signals();
  if (!server_init(&server)) fatal("epoll");
}

int init_main(void) {
  set_up(LISTEN_FD + 1);
  if (chdir("/") != 0) fatal("chdir /");
  server_run(&server);
}

int container_main(char **argv, const struct container_options *options) {
  is_container = true;
  set_up(CONTAINER_FDS_END);
  container_start(argv, options);
  if (chdir("/") != 0) fatal("chdir /");
  server_run(&server);
}
