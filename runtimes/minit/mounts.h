/*
 * The launcher's mounts: the storage pool (a btrfs, see storage-pool.h) on its loop device, and the overlays of containers.
 * All in the launcher's own mount namespace, so that they end with it unless a container holds them.
 *
 * Every request may wait for a disk, so the launcher runs it in a child that shares its descriptor table.
 */
#ifndef MINIT_MOUNTS_H
#define MINIT_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"

enum { STORAGE_STEP_BYTES = 48, STORAGE_TEXTS_MAX = 3, STORAGE_VALUES = 6 };

/* `text` points into the receive buffer. */
struct storage_request {
  uint8_t type;
  uint32_t flags;
  uint64_t bytes;
  int user_fd; /* -1: none */
  uint32_t first_id;
  const char *text[STORAGE_TEXTS_MAX];
};

/* Shared between the launcher and the child. */
struct storage_result {
  uint8_t type;
  int error; /* errno, 0 when done */
  int fd;    /* -1, or what STORAGE_OPEN opened, or the text that STORAGE_LIST wrote */
  uint64_t value[STORAGE_VALUES];
  char step[STORAGE_STEP_BYTES];
};

/* Room for the results of so many requests at once. False with errno. */
bool storage_init(int jobs_max);
/* Whether a frame's type is one of these requests. */
bool is_storage_request(uint8_t type);
/* False when the body is malformed. */
bool storage_read(struct storage_request *request, uint8_t type, struct cursor *body);
/* Starts the child that carries it out. Returns its pid, or -1 with errno. */
pid_t storage_start(long job, const struct storage_request *request);
/* Sends what the child left when it ended. */
void storage_finish(long job, struct conn *c, uint32_t id);
void storage_refuse(struct conn *c, uint32_t id, int error);

/* Unmounts what an earlier try may have mounted there too. What a container holds goes from here alone. 0 or an errno. */
int unmount_all(const char *target);

/* Whether `error` is one; then the result says so, with the step. */
bool storage_failed(struct storage_result *result, const char *step, int error);

/*
 * Attaches the file to a loop device that goes with its last user, or finds the one that still has it: two devices on one
 * file would show the kernel one file system twice. Returns the device opened, its path in `path`; -1 when that failed.
 */
int loop_attach(const char *file, char *path, unsigned path_size, struct storage_result *result);

#endif
