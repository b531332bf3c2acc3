#define _GNU_SOURCE
#include "storage-pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "loop.h"
#include "protocol.h"

enum {
  SIMPLE_QUOTAS = 4, /* BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA, Linux 6.7 */
  NAME_LENGTH_MAX = 64,
  SYSFS_PATH_BYTES = 160,
  ENABLED_SIMPLE = 1,
  ENABLED_FULL = 2,
};

static const char *const kinds[] = {"containers", "volumes", "snapshots", "code", "contexts", "logs"};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

/* A subvolume has a quota group of level 0. The whole pool has one of level 1 with the number of its root's tree. */
static uint64_t pool_group(uint64_t tree_id) { return 1ULL << 48 | tree_id; }

/*
 * A tenant has a quota group of level 2, which counts all subvolumes that it owns. A deleted subvolume counts as long as
 * others share its extents: a copy of a copy costs its owner all that it holds, even after its sources are deleted.
 */
static const uint64_t owners_max = (1ULL << 48) - 1;
static uint64_t owner_group(uint64_t owner) { return 2ULL << 48 | owner; }

/* Names */

static int kind_of(const char *text, size_t len) {
  for (int i = 0; i < KIND_COUNT; i++) {
    if (strlen(kinds[i]) == len && memcmp(kinds[i], text, len) == 0) return i;
  }
  return -1;
}

static bool is_id(const char *id) {
  size_t len = strlen(id);
  return len > 0 && len <= NAME_LENGTH_MAX && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

/* Splits "<kind>/<id>" (A2) and opens the kind's directory. Returns its descriptor, or -1 with errno. */
static int open_kind(int pool_fd, const char *name, const char **id) {
  const char *slash = strchr(name, '/');
  int kind = slash == NULL ? -1 : kind_of(name, (size_t)(slash - name));
  if (kind < 0 || !is_id(slash + 1)) {
    errno = EINVAL;
    return -1;
  }
  *id = slash + 1;
  return openat(pool_fd, kinds[kind], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Number of the tree that the descriptor lies in; 0 with errno when it cannot be told. */
static uint64_t tree_of(int fd) {
  struct btrfs_ioctl_ino_lookup_args args = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
  return ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) == 0 ? args.treeid : 0;
}

static bool is_subvolume(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && info.st_ino == BTRFS_FIRST_FREE_OBJECTID;
}

int storage_pool_open_subvolume(int pool_fd, const char *name) {
  const char *id;
  int kind_fd = open_kind(pool_fd, name, &id);
  if (kind_fd < 0) return -1;
  int fd = openat(kind_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int error = errno;
  close(kind_fd);
  if (fd >= 0 && !is_subvolume(fd)) {
    close(fd);
    fd = -1;
    error = ENOTDIR;
  }
  errno = error;
  return fd;
}

/* Quotas */

static bool sysfs_path(int pool_fd, const char *entry, char path[SYSFS_PATH_BYTES]) {
  struct btrfs_ioctl_fs_info_args info = {0};
  if (ioctl(pool_fd, BTRFS_IOC_FS_INFO, &info) != 0) return false;
  char uuid[BTRFS_UUID_UNPARSED_SIZE], *at = uuid;
  for (int i = 0; i < BTRFS_FSID_SIZE; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    at += sprintf(at, "%02x", info.fsid[i]);
  }
  snprintf(path, SYSFS_PATH_BYTES, "/sys/fs/btrfs/%s/qgroups%s", uuid, entry);
  return true;
}

static bool sysfs_read(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
  if (fd >= 0) close(fd);
  if (n >= 0) text[n] = 0;
  return n >= 0;
}

/* A number of a quota group. In memory and up to date, unlike the quota tree, which is as old as the last commit. */
static uint64_t group_value(int pool_fd, uint64_t group, const char *name) {
  char entry[64], path[SYSFS_PATH_BYTES], text[32];
  snprintf(entry, sizeof entry, "/%llu_%llu/%s", (unsigned long long)(group >> 48),
           (unsigned long long)(group & ~(~0ULL << 48)), name);
  return sysfs_path(pool_fd, entry, path) && sysfs_read(path, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* The kind of quotas that are on, 0 for none. Kernels before 6.7 have one kind and do not say which. */
static uint64_t quotas_on(int pool_fd) {
  char path[SYSFS_PATH_BYTES], mode[16] = "";
  if (!sysfs_path(pool_fd, "", path) || access(path, F_OK) != 0) return 0;
  if (sysfs_path(pool_fd, "/mode", path)) sysfs_read(path, mode, sizeof mode);
  return strncmp(mode, "squota", 6) == 0 ? ENABLED_SIMPLE : ENABLED_FULL;
}

/* Simple quotas charge who wrote an extent for it, at no cost; full ones count who refers to it, at every commit. */
static int enable_quotas(int pool_fd) {
  if (quotas_on(pool_fd) != 0) return 0;
  struct btrfs_ioctl_quota_ctl_args args = {.cmd = SIMPLE_QUOTAS};
  if (ioctl(pool_fd, BTRFS_IOC_QUOTA_CTL, &args) == 0) return 0;
  args.cmd = BTRFS_QUOTA_CTL_ENABLE;
  return ioctl(pool_fd, BTRFS_IOC_QUOTA_CTL, &args) == 0 ? 0 : errno;
}

static struct btrfs_qgroup_limit limit_of(uint64_t bytes) {
  return (struct btrfs_qgroup_limit){
      .flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
      .max_rfer = bytes == 0 ? UINT64_MAX : bytes, /* all ones take a limit away */
  };
}

/* Arguments of what makes a subvolume, with the quota groups that it begins in (A1). */
struct making {
  struct btrfs_ioctl_vol_args_v2 args;
  struct btrfs_qgroup_inherit inherit;
  uint64_t groups[2];
};

/* Makes the group of an owner. Returns errno. */
static int make_owner(int pool_fd, uint64_t owner) {
  if (owner > owners_max) return EINVAL;
  struct btrfs_ioctl_qgroup_create_args group = {.create = 1, .qgroupid = owner_group(owner)};
  return ioctl(pool_fd, BTRFS_IOC_QGROUP_CREATE, &group) == 0 || errno == EEXIST ? 0 : errno;
}

static void making_fill(struct making *m, int pool_fd, const char *id, uint64_t bytes, uint64_t owner, bool in_total) {
  *m = (struct making){0};
  m->inherit.flags = bytes == 0 ? 0 : BTRFS_QGROUP_INHERIT_SET_LIMITS;
  if (bytes != 0) m->inherit.lim = limit_of(bytes);
  if (in_total) m->groups[m->inherit.num_qgroups++] = pool_group(tree_of(pool_fd));
  if (in_total && owner != 0) m->groups[m->inherit.num_qgroups++] = owner_group(owner);
  m->args.flags = BTRFS_SUBVOL_QGROUP_INHERIT;
  m->args.size = sizeof m->inherit + m->inherit.num_qgroups * sizeof m->groups[0];
  m->args.qgroup_inherit = &m->inherit;
  strcpy(m->args.name, id);
}

/* The quota group of a name, "" being the whole pool, or the owner where there is one. 0 with errno. */
static uint64_t group_of(int pool_fd, const char *name, uint64_t owner) {
  if (*name == 0 && owner != 0) {
    errno = make_owner(pool_fd, owner);
    return errno == 0 ? owner_group(owner) : 0;
  }
  if (*name == 0) {
    uint64_t tree_id = tree_of(pool_fd);
    return tree_id == 0 ? 0 : pool_group(tree_id);
  }
  int fd = storage_pool_open_subvolume(pool_fd, name);
  if (fd < 0) return 0;
  uint64_t tree_id = tree_of(fd);
  close(fd);
  return tree_id;
}

static void limit(int pool_fd, const struct storage_request *request, const char *name, struct storage_result *result) {
  uint64_t group = group_of(pool_fd, name, request->owner);
  struct btrfs_ioctl_qgroup_limit_args args = {.qgroupid = group, .lim = limit_of(request->bytes)};
  if (storage_failed(result, "name", args.qgroupid == 0 ? errno : 0)) return;
  storage_failed(result, "limit", ioctl(pool_fd, BTRFS_IOC_QGROUP_LIMIT, &args) == 0 ? 0 : errno);
}

/* Opening */

/* On a file system that is not ours: its quotas are not ours to switch on, and the pool is a subvolume of it. */
static int make_root(const char *target) {
  char parent[4096];
  if (strlen(target) >= sizeof parent) return ENAMETOOLONG;
  strcpy(parent, target);
  char *slash = strrchr(parent, '/');
  if (slash == NULL || slash == parent) return EINVAL;
  *slash = 0;
  int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent_fd < 0) return errno;
  struct btrfs_ioctl_vol_args args = {0};
  strncpy(args.name, slash + 1, BTRFS_PATH_NAME_MAX);
  int error = 0;
  if (quotas_on(parent_fd) == 0) error = EOPNOTSUPP;
  else if (ioctl(parent_fd, BTRFS_IOC_SUBVOL_CREATE, &args) != 0 && errno != EEXIST) error = errno;
  close(parent_fd);
  return error;
}

/* Makes the file as large as it is to be, and the file system as large as the file, never smaller. */
static int grow(int pool_fd, const char *file, uint64_t bytes) {
  struct btrfs_ioctl_fs_info_args info = {0};
  struct btrfs_ioctl_dev_info_args device = {.devid = 1};
  struct btrfs_ioctl_vol_args whole = {.name = "1:max"};
  struct stat now;
  if (ioctl(pool_fd, BTRFS_IOC_FS_INFO, &info) != 0 || ioctl(pool_fd, BTRFS_IOC_DEV_INFO, &device) != 0) return errno;
  if (stat(file, &now) != 0) return errno;
  if ((uint64_t)now.st_size < bytes) now.st_size = (off_t)bytes;
  if ((uint64_t)now.st_size / info.sectorsize * info.sectorsize <= device.total_bytes) return 0;
  int fd = open((char *)device.path, O_RDWR | O_CLOEXEC);
  bool grown = fd >= 0 && truncate(file, now.st_size) == 0 && ioctl(fd, LOOP_SET_CAPACITY) == 0 &&
               ioctl(pool_fd, BTRFS_IOC_RESIZE, &whole) == 0;
  int error = grown ? 0 : errno;
  if (fd >= 0) close(fd);
  return error;
}

static int make_groups(int pool_fd) {
  uint64_t tree_id = tree_of(pool_fd);
  struct btrfs_ioctl_qgroup_create_args total = {.create = 1, .qgroupid = pool_group(tree_id)};
  if (tree_id == 0) return errno;
  if (ioctl(pool_fd, BTRFS_IOC_QGROUP_CREATE, &total) != 0 && errno != EEXIST) return errno;
  for (int i = 0; i < KIND_COUNT; i++) {
    if (mkdirat(pool_fd, kinds[i], 0711) != 0 && errno != EEXIST) return errno;
  }
  return 0;
}

static int mount_file(const char *file, const char *target, struct storage_result *result) {
  char device[32];
  int loop_fd = loop_attach(file, device, sizeof device, result);
  if (loop_fd < 0) return -1;
  /*
   * Not compressed: on two cores that is slower where it helps, and tries in vain where data is compressed already.
   * What is removed is freed with the next commit, which is why these are as near to each other as those of ext4, and given
   * back to the file's file system some minutes later.
   */
  unsigned long flags = MS_NOATIME | MS_NODEV | MS_NOSUID;
  int error = mount(device, target, "btrfs", flags, "discard=async,commit=5") == 0 ? 0 : errno;
  close(loop_fd); /* The mount holds the device now; without it the device goes. */
  return storage_failed(result, "mount btrfs", error) ? -1 : 0;
}

void storage_pool_open(const struct storage_request *request, int pool_fd, struct storage_result *result) {
  const char *file = request->text[0], *target = request->text[1];
  bool own = *file != 0, mounts = own && pool_fd < 0;
  if (mounts && mount_file(file, target, result) != 0) return;
  if (!own && storage_failed(result, "subvolume", make_root(target))) return;
  struct statfs info;
  int fd = open(target, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = 0;
  if (fd < 0 || fstatfs(fd, &info) != 0) error = errno;
  else if (info.f_type != BTRFS_SUPER_MAGIC || !is_subvolume(fd)) error = ENOTDIR;
  bool failed = storage_failed(result, "open", error) || (own && storage_failed(result, "grow", grow(fd, file, request->bytes))) ||
                (own && storage_failed(result, "quotas", enable_quotas(fd))) ||
                storage_failed(result, "groups", make_groups(fd)) ||
                storage_failed(result, "statfs", fstatfs(fd, &info) == 0 ? 0 : errno);
  if (failed) {
    if (fd >= 0) close(fd);
    if (mounts) umount2(target, MNT_DETACH);
    return;
  }
  result->value[0] = (uint64_t)info.f_blocks * (uint64_t)info.f_bsize;
  result->value[1] = quotas_on(fd);
  result->fd = fd;
}

/* Subvolumes */

void storage_pool_create(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  const char *id;
  int kind_fd = open_kind(pool_fd, request->text[0], &id);
  if (storage_failed(result, "name", kind_fd < 0 ? errno : 0)) return;
  struct making m;
  making_fill(&m, pool_fd, id, request->bytes, request->owner, true);
  if (storage_failed(result, "owner", request->owner == 0 ? 0 : make_owner(pool_fd, request->owner))) {
    close(kind_fd);
    return;
  }
  storage_failed(result, "create", ioctl(kind_fd, BTRFS_IOC_SUBVOL_CREATE_V2, &m.args) == 0 ? 0 : errno);
  close(kind_fd);
}

/*
 * Full quotas cannot take a snapshot, which shares what it refers to, into the pool's total without counting all anew:
 * there it is left out of it. They also give it the limit of its source, whatever was asked for.
 */
void storage_pool_snapshot(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  const char *id;
  int source_fd = storage_pool_open_subvolume(pool_fd, request->text[0]);
  if (storage_failed(result, "source", source_fd < 0 ? errno : 0)) return;
  int kind_fd = open_kind(pool_fd, request->text[1], &id);
  if (!storage_failed(result, "name", kind_fd < 0 ? errno : 0)) {
    struct making m;
    bool simple = quotas_on(pool_fd) == ENABLED_SIMPLE;
    making_fill(&m, pool_fd, id, request->bytes, request->owner, simple);
    m.args.fd = source_fd;
    if (request->flags & STORAGE_READONLY) m.args.flags |= BTRFS_SUBVOL_RDONLY;
    int error = simple && request->owner != 0 ? make_owner(pool_fd, request->owner) : 0;
    if (!storage_failed(result, "owner", error)) {
      storage_failed(result, "snapshot", ioctl(kind_fd, BTRFS_IOC_SNAP_CREATE_V2, &m.args) == 0 ? 0 : errno);
    }
    close(kind_fd);
    if (result->error == 0 && !simple) limit(pool_fd, request, request->text[1], result);
  }
  close(source_fd);
}

int storage_pool_take(int pool_fd, const char *source, const char *name, uint64_t owner, bool read_only) {
  struct storage_result result = {0};
  const struct storage_request request = {
      .text = {source, name}, .owner = owner, .flags = read_only ? STORAGE_READONLY : 0};
  storage_pool_snapshot(pool_fd, &request, &result);
  return result.error;
}

int storage_pool_remove(int pool_fd, const char *name) {
  struct storage_result result = {0};
  const struct storage_request request = {.text = {name}};
  storage_pool_delete(pool_fd, &request, &result);
  return result.error;
}

uint64_t storage_pool_waiting(int pool_fd, const char *name) {
  uint64_t group = group_of(pool_fd, name, 0);
  return group == 0 ? 0 : group_value(pool_fd, group, "rsv_data");
}

/* A subvolume made inside of another, found by number in the tree of roots. 0: there is none. UINT64_MAX: errno. */
static uint64_t first_inside(int pool_fd, uint64_t tree_id) {
  struct btrfs_ioctl_search_args args = {
      .key = {
          .tree_id = BTRFS_ROOT_TREE_OBJECTID,
          .min_objectid = tree_id,
          .max_objectid = tree_id,
          .min_type = BTRFS_ROOT_REF_KEY,
          .max_type = BTRFS_ROOT_REF_KEY,
          .max_offset = UINT64_MAX,
          .max_transid = UINT64_MAX,
          .nr_items = 1,
      }};
  if (ioctl(pool_fd, BTRFS_IOC_TREE_SEARCH, &args) != 0) return UINT64_MAX;
  if (args.key.nr_items == 0) return 0;
  return ((struct btrfs_ioctl_search_header *)args.buf)->offset;
}

/* Destroys the innermost one inside of the tree until there is none. By number: no path of a stranger is walked. */
static int destroy_inside(int pool_fd, uint64_t tree_id) {
  for (;;) {
    uint64_t innermost = tree_id, next;
    while ((next = first_inside(pool_fd, innermost)) != 0 && next != UINT64_MAX) innermost = next;
    if (next == UINT64_MAX) return errno;
    if (innermost == tree_id) return 0;
    struct btrfs_ioctl_vol_args_v2 args = {.flags = BTRFS_SUBVOL_SPEC_BY_ID, .subvolid = innermost};
    if (ioctl(pool_fd, BTRFS_IOC_SNAP_DESTROY_V2, &args) != 0) return errno;
  }
}

void storage_pool_delete(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  const char *id;
  int kind_fd = open_kind(pool_fd, request->text[0], &id);
  if (storage_failed(result, "name", kind_fd < 0 ? errno : 0)) return;
  int fd = storage_pool_open_subvolume(pool_fd, request->text[0]);
  if (fd < 0) {
    storage_failed(result, "open", errno == ENOENT ? 0 : errno);
  } else {
    uint64_t tree_id = tree_of(fd);
    close(fd);
    struct btrfs_ioctl_vol_args args = {0};
    strcpy(args.name, id);
    if (!storage_failed(result, "inside", tree_id == 0 ? errno : destroy_inside(pool_fd, tree_id))) {
      storage_failed(result, "delete", ioctl(kind_fd, BTRFS_IOC_SNAP_DESTROY, &args) == 0 ? 0 : errno);
    }
    /* Kernels from 6.10 on do this when the tree is gone, and until then refuse. */
    struct btrfs_ioctl_qgroup_create_args group = {.create = 0, .qgroupid = tree_id};
    if (result->error == 0) ioctl(pool_fd, BTRFS_IOC_QGROUP_CREATE, &group);
  }
  close(kind_fd);
}

void storage_pool_rename(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  const char *id, *new_id;
  int kind_fd = open_kind(pool_fd, request->text[0], &id);
  if (storage_failed(result, "name", kind_fd < 0 ? errno : 0)) return;
  int new_kind_fd = open_kind(pool_fd, request->text[1], &new_id);
  if (storage_failed(result, "new name", new_kind_fd < 0 ? errno : 0)) {
    close(kind_fd);
    return;
  }
  bool exchange = request->flags & STORAGE_EXCHANGE;
  int error = renameat2(kind_fd, id, new_kind_fd, new_id, exchange ? RENAME_EXCHANGE : RENAME_NOREPLACE) == 0 ? 0 : errno;
  if (!exchange && error == ENOENT && faccessat(new_kind_fd, new_id, F_OK, AT_SYMLINK_NOFOLLOW) == 0) error = 0;
  close(new_kind_fd);
  close(kind_fd);
  storage_failed(result, "rename", error);
}

void storage_pool_limit(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  limit(pool_fd, request, request->text[0], result);
}

void storage_pool_usage(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  uint64_t group = group_of(pool_fd, request->text[0], request->owner);
  struct statfs info;
  if (storage_failed(result, "name", group == 0 ? errno : 0)) return;
  if (storage_failed(result, "statfs", fstatfs(pool_fd, &info) == 0 ? 0 : errno)) return;
  result->value[0] = group_value(pool_fd, group, "referenced");
  result->value[1] = group_value(pool_fd, group, "exclusive");
  uint64_t flags = group_value(pool_fd, group, "limit_flags");
  uint64_t limit = group_value(pool_fd, group, "max_referenced");
  result->value[2] = (flags & BTRFS_QGROUP_LIMIT_MAX_RFER) == 0 || limit == UINT64_MAX ? 0 : limit;
  result->value[3] = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
  result->value[4] = (uint64_t)info.f_blocks * (uint64_t)info.f_bsize;
  result->value[5] = group_value(pool_fd, group, "rsv_data");
}

void storage_pool_list(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  int kind = kind_of(request->text[0], strlen(request->text[0]));
  if (storage_failed(result, "kind", kind < 0 ? EINVAL : 0)) return;
  int fd = openat(pool_fd, kinds[kind], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *directory = fd < 0 ? NULL : fdopendir(fd);
  if (storage_failed(result, "open", directory == NULL ? errno : 0)) return;
  int text_fd = memfd_create("names", MFD_CLOEXEC);
  int error = text_fd < 0 ? errno : 0;
  for (struct dirent *entry; error == 0 && (entry = readdir(directory)) != NULL;) {
    if (is_id(entry->d_name) && dprintf(text_fd, "%s\n", entry->d_name) < 0) error = errno;
  }
  closedir(directory);
  if (error == 0 && write(text_fd, "", 1) != 1) error = errno;
  if (storage_failed(result, "read", error)) {
    if (text_fd >= 0) close(text_fd);
    return;
  }
  result->fd = text_fd;
}
