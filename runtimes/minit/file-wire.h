/*
 * The one connection of `minit files`: requests in, answers out, one after the other on a blocking socket. Whoever
 * reads slowly is waited for, so that nothing gathers here; who is gone ends the process.
 *
 * W1 Memory is two buffers, whatever comes in and however much goes out.
 * W2 Answers leave when no complete request is left, or when the buffer is full: many small ones are one write.
 */
#ifndef MINIT_FILE_WIRE_H
#define MINIT_FILE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "protocol.h"

struct request {
  uint8_t type;
  uint32_t id;
  struct wire_file head; /* of the types that have one, and so have the paths; `data` is what is left */
  const char *path, *other;
  const uint8_t *data;
  size_t len;
};

/* `leave` is called when the connection has ended or broken the protocol, and does not return. */
bool wire_init(int fd, void (*leave)(void));
/* Valid until the next call. */
void wire_next(struct request *request);
void wire_done(uint32_t id, int error, uint64_t count);
/* `target` is "" for what is no link. */
void wire_entry(uint32_t id, const struct stat *info, const char *name, const char *target, uint32_t link, bool again);
/* Sends `length` bytes of a file from `offset`, fewer where it ends; with `exact`, zeros in their place. */
uint64_t wire_content(uint32_t id, int fd, uint64_t offset, uint64_t length, bool exact);
/* Says once a second that a request is being worked at, and so learns that nobody waits for it any more. */
void wire_progress(uint32_t id, uint64_t count);

#endif
