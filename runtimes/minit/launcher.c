/*
 * The daemon's helper: runs commands (a fork of the daemon itself would cost milliseconds), hands them listening
 * sockets, makes network namespaces, keeps the storage pool and mounts of containers, looks at files below an untrusted
 * root. Has a mount namespace of its own.
 *
 * L1 It ends with its daemon: end of standard input is the end. Signals from a terminal do not reach it.
 * L2 It reaps whatever is reparented to it: it is the subreaper of detached containers.
 * L3 A job outlives its connection; its answer is dropped, and a namespace that nobody learned of is closed.
 * L4 While a link is being made, no other request for its name begins: none undoes what a newer one made.
 */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach.h"
#include "frame.h"
#include "mounts.h"
#include "netns.h"
#include "proc.h"
#include "protocol.h"

enum {
  JOBS_MAX = 128, /* more than the file helpers of all tenants that start at once */
  LAUNCHER_CONNECTIONS_MAX = 32,
  LISTEN_BACKLOG = 512, /* a container is asked for many commands at once */
  STDOUT_MAX = 1024 * 1024,
  STDERR_MAX = 64 * 1024,
  OPEN_TRIES = 8, /* openat2 gives EAGAIN when a rename happened below it */
  FD_NONE = -1,
};

enum kind { NO_JOB, COMMAND, ADDING, REMOVING, STORING };

struct job {
  enum kind kind;
  struct conn *conn; /* NULL: the connection is gone */
  uint32_t id, result;
  struct proc proc; /* of the other kinds only the pid counts */
  char host_ifname[IFNAMSIZ]; /* of ADDING; cut off when it is too long to be one */
  struct buf output[2]; /* the first begins with room for the head of the answer */
  bool ended;
  int status;
  uint64_t deadline_us, ended_us; /* deadline UINT64_MAX: none, or already killed */
};

static struct server server;
static struct job jobs[JOBS_MAX];
static struct netns_result *results; /* one per job, in memory shared with its child */
static int null_fd;

static struct job *free_job(void) {
  for (int i = 0; i < JOBS_MAX; i++) {
    if (jobs[i].kind == NO_JOB) return &jobs[i];
  }
  errno = EAGAIN;
  return NULL;
}

/* Commands */

static void refuse_spawn(struct conn *c, uint32_t id, int error, const char *text) {
  uint32_t exit_code = error == ENOENT ? 127 : 126;
  struct wire_spawned head = {.exit_code = exit_code, .flags = RESULT_SPAWN_FAILED, .error = (uint32_t)error};
  conn_send(c, SPAWNED, id, &head, sizeof head, text, strlen(text));
}

static int listen_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  unlink(path);
  /* The mode comes from the umask, so the socket is never there with a wider one. */
  mode_t before = umask(0177);
  bool bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
  umask(before);
  if (bound && listen(fd, LISTEN_BACKLOG) == 0) return fd;
  int error = errno;
  close(fd);
  if (bound) unlink(path);
  errno = error;
  return -1;
}

/* A file to be passed on; what was in it before stays. */
static int file_at(const char *path) {
  return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static void spawn(struct conn *c, uint32_t id, struct cursor *body) {
  struct wire_spawn request;
  struct command command;
  char *paths[PASSED_MAX];
  int fds[PASSED_MAX], opened = 0;
  char text[512];
  bool read = take_bytes(body, &request, sizeof request) && request.argc > 0;
  int count = request.listen_count + request.file_count;
  read = read && count <= PASSED_MAX && command_read(body, request.argc, request.envc, &command);
  for (int i = 0; read && i < count; i++) paths[i] = take_str(body);
  if (!read || body->bad) {
    c->dead = true;
    return;
  }
  struct job *job = free_job();
  if (job == NULL) {
    refuse_spawn(c, id, EAGAIN, "minit: too many jobs\n");
    return;
  }
  *job = (struct job){.conn = c, .id = id, .deadline_us = UINT64_MAX};
  job->proc.out_left[0] = STDOUT_MAX;
  job->proc.out_left[1] = STDERR_MAX;
  struct wire_spawned room = {0};
  if (!buf_append(&job->output[0], &room, sizeof room)) {
    refuse_spawn(c, id, ENOMEM, "minit: out of memory\n");
    return;
  }
  for (; opened < count; opened++) {
    fds[opened] = opened < request.listen_count ? listen_at(paths[opened]) : file_at(paths[opened]);
    if (fds[opened] < 0) break;
  }
  bool started = false;
  if (opened < count) {
    job->proc.error = errno;
    const char *step = opened < request.listen_count ? "listen" : "open";
    snprintf(text, sizeof text, "minit: %s %.200s: %s\n", step, paths[opened], strerror(errno));
  } else {
    struct start start = {
        .command = &command,
        .input = body->at,
        .input_len = body->left,
        .null_fd = null_fd,
        .passed = fds,
        .passed_count = opened,
    };
    started = proc_start(&job->proc, &start);
    if (!started) proc_failure(&job->proc, &command, text, sizeof text);
  }
  for (int i = 0; i < opened; i++) {
    close(fds[i]);
    if (!started && i < request.listen_count) unlink(paths[i]);
  }
  if (!started) {
    buf_free(&job->output[0]);
    refuse_spawn(c, id, job->proc.error, text);
    return;
  }
  job->kind = COMMAND;
  if (request.timeout_ms > 0) job->deadline_us = job->proc.started_us + (uint64_t)request.timeout_ms * 1000;
}

static enum proc_read collect(struct job *job, int stream) {
  const uint8_t *bytes;
  size_t len;
  enum proc_read got = proc_read(&job->proc, stream, &bytes, &len);
  if (len > 0 && !buf_append(&job->output[stream], bytes, len)) job->proc.truncated[stream] = true;
  return got;
}

static void finish_command(struct job *job) {
  for (int stream = 0; stream < 2; stream++) {
    /* A detached process may hold the pipe and go on writing: the cap is the bound. */
    while (collect(job, stream) == READ_FULL && !job->proc.truncated[stream]) continue;
  }
  if (job->proc.truncated[0] || job->proc.truncated[1]) job->result |= RESULT_TRUNCATED;
  struct wire_spawned head = {
      .exit_code = exit_code_of(job->status),
      .signal = WIFSIGNALED(job->status) ? (uint32_t)WTERMSIG(job->status) : 0,
      .flags = job->result,
      .duration_us = job->ended_us - job->proc.started_us,
      .stdout_len = (uint32_t)(buf_len(&job->output[0]) - sizeof head),
  };
  memcpy(job->output[0].data, &head, sizeof head);
  conn_send(job->conn, SPAWNED, job->id, job->output[0].data, buf_len(&job->output[0]), job->output[1].data,
            buf_len(&job->output[1]));
  proc_close(&job->proc);
  proc_trim();
  buf_free(&job->output[0]);
  buf_free(&job->output[1]);
}

/* Network namespaces */

static void send_netns(struct conn *c, uint32_t id, const struct netns_result *result) {
  char text[128] = "";
  if (result->error != 0) snprintf(text, sizeof text, "%s: %s", result->step, strerror(result->error));
  struct PACKED {
    struct wire_netns netns;
    uint32_t len;
  } head = {{(uint32_t)result->error, (uint32_t)result->fd, (uint32_t)result->user_fd}, (uint32_t)strlen(text) + 1};
  conn_send(c, NETNS, id, &head, sizeof head, text, head.len);
}

static bool is_being_made(const char *host_ifname, size_t len) {
  for (int i = 0; i < JOBS_MAX; i++) {
    const char *name = jobs[i].host_ifname;
    if (jobs[i].kind == ADDING && strlen(name) == len && strncmp(name, host_ifname, len) == 0) return true;
  }
  return false;
}

static bool is_one_being_made(const char *names) {
  for (const char *end; (end = strchr(names, '\n')) != NULL; names = end + 1) {
    if (is_being_made(names, (size_t)(end - names))) return true;
  }
  return false;
}

static void refuse_netns(struct conn *c, uint32_t id, const char *step, int error) {
  struct netns_result refused = {.error = error, .fd = FD_NONE, .user_fd = FD_NONE};
  snprintf(refused.step, sizeof refused.step, "%s", step);
  send_netns(c, id, &refused);
}

/*
 * Returns 0 in a child with the launcher's descriptor table, which does the work and ends; the job's result is its. The
 * launcher gets another number, with the job or the refusal made. The request may point into the receive buffer.
 */
static pid_t fork_netns(struct conn *c, uint32_t id, enum kind kind, const char *name, struct netns_result **result) {
  struct job *job = free_job();
  pid_t pid = -1;
  if (job != NULL) {
    *result = &results[job - jobs];
    **result = (struct netns_result){.error = EIO, .fd = FD_NONE, .user_fd = FD_NONE, .step = "child"};
    pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
  }
  if (pid < 0) refuse_netns(c, id, "start", errno);
  else if (pid > 0) {
    *job = (struct job){.kind = kind, .conn = c, .id = id, .proc.pid = pid};
    strncpy(job->host_ifname, name, IFNAMSIZ - 1);
  }
  return pid;
}

static void netns_add_request(struct conn *c, uint32_t id, struct cursor *body) {
  struct wire_netns_add wire;
  bool read = take_bytes(body, &wire, sizeof wire);
  struct netns_request request = {
      .first_id = wire.first_id, .address = wire.address, .gateway = wire.gateway, .group = wire.group};
  request.host_ifname = take_str(body);
  if (!read || body->bad) {
    c->dead = true;
    return;
  }
  if (is_being_made(request.host_ifname, strnlen(request.host_ifname, IFNAMSIZ - 1))) {
    refuse_netns(c, id, "start", EBUSY);
    return;
  }
  struct netns_result *result;
  if (fork_netns(c, id, ADDING, request.host_ifname, &result) != 0) return;
  netns_add(&request, result);
  _exit(0);
}

/* Only descriptors of such namespaces are ever closed on request. */
static bool is_namespace(int fd) {
  int type = ioctl(fd, NS_GET_NSTYPE);
  return type == CLONE_NEWNET || type == CLONE_NEWUSER;
}

/* Once, whatever becomes of the rest: the numbers may soon be others'. */
static bool close_namespaces(const uint8_t *fds, uint32_t count) {
  bool closed = true;
  for (uint32_t i = 0; i < count; i++) {
    int fd;
    memcpy(&fd, fds + i * sizeof fd, sizeof fd);
    if (!is_namespace(fd)) closed = false;
    else close(fd);
  }
  return closed;
}

static void netns_end_request(struct conn *c, uint8_t type, uint32_t id, struct cursor *body) {
  struct wire_netns_end wire;
  bool read = take_bytes(body, &wire, sizeof wire);
  const uint8_t *fds = take_room(body, (size_t)wire.fds_count * sizeof(int));
  struct address_set addresses = {.first = wire.first_address, .bytes = wire.bits_bytes};
  addresses.bits = take_room(body, wire.bits_bytes);
  struct netns_group group = {.group = wire.group, .names = take_str(body)};
  if (!read || body->bad) {
    c->dead = true;
    return;
  }
  int refused = !close_namespaces(fds, wire.fds_count) ? EBADF : is_one_being_made(group.names) ? EBUSY : 0;
  if (refused != 0) {
    refuse_netns(c, id, "namespaces", refused);
    return;
  }
  struct netns_result *result;
  if (fork_netns(c, id, REMOVING, "", &result) != 0) return;
  if (type == NETNS_CUT) netns_cut(&group, result);
  else netns_remove(&group, &addresses, result);
  _exit(0);
}

static void finish_netns(struct job *job) {
  const struct netns_result *result = &results[job - jobs];
  if (job->conn == NULL && result->fd >= 0) close(result->fd);
  if (job->conn == NULL && result->user_fd >= 0) close(result->user_fd);
  send_netns(job->conn, job->id, result);
}

/* The storage pool and mounts */

static void start_storage(struct conn *c, uint8_t type, uint32_t id, struct cursor *body) {
  struct storage_request request;
  if (!storage_read(&request, type, body)) {
    c->dead = true;
    return;
  }
  struct job *job = free_job();
  pid_t pid = job == NULL ? -1 : storage_start(job - jobs, &request);
  if (pid < 0) storage_refuse(c, id, errno);
  else *job = (struct job){.kind = STORING, .conn = c, .id = id, .proc.pid = pid};
}

/* Files */

static void stat_in_root(struct conn *c, uint32_t id, struct cursor *body, uint64_t more_flags) {
  const char *root = take_str(body), *path = take_str(body);
  if (body->bad) {
    c->dead = true;
    return;
  }
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | more_flags, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
  struct stat info = {0};
  int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int fd = root_fd;
  for (int i = 0; root_fd >= 0 && i < OPEN_TRIES; i++) {
    fd = (int)syscall(SYS_openat2, root_fd, *path == 0 ? "." : path, &how, sizeof how);
    if (fd >= 0 || errno != EAGAIN) break;
  }
  int error = fd < 0 || fstat(fd, &info) != 0 ? errno : 0;
  if (fd >= 0) close(fd);
  if (root_fd >= 0) close(root_fd);
  struct wire_stated answer = {(uint32_t)error, info.st_mode, (uint64_t)info.st_size};
  conn_send(c, STATED, id, &answer, sizeof answer, NULL, 0);
}

/* The loop's hooks */

/* A request that finds no free job waits in its connection. */
static void hold_requests(void) {
  bool is_full = free_job() == NULL;
  for (int i = 0; i < server.conns_top; i++) server.conns[i].held = is_full;
}

static void on_frame(struct conn *c, uint8_t type, uint32_t id, struct cursor *body) {
  if (type == SPAWN) spawn(c, id, body);
  else if (type == NETNS_ADD) netns_add_request(c, id, body);
  else if (type == NETNS_CUT || type == NETNS_REMOVE) netns_end_request(c, type, id, body);
  else if (type == STAT_IN_ROOT) stat_in_root(c, id, body, 0);
  else if (type == LSTAT_IN_ROOT) stat_in_root(c, id, body, O_NOFOLLOW);
  else if (is_storage_request(type)) start_storage(c, type, id, body);
  else if (type == ATTACH) attach_request(c, id, body);
  else if (type == LAUNCHER_PING) conn_send(c, LAUNCHER_PONG, id, NULL, 0, NULL, 0);
  else c->dead = true;
  hold_requests();
}

static void on_close(struct conn *c) {
  for (int i = 0; i < JOBS_MAX; i++) {
    if (jobs[i].conn == c) jobs[i].conn = NULL;
  }
}

static void on_event(uint32_t tag, uint32_t slot) {
  if (tag == TAG_PARENT) {
    char ignored[256];
    if (read(STDIN_FILENO, ignored, sizeof ignored) == 0) _exit(0);
    return;
  }
  struct job *job = &jobs[slot];
  if (job->kind != COMMAND) return;
  if (tag == TAG_STDIN) proc_feed(&job->proc);
  else collect(job, tag == TAG_STDOUT ? 0 : 1);
}

static void reap(uint64_t now) {
  for (;;) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return;
    for (int i = 0; i < JOBS_MAX; i++) {
      struct job *job = &jobs[i];
      if (job->kind == NO_JOB || job->proc.pid != pid) continue;
      job->proc.pid = 0;
      job->ended = true;
      job->status = status;
      job->ended_us = now;
    }
  }
}

static void advance(struct job *job, uint64_t now) {
  if (job->ended) {
    if (job->kind == COMMAND) finish_command(job);
    else if (job->kind == STORING) storage_finish(job - jobs, job->conn, job->id);
    else finish_netns(job);
    job->kind = NO_JOB;
    job->conn = NULL;
  } else if (job->kind == COMMAND) {
    bool watched = proc_watch(&job->proc, &server, (uint32_t)(job - jobs), now >= job->proc.watch_us);
    if (now < job->deadline_us && watched) return;
    if (now >= job->deadline_us) job->result |= RESULT_TIMED_OUT;
    job->deadline_us = UINT64_MAX;
    kill(-job->proc.pid, SIGKILL);
  }
}

static void on_turn(uint64_t now) {
  if (server.child_ended) reap(now);
  server.child_ended = false;
  for (int i = 0; i < JOBS_MAX; i++) {
    if (jobs[i].kind != NO_JOB) advance(&jobs[i], now);
  }
  hold_requests();
}

static uint64_t next_wake_us(void) {
  uint64_t wake = UINT64_MAX;
  for (int i = 0; i < JOBS_MAX; i++) {
    if (jobs[i].kind != COMMAND) continue;
    if (jobs[i].deadline_us < wake) wake = jobs[i].deadline_us;
    if (proc_unwatched(&jobs[i].proc) && jobs[i].proc.watch_us < wake) wake = jobs[i].proc.watch_us;
  }
  return wake;
}

static bool may_connect(int fd) {
  struct ucred peer;
  socklen_t len = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == 0;
}

static const struct server hooks = {
    .connections_max = LAUNCHER_CONNECTIONS_MAX,
    .may_connect = may_connect,
    .on_frame = on_frame,
    .on_close = on_close,
    .on_event = on_event,
    .on_turn = on_turn,
    .next_wake_us = next_wake_us,
};

int launcher_main(const char *path, bool private_tmp) {
  reset_signals();
  const int quiet[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++) quiet_signal(quiet[i]);
  umask(022);
  null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd <= STDERR_FILENO) fatal("0, 1 and 2 must be open");
  if (close_range((unsigned)null_fd + 1, ~0U, 0) != 0) fatal("close_range");
  if (setsid() < 0 && errno != EPERM) fatal("setsid");
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || prctl(PR_SET_NAME, "hearth-launcher") != 0) fatal("prctl");
  if (chdir("/") != 0) fatal("chdir /");
  if (!mounts_unshare(private_tmp)) fatal("mount namespace");
  results = mmap(NULL, sizeof *results * JOBS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (results == MAP_FAILED || !storage_init(JOBS_MAX)) fatal("mmap");
  server = hooks;
  server.listen_fd = listen_at(path);
  if (server.listen_fd < 0 || fcntl(server.listen_fd, F_SETFL, O_NONBLOCK) != 0) fatal(path);
  if (!server_init(&server)) fatal("epoll");
  bool watched = server_watch(&server, EPOLL_CTL_ADD, STDIN_FILENO, EPOLLIN, TAG_PARENT, 0);
  if (!watched) fatal("standard input must be a pipe");
  if (dprintf(STDOUT_FILENO, "ready\n") != 6) fatal("ready");
  server_run(&server);
}
