#define _GNU_SOURCE
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mounts.h"
#include "protocol.h"

enum {
  STACK_BYTES = 128 * 1024,
  FIND_TRIES = 8,     /* a process may end during the check */
  PIDS_BYTES = 8192,  /* more than the numbers of all processes that an instance may have */
  SECRET_MODE = 0400,
};

static const char code_kind[] = "code/";

struct secret {
  const char *name;
  const uint8_t *bytes;
  uint32_t len;
};

/* Pointers into the receive buffer. */
struct attachment {
  const char *procs, *code;
  uint32_t uid, secret_count;
  struct secret secrets[SECRET_FILES_MAX];
  int error; /* written by the child, in the launcher's memory */
  const char *step;
};

static bool failed(struct attachment *a, const char *step, bool done) {
  if (done) return false;
  a->error = errno;
  a->step = step;
  return true;
}

/* The instance (T1) */

/* Returns true if the group has the process `*pid`. A `*pid` of 0 stands for any process, and becomes its number. */
static bool is_listed(const char *procs, pid_t *pid) {
  char text[PIDS_BYTES];
  int fd = open(procs, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (n < 0) return false;
  text[n] = 0;
  char *end;
  for (const char *at = text; *at != 0; at = *end == 0 ? end : end + 1) {
    pid_t one = (pid_t)strtol(at, &end, 10);
    if (end == at || one <= 0) break;
    if (*pid == 0) *pid = one;
    if (*pid == one) return true;
  }
  errno = ESRCH;
  return false;
}

static int open_namespace(const char *procs) {
  for (int i = 0; i < FIND_TRIES; i++) {
    pid_t pid = 0;
    char path[48];
    if (!is_listed(procs, &pid)) return -1;
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
    int fd = pid_fd < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    /* The process of the pidfd lives, so the number was its own all along. */
    bool is_inside = fd >= 0 && is_listed(procs, &pid) && syscall(SYS_pidfd_send_signal, pid_fd, 0, NULL, 0) == 0;
    if (pid_fd >= 0) close(pid_fd);
    if (is_inside && mounts_are_foreign(fd)) return fd;
    if (fd >= 0) close(fd);
    if (is_inside) {
      errno = EPERM;
      return -1;
    }
  }
  errno = ESRCH;
  return -1;
}

/* The mounts */

static bool set_attributes(int fd, uint64_t attributes) {
  struct mount_attr wanted = {.attr_set = attributes, .propagation = MS_PRIVATE};
  return syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &wanted, sizeof wanted) == 0;
}

static int mount_code(struct attachment *a) {
  int fd = mounts_open_subvolume(a->code);
  if (failed(a, "code", fd >= 0)) return -1;
  int tree_fd = (int)syscall(SYS_open_tree, fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (failed(a, "mount of code", tree_fd >= 0)) return -1;
  uint64_t attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  return failed(a, "attributes of code", set_attributes(tree_fd, attributes)) ? -1 : tree_fd;
}

static bool write_secret(int directory, const struct secret *secret, uint32_t uid) {
  int fd = openat(directory, secret->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, SECRET_MODE);
  ssize_t n = fd < 0 ? -1 : write(fd, secret->bytes, secret->len);
  bool written = n == (ssize_t)secret->len && fchown(fd, uid, uid) == 0;
  if (n >= 0 && n != (ssize_t)secret->len) errno = ENOSPC;
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return written;
}

/* The directory is root's: only its mode says who may list it. */
static int mount_secrets(struct attachment *a) {
  int context = (int)syscall(SYS_fsopen, "ramfs", FSOPEN_CLOEXEC);
  bool made = context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "755", 0) == 0 &&
              syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0;
  uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  int fd = made ? (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes) : -1;
  if (failed(a, "mount of secrets", fd >= 0)) return -1;
  for (uint32_t i = 0; i < a->secret_count; i++) {
    if (failed(a, "secret", write_secret(fd, &a->secrets[i], a->uid))) return -1;
  }
  return failed(a, "attributes of secrets", set_attributes(fd, attributes | MOUNT_ATTR_RDONLY)) ? -1 : fd;
}

/* T2. Entering a namespace led to its root. */
static bool place(int mount_fd, const char *path) {
  struct open_how how = {
      .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
      .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
  };
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  return fd >= 0 && syscall(SYS_move_mount, mount_fd, "", fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
}

/* The child. Its descriptors close when it ends. */
static int attach(void *argument) {
  struct attachment *a = argument;
  int code_fd = -1, secrets_fd = -1;
  a->error = 0;
  if (*a->code != 0 && (code_fd = mount_code(a)) < 0) return 0;
  if (a->secret_count > 0 && (secrets_fd = mount_secrets(a)) < 0) return 0;
  int namespace = open_namespace(a->procs);
  if (failed(a, "instance", namespace >= 0)) return 0;
  if (failed(a, "mount namespace", setns(namespace, CLONE_NEWNS) == 0)) return 0;
  if (code_fd >= 0 && failed(a, "/function", place(code_fd, "function"))) return 0;
  if (secrets_fd >= 0) failed(a, "/run/secrets", place(secrets_fd, "run/secrets"));
  return 0;
}

/* The request */

static bool is_secret_name(const char *name) {
  size_t len = strlen(name);
  const char *allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  return len > 0 && len <= SECRET_NAME_MAX && *name != '.' && strspn(name, allowed) == len;
}

/* False when the body is malformed. What is wrong with its content is the attachment's error. */
static bool read_request(struct attachment *a, struct cursor *body) {
  struct wire_attach wire;
  *a = (struct attachment){0};
  bool read = take_bytes(body, &wire, sizeof wire);
  a->uid = wire.uid;
  a->procs = take_str(body);
  a->code = take_str(body);
  if (!read || body->bad) return false;
  uint64_t bytes = 0;
  bool fits = wire.secret_count <= SECRET_FILES_MAX;
  bool named = *a->code == 0 || strncmp(a->code, code_kind, strlen(code_kind)) == 0;
  for (uint32_t i = 0; fits && i < wire.secret_count; i++) {
    struct secret *secret = &a->secrets[i];
    secret->name = take_str(body);
    take_bytes(body, &secret->len, sizeof secret->len);
    secret->bytes = take_room(body, secret->len);
    if (body->bad) return false;
    bytes += secret->len;
    named = named && is_secret_name(secret->name);
  }
  a->secret_count = wire.secret_count;
  errno = E2BIG;
  if (failed(a, "secrets", fits && bytes <= SECRET_FILES_BYTES_MAX)) return true;
  errno = EINVAL;
  failed(a, "name", named);
  return true;
}

static void answer(struct conn *c, uint32_t id, const struct attachment *a) {
  char text[128] = "";
  if (a->error != 0) snprintf(text, sizeof text, "%s: %s", a->step, strerror(a->error));
  struct PACKED {
    uint32_t error, len;
  } head = {(uint32_t)a->error, (uint32_t)strlen(text) + 1};
  conn_send(c, ATTACHED, id, &head, sizeof head, text, head.len);
}

/*
 * The child borrows the launcher's memory, as after vfork: copying the page table would cost more than all the rest. It
 * shares neither descriptors nor the mount namespace. Without an exit signal no other wait reaps it.
 */
void attach_request(struct conn *c, uint32_t id, struct cursor *body) {
  static struct attachment a;
  static _Alignas(16) uint8_t stack[STACK_BYTES];
  uint8_t *begin = (uint8_t *)body->at;
  size_t len = body->left;
  if (!read_request(&a, body)) {
    c->dead = true;
    return;
  }
  if (a.error == 0) {
    a.error = EIO;
    a.step = "child";
    pid_t pid = clone(attach, stack + sizeof stack, CLONE_VM | CLONE_VFORK, &a);
    if (!failed(&a, "child", pid >= 0)) {
      while (waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR) continue;
    }
  }
  answer(c, id, &a);
  explicit_bzero(begin, len);
}
