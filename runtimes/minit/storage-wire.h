/*
 * Requests for mounts and for the storage pool, and their results. mounts.c reads and answers them; overlay.c and
 * storage-pool.c carry them out.
 */
#ifndef MINIT_STORAGE_WIRE_H
#define MINIT_STORAGE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "frame.h"

enum { STORAGE_STEP_BYTES = 48, STORAGE_TEXTS_MAX = 3, STORAGE_VALUES = 6 };

/* `text` points into the receive buffer. */
struct storage_request {
  uint8_t type;
  uint32_t flags;
  uint64_t bytes, owner;
  int user_fd; /* -1: none */
  uint32_t first_id;
  const char *text[STORAGE_TEXTS_MAX];
};

/* Shared between the launcher and the child. */
struct storage_result {
  uint8_t type;
  int error; /* errno, 0 when done */
  int fd;    /* -1, or the root that STORAGE_OPEN opened, or the text that STORAGE_LIST wrote */
  uint64_t value[STORAGE_VALUES];
  char step[STORAGE_STEP_BYTES];
};

/* True if a frame of this type is one of these requests. */
bool is_storage_request(uint8_t type);
/* False when the body is malformed. */
bool storage_read(struct storage_request *request, uint8_t type, struct cursor *body);
/* Returns false if `error` is 0. Otherwise writes the error and the step to the result. */
bool storage_failed(struct storage_result *result, const char *step, int error);

#endif
