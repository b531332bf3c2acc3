#define _GNU_SOURCE
#include "loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTACH_TRIES = 16, LOOP_BLOCK_BYTES = 4096 };

/* Opens the device that has the file; -1 if none has it. A device without a file has no `backing_file`. */
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
  /* Locks out another launcher. A descriptor of its own: the device keeps the other one, with its locks. */
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
