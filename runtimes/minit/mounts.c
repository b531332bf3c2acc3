#define _GNU_SOURCE
#include "mounts.h"

#include <errno.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "overlay.h"
#include "protocol.h"
#include "snapshots.h"
#include "storage-pool.h"
#include "storage-wire.h"
#include "unmount.h"

static struct storage_result *results; /* one per job */
static int pool_fd = -1;               /* the root of the open storage pool */
static ino_t own_namespaces[2];        /* mount namespaces: the one before mounts_unshare and the one since */

static void run(const struct storage_request *request, struct storage_result *result) {
  const char *target = request->text[0];
  *result = (struct storage_result){.type = request->type, .fd = -1};
  switch (request->type) {
    case STORAGE_OPEN:
      storage_pool_open(request, pool_fd, result);
      return;
    case STORAGE_CLOSE:
      /* Not lazily: the daemon is to know when it is gone. What containers hold is left to them. */
      if (umount2(target, UMOUNT_NOFOLLOW) != 0 && errno == EBUSY) unmount_all(target);
      return;
    case OVERLAY_MOUNT:
      overlay_mount(request, result);
      return;
    case UNMOUNT:
      storage_failed(result, "unmount", unmount_all(target));
      return;
  }
  if (storage_failed(result, "storage pool", pool_fd < 0 ? ENODEV : 0)) return;
  if (request->type == STORAGE_CREATE) storage_pool_create(pool_fd, request, result);
  else if (request->type == STORAGE_SNAPSHOT) storage_pool_snapshot(pool_fd, request, result);
  else if (request->type == STORAGE_DELETE) storage_pool_delete(pool_fd, request, result);
  else if (request->type == STORAGE_LIMIT) storage_pool_limit(pool_fd, request, result);
  else if (request->type == STORAGE_USAGE) storage_pool_usage(pool_fd, request, result);
  else if (request->type == STORAGE_LIST) storage_pool_list(pool_fd, request, result);
  else if (request->type == STORAGE_RENAME) storage_pool_rename(pool_fd, request, result);
  else if (request->type == STORAGE_SNAPSHOTS) snapshots_take(pool_fd, request, result);
}

bool storage_init(int jobs_max) {
  size_t bytes = sizeof *results * (size_t)jobs_max;
  results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return results != MAP_FAILED;
}

pid_t storage_start(long job, const struct storage_request *request) {
  struct storage_result *result = &results[job];
  *result = (struct storage_result){.type = request->type, .error = EIO, .fd = -1, .step = "child"};
  if (request->type == STORAGE_CLOSE && pool_fd >= 0) {
    close(pool_fd);
    pool_fd = -1;
  }
  pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
  if (pid != 0) return pid;
  /* Not in place: a child that is killed meanwhile has done nothing that may be relied on. */
  struct storage_result done;
  run(request, &done);
  *result = done;
  _exit(0);
}

static void send_stored(struct conn *c, uint32_t id, const struct storage_result *result, const char *text) {
  struct PACKED {
    struct wire_stored stored;
    uint32_t len;
  } head = {.stored.error = (uint32_t)result->error, .len = (uint32_t)strlen(text) + 1};
  memcpy(head.stored.value, result->value, sizeof head.stored.value);
  conn_send(c, STORED, id, &head, sizeof head, text, head.len);
}

/* The child shares the launcher's descriptors: the pool's stays open, a list's is read and closed. */
void storage_finish(long job, struct conn *c, uint32_t id) {
  const struct storage_result *result = &results[job];
  char reason[128] = "";
  struct stat info;
  if (result->error != 0) snprintf(reason, sizeof reason, "%s: %s", result->step, strerror(result->error));
  void *list = MAP_FAILED;
  if (result->type == STORAGE_LIST && result->fd >= 0 && fstat(result->fd, &info) == 0) {
    list = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, result->fd, 0);
  }
  send_stored(c, id, result, list == MAP_FAILED ? reason : list);
  if (list != MAP_FAILED) munmap(list, (size_t)info.st_size);
  if (result->type == STORAGE_OPEN && result->fd >= 0) {
    if (pool_fd >= 0) close(pool_fd);
    pool_fd = result->fd;
  } else if (result->fd >= 0) {
    close(result->fd);
  }
}

void storage_refuse(struct conn *c, uint32_t id, int error) {
  send_stored(c, id, &(struct storage_result){.error = error}, "minit: no job");
}

int mounts_open_subvolume(const char *name) {
  if (pool_fd >= 0) return storage_pool_open_subvolume(pool_fd, name);
  errno = ENODEV;
  return -1;
}

bool mounts_are_foreign(int namespace_fd) {
  struct stat info;
  return fstat(namespace_fd, &info) == 0 && info.st_ino != own_namespaces[0] && info.st_ino != own_namespaces[1];
}

static bool note_namespace(ino_t *number) {
  struct stat info;
  if (stat("/proc/self/ns/mnt", &info) != 0) return false;
  *number = info.st_ino;
  return true;
}

static bool is_filesystem(const char *path, long magic) {
  struct statfs info;
  return statfs(path, &info) == 0 && (long)info.f_type == magic;
}

/* crun refuses a hybrid cgroup hierarchy, so the unified part is hidden here, and only here. */
bool mounts_unshare(bool private_tmp) {
  if (!note_namespace(&own_namespaces[0])) return false;
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) return false;
  if (!note_namespace(&own_namespaces[1])) return false;
  /* crun puts a file into /tmp at each start and leaves it there when it is killed: here it goes with the namespace. */
  const char *options = "mode=1777,size=16m";
  if (private_tmp && mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) != 0) return false;
  const char *unified = "/sys/fs/cgroup/unified";
  bool hybrid = is_filesystem("/sys/fs/cgroup", TMPFS_MAGIC) && is_filesystem(unified, CGROUP2_SUPER_MAGIC);
  return !hybrid || umount2(unified, MNT_DETACH) == 0;
}
