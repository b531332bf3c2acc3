/*
 * The server of files: one process per session, jailed in one tree (jail.c), which does there what the daemon asks.
 * What the tree's owners do meanwhile can change what it finds, never where it looks (place.c).
 *
 * V1 It ends with its connection, wherever that is noticed: between two requests, or by what it sends.
 * V2 What is written becomes visible whole: content goes to a temporary name in the same directory, which is renamed.
 * V3 A request of many frames has one answer, sent as soon as it is known: what still comes of it is passed over.
 */
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "file-wire.h"
#include "frame.h"
#include "jail.h"
#include "place.h"
#include "protocol.h"
#include "file-tree.h"

enum {
  LISTEN_FD = 3,
  CONNECT_MS = 5 * 1000,
  IDLE_S = 600, /* without a request, or without a reader of an answer */
  NAME_TRIES = 16,
  MODE_BITS = 07777,
  EXIT_BASE = 64,
};

/* The file that is being written. */
static struct {
  bool active;
  uint32_t id;
  int fd;
  struct place place;
  char temporary[32];
  struct wire_file head;
} writing;

static uint64_t serial;

/* Owner, mode and time as asked for; what was made belongs to root inside unless another is named (jail.h). */
static int set_attributes(int fd, const struct wire_file *head) {
  uint32_t uid = 0, gid = 0;
  bool owned = (head->flags & FILE_OWNER) != 0;
  if (owned && (!owner_outside(head->uid, &uid) || !owner_outside(head->gid, &gid))) return EOVERFLOW;
  if (owned && fchown(fd, uid, gid) != 0) return errno;
  /* After the owner: a change of that one takes the set-uid bit away. */
  if ((head->flags & FILE_MODE) && fchmod(fd, head->mode & MODE_BITS) != 0) return errno;
  if ((head->flags & FILE_MTIME) == 0) return 0;
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = head->mtime_s, .tv_nsec = head->mtime_ns}};
  return futimens(fd, times) == 0 ? 0 : errno;
}

/* Writing */

static void abandon_write(void) {
  if (!writing.active) return;
  writing.active = false;
  unlinkat(writing.place.dir, writing.temporary, 0);
  close(writing.fd);
  place_close(&writing.place);
}

static void fail_write(int error) {
  abandon_write();
  wire_done(writing.id, error, 0);
}

static int make_temporary(void) {
  for (int i = 0; i < NAME_TRIES; i++) {
    snprintf(writing.temporary, sizeof writing.temporary, ".hearth-%016llx", (unsigned long long)serial++);
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    writing.fd = openat(writing.place.dir, writing.temporary, flags, 0600);
    if (writing.fd >= 0) return 0;
    if (errno != EEXIST) break;
  }
  return errno;
}

static void add_content(const uint8_t *bytes, size_t len) {
  while (len > 0) {
    ssize_t n = write(writing.fd, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      fail_write(errno);
      return;
    }
    bytes += n;
    len -= (size_t)n;
  }
}

static void end_write(void) {
  int error = set_attributes(writing.fd, &writing.head);
  const struct place *place = &writing.place;
  if (error == 0 && rename_at(place->dir, writing.temporary, place->dir, place->name, 0) != 0) {
    error = errno;
  }
  if (error != 0) {
    fail_write(error);
    return;
  }
  writing.active = false;
  close(writing.fd);
  place_close(&writing.place);
  wire_done(writing.id, 0, 0);
}

static void begin_write(const struct request *r) {
  if (writing.active) fail_write(ECANCELED);
  writing.id = r->id;
  writing.head = r->head;
  int error = place_find(r->path, r->head.flags, &writing.place) ? make_temporary() : errno;
  if (error != 0) {
    place_close(&writing.place);
    wire_done(r->id, error, 0);
    return;
  }
  writing.active = true;
  add_content(r->data, r->len);
  if (writing.active && (r->head.flags & FILE_MORE) == 0) end_write();
}

static void go_on_writing(const struct request *r) {
  if (!writing.active || r->id != writing.id) return;
  if (r->type == FILE_DATA) add_content(r->data, r->len);
  else if (r->type == FILE_END) end_write();
  else fail_write(ECANCELED);
}

/* The other requests; each gives an errno. */

static int read_file(const struct request *r, uint64_t *count) {
  struct stat info;
  int fd = place_open_file(r->path, r->head.flags, &info);
  if (fd < 0) return errno;
  wire_entry(r->id, &info, "", "", 0, false);
  *count = wire_content(r->id, fd, r->head.offset, r->head.length, false);
  close(fd);
  return 0;
}

static int stat_path(const struct request *r) {
  struct stat info;
  if (r->head.flags & FILE_FOLLOW || *r->path == 0 || strcmp(r->path, "/") == 0) {
    if (!place_stat(r->path, r->head.flags, &info)) return errno;
    wire_entry(r->id, &info, "", "", 0, false);
    return 0;
  }
  struct place place;
  if (!place_find(r->path, r->head.flags, &place)) return errno;
  int error = fstatat(place.dir, place.name, &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  if (error == 0) file_tree_entry(r->id, place.dir, place.name);
  place_close(&place);
  return error;
}

static int list_dir(const struct request *r, uint64_t *count) {
  int dir = place_open_dir(r->path, r->head.flags);
  if (dir < 0) return errno;
  int error = file_tree_list(r->id, dir, r->head.offset, r->head.length, count);
  close(dir);
  return error;
}

static int walk(const struct request *r) {
  int dir = place_open_dir(r->path, r->head.flags);
  if (dir >= 0) return file_tree_walk(r->id, dir, (r->head.flags & FILE_OTHERS) != 0);
  if (errno != ENOTDIR) return errno;
  struct stat info;
  int fd = place_open_file(r->path, r->head.flags | FILE_FOLLOW, &info);
  if (fd < 0) return errno;
  const char *slash = strrchr(r->path, '/');
  wire_entry(r->id, &info, slash == NULL ? r->path : slash + 1, "", 0, false);
  wire_content(r->id, fd, 0, (uint64_t)info.st_size, true);
  close(fd);
  return 0;
}

static int set_of(int fd, const struct wire_file *head) {
  if (fd < 0) return errno;
  int error = set_attributes(fd, head);
  close(fd);
  return error;
}

static int make_dir(const struct request *r) {
  struct place place;
  if (r->head.flags & FILE_PARENTS) {
    int fd = place_make_dir(r->path, r->head.flags);
    if (fd < 0) return errno;
    int error = set_of(open_dir_at(fd, "."), &r->head);
    close(fd);
    return error;
  }
  if (!place_find(r->path, r->head.flags, &place)) return errno;
  int error = mkdirat(place.dir, place.name, 0700) == 0 ? 0 : errno;
  if (error == 0) error = set_of(open_dir_at(place.dir, place.name), &r->head);
  place_close(&place);
  return error;
}

static int change(const struct request *r) {
  struct stat info;
  int fd = place_open_file(r->path, r->head.flags, &info);
  if (fd < 0 && errno == EISDIR) fd = place_open_dir(r->path, r->head.flags);
  return set_of(fd, &r->head);
}

static int remove_path(const struct request *r, uint64_t *count) {
  struct place place;
  if (!place_find(r->path, r->head.flags, &place)) return errno;
  int error = remove_simple(place.dir, place.name) ? 0 : errno;
  if (error == 0) *count = 1;
  bool full = error == ENOTEMPTY || error == EEXIST;
  if (full && (r->head.flags & FILE_RECURSIVE)) error = file_tree_remove(r->id, &place, count);
  place_close(&place);
  return error;
}

static int rename_path(const struct request *r) {
  struct place from, to;
  if (!place_find(r->path, r->head.flags & ~FILE_PARENTS, &from)) return errno;
  int error = place_find(r->other, r->head.flags, &to) ? 0 : errno;
  if (error == 0 && rename_at(from.dir, from.name, to.dir, to.name, 0) != 0) error = errno;
  place_close(&to);
  place_close(&from);
  return error;
}

/* With FILE_BENEATH what has the name makes room. */
static bool makes_room(const struct request *r, const struct place *place, int *tries) {
  bool there = errno == EEXIST && (r->head.flags & FILE_BENEATH) != 0 && ++*tries < NAME_TRIES;
  return there && (unlinkat(place->dir, place->name, 0) == 0 || errno == ENOENT);
}

static int make_symlink(const struct request *r) {
  struct place place;
  int tries = 0, error = 0;
  if (!place_find(r->path, r->head.flags, &place)) return errno;
  while (symlinkat(r->other, place.dir, place.name) != 0) {
    if (!makes_room(r, &place, &tries)) {
      error = errno;
      break;
    }
  }
  uint32_t uid = 0, gid = 0;
  bool owned = (r->head.flags & FILE_OWNER) != 0;
  if (owned && (!owner_outside(r->head.uid, &uid) || !owner_outside(r->head.gid, &gid))) error = EOVERFLOW;
  if (error == 0 && owned) error = fchownat(place.dir, place.name, uid, gid, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = r->head.mtime_s, .tv_nsec = r->head.mtime_ns}};
  bool timed = (r->head.flags & FILE_MTIME) != 0;
  if (error == 0 && timed) error = utimensat(place.dir, place.name, times, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  place_close(&place);
  return error;
}

static int make_link(const struct request *r) {
  struct place target, place = {.dir = -1};
  struct stat info, there;
  int tries = 0;
  if (!place_find(r->other, r->head.flags & ~FILE_PARENTS, &target)) return errno;
  int error = fstatat(target.dir, target.name, &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) error = EOPNOTSUPP;
  if (error == 0 && !place_find(r->path, r->head.flags, &place)) error = errno;
  while (error == 0 && linkat(target.dir, target.name, place.dir, place.name, 0) != 0) {
    error = errno;
    bool found = error == EEXIST && fstatat(place.dir, place.name, &there, AT_SYMLINK_NOFOLLOW) == 0;
    /* Already another name of the same file, or the very name: making room would take it away. */
    if (found && there.st_dev == info.st_dev && there.st_ino == info.st_ino) error = 0;
    if (error == 0) break;
    errno = error;
    if (makes_room(r, &place, &tries)) error = 0;
  }
  place_close(&place);
  place_close(&target);
  return error;
}

static int set_base(const struct request *r) {
  struct owner owner = {.uid = r->head.uid, .gid = r->head.gid};
  return place_set_base(r->path, (r->head.flags & FILE_OWNER) != 0 ? &owner : NULL) ? 0 : errno;
}

static void serve(const struct request *r) {
  uint64_t count = 0;
  int error = EINVAL;
  if (r->type == FILE_WRITE) {
    begin_write(r);
    return;
  }
  if (r->type >= FILE_DATA && r->type <= FILE_ABORT) {
    go_on_writing(r);
    return;
  }
  if (r->type == FILE_BASE) error = set_base(r);
  else if (r->type == FILE_STAT) error = stat_path(r);
  else if (r->type == FILE_LIST) error = list_dir(r, &count);
  else if (r->type == FILE_READ) error = read_file(r, &count);
  else if (r->type == FILE_MKDIR) error = make_dir(r);
  else if (r->type == FILE_REMOVE) error = remove_path(r, &count);
  else if (r->type == FILE_RENAME) error = rename_path(r);
  else if (r->type == FILE_SYMLINK) error = make_symlink(r);
  else if (r->type == FILE_LINK) error = make_link(r);
  else if (r->type == FILE_ATTRIBUTES) error = change(r);
  else if (r->type == FILE_WALK) error = walk(r);
  wire_done(r->id, error, count);
}

/* Start and end */

static void leave(void) {
  abandon_write();
  _exit(0);
}

/* The first connection of uid 0; nobody else can reach the socket. */
static int accept_one(void) {
  uint64_t deadline = now_us() + CONNECT_MS * 1000;
  for (uint64_t now = now_us(); now < deadline; now = now_us()) {
    uint64_t left_us = deadline - now;
    struct timespec left = {.tv_sec = (time_t)(left_us / 1000000), .tv_nsec = (long)(left_us % 1000000 * 1000)};
    struct pollfd watched = {.fd = LISTEN_FD, .events = POLLIN};
    if (ppoll(&watched, 1, &left, NULL) <= 0) continue;
    int fd = accept4(LISTEN_FD, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (fd < 0) continue;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == 0) return fd;
    close(fd);
  }
  return -1;
}

static _Noreturn void serve_one(void) {
  close_range(0, 2, 0);
  setsid();
  prctl(PR_SET_NAME, "hearth-files");
  int fd = jail_seal() ? accept_one() : -1;
  struct timeval patience = {.tv_sec = IDLE_S};
  if (fd < 0 || close(LISTEN_FD) != 0 || !wire_init(fd, leave)) _exit(1);
  if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0) {
    _exit(1);
  }
  for (;;) {
    struct request request;
    wire_next(&request);
    serve(&request);
  }
}

int files_main(const char *root, const char *uid_base) {
  char *end;
  unsigned long base = strtoul(uid_base, &end, 10);
  if (*uid_base == 0 || *end != 0 || base > UINT32_MAX / 2) {
    dprintf(STDERR_FILENO, "minit: no base of uids: %s\n", uid_base);
    return EXIT_BASE + EINVAL;
  }
  reset_signals();
  if (getrandom(&serial, sizeof serial, 0) != sizeof serial || close_range(LISTEN_FD + 1, ~0U, 0) != 0 ||
      !jail_enter(root, (uint32_t)base) || !place_init((uint32_t)base)) {
    int error = errno;
    dprintf(STDERR_FILENO, "minit: %s: %s\n", root, strerror(error));
    return EXIT_BASE + error;
  }
  pid_t pid = fork();
  if (pid == 0) serve_one();
  if (pid < 0) return EXIT_BASE + errno;
  /* The daemon moves it into the control group of its tenant. */
  dprintf(STDOUT_FILENO, "%d\n", (int)pid);
  return 0;
}
