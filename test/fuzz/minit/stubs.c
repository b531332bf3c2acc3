/* See stubs.h. Also replaces the sources that are left out: the log, the process tree and wiping. */
#include "stubs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "tree.h"
#include "wipe.h"

#undef open
#undef syscall

enum { PROCESSES_MAX = 4096, PID_MIN = 100000, SIGKILLED = SIGKILL };

jmp_buf stub_ended;
uint64_t stub_now_us = 1000000;
const char *stub_root = "/nonexistent";

static struct {
  pid_t pid;
  bool ended;
} processes[PROCESSES_MAX];
static int count;
static pid_t next_pid = PID_MIN;

pid_t stub_start(void) {
  errno = EAGAIN;
  if (count == PROCESSES_MAX) return -1;
  processes[count].pid = next_pid++;
  processes[count].ended = false;
  return processes[count++].pid;
}

pid_t stub_clone(int flags) {
  if ((flags & CSIGNAL) != 0) return stub_start();
  errno = EAGAIN;
  return -1;
}

void stub_forget_processes(void) {
  count = 0;
  next_pid = PID_MIN;
}

int stub_clock(struct timespec *t) {
  *t = (struct timespec){.tv_sec = (time_t)(stub_now_us / 1000000), .tv_nsec = (long)(stub_now_us % 1000000 * 1000)};
  return 0;
}

/* Code 1 is an end that the helper did not expect. */
void stub_exit(int code) {
  if (code == 1) abort();
  longjmp(stub_ended, 1);
}

/* Each process is a group of its own. */
int stub_kill(pid_t pid, int signal) {
  bool found = false;
  for (int i = 0; i < count; i++) {
    if (pid != -1 && pid != processes[i].pid && pid != -processes[i].pid) continue;
    found = true;
    if (signal == SIGKILL || signal == SIGTERM) processes[i].ended = true;
  }
  errno = ESRCH;
  return found ? 0 : -1;
}

pid_t stub_wait(int *status, struct rusage *usage) {
  if (usage != NULL) memset(usage, 0, sizeof *usage);
  for (int i = 0; i < count; i++) {
    if (!processes[i].ended) continue;
    pid_t pid = processes[i].pid;
    processes[i] = processes[--count];
    *status = SIGKILLED;
    return pid;
  }
  errno = ECHILD;
  return count > 0 ? 0 : -1;
}

long stub_syscall(long number, ...) {
  if (number == SYS_clone) return stub_start();
  errno = ENOSYS;
  return -1;
}

int stub_open(const char *path, int flags, ...) {
  if (strcmp(path, "/") == 0) return open(stub_root, flags);
  errno = EACCES;
  return -1;
}

int stub_refuse(void) {
  errno = EACCES;
  return -1;
}

void log_open(int first_fd) { (void)first_fd; }
void log_bytes(int stream, const uint8_t *bytes, size_t len) { (void)stream, (void)bytes, (void)len; }
void log_skip(int stream, const uint8_t *bytes, size_t len) { (void)stream, (void)bytes, (void)len; }
bool log_takes(uint64_t now) { (void)now; return true; }
void log_line(const char *text) { (void)text; }
void log_turn(uint64_t now) { (void)now; }
uint64_t log_wake_us(void) { return UINT64_MAX; }
void log_finish(void) {}

bool wipe_needed(void) { return true; }
bool wipe_slice(void) { return false; }

int tree_signal(pid_t guard, pid_t command, pid_t session, int signal) {
  (void)session;
  return (stub_kill(guard, signal) == 0) + (stub_kill(command, signal) == 0);
}

int tree_kill(pid_t guard, pid_t command, pid_t session, bool stop) {
  (void)stop;
  return tree_signal(guard, command, session, SIGKILL);
}
