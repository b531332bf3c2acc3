#define _GNU_SOURCE
#include "overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol.h"
#include "unmount.h"

/* <sys/mount.h> cannot be included beside <linux/mount.h> in every C library. */
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);

/* The kernel takes one page of options, and some 500 layers. */
enum { OPTIONS_BYTES = 4096, LAYER_PATH_BYTES = 4096 };

/*
 * The options, for a layer below that is an overlay itself and one above on another file system:
 * - index, metacopy off, redirects neither made nor followed: what a container wrote stays a plain difference of trees,
 *   which means the same to every kernel, to an image made of it and to a snapshot of it;
 * - xino off: inode numbers stay what programs of 32 bits can take;
 * - no `volatile`: a container's fsync is to hold, and it goes on after the machine has crashed.
 * Without `userxattr`, whose place is an overlay that is mounted inside of a user namespace.
 */
static const char overlay_options[] = ",index=off,metacopy=off,redirect_dir=nofollow,xino=off";

/* The options of overlayfs are separated by commas and its layers by colons. False when there is no room. */
static bool append_path(char *options, const char *prefix, const char *path, const char *suffix) {
  size_t at = strlen(options);
  at += (size_t)snprintf(options + at, OPTIONS_BYTES - at, "%s", prefix);
  for (; *path != 0; path++) {
    if (at + 2 >= OPTIONS_BYTES) return false;
    if (strchr(",:\\", *path) != NULL) options[at++] = '\\';
    options[at++] = *path;
  }
  return at < OPTIONS_BYTES && (size_t)snprintf(options + at, OPTIONS_BYTES - at, "%s", suffix) < OPTIONS_BYTES - at;
}

/* One directory, or several that each end with a newline: the topmost first. */
static bool append_lower(char *options, const char *lower) {
  char path[LAYER_PATH_BYTES];
  const char *at = lower, *end;
  if (strchr(lower, '\n') == NULL) return append_path(options, "lowerdir=", lower, "");
  for (; (end = strchr(at, '\n')) != NULL; at = end + 1) {
    size_t len = (size_t)(end - at);
    if (len >= sizeof path) return false;
    memcpy(path, at, len);
    path[len] = 0;
    if (!append_path(options, at == lower ? "lowerdir=" : ":", path, "")) return false;
  }
  return true;
}

static unsigned long flags_of(const struct storage_request *request) {
  return MS_NODEV | MS_NOATIME | (request->flags & STORAGE_READONLY ? MS_RDONLY : 0);
}

static void mount_plain(const struct storage_request *request, struct storage_result *result) {
  const char *lower = request->text[0], *directory = request->text[1], *target = request->text[2];
  char options[OPTIONS_BYTES] = "";
  bool fits = append_lower(options, lower) && append_path(options, ",upperdir=", directory, "/upper") &&
              append_path(options, ",workdir=", directory, "/work") && append_path(options, "", "", overlay_options);
  if (storage_failed(result, "options", fits ? 0 : ENAMETOOLONG)) return;
  int error = mount("overlay", target, "overlay", flags_of(request), options) == 0 ? 0 : errno;
  storage_failed(result, "mount overlay", error);
}

/* With a user namespace */

static int clone_tree(const char *path) {
  return (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

static bool attach(int tree_fd, const char *path) {
  return syscall(SYS_move_mount, tree_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

/* Shows a directory at `name` with its ids as the namespace's. */
static bool attach_mapped(const struct storage_request *request, const char *directory, const char *name) {
  struct mount_attr mapped = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)request->user_fd};
  int fd = clone_tree(directory);
  return fd >= 0 && syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &mapped, sizeof mapped) == 0 &&
         mkdir(name, 0700) == 0 && attach(fd, name);
}

/* Attaches the layers below, named by their numbers from the top, and appends them to the options. */
static int attach_layers(const struct storage_request *request, char *options) {
  char path[LAYER_PATH_BYTES], name[16];
  const char *at = request->text[0], *end;
  for (int i = 0; (end = strchr(at, '\n')) != NULL; at = end + 1, i++) {
    size_t len = (size_t)(end - at);
    if (len >= sizeof path) return ENAMETOOLONG;
    memcpy(path, at, len);
    path[len] = 0;
    snprintf(name, sizeof name, "%d", i);
    if (!attach_mapped(request, path, name)) return errno;
    if (!append_path(options, i == 0 ? "lowerdir=" : ":", name, "")) return ENAMETOOLONG;
  }
  return 0;
}

/* The overlay keeps the ids of who mounts it for what it makes itself: those have to be ones that the layers know. */
static int become(uint32_t id) {
  if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0) return errno;
  setfsuid(id);
  setfsgid(id);
  return (uint32_t)setfsuid(UINT32_MAX) == id && (uint32_t)setfsgid(UINT32_MAX) == id ? 0 : EPERM;
}

/*
 * Before Linux 6.15 the layers of an overlay must be mounted somewhere, and nobody else is to see them: in a mount
 * namespace of this child's, below a file system of no other use. The overlay alone is taken home.
 */
static void mount_mapped(const struct storage_request *request, struct storage_result *result) {
  const char *directory = request->text[1], *target = request->text[2];
  char options[OPTIONS_BYTES] = "";
  /* Descriptors are shared with the launcher until here: what is opened from now on ends with the child. */
  int home_fd = unshare(CLONE_FILES) != 0 ? -1 : open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (storage_failed(result, "home", home_fd < 0 ? errno : 0)) return;
  bool away = unshare(CLONE_NEWNS) == 0 && mount("tmpfs", target, "tmpfs", 0, "mode=700") == 0 && chdir(target) == 0;
  if (storage_failed(result, "mount namespace", away ? 0 : errno)) return;
  if (storage_failed(result, "layers below", attach_layers(request, options))) return;
  if (storage_failed(result, "layer above", attach_mapped(request, directory, "top") ? 0 : errno)) return;
  bool fits = append_path(options, ",upperdir=top/upper,workdir=top/work", "", overlay_options);
  if (storage_failed(result, "options", fits && mkdir("root", 0700) == 0 ? 0 : ENAMETOOLONG)) return;
  if (storage_failed(result, "ids", become(request->first_id))) return;
  int error = mount("overlay", "root", "overlay", flags_of(request), options) == 0 ? 0 : errno;
  if (storage_failed(result, "mount overlay", error)) return;
  int root_fd = clone_tree("root");
  bool home = root_fd >= 0 && setns(home_fd, CLONE_NEWNS) == 0 && attach(root_fd, target);
  storage_failed(result, "attach", home ? 0 : errno);
}

/*
 * Where the directory has no room for overlayfs' own, the kernel mounts read-only without a word (ovl_make_workdir in
 * fs/overlayfs/super.c), and nothing in it could ever be deleted again: that is a failure.
 */
static void refuse_readonly(const char *target, struct storage_result *result) {
  struct statvfs info;
  int error = statvfs(target, &info) != 0 ? errno : info.f_flag & ST_RDONLY ? ENOSPC : 0;
  if (error != 0) unmount_all(target);
  storage_failed(result, "read-only", error);
}

void overlay_mount(const struct storage_request *request, struct storage_result *result) {
  const char *directory = request->text[1], *target = request->text[2];
  int directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = 0;
  if (storage_failed(result, "open", directory_fd < 0 ? errno : 0)) return;
  if (mkdirat(directory_fd, "upper", 0755) != 0 && errno != EEXIST) error = errno;
  else if (mkdirat(directory_fd, "work", 0700) != 0 && errno != EEXIST) error = errno;
  close(directory_fd);
  if (storage_failed(result, "layers", error)) return;
  if (storage_failed(result, "target", mkdir(target, 0700) == 0 || errno == EEXIST ? unmount_all(target) : errno)) return;
  if (request->user_fd < 0) mount_plain(request, result);
  else mount_mapped(request, result);
  if (result->error == 0 && (request->flags & STORAGE_READONLY) == 0) refuse_readonly(target, result);
}
