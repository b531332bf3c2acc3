#define _GNU_SOURCE
#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of more processes than this the rest is found by a later walk. Halting ends after STOP_WALKS at the latest. */
enum { PROCESSES_MAX = 4096, STOP_WALKS = 8 };

struct process {
  pid_t pid, ppid, session;
  char state;
  bool chosen;
};

static struct process found[PROCESSES_MAX];

/* The name in a stat line may hold anything, so what counts begins after its last bracket. */
static bool read_stat(int dir, const char *name, struct process *process) {
  char path[32], line[512];
  snprintf(path, sizeof path, "%.16s/stat", name);
  int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, line, sizeof line - 1);
  close(fd);
  if (n <= 0) return false;
  line[n] = 0;
  const char *rest = strrchr(line, ')');
  int group;
  return rest != NULL &&
         sscanf(rest + 1, " %c %d %d %d", &process->state, &process->ppid, &group, &process->session) == 4;
}

static int list_processes(void) {
  int dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return 0;
  char list[4096] __attribute__((aligned(8)));
  int count = 0;
  ssize_t n;
  while ((n = getdents64(dir, list, sizeof list)) > 0) {
    for (ssize_t at = 0; at < n && count < PROCESSES_MAX;) {
      const struct dirent64 *entry = (const struct dirent64 *)(list + at);
      at += entry->d_reclen;
      struct process *process = &found[count];
      *process = (struct process){.pid = (pid_t)strtol(entry->d_name, NULL, 10)};
      if (process->pid > 1 && read_stat(dir, entry->d_name, process)) count++;
    }
  }
  close(dir);
  return count;
}

static int by_pid(const void *a, const void *b) {
  return ((const struct process *)a)->pid - ((const struct process *)b)->pid;
}

/* Chooses the tree among the processes that live. Parents mostly come before their children: few rounds do. */
static int choose(pid_t guard, pid_t command, pid_t session) {
  int count = list_processes();
  qsort(found, (size_t)count, sizeof found[0], by_pid);
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < count; i++) {
      struct process *p = &found[i];
      if (p->chosen || p->pid == guard) continue;
      const struct process *parent = bsearch(&(struct process){.pid = p->ppid}, found, (size_t)count, sizeof *p, by_pid);
      p->chosen = (command > 0 && p->pid == command) || (session > 0 && p->session == session) ||
                  (guard > 0 && p->ppid == guard) || (parent != NULL && parent->chosen);
      changed = changed || p->chosen;
    }
  }
  int chosen = 0;
  for (int i = 0; i < count; i++) {
    if (found[i].chosen && found[i].state != 'Z' && found[i].state != 'X') found[chosen++] = found[i];
  }
  return chosen;
}

int tree_signal(pid_t guard, pid_t command, pid_t session, int signal) {
  int count = choose(guard, command, session);
  for (int i = 0; i < count; i++) kill(found[i].pid, signal);
  return count;
}

int tree_kill(pid_t guard, pid_t command, pid_t session, bool stop) {
  bool running = stop;
  for (int walk = 0; running && walk < STOP_WALKS; walk++) {
    int count = choose(guard, command, session);
    running = false;
    for (int i = 0; i < count; i++) {
      if (found[i].state == 'T') continue;
      running = true;
      kill(found[i].pid, SIGSTOP);
    }
  }
  return tree_signal(guard, command, session, SIGKILL);
}
