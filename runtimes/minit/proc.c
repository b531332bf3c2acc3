#define _GNU_SOURCE
#include "proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tree.h"

enum {
  CHILD_STACK_BYTES = 16 * 1024,
  PIPE_SURE_BYTES = 4096,
  TOUCHED_MIN = 4096,
  REPORT_FD = 3,        /* in the guard */
  TERMINAL_READS = 1024, /* each gives 4 KiB at most, often less: more than a terminal holds of output */
};

static const char DEFAULT_PATH[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

static uint8_t scratch[SCRATCH_BYTES] __attribute__((aligned(4096)));
static bool scratch_touched;
static char child_stack[CHILD_STACK_BYTES] __attribute__((aligned(16)));

bool command_read(struct cursor *c, uint16_t argc, uint16_t envc, struct command *command) {
  static struct buf vectors;
  command->cwd = take_str(c);
  size_t slots = 1 + (size_t)argc + 1 + envc + 2;
  /* Every string takes at least five bytes, so a lying count is refused before anything is reserved for it. */
  if (c->bad || c->left < 5 * ((size_t)argc + envc)) return false;
  buf_take(&vectors, buf_len(&vectors));
  if (!buf_reserve(&vectors, slots * sizeof(char *))) return false;
  char **at = (char **)vectors.data;
  *at++ = NULL; /* room in front for the interpreter of a script without a #! line */
  command->argv = at;
  for (int i = 0; i < argc; i++) *at++ = take_str(c);
  *at++ = NULL;
  command->env = at;
  for (int i = 0; i < envc; i++) *at++ = take_str(c);
  at[0] = at[1] = NULL; /* room for the home directory */
  vectors.end = slots * sizeof(char *);
  return !c->bad;
}

void command_add_home(char **env, struct identity *identity) {
  for (; *env != NULL; env++) {
    if (strncmp(*env, "HOME=", 5) == 0) return;
  }
  env[0] = identity->home;
  env[1] = NULL;
}

/*
 * To PID 1 about a guarded command, with one write each: from the command itself its pid (EINPROGRESS), then from the
 * guard how the start went, then how the command ended.
 */
struct report {
  pid_t pid;
  int error;
  const char *failed_at; /* a literal, so it is at the same place in all of them */
  struct ending ending;
};

struct child {
  const struct start *start;
  int report_fd; /* -1: no guard */
  int fds[3];
  int passed[PASSED_MAX];
  int error;
  const char *failed_at;
};

static struct rlimit size_limit; /* of the files of commands, as this process began with it */
static bool is_size_limited;

bool proc_limit_own_files(uint64_t bytes_max) {
  if (getrlimit(RLIMIT_FSIZE, &size_limit) != 0) return false;
  struct rlimit own = size_limit;
  if (own.rlim_cur > bytes_max) own.rlim_cur = bytes_max;
  is_size_limited = setrlimit(RLIMIT_FSIZE, &own) == 0;
  return is_size_limited;
}

static void try_exec(const char *path, char **argv, char **env) {
  execve(path, argv, env);
  if (errno != ENOEXEC) return;
  argv[-1] = "/bin/sh";
  argv[0] = (char *)path;
  execve("/bin/sh", argv - 1, env);
  errno = ENOEXEC;
}

/* execvpe with the PATH of the command's own environment. Returns the errno that says most. */
static int exec_command(const struct command *command) {
  static char path[PATH_MAX];
  char *name = command->argv[0];
  if (*name == 0) return ENOENT;
  if (strchr(name, '/') != NULL) {
    try_exec(name, command->argv, command->env);
    return errno;
  }
  const char *dirs = DEFAULT_PATH;
  for (char **e = command->env; *e != NULL; e++) {
    if (strncmp(*e, "PATH=", 5) == 0) dirs = *e + 5;
  }
  int error = ENOENT;
  size_t name_len = strlen(name);
  for (const char *dir = dirs; dir != NULL;) {
    const char *end = strchrnul(dir, ':');
    size_t len = (size_t)(end - dir);
    if (len + name_len + 2 <= sizeof path) {
      memcpy(path, dir, len);
      if (len > 0) path[len++] = '/';
      memcpy(path + len, name, name_len + 1);
      try_exec(path, command->argv, command->env);
      if (errno == EACCES) error = EACCES;
      else if (errno != ENOENT && errno != ENOTDIR && errno != ENODEV && errno != ESTALE) return errno;
    }
    dir = *end == 0 ? NULL : end + 1;
  }
  return error;
}

/* Runs on its own stack in the parent's memory while the parent waits: no library state may be changed here. */
static int child_main(void *argument) {
  struct child *child = argument;
  const struct start *start = child->start;
  sigset_t none;
  sigemptyset(&none);
  child->failed_at = "spawn";
  setsid();
  int lowest = 3 + start->passed_count;
  for (int i = 0; i < start->passed_count; i++) {
    int fd = start->passed[i];
    child->passed[i] = fd >= lowest ? fd : fcntl(fd, F_DUPFD_CLOEXEC, lowest);
    if (child->passed[i] < 0) goto failed;
  }
  /* The parent's own 0, 1, 2 are open, so no pipe end lies there and dup2 always clears CLOEXEC. */
  for (int i = 0; i < 3; i++) {
    if (dup2(child->fds[i], i) < 0) goto failed;
  }
  for (int i = 0; i < start->passed_count; i++) {
    if (dup2(child->passed[i], 3 + i) < 0) goto failed;
  }
  if (start->terminal != NULL && ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0) goto failed;
  if (sigprocmask(SIG_SETMASK, &none, NULL) != 0) goto failed;
  if (is_size_limited && setrlimit(RLIMIT_FSIZE, &size_limit) != 0) goto failed;
  const char *cwd = start->command->cwd;
  if (cwd[0] != 0 && strcmp(cwd, "/") != 0 && chdir(cwd) != 0) {
    child->failed_at = "chdir";
    goto failed;
  }
  if (start->identity != NULL && !identity_enter(start->identity)) {
    child->failed_at = "user";
    goto failed;
  }
  child->failed_at = "";
  if (child->report_fd >= 0) {
    struct report report = {.pid = getpid(), .error = EINPROGRESS};
    if (write(child->report_fd, &report, sizeof report) != sizeof report) goto failed;
  }
  child->error = exec_command(start->command);
  _exit(127);
failed:
  child->error = errno;
  _exit(127);
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Starts the command and waits until it runs, or not: then `error` is set and nothing is left of it. */
static pid_t start_child(struct child *child) {
  pid_t pid = clone(child_main, child_stack + CHILD_STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
  if (pid < 0) child->error = errno;
  else if (child->error != 0) waitpid(pid, NULL, 0);
  return child->error == 0 ? pid : 0;
}

static _Noreturn void guard_main(struct child *child) {
  int report_fd = child->report_fd;
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "minit-guard");
  struct report report = {.pid = start_child(child), .error = child->error, .failed_at = child->failed_at};
  /* Before the first word, on which PID 1 waits: it finds no descriptor of its own held here. */
  bool told = (report_fd == REPORT_FD || dup2(report_fd, REPORT_FD) == REPORT_FD) &&
              close_range(REPORT_FD + 1, ~0U, 0) == 0 && write(REPORT_FD, &report, sizeof report) == sizeof report;
  if (!told || report.pid == 0) _exit(0);
  for (;;) {
    int status;
    struct rusage usage;
    pid_t pid = wait4(-1, &status, 0, &usage);
    if (pid < 0 && errno == ECHILD) _exit(0);
    if (pid != report.pid) continue;
    report.ending = proc_ending(status, &usage);
    if (write(REPORT_FD, &report, sizeof report) != sizeof report) _exit(0);
    report.pid = 0;
  }
}

/* Gives 0, or an errno. The guard tells the rest (P5). */
static int begin_guarded(struct proc *p, struct child *child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno;
  child->report_fd = ends[1];
  p->guard = fork();
  if (p->guard == 0) guard_main(child);
  int error = p->guard < 0 ? errno : 0;
  close_fd(&ends[1]);
  p->report_fd = ends[0];
  if (error != 0) p->guard = 0;
  p->starting = error == 0;
  return error;
}

static enum guard_news start_over(struct proc *p, int error, const char *failed_at) {
  p->starting = false;
  p->spawn_us = (uint32_t)(now_us() - p->started_us);
  if (error == 0) return GUARD_STARTED;
  p->pid = p->session = 0;
  p->error = error;
  p->failed_at = failed_at;
  return GUARD_FAILED;
}

enum guard_news proc_news(struct proc *p, struct ending *ending) {
  struct report report;
  ssize_t n;
  while ((n = p->report_fd < 0 ? 0 : read(p->report_fd, &report, sizeof report)) == sizeof report) {
    if (!p->starting) {
      *ending = report.ending;
      return GUARD_ENDED;
    }
    if (report.error != EINPROGRESS && report.error != 0) return start_over(p, report.error, report.failed_at);
    p->pid = p->session = report.pid;
    if (report.error == 0) return start_over(p, 0, "");
  }
  if (n < 0) return GUARD_QUIET;
  close_fd(&p->report_fd);
  if (!p->starting) return GUARD_GONE;
  /* A command that killed its guard at once runs, and has told its pid. */
  return start_over(p, p->pid > 0 ? 0 : ECHILD, "spawn");
}

void proc_unguard(struct proc *p) {
  if (p->guard > 0) kill(p->guard, SIGKILL);
  p->guard = 0;
  close_fd(&p->report_fd);
}

struct ending proc_ending(int status, const struct rusage *usage) {
  return (struct ending){
      .status = status,
      .cpu_us = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
                (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec),
      .maxrss_kb = (uint64_t)usage->ru_maxrss,
  };
}

static bool unblock(int fd) { return fcntl(fd, F_SETFL, O_NONBLOCK) == 0; }

/* Makes the pipes. What a fresh pipe surely takes is in it before the child exists: one wake-up less. */
static bool open_pipes(struct proc *p, const struct start *start, int theirs[3]) {
  int ends[2];
  if (start->input_len > 0 || start->input_open) {
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    theirs[0] = ends[0];
    p->in_fd = ends[1];
    p->in_open = start->input_open;
    bool simple = !start->input_open && start->input_len <= PIPE_SURE_BYTES;
    if (!simple && !unblock(p->in_fd)) return false;
    ssize_t n = start->input_len == 0 ? 0 : write(p->in_fd, start->input, start->input_len);
    if (n < 0) return false;
    size_t rest = start->input_len - (size_t)n;
    if (rest > 0 && !buf_append(&p->in, start->input + n, rest)) return false;
    if (rest == 0 && !p->in_open) close_fd(&p->in_fd);
  }
  for (int i = 0; i < 2; i++) {
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    p->out_fd[i] = ends[0];
    theirs[1 + i] = ends[1];
    if (!unblock(ends[0])) return false;
  }
  return true;
}

/* Makes a terminal. Our end is held twice, so that what is typed and what is shown are watched apart. */
static bool open_terminal(struct proc *p, const struct start *start, int theirs[3]) {
  int unlock = 0;
  int fd = p->out_fd[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 || ioctl(fd, TIOCSPTLCK, &unlock) != 0) return false;
  theirs[0] = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (theirs[0] < 0 || ioctl(fd, TIOCSWINSZ, start->terminal) != 0) return false;
  p->in_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  theirs[1] = fcntl(theirs[0], F_DUPFD_CLOEXEC, 3);
  theirs[2] = fcntl(theirs[0], F_DUPFD_CLOEXEC, 3);
  struct termios modes;
  if (p->in_fd < 0 || theirs[1] < 0 || theirs[2] < 0 || tcgetattr(fd, &modes) != 0) return false;
  modes.c_iflag |= IUTF8;
  p->in_open = true;
  if (tcsetattr(fd, TCSANOW, &modes) != 0) return false;
  return start->input_len == 0 || buf_append(&p->in, start->input, start->input_len);
}

bool proc_start(struct proc *p, const struct start *start) {
  p->in_fd = p->out_fd[0] = p->out_fd[1] = p->report_fd = -1;
  p->is_terminal = start->terminal != NULL;
  p->started_us = now_us();
  struct child child = {.start = start, .report_fd = -1, .failed_at = "spawn"};
  int theirs[3] = {-1, -1, -1};
  identity_own(start->identity, true);
  bool opened = start->refused == 0 && (p->is_terminal ? open_terminal(p, start, theirs) : open_pipes(p, start, theirs));
  int error = errno;
  identity_own(start->identity, false);
  if (start->refused != 0) {
    child.error = start->refused;
  } else if (opened) {
    for (int i = 0; i < 3; i++) child.fds[i] = theirs[i] >= 0 ? theirs[i] : start->null_fd;
    if (start->guarded) child.error = begin_guarded(p, &child);
    else p->pid = p->session = start_child(&child);
  } else {
    child.error = error;
    if (p->is_terminal) child.failed_at = "terminal";
  }
  for (int i = 0; i < 3; i++) close_fd(&theirs[i]);
  uint64_t now = now_us();
  p->spawn_us = (uint32_t)(now - p->started_us);
  /* Input that did not fit means that the command may fill its output pipes while it is being fed. */
  p->watch_us = buf_len(&p->in) > 0 ? now : now + WATCH_DELAY_US;
  if (child.error == 0) return true;
  p->error = child.error;
  p->failed_at = child.failed_at;
  proc_close(p);
  return false;
}

size_t proc_failure(const struct proc *p, const struct command *command, char *text, size_t size) {
  bool chdir = strcmp(p->failed_at, "chdir") == 0;
  int n = snprintf(text, size, "minit: %s%s%.200s: %s\n", p->failed_at, *p->failed_at == 0 ? "" : " ",
                   chdir ? command->cwd : command->argv[0], strerror(p->error));
  return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

bool proc_write(struct proc *p, const uint8_t *bytes, size_t len) {
  if (p->in_fd < 0 || !p->in_open) return true;
  if (!buf_append(&p->in, bytes, len)) return false;
  proc_feed(p);
  return true;
}

/* A terminal has no end of its input but the character for it. */
void proc_write_end(struct proc *p) {
  struct termios modes;
  if (p->is_terminal && p->in_open && p->in_fd >= 0 && tcgetattr(p->in_fd, &modes) == 0) {
    buf_append(&p->in, &modes.c_cc[VEOF], 1);
  }
  p->in_open = false;
  proc_feed(p);
}

void proc_hang_up(struct proc *p) {
  close_fd(&p->in_fd);
  close_fd(&p->out_fd[0]);
  p->in_open = p->in_watched = p->out_watched[0] = false;
  buf_free(&p->in);
}

/* Writes what the pipe takes. A reader that is gone (EPIPE) is no error: the rest is dropped. */
void proc_feed(struct proc *p) {
  if (p->in_fd < 0) return;
  while (buf_len(&p->in) > 0) {
    ssize_t n = write(p->in_fd, p->in.data + p->in.start, buf_len(&p->in));
    if (n > 0) {
      buf_take(&p->in, (size_t)n);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      p->in_open = false;
      break;
    }
  }
  if (p->in_open) return;
  close_fd(&p->in_fd);
  p->in_watched = false;
  buf_free(&p->in);
}

enum proc_read proc_read_into(struct proc *p, int stream, uint8_t *bytes, size_t size, size_t *kept) {
  *kept = 0;
  if (p->out_fd[stream] < 0) return READ_END;
  ssize_t n;
  do n = read(p->out_fd[stream], bytes, size);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return READ_NONE;
  if (n <= 0) {
    close_fd(&p->out_fd[stream]);
    p->out_watched[stream] = false;
    return READ_END;
  }
  *kept = (size_t)n;
  if (p->out_left[stream] != UINT32_MAX) {
    if (*kept > p->out_left[stream]) *kept = p->out_left[stream];
    p->out_left[stream] -= (uint32_t)*kept;
    if (*kept < (size_t)n) p->truncated[stream] = true;
  }
  return (size_t)n == size ? READ_FULL : READ_SOME;
}

enum proc_read proc_read(struct proc *p, int stream, const uint8_t **bytes, size_t *kept) {
  *bytes = scratch;
  enum proc_read got = proc_read_into(p, stream, scratch, sizeof scratch, kept);
  if (got == READ_FULL || *kept > TOUCHED_MIN) scratch_touched = true;
  return got;
}

int proc_reads_left(const struct proc *p, int stream) {
  if (p->is_terminal) return TERMINAL_READS;
  return fcntl(p->out_fd[stream], F_GETPIPE_SZ) / SCRATCH_BYTES + 1;
}

static bool watch_one(struct server *s, int fd, bool *watched, bool wanted, uint32_t tag, uint32_t slot) {
  if (fd < 0 || *watched == wanted) return true;
  *watched = wanted;
  uint32_t events = tag == TAG_STDIN ? EPOLLOUT : EPOLLIN;
  return server_watch(s, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, events, tag, slot);
}

bool proc_watch(struct proc *p, struct server *s, uint32_t slot, bool output) {
  return watch_one(s, p->in_fd, &p->in_watched, buf_len(&p->in) > 0, TAG_STDIN, slot) &&
         watch_one(s, p->out_fd[0], &p->out_watched[0], output, TAG_STDOUT, slot) &&
         watch_one(s, p->out_fd[1], &p->out_watched[1], output, TAG_STDERR, slot);
}

bool proc_unwatched(const struct proc *p) {
  return (p->out_fd[0] >= 0 && !p->out_watched[0]) || (p->out_fd[1] >= 0 && !p->out_watched[1]);
}

void proc_close(struct proc *p) {
  close_fd(&p->in_fd);
  close_fd(&p->out_fd[0]);
  close_fd(&p->out_fd[1]);
  proc_unguard(p);
  buf_free(&p->in);
  p->in_watched = p->out_watched[0] = p->out_watched[1] = false;
}

uint32_t exit_code_of(int status) {
  return (uint32_t)(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

void proc_trim(void) {
  if (!scratch_touched) return;
  scratch_touched = false;
  madvise(scratch, sizeof scratch, MADV_DONTNEED);
}
