/*
 * Included before each source of the helper that is fuzzed: the calls that would reach beyond the process go to stubs.c.
 * Processes are numbers there, and time passes only when a harness says so.
 */
#ifndef FUZZ_STUBS_H
#define FUZZ_STUBS_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern jmp_buf stub_ended; /* _exit returns to it */
extern uint64_t stub_now_us;
extern const char *stub_root; /* opened in place of "/" */

/* Starts a process. Returns its pid, which names no real process. */
pid_t stub_start(void);
/* The same, but refuses a child whose end sends no signal: the helper waits for that one itself. */
pid_t stub_clone(int flags);
/* Forgets all processes. */
void stub_forget_processes(void);

int stub_clock(struct timespec *t);
_Noreturn void stub_exit(int code);
int stub_kill(pid_t pid, int signal);
pid_t stub_wait(int *status, struct rusage *usage);
long stub_syscall(long number, ...);
int stub_open(const char *path, int flags, ...);
int stub_refuse(void);
ssize_t stub_recv(void *bytes, size_t size);

#define clock_gettime(id, t) stub_clock(t)
#define _exit(code) stub_exit(code)
#define kill(pid, signal) stub_kill(pid, signal)
#define wait4(pid, status, options, usage) stub_wait(status, usage)
#define waitpid(pid, status, options) stub_wait(status, NULL)
#define waitid(type, id, info, options) stub_refuse()
#define clone(function, stack, flags, argument) stub_clone(flags)
#define setrlimit(resource, limit) (0)
#define epoll_ctl(epoll, op, fd, event) ((void)(event), 0)
#define send(fd, bytes, size, flags) ((ssize_t)(size))
#define recv(fd, bytes, size, flags) stub_recv(bytes, size)
#define pwrite(fd, bytes, size, at) ((ssize_t)(size))
#define bind(fd, address, size) stub_refuse()
#define unlink(path) stub_refuse()
#define mount(...) stub_refuse()
#define umount2(...) stub_refuse()
#define open(...) stub_open(__VA_ARGS__)
#ifndef FUZZ_FILES
#define syscall(...) stub_syscall(__VA_ARGS__)
#endif

#endif
