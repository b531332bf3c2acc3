/* Hot path. One command from its EXEC or RUN frame to its EXIT: exec.h has the rules. */
#define _GNU_SOURCE
#include "exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec-state.h"
#include "pid1.h"
#include "proc.h"
#include "protocol.h"
#include "tree.h"
#include "wipe.h"

enum {
  READS_PER_EVENT = 4,
  KILL_AGAIN_US = 5000,
  KILL_LATER_US = 1000000, /* once KILL_ROUNDS_MAX were of no use */
  KILL_ROUNDS_MAX = 200,   /* what sleeps in the kernel cannot be killed away */
  KILL_ROUNDS_PLAIN = 3,   /* after these, a tree is halted before it is killed */
  START_WAIT_US = 5000000, /* only a start that is stopped from outside takes so long */
};

static struct exec execs[EXECS_MAX];
static int execs_top; /* slots from here on are free */
static struct exec *sole;
static bool is_spoiled;

static struct exec *find_exec(const struct conn *c, uint32_t id) {
  for (int i = 0; i < execs_top; i++) {
    bool is_open = execs[i].state == STARTING || execs[i].state == RUNNING;
    if (is_open && execs[i].conn == c && execs[i].id == id) return &execs[i];
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

bool execs_any(void) { return execs_top > 0; }

bool execs_spoiled(void) { return is_spoiled; }

/* Killing */

/* One round of ending the tree; more follow until nothing is left. Returns false when nothing is. */
static bool kill_round(struct exec *e, uint64_t now) {
  struct proc *p = &e->proc;
  bool left;
  e->kill_us = now + KILL_AGAIN_US;
  if (e->flags & EXEC_SOLE) {
    left = has_children;
    if (left) kill(-1, SIGKILL);
    return left;
  }
  if (++e->kill_rounds >= KILL_ROUNDS_MAX) e->kill_us = now + KILL_LATER_US;
  if (p->pid > 0) kill(-p->session, SIGKILL);
  restore_files_limit();
  left = tree_kill(p->guard, p->pid, p->session, e->kill_rounds > KILL_ROUNDS_PLAIN) > 0;
  /* A guard that was halted cannot tell that nothing is left. */
  if (p->guard > 0) kill(p->guard, SIGCONT);
  return left && e->kill_rounds < KILL_ROUNDS_MAX;
}

/* Ends the tree: with a signal (0: it got one in another way) and some time to follow it, or at once. */
static void end_tree(struct exec *e, uint32_t why, int signal, uint32_t grace_ms) {
  if (e->state != RUNNING && e->state != STARTING) return;
  e->result |= why;
  uint64_t now = now_us();
  if (e->state == STARTING) {
    /* There is no command yet that could follow a signal; what comes of the start is killed as it appears. */
    e->state = ENDED;
    e->ending.status = SIGKILL;
    e->ended_us = now;
    kill_round(e, now);
    return;
  }
  if (grace_ms == 0 || (e->flags & EXEC_SOLE)) {
    kill_round(e, now);
  } else if (e->kill_us == UINT64_MAX) {
    e->kill_us = now + (uint64_t)grace_ms * 1000;
    restore_files_limit();
    if (signal != 0) tree_signal(e->proc.guard, e->proc.pid, e->proc.session, signal);
  }
}

static void record_end(struct exec *e, struct ending ending) {
  e->state = ENDED;
  e->proc.pid = 0;
  e->ending = ending;
  e->ended_us = now_us();
}

static bool signal_command(const struct exec *e, uint32_t signal);

static void begin(struct exec *e) {
  e->state = RUNNING;
  uint32_t pid = (uint32_t)e->proc.pid;
  if (e->tells_start) conn_send(e->conn, STARTED, e->id, &pid, sizeof pid, NULL, 0);
  if (e->early_signal != 0) signal_command(e, e->early_signal);
}

/* `text`: why, as a line. */
static void fail_start_for(struct exec *e, const char *text, size_t len) {
  if (len > e->proc.out_left[1]) len = e->proc.out_left[1];
  exec_send_output(e, 1, (const uint8_t *)text, len);
  e->state = ENDED;
  e->result |= RESULT_SPAWN_FAILED;
  e->ended_us = now_us();
}

static void fail_start(struct exec *e) {
  char text[512];
  char *argv[] = {e->name, NULL};
  struct command command = {.cwd = e->cwd, .argv = argv};
  fail_start_for(e, text, proc_failure(&e->proc, &command, text, sizeof text));
}

/* The identity of a command with a user of its own. False: the start has failed, and the requester is told why. */
static bool find_own(struct exec *e, const char *user, struct identity *own) {
  char text[512] = "minit: ";
  size_t len = strlen(text);
  if (identity_find(user, own, text + len, sizeof text - len - 1)) {
    own->drops_capabilities = identity != NULL && identity->drops_capabilities;
    return true;
  }
  strcat(text, "\n");
  e->proc.started_us = now_us();
  e->proc.in_fd = e->proc.out_fd[0] = e->proc.out_fd[1] = e->proc.report_fd = -1;
  e->proc.error = EINVAL;
  e->proc.failed_at = "user";
  fail_start_for(e, text, strlen(text));
  return false;
}

static void take_news(struct exec *e) {
  struct ending ending;
  for (;;) {
    switch (proc_news(&e->proc, &ending)) {
      case GUARD_QUIET:
        return;
      case GUARD_STARTED:
        if (e->state == STARTING) begin(e);
        break;
      case GUARD_FAILED:
        if (e->state != STARTING) break;
        proc_close(&e->proc);
        fail_start(e);
        return;
      case GUARD_ENDED:
        if (e->state == RUNNING) record_end(e, ending);
        e->proc.pid = 0;
        break;
      case GUARD_GONE:
        /* Nothing is below it any more, or it was killed: a round finds out which. */
        if (e->kill_us != UINT64_MAX) e->kill_us = 0;
        return;
    }
  }
}

void execs_reaped(pid_t pid, int status, const struct rusage *usage) {
  for (int i = 0; i < execs_top; i++) {
    struct exec *e = &execs[i];
    /* A command that killed its guard at once may end before its start was noticed. */
    if (e->state == STARTING) take_news(e);
    if (e->state == RUNNING && e->proc.pid == pid) record_end(e, proc_ending(status, usage));
    if (e->proc.pid == pid) e->proc.pid = 0;
    if (e->proc.guard != pid) continue;
    take_news(e);
    e->proc.guard = 0;
    /* Killed, and it had reaped the command without a word of it: else the command would be a child of ours now. */
    siginfo_t info;
    bool lost = e->state == RUNNING && waitid(P_PID, (id_t)e->proc.pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0;
    if (lost) record_end(e, (struct ending){.status = SIGKILL});
  }
}

bool exec_is_guard(pid_t pid) {
  for (int i = 0; i < execs_top; i++) {
    if (execs[i].state != FREE && execs[i].proc.guard == pid) return true;
  }
  return false;
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
  int status = e->ending.status;
  struct wire_exit exit = {
      .exit_code = failed ? (missing ? 127 : 126) : exit_code_of(status),
      .signal = !failed && WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0,
      .flags = e->result,
      .error = (uint32_t)e->proc.error,
      .duration_us = e->ended_us - e->proc.started_us,
      .cpu_us = e->ending.cpu_us,
      .maxrss_kb = e->ending.maxrss_kb,
      .spawn_us = e->proc.spawn_us,
  };
  conn_send(e->conn, EXIT, e->id, &exit, sizeof exit, NULL, 0);
}

static void send_idle(struct exec *e) {
  if (e->flags & EXEC_SOLE) conn_send(e->conn, IDLE, e->id, NULL, 0, NULL, 0);
  release(e);
}

/* Whether something is still to be ended beside the command itself. */
static bool tree_left(struct exec *e, uint64_t now) {
  if (e->flags & EXEC_SOLE) {
    if (!has_children) return false;
    if (e->kill_us == UINT64_MAX) e->result |= RESULT_STRAYS;
    if (e->kill_us == UINT64_MAX || now >= e->kill_us) kill_round(e, now);
    return true;
  }
  if (e->kill_us == UINT64_MAX || e->kill_rounds >= KILL_ROUNDS_MAX) return false;
  bool left = now < e->kill_us || kill_round(e, now);
  return left || e->proc.report_fd >= 0;
}

/* The main process is gone: strays, then output, then EXIT, then the wipe. Each step may need several turns. */
static void finish(struct exec *e, uint64_t now) {
  if (tree_left(e, now)) return;
  e->kill_us = UINT64_MAX;
  if (!exec_drain(e)) return;
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

static void watch(struct exec *e, uint64_t now) {
  bool output = e->state != STARTING && now >= e->proc.watch_us && exec_wants_output(e);
  if (!proc_watch(&e->proc, &server, (uint32_t)(e - execs), output)) end_tree(e, RESULT_CANCELLED, SIGKILL, 0);
  if (e->conn != NULL && buf_len(&e->proc.in) > STDIN_QUEUE_MAX) e->conn->held = true;
}

static uint64_t start_deadline_us(const struct exec *e) { return e->proc.started_us + START_WAIT_US; }

static void advance(struct exec *e, uint64_t now) {
  if (e->state == STARTING) {
    if (now >= e->deadline_us) {
      end_tree(e, RESULT_TIMED_OUT, SIGKILL, 0);
    } else if (now >= start_deadline_us(e)) {
      e->proc.error = ETIMEDOUT;
      e->proc.failed_at = "spawn";
      fail_start(e);
      kill_round(e, now);
    } else {
      watch(e, now);
    }
  } else if (e->state == RUNNING) {
    if (e->kill_us == UINT64_MAX && now >= e->deadline_us) end_tree(e, RESULT_TIMED_OUT, SIGTERM, e->grace_ms);
    else if (now >= e->kill_us) kill_round(e, now);
    watch(e, now);
  } else if (e->state == ENDED) {
    finish(e, now);
    if (e->state == ENDED) watch(e, now);
  } else if (e->state == WIPING && !wipe_slice()) {
    send_idle(e);
  }
}

/* Requests */

static const char *why_refused(const struct conn *c, uint32_t id, const struct wire_exec *request, bool is_serving,
                               int *error) {
  *error = EBUSY;
  bool wants_all = (request->flags & EXEC_SOLE) != 0;
  if (sole != NULL && (wants_all || sole->state == ENDED || sole->kill_us != UINT64_MAX)) {
    return "a sole command has the container";
  }
  if (wants_all && is_serving) return "a resident process has the container";
  *error = EEXIST;
  if (find_exec(c, id) != NULL) return "a command with this id is running";
  *error = EINVAL;
  return request->argc == 0 ? "no command" : NULL;
}

void exec_start(struct conn *c, uint32_t id, struct cursor *body, bool is_run, bool is_serving) {
  struct wire_exec request;
  struct wire_run more = {0};
  struct command command;
  bool read = take_bytes(body, &request, sizeof request) && (!is_run || take_bytes(body, &more, sizeof more));
  const char *user = read && is_run && (request.flags & EXEC_USER) ? take_str(body) : NULL;
  read = read && command_read(body, request.argc, request.envc, &command);
  if (!read || (is_run && (request.flags & (EXEC_SOLE | EXEC_WIPE)))) {
    c->dead = true;
    return;
  }
  int error;
  const char *refusal = why_refused(c, id, &request, is_serving, &error);
  struct exec *e = refusal == NULL ? free_exec() : NULL;
  if (e == NULL) {
    send_error(c, id, refusal == NULL ? EBUSY : error, refusal == NULL ? "too many commands" : refusal);
    return;
  }
  *e = (struct exec){
      .conn = c,
      .id = id,
      .flags = request.flags,
      .grace_ms = more.grace_ms,
      .reads_left = {-1, -1},
      .deadline_us = UINT64_MAX,
      .kill_us = UINT64_MAX,
  };
  memcpy(e->proc.out_left, request.output_max, sizeof request.output_max);
  if (request.flags & EXEC_SOLE) sole = e;
  struct winsize size = {.ws_col = more.cols, .ws_row = more.rows};
  struct start start = {
      .command = &command,
      .input = body->at,
      .input_len = body->left,
      .input_open = (request.flags & EXEC_STDIN_OPEN) != 0,
      .refused = restore_files_limit() ? 0 : EMFILE,
      .guarded = !(request.flags & EXEC_SOLE),
      .terminal = request.flags & EXEC_TTY ? &size : NULL,
      .null_fd = STDIN_FILENO,
  };
  static struct identity own;
  if (user != NULL && !find_own(e, user, &own)) return;
  if (is_run) {
    struct identity *as = user == NULL ? identity : &own;
    start.identity = as;
    if (as != NULL) command_add_home(command.env, as);
  }
  snprintf(e->name, sizeof e->name, "%s", command.argv[0]);
  snprintf(e->cwd, sizeof e->cwd, "%s", command.cwd);
  if (request.timeout_ms > 0) e->deadline_us = now_us() + (uint64_t)request.timeout_ms * 1000;
  e->tells_start = is_run || (request.flags & EXEC_STREAM);
  if (!proc_start(&e->proc, &start)) {
    fail_start(e);
    return;
  }
  has_children = true;
  if (request.flags & EXEC_STREAM) e->proc.watch_us = 0;
  e->state = STARTING;
  if (!e->proc.starting) begin(e);
  int report_fd = e->proc.report_fd;
  if (report_fd >= 0 && !server_watch(&server, EPOLL_CTL_ADD, report_fd, EPOLLIN, TAG_REPORT, (uint32_t)(e - execs))) {
    end_tree(e, RESULT_CANCELLED, SIGKILL, 0);
  }
}

void exec_input(struct conn *c, uint32_t id, struct cursor *body) {
  struct exec *e = find_exec(c, id);
  if (e == NULL) return;
  if (!proc_write(&e->proc, body->at, body->left)) end_tree(e, RESULT_CANCELLED, SIGKILL, 0);
  if (buf_len(&e->proc.in) > STDIN_QUEUE_MAX) c->held = true;
}

void exec_input_end(struct conn *c, uint32_t id) {
  struct exec *e = find_exec(c, id);
  if (e != NULL) proc_write_end(&e->proc);
}

void exec_resize(struct conn *c, uint32_t id, struct cursor *body) {
  struct wire_size wire;
  struct exec *e = find_exec(c, id);
  if (!take_bytes(body, &wire, sizeof wire)) c->dead = true;
  else if (e != NULL && e->proc.is_terminal && e->proc.out_fd[0] >= 0) {
    ioctl(e->proc.out_fd[0], TIOCSWINSZ, &(struct winsize){.ws_col = wire.cols, .ws_row = wire.rows});
  }
}

/* Whom a signal for the command reaches: of a terminal those in its foreground. */
static pid_t signal_target(const struct exec *e) {
  if (e->flags & EXEC_SOLE) return -1;
  pid_t group = 0;
  bool asked = e->proc.is_terminal && ioctl(e->proc.out_fd[0], TIOCGPGRP, &group) == 0 && group > 0;
  return asked ? -group : -e->proc.session;
}

static bool signal_command(const struct exec *e, uint32_t signal) { return kill(signal_target(e), (int)signal) == 0; }

void exec_kill(struct conn *c, uint32_t id, uint32_t signal) {
  struct exec *e = find_exec(c, id);
  if (e == NULL) return;
  bool is_early = e->state == STARTING && signal > 0 && signal < NSIG;
  if (is_early) e->early_signal = signal;
  if (signal == SIGKILL) {
    end_tree(e, RESULT_CANCELLED, SIGKILL, 0);
  } else if (signal == 0 || signal >= NSIG || !(is_early || signal_command(e, signal))) {
    send_error(c, id, EINVAL, "signal not sent");
  } else if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT) {
    e->result |= RESULT_CANCELLED;
  }
}

/* The loop's turns */

void execs_event(uint32_t tag, uint32_t slot) {
  struct exec *e = &execs[slot];
  if (e->state != STARTING && e->state != RUNNING && e->state != ENDED) return;
  if (tag == TAG_REPORT) {
    take_news(e);
  } else if (tag == TAG_STDIN) {
    proc_feed(&e->proc);
  } else {
    int stream = tag == TAG_STDOUT ? 0 : 1;
    for (int i = 0; i < READS_PER_EVENT && exec_wants_output(e) && exec_forward(e, stream) == READ_FULL; i++) continue;
  }
}

void execs_turn(uint64_t now) {
  for (int i = 0; i < execs_top; i++) advance(&execs[i], now);
}

uint64_t execs_wake_us(void) {
  uint64_t wake = UINT64_MAX;
  for (int i = 0; i < execs_top; i++) {
    const struct exec *e = &execs[i];
    if (e->state == FREE) continue;
    if (e->state == WIPING) return 0;
    uint64_t at = e->kill_us;
    if (e->state == RUNNING && at == UINT64_MAX) at = e->deadline_us;
    if (e->state == STARTING) at = e->deadline_us < start_deadline_us(e) ? e->deadline_us : start_deadline_us(e);
    if (at < wake) wake = at;
    bool unwatched = e->state == RUNNING && exec_wants_output(e) && proc_unwatched(&e->proc);
    if (unwatched && e->proc.watch_us < wake) wake = e->proc.watch_us;
  }
  return wake;
}

/* Who asked is gone (E5). A command that had ended by itself is cleaned up after as usual. */
void execs_closed(struct conn *c) {
  for (int i = 0; i < execs_top; i++) {
    struct exec *e = &execs[i];
    if (e->state == FREE || e->conn != c) continue;
    e->conn = NULL;
    if (e->flags & EXEC_DETACHED) {
      proc_write_end(&e->proc);
    } else {
      if (e->proc.is_terminal) proc_hang_up(&e->proc);
      end_tree(e, RESULT_CANCELLED, e->proc.is_terminal ? 0 : SIGTERM, e->grace_ms);
    }
  }
}
