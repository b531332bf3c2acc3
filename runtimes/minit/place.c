#define _GNU_SOURCE
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "protocol.h"

/* openat2 gives EAGAIN when something was renamed while it went over a `..`; a name in the way may be put back. */
enum { OPEN_TRIES = 32, MAKE_TRIES = 8, MADE_DIR_MODE = 0755, OVERFLOW_OWNER = 65534 };

static int root_fd = -1, base_fd = -1;
static bool is_base_root;
static uint32_t uid_base;
/* Outside; of directories that are missing at the base and beneath it. */
static struct {
  bool is_set;
  uint32_t uid, gid;
} base_owner;

uint32_t owner_inside(uint32_t id) {
  if (uid_base == 0) return id;
  return id >= uid_base && id - uid_base < USER_IDS ? id - uid_base : OVERFLOW_OWNER;
}

bool owner_outside(uint32_t id, uint32_t *outside) {
  /* The highest number means "as it is". */
  if (id >= (uid_base == 0 ? UINT32_MAX : USER_IDS)) return false;
  *outside = id + uid_base;
  return true;
}

/* N1: of file systems that the kernel makes up; what is written there is an order to it. */
static bool is_made_up(int fd) {
  static const uint32_t KINDS[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC,      CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                                   DEBUGFS_MAGIC,    TRACEFS_MAGIC,    SECURITYFS_MAGIC,   BPF_FS_MAGIC,
                                   NSFS_MAGIC,       PSTOREFS_MAGIC,   EFIVARFS_MAGIC,     SELINUX_MAGIC,
                                   0x62656570 /* configfs */, 0x65735543 /* fusectl */};
  struct statfs info;
  if (fstatfs(fd, &info) != 0) return true;
  for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
    if ((uint32_t)info.f_type == KINDS[i]) return true;
  }
  return false;
}

static int checked(int fd) {
  if (fd < 0 || !is_made_up(fd)) return fd;
  close(fd);
  errno = EACCES;
  return -1;
}

static int resolve(const char *path, uint32_t flags, uint64_t open_flags) {
  bool beneath = (flags & FILE_BENEATH) != 0;
  bool held = beneath && !is_base_root;
  struct open_how how = {
      .flags = open_flags | O_CLOEXEC,
      .resolve = RESOLVE_NO_MAGICLINKS | (held ? RESOLVE_BENEATH : RESOLVE_IN_ROOT),
  };
  while (*path == '/') path++;
  for (int i = 0;; i++) {
    int fd = (int)syscall(SYS_openat2, beneath ? base_fd : root_fd, *path == 0 ? "." : path, &how, sizeof how);
    if (fd >= 0) return checked(fd);
    if (errno != EAGAIN || i == OPEN_TRIES) return -1;
  }
}

static bool copy_path(char out[PATH_MAX], const char *path, size_t len) {
  if (len >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(out, path, len);
  out[len] = 0;
  return true;
}


/* Gives a directory that was just made to the owner of the base. One of another owner has taken its place, and stays as it is. */
static int owned(int fd) {
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0 || owner_inside(info.st_uid) != 0) return fd;
  if (fchownat(fd, "", base_owner.uid, base_owner.gid, AT_EMPTY_PATH) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/* Makes one missing directory. With FILE_BENEATH it takes the place of whatever else has its name. */
static int make_component(int dir, const char *name, uint32_t flags, bool is_based) {
  for (int i = 0; i < MAKE_TRIES; i++) {
    bool made = mkdirat(dir, name, MADE_DIR_MODE) == 0;
    if (!made && errno != EEXIST) return -1;
    int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) return made && is_based && base_owner.is_set ? owned(checked(fd)) : checked(fd);
    if ((errno != ENOTDIR && errno != ELOOP) || (flags & FILE_BENEATH) == 0) return -1;
    if (unlinkat(dir, name, 0) != 0 && errno != ENOENT) return -1;
  }
  return -1;
}

/* Opens a directory whose components may be missing, or, with FILE_BENEATH, lead away. `is_based`: these get the base's owner. */
static int make_dir(const char *path, uint32_t flags, bool is_based) {
  char prefix[PATH_MAX], name[NAME_MAX + 1];
  int fd = resolve("", flags, O_PATH | O_DIRECTORY);
  for (const char *at = path; fd >= 0;) {
    while (*at == '/') at++;
    if (*at == 0) return fd;
    const char *end = strchrnul(at, '/');
    size_t len = (size_t)(end - at);
    if (len > NAME_MAX || !copy_path(prefix, path, (size_t)(end - path))) {
      if (len > NAME_MAX) errno = ENAMETOOLONG;
      break;
    }
    memcpy(name, at, len);
    name[len] = 0;
    int next = resolve(prefix, flags, O_PATH | O_DIRECTORY);
    bool in_the_way = errno == ENOTDIR || errno == ELOOP || errno == EXDEV;
    if (next < 0 && !is_dots(name) && (errno == ENOENT || (in_the_way && (flags & FILE_BENEATH) != 0))) {
      next = make_component(fd, name, flags, is_based);
    }
    if (next < 0) break;
    close(fd);
    fd = next;
    at = end;
  }
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

int place_make_dir(const char *path, uint32_t flags) { return make_dir(path, flags, (flags & FILE_BENEATH) != 0); }

static int open_parent(const char *path, uint32_t flags) {
  int fd = resolve(path, flags, O_PATH | O_DIRECTORY);
  return fd < 0 && (flags & FILE_PARENTS) != 0 ? place_make_dir(path, flags) : fd;
}

bool place_find(const char *path, uint32_t flags, struct place *place) {
  char parent[PATH_MAX];
  size_t end = strlen(path);
  while (end > 0 && path[end - 1] == '/') end--;
  size_t start = end;
  while (start > 0 && path[start - 1] != '/') start--;
  place->dir = -1;
  if (end - start > NAME_MAX) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(place->name, path + start, end - start);
  place->name[end - start] = 0;
  if (end == start || is_dots(place->name)) {
    errno = EINVAL;
    return false;
  }
  if (!copy_path(parent, path, start)) return false;
  place->dir = open_parent(parent, flags);
  return place->dir >= 0;
}

void place_close(struct place *place) {
  int error = errno;
  if (place->dir >= 0) close(place->dir);
  place->dir = -1;
  errno = error;
}

bool place_init(uint32_t owner_base) {
  uid_base = owner_base;
  root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  base_fd = root_fd;
  is_base_root = true;
  return root_fd >= 0;
}

bool place_set_base(const char *path, const struct owner *owner) {
  struct stat root, base;
  base_owner.is_set = owner != NULL;
  if (owner != NULL && (!owner_outside(owner->uid, &base_owner.uid) || !owner_outside(owner->gid, &base_owner.gid))) {
    errno = EOVERFLOW;
    return false;
  }
  int fd = make_dir(path, 0, true);
  if (fd < 0 || fstat(root_fd, &root) != 0 || fstat(fd, &base) != 0) return false;
  if (base_fd != root_fd) close(base_fd);
  is_base_root = base.st_dev == root.st_dev && base.st_ino == root.st_ino;
  base_fd = fd;
  return true;
}

/* What may be opened for reading: N3. */
static bool is_openable(const struct stat *info) {
  if (S_ISREG(info->st_mode)) return true;
  errno = S_ISDIR(info->st_mode) ? EISDIR : S_ISLNK(info->st_mode) ? ELOOP : EOPNOTSUPP;
  return false;
}

static int verified(int fd, struct stat *info) {
  if (fd < 0 || (fstat(fd, info) == 0 && is_openable(info))) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

enum { READING = O_RDONLY | O_NONBLOCK | O_NOCTTY };

int place_open_file(const char *path, uint32_t flags, struct stat *info) {
  uint64_t link = flags & FILE_FOLLOW ? 0 : O_NOFOLLOW;
  int probe = verified(resolve(path, flags, O_PATH | link), info);
  if (probe < 0) return -1;
  close(probe);
  return verified(resolve(path, flags, READING | link), info);
}

int open_file_at(int dir, const char *name, struct stat *info) {
  if (fstatat(dir, name, info, AT_SYMLINK_NOFOLLOW) != 0 || !is_openable(info)) return -1;
  return verified(checked(openat(dir, name, READING | O_NOFOLLOW | O_CLOEXEC)), info);
}

int open_dir_at(int dir, const char *name) {
  return checked(openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

int place_open_dir(const char *path, uint32_t flags) { return resolve(path, flags, O_RDONLY | O_DIRECTORY); }

bool place_stat(const char *path, uint32_t flags, struct stat *info) {
  int fd = resolve(path, flags, O_PATH | (flags & FILE_FOLLOW ? 0 : O_NOFOLLOW));
  if (fd < 0) return false;
  bool found = fstat(fd, info) == 0;
  close(fd);
  return found;
}

int rename_at(int from, const char *name, int to, const char *new_name, unsigned flags) {
  return (int)syscall(SYS_renameat2, from, name, to, new_name, flags);
}

bool remove_simple(int dir, const char *name) {
  if (unlinkat(dir, name, 0) == 0) return true;
  return (errno == EISDIR || errno == EPERM) && unlinkat(dir, name, AT_REMOVEDIR) == 0;
}
