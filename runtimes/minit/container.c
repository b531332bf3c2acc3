#define _GNU_SOURCE
#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame.h"
#include "log.h"
#include "pid1.h"
#include "proc.h"

enum {
  READS_PER_EVENT = 4,
  DRAIN_LOOK_US = 100000,   /* between looks at what a slow reader has left, beside those at its socket */
  DRAIN_ASKED_US = 1000000, /* for a reader of a container that is asked to end */
  KILL_AGAIN_US = 5000,
  KILL_PATIENCE_US = 2000000, /* what sleeps in the kernel for longer is left to the kernel, which ends it with PID 1 */
};

static struct proc proc;
static struct exit_record record = {.magic = RECORD_MAGIC, .version = RECORD_VERSION};
static struct identity found;
static bool is_ending;
static uint64_t kill_us, give_up_us;
static struct conn *reader; /* NULL: nobody is attached */
static uint32_t reader_id;
static bool reader_writes;                  /* it asked for the command's input */
static bool reader_was_awaited;             /* it came while output waited for it (M7) */
static uint64_t stall_ms, stalled_us;       /* M9: how long, and until when, a reader may take nothing; 0: it takes */
static uint64_t hold_us;                    /* until when output waits for a reader; 0: it does not */
static uint64_t drain_until_us = UINT64_MAX; /* until when the end waits for the reader */
static int reads_left[2] = {-1, -1};        /* of the pipes at the end; -1: not known yet */
static bool is_told;                        /* the reader has EXIT */

bool container_is_ending(void) { return is_ending; }

bool container_is_refused(void) { return (record.flags & RECORD_NOT_STARTED) != 0; }

/* Somebody waits for the end: no reader holds it up for long (M8). */
static void hurry(void) {
  hold_us = 0;
  if (drain_until_us == UINT64_MAX) drain_until_us = now_us() + DRAIN_ASKED_US;
  if (is_ending) kill_us = 0;
}

static void end(uint32_t exit_code, uint32_t signal) {
  if (is_ending) return;
  is_ending = true;
  record.exit_code = exit_code;
  record.signal = signal;
  kill_us = 0;
  give_up_us = now_us() + KILL_PATIENCE_US;
  if (record.flags & RECORD_ASKED) hurry();
}

/* The main command was not started, for a reason that the log tells. */
static void refuse(const char *reason, uint32_t exit_code) {
  log_line(reason);
  record.flags = RECORD_NOT_STARTED;
  end(exit_code, 0);
}

static bool find_identity(const struct container_options *options) {
  char text[512] = "minit: ";
  size_t len = strlen(text);
  if (options->user == NULL && !options->finds_home) return true;
  if (!identity_find(options->user, &found, text + len, sizeof text - len)) {
    refuse(text, 126);
    return false;
  }
  found.drops_capabilities = options->is_restricted;
  identity = &found;
  return true;
}

/* This process's environment as the main command gets it; NULL if memory ran out. */
static char **main_environment(const struct container_options *options) {
  if (identity == NULL) return environ;
  size_t count = 0;
  while (environ[count] != NULL) count++;
  char **env = calloc(count + 2, sizeof *env), **at = env;
  for (size_t i = 0; env != NULL && i < count; i++) {
    if (!options->drops_home || strncmp(environ[i], "HOME=", 5) != 0) *at++ = environ[i];
  }
  if (env != NULL) command_add_home(env, identity);
  return env;
}

void container_start(char **argv, const struct container_options *options) {
  struct stat info;
  bool usable = fstat(RECORD_FD, &info) == 0 && S_ISREG(info.st_mode) && fcntl(RECORD_FD, F_SETFD, FD_CLOEXEC) == 0;
  if (!usable || ftruncate(RECORD_FD, 0) != 0) fatal("exit record");
  /* A write beyond fails with EFBIG: the signal ends no PID 1. */
  if (!proc_limit_own_files(LOG_SEGMENT_BYTES)) fatal("file size limit");
  log_open(LOG_FD);
  stall_ms = options->stall_ms;
  proc.in_fd = proc.out_fd[0] = proc.out_fd[1] = proc.report_fd = -1;
  if (!find_identity(options)) return;
  if (argv == NULL) {
    record.flags = RECORD_NO_COMMAND;
    return;
  }
  struct command command = {.cwd = "", .argv = argv, .env = main_environment(options)};
  struct start start = {
      .command = &command,
      .identity = identity,
      .refused = command.env == NULL ? ENOMEM : 0,
      .input_open = options->has_stdin,
      .null_fd = STDIN_FILENO,
  };
  proc.out_left[0] = proc.out_left[1] = UINT32_MAX;
  if (proc_start(&proc, &start)) {
    has_children = true;
    proc.watch_us = 0;
    if (options->hold_ms > 0) hold_us = now_us() + (uint64_t)options->hold_ms * 1000;
    return;
  }
  char text[512];
  size_t len = proc_failure(&proc, &command, text, sizeof text);
  if (len > 0) text[len - 1] = 0;
  refuse(text, proc.error == ENOENT ? 127 : 126);
}

static bool is_end_signal(uint32_t signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT || signal == SIGKILL;
}

int container_signal(uint32_t signal) {
  if (signal == 0 || signal >= NSIG) return EINVAL;
  if (is_ending && is_end_signal(signal)) hurry();
  if (is_ending || (proc.pid == 0 && !is_end_signal(signal))) return ESRCH;
  if (is_end_signal(signal)) record.flags |= RECORD_ASKED;
  if (proc.pid > 0) return kill(proc.pid, (int)signal) == 0 ? 0 : errno;
  end(signal == SIGKILL ? 128 + SIGKILL : 0, signal == SIGKILL ? SIGKILL : 0);
  return 0;
}

void container_kill(void) {
  record.flags |= RECORD_ASKED;
  end(128 + SIGKILL, SIGKILL);
  hurry();
}

void container_reaped(pid_t pid, int status) {
  if (pid != proc.pid) return;
  proc.pid = 0;
  end(exit_code_of(status), WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0);
}

static enum proc_read take_output(int stream) {
  const uint8_t *bytes;
  size_t len;
  enum proc_read got = proc_read(&proc, stream, &bytes, &len);
  if (len == 0) return got;
  if (reader != NULL) conn_send(reader, stream == 0 ? STDOUT : STDERR, reader_id, bytes, len, NULL, 0);
  if (reader == NULL || log_takes(now_us())) log_bytes(LOG_OF_STDOUT + stream, bytes, len);
  else log_skip(LOG_OF_STDOUT + stream, bytes, len);
  return got;
}

static bool wants_output(uint64_t now) {
  if (hold_us != 0) return false;
  return reader == NULL ? log_takes(now) : buf_len(&reader->out) <= OUT_PAUSE;
}

void container_event(uint32_t tag) {
  if (tag == TAG_STDIN) {
    proc_feed(&proc);
    return;
  }
  int stream = tag == TAG_STDOUT ? 0 : 1;
  for (int i = 0; i < READS_PER_EVENT && wants_output(now_us()) && take_output(stream) == READ_FULL; i++) continue;
}

/* The attached reader */

void container_attach(struct conn *c, uint32_t id, struct cursor *body) {
  struct wire_main_attach wire;
  if (!take_bytes(body, &wire, sizeof wire)) {
    c->dead = true;
  } else if (record.flags & RECORD_NO_COMMAND) {
    send_error(c, id, ENOENT, "the container has no main command");
  } else if (reader != NULL) {
    send_error(c, id, EBUSY, "another client is attached");
  } else {
    reader = c;
    reader_id = id;
    reader_writes = (wire.flags & ATTACH_STDIN) != 0;
    reader_was_awaited = hold_us != 0;
    hold_us = kill_us = stalled_us = 0;
    uint32_t pid = (uint32_t)proc.pid;
    conn_send(c, STARTED, id, &pid, sizeof pid, NULL, 0);
  }
}

bool container_input(struct conn *c, uint32_t id, const struct cursor *body) {
  if (c != reader || id != reader_id) return false;
  if (!reader_writes) return true;
  /* Without memory for it the input is cut off; the end of the connection says so. */
  if (!proc_write(&proc, body->at, body->left)) c->dead = true;
  if (buf_len(&proc.in) > STDIN_QUEUE_MAX) c->held = true;
  return true;
}

bool container_input_end(const struct conn *c, uint32_t id) {
  if (c != reader || id != reader_id) return false;
  if (reader_writes) proc_write_end(&proc);
  return true;
}

/* The command goes on without its reader, and without the input that one wrote. */
static void let_go(void) {
  reader = NULL;
  hold_us = 0;
  if (reader_writes) proc_write_end(&proc);
}

/* Nobody came in time (M7): nobody will write the input either. */
static void give_up_waiting(void) {
  hold_us = 0;
  proc_write_end(&proc);
}

/* M9 */
static void look_at_reader(uint64_t now) {
  if (reader == NULL || stall_ms == 0 || reader_was_awaited || buf_len(&reader->out) <= OUT_PAUSE) {
    stalled_us = 0;
  } else if (stalled_us == 0) {
    stalled_us = now + stall_ms * 1000;
  } else if (now >= stalled_us) {
    send_error(reader, reader_id, ETIMEDOUT, "the client took no output for too long, and is detached");
    let_go();
  }
}

void container_closed(const struct conn *c) {
  if (c == reader) let_go();
}

static void tell_end(void) {
  struct wire_exit exit = {.exit_code = record.exit_code, .signal = record.signal};
  conn_send(reader, EXIT, reader_id, &exit, sizeof exit, NULL, 0);
  is_told = true;
}

/* Takes what lies in the pipes of the command, which has ended. Returns false while the reader has not taken it (M8). */
static bool drain(uint64_t now) {
  bool waits = reader != NULL && now < drain_until_us;
  for (int stream = 0; stream < 2; stream++) {
    int *left = &reads_left[stream];
    if (*left < 0) *left = proc.out_fd[stream] < 0 ? 0 : proc_reads_left(&proc, stream);
    for (; *left > 0; --*left) {
      if (waits && buf_len(&reader->out) > OUT_PAUSE) conn_flush(reader);
      if (waits && !reader->dead && buf_len(&reader->out) > OUT_PAUSE) return false;
      if (take_output(stream) != READ_FULL) *left = 1;
    }
  }
  if (reader == NULL) return true;
  if (!is_told) tell_end();
  conn_flush(reader);
  return !waits || reader->dead || buf_len(&reader->out) == 0;
}

static _Noreturn void conclude(void) {
  log_finish();
  /* What commands had to say at their end, as far as the sockets take it. */
  for (int i = 0; i < server.conns_top; i++) {
    if (server.conns[i].fd >= 0) conn_flush(&server.conns[i]);
  }
  record.ended_at_us = epoch_us();
  /* Nobody is left to be told that the disk took none of it; an empty record says enough. */
  if (pwrite(RECORD_FD, &record, sizeof record, 0) != sizeof record && ftruncate(RECORD_FD, 0) != 0) _exit(1);
  _exit((int)record.exit_code);
}

void container_turn(uint64_t now) {
  log_turn(now);
  if (hold_us != 0 && now >= hold_us) give_up_waiting();
  if (reader != NULL && buf_len(&proc.in) > STDIN_QUEUE_MAX) reader->held = true;
  if (!is_ending) {
    look_at_reader(now);
    if (!proc_watch(&proc, &server, CONTAINER_SLOT, wants_output(now))) container_kill();
    return;
  }
  if (has_children && now < give_up_us) {
    if (now < kill_us) return;
    kill(-1, SIGKILL);
    kill_us = now + KILL_AGAIN_US;
    return;
  }
  kill_us = hold_us != 0 ? hold_us : now + DRAIN_LOOK_US;
  if (hold_us == 0 && drain(now)) conclude();
}

uint64_t container_wake_us(void) {
  if (is_ending) return kill_us;
  uint64_t now = now_us();
  log_takes(now); /* so that its time to wake is not one that has passed */
  /* The first turn watches the pipes. */
  if (proc_unwatched(&proc) && wants_output(now)) return 0;
  uint64_t wake = log_wake_us();
  if (stalled_us != 0 && stalled_us < wake) wake = stalled_us;
  return hold_us != 0 && hold_us < wake ? hold_us : wake;
}
