#define _GNU_SOURCE
#include "mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "storage-pool.h"
#include "overlay.h"
#include "protocol.h"

enum { ATTACH_TRIES = 16, LOOP_BLOCK_BYTES = 4096 };

static struct storage_result *results; /* one per job */
static int pool_fd = -1;               /* the root of the open storage pool */

bool storage_failed(struct storage_result *result, const char *step, int error) {
  if (error == 0) return false;
  result->error = error;
  snprintf(result->step, sizeof result->step, "%s", step);
  return true;
}

/* Loop devices */

/* The device that has the file, opened; -1 when none has. What is not attached has no `backing_file`. */
static int find_loop(const struct stat *file, char *path, unsigned path_size) {
  DIR *directory = opendir("/sys/block");
  int found = -1;
  for (struct dirent *entry; directory != NULL && found < 0 && (entry = readdir(directory)) != NULL;) {
    char attached[300];
    snprintf(attached, sizeof attached, "/sys/block/%s/loop/backing_file", entry->d_name);
    if (strncmp(entry->d_name, "loop", 4) != 0 || access(attached, F_OK) != 0) continue;
    snprintf(path, path_size, "/dev/%s", entry->d_name);
    struct loop_info64 info;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool same = fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == file->st_dev &&
                info.lo_inode == file->st_ino;
    if (same) found = fd;
    else if (fd >= 0) close(fd);
  }
  if (directory != NULL) closedir(directory);
  return found;
}

/* Takes a free device. Another process may be faster, with the same one. */
static int configure_loop(int file_fd, char *path, unsigned path_size) {
  int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), fd = -1, error = 0;
  if (control < 0) return -1;
  for (int i = 0; i < ATTACH_TRIES; i++) {
    int number = ioctl(control, LOOP_CTL_GET_FREE);
    snprintf(path, path_size, "/dev/loop%d", number);
    fd = number < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      error = errno;
      break;
    }
    struct loop_config config = {
        .fd = (uint32_t)file_fd,
        .block_size = LOOP_BLOCK_BYTES, /* what direct access needs on any disk; btrfs asks for no less */
        /* Direct access: half of the memory, since pages are cached once, and faster writes. */
        .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
    };
    if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) break;
    error = errno;
    close(fd);
    fd = -1;
    if (error != EBUSY) break;
  }
  close(control);
  errno = error;
  return fd;
}

int loop_attach(const char *file, char *path, unsigned path_size, struct storage_result *result) {
  struct stat info;
  int file_fd = open(file, O_RDWR | O_CLOEXEC), fd = -1, error = 0;
  /* Against a launcher that does the same now. Opened apart, since the device keeps the other one, and its locks. */
  int lock_fd = open(file, O_RDONLY | O_CLOEXEC);
  if (file_fd < 0 || lock_fd < 0 || flock(lock_fd, LOCK_EX) != 0 || fstat(file_fd, &info) != 0) error = errno;
  if (!storage_failed(result, "file", error)) {
    fd = find_loop(&info, path, path_size);
    if (fd < 0) fd = configure_loop(file_fd, path, path_size);
    storage_failed(result, "loop device", fd < 0 ? errno : 0);
  }
  if (file_fd >= 0) close(file_fd);
  if (lock_fd >= 0) close(lock_fd);
  return fd;
}

/* Unmounting */

int unmount_all(const char *target) {
  while (umount2(target, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) continue;
  return errno == EINVAL || errno == ENOENT ? 0 : errno;
}

/* Requests */

bool is_storage_request(uint8_t type) { return type >= STORAGE_OPEN && type <= UNMOUNT; }

bool storage_read(struct storage_request *request, uint8_t type, struct cursor *body) {
  static const int counts[] = {
      [STORAGE_OPEN - STORAGE_OPEN] = 2,   [STORAGE_CLOSE - STORAGE_OPEN] = 1,
      [STORAGE_CREATE - STORAGE_OPEN] = 1, [STORAGE_SNAPSHOT - STORAGE_OPEN] = 2,
      [STORAGE_DELETE - STORAGE_OPEN] = 1, [STORAGE_LIMIT - STORAGE_OPEN] = 1,
      [STORAGE_USAGE - STORAGE_OPEN] = 1,  [STORAGE_LIST - STORAGE_OPEN] = 1,
      [OVERLAY_MOUNT - STORAGE_OPEN] = 3,  [UNMOUNT - STORAGE_OPEN] = 1,
  };
  struct wire_storage wire;
  bool read = take_bytes(body, &wire, sizeof wire);
  *request = (struct storage_request){
      .type = type, .bytes = wire.bytes, .flags = wire.flags, .user_fd = (int)wire.user_fd, .first_id = wire.first_id};
  for (int i = 0; i < counts[type - STORAGE_OPEN]; i++) request->text[i] = take_str(body);
  return read && !body->bad && body->left == 0;
}

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
  run(request, result);
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

/* The child's descriptors are the launcher's: that of the pool stays, that of a list is read. */
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
