/*
 * One child process with its three pipes, or with a terminal: spawning, feeding stdin, reading output under a cap.
 * Leaves to the modes what the output is for, when the process is killed, and reaping.
 *
 * P1 The child shares no descriptor with its parent but 0, 1, 2 and those passed on purpose: all others are CLOEXEC.
 * P2 Our pipe ends never block: whoever holds the other end decides nothing about this process.
 * P3 Output pipes are watched only WATCH_DELAY_US after the spawn, so that a short command wakes its parent once, by
 *    its exit; what lies in the pipes is then read without ever having been announced.
 * P4 A guarded command is started by a process that stands between it and PID 1, the guard. It is a subreaper, so
 *    whatever descends from the command stays below the guard, in whichever session, however often its parents end.
 *    It tells of the start and of the end of the command, and ends itself once nothing is left below it. Only a
 *    command that kills its own guard loses it: it is a child of PID 1 then, and known by its session and parents.
 * P5 PID 1 never waits for a guard: code in the container can stop one. A guarded start is over when `proc_news` says so.
 */
#ifndef MINIT_PROC_H
#define MINIT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "frame.h"
#include "identity.h"

enum {
  WATCH_DELAY_US = 1000,
  SCRATCH_BYTES = 64 * 1024,
  PASSED_MAX = 16,
  STDIN_QUEUE_MAX = 1024 * 1024, /* above this the connection is not read: its later frames wait for the command */
};

struct command {
  char *cwd, **argv, **env;
};

/* Reads str cwd, argc strings, envc strings. The vectors are valid until the next call. */
bool command_read(struct cursor *c, uint16_t argc, uint16_t envc, struct command *command);
/* Adds the home directory where the environment has none. `env` has room for one more. */
void command_add_home(char **env, struct identity *identity);

struct proc {
  pid_t pid; /* 0: none, or reaped */
  pid_t session;
  pid_t guard;   /* 0: none, or reaped */
  int report_fd; /* of the guard, -1: none, or nothing more comes */
  bool starting; /* the guard has not told yet how the start went (P5) */
  bool is_terminal;
  int in_fd, out_fd[2];
  bool in_open, in_watched, out_watched[2];
  uint32_t out_left[2]; /* bytes that may still be kept */
  bool truncated[2];
  struct buf in; /* stdin that the pipe did not take yet */
  uint64_t started_us;
  uint64_t watch_us; /* when the output pipes are to be watched */
  uint32_t spawn_us;
  int error;             /* errno of a failed start */
  const char *failed_at; /* "chdir", "spawn", "terminal", "user" or "" for the command itself */
};

/* How a process ended. */
struct ending {
  int status;
  uint64_t cpu_us, maxrss_kb;
};

struct start {
  const struct command *command;
  const uint8_t *input;
  size_t input_len;
  bool input_open; /* more follows through proc_write */
  int refused; /* errno to fail with instead of starting, 0: none */
  bool guarded;
  const struct winsize *terminal; /* NULL: pipes */
  const struct identity *identity; /* NULL: that of this process */
  int null_fd;
  const int *passed; /* become 3, 4, ... in the child */
  int passed_count;
};

/*
 * Limits the files that this process itself writes (RLIMIT_FSIZE); its commands keep the limit that it began with. False with
 * errno.
 */
bool proc_limit_own_files(uint64_t bytes_max);
/*
 * Starts the command in a session of its own, a guarded one in the background (P5). False: nothing is left of it, `error`
 * and `failed_at` say why.
 */
bool proc_start(struct proc *p, const struct start *start);
/* Queues stdin. False when memory ran out; input for a command that closed its stdin is dropped. */
bool proc_write(struct proc *p, const uint8_t *bytes, size_t len);
void proc_write_end(struct proc *p);
void proc_feed(struct proc *p);

/*
 * Returns the guard's latest message: the command runs, could not be started, or has ended, with its status. GUARD_GONE:
 * the guard has ended, and sends no more messages.
 */
enum guard_news { GUARD_QUIET, GUARD_STARTED, GUARD_FAILED, GUARD_ENDED, GUARD_GONE };
enum guard_news proc_news(struct proc *p, struct ending *ending);
/* Ends the guard: what is left below it belongs to PID 1 from then on. */
void proc_unguard(struct proc *p);
/* Sends SIGHUP as a terminal that is taken away does. */
void proc_hang_up(struct proc *p);

enum proc_read { READ_NONE, READ_SOME, READ_FULL, READ_END };
/* One read of stream 0 (stdout) or 1. `kept` bytes at `*bytes` are within the cap. READ_FULL: more may wait. */
enum proc_read proc_read(struct proc *p, int stream, const uint8_t **bytes, size_t *kept);
/* The same into a place of the caller's. READ_FULL: all of `size` was used. */
enum proc_read proc_read_into(struct proc *p, int stream, uint8_t *bytes, size_t size, size_t *kept);
/* How often a full proc_read empties what the pipe can hold at most. */
int proc_reads_left(const struct proc *p, int stream);
/* Puts the watched state of all pipes to what it should be. False when epoll refused. */
bool proc_watch(struct proc *p, struct server *s, uint32_t slot, bool output);
/* Whether an open output pipe is not watched yet. */
bool proc_unwatched(const struct proc *p);
void proc_close(struct proc *p);
/* "minit: <step> <subject>: <reason>\n" for a failed start. */
size_t proc_failure(const struct proc *p, const struct command *command, char *text, size_t size);
struct ending proc_ending(int status, const struct rusage *usage);
/* 0 to 255 as a shell says it. */
uint32_t exit_code_of(int status);
/* Gives the pages of the read buffer back. */
void proc_trim(void);

#endif
