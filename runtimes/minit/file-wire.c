#define _GNU_SOURCE
#include "file-wire.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame.h"
#include "place.h"

enum {
  IN_BYTES = 1024 * 1024,
  OUT_BYTES = 256 * 1024,
  CHUNK_BYTES = 64 * 1024 - FRAME_HEAD, /* a frame is what the other end reads at once */
  PROGRESS_EVERY = 256,
  PROGRESS_US = 1000 * 1000,
};

static int conn_fd;
static void (*on_end)(void);
static struct {
  uint8_t *data;
  size_t start, end;
} in;
static struct {
  uint8_t *data;
  size_t len;
} out;
static uint64_t told_us;

bool wire_init(int fd, void (*leave)(void)) {
  conn_fd = fd;
  on_end = leave;
  void *memory = mmap(NULL, IN_BYTES + OUT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  in.data = memory;
  out.data = in.data + IN_BYTES;
  return true;
}

static void flush(void) {
  for (size_t at = 0; at < out.len;) {
    ssize_t n = send(conn_fd, out.data + at, out.len - at, MSG_NOSIGNAL);
    if (n > 0) at += (size_t)n;
    else if (errno != EINTR) on_end();
  }
  out.len = 0;
}

/* Reads more behind what is there; a frame that is not complete moves to the front when it would not fit. */
static void receive(void) {
  flush();
  if (IN_BYTES - in.start < 4 + FILE_FRAME_MAX || in.start == in.end) {
    memmove(in.data, in.data + in.start, in.end - in.start);
    in.end -= in.start;
    in.start = 0;
  }
  ssize_t n = recv(conn_fd, in.data + in.end, IN_BYTES - in.end, 0);
  if (n > 0) in.end += (size_t)n;
  else if (n == 0 || errno != EINTR) on_end();
}

static bool has_head(uint8_t type) { return type < FILE_DATA || type > FILE_ABORT; }

void wire_next(struct request *request) {
  uint32_t len = 0;
  for (;; receive()) {
    if (in.end - in.start < sizeof len) continue;
    memcpy(&len, in.data + in.start, sizeof len);
    if (len < FRAME_HEAD - 4 || len > FILE_FRAME_MAX) on_end();
    if (in.end - in.start >= 4 + (size_t)len) break;
  }
  const uint8_t *at = in.data + in.start;
  in.start += 4 + (size_t)len;
  *request = (struct request){.type = at[4]};
  memcpy(&request->id, at + 5, sizeof request->id);
  struct cursor body = {.at = at + FRAME_HEAD, .left = len - (FRAME_HEAD - 4)};
  if (has_head(request->type)) {
    take_bytes(&body, &request->head, sizeof request->head);
    request->path = take_str(&body);
    request->other = take_str(&body);
    if (body.bad) on_end();
  }
  request->data = body.at;
  request->len = body.left;
}

/* Returns space for the body of a frame, at most `len` bytes. `sent` queues the frame. */
static uint8_t *room(size_t len) {
  if (OUT_BYTES - out.len < FRAME_HEAD + len) flush();
  return out.data + out.len + FRAME_HEAD;
}

static void sent(uint8_t type, uint32_t id, size_t len) {
  uint8_t *head = out.data + out.len;
  uint32_t counted = (uint32_t)(len + FRAME_HEAD - 4);
  memcpy(head, &counted, sizeof counted);
  head[4] = type;
  memcpy(head + 5, &id, sizeof id);
  out.len += FRAME_HEAD + len;
}

void wire_done(uint32_t id, int error, uint64_t count) {
  struct wire_file_done answer = {(uint32_t)error, count};
  memcpy(room(sizeof answer), &answer, sizeof answer);
  sent(FILE_DONE, id, sizeof answer);
}

static uint8_t *put_str(uint8_t *at, const char *text, uint32_t len) {
  memcpy(at, &len, sizeof len);
  memcpy(at + sizeof len, text, len);
  return at + sizeof len + len;
}

void wire_entry(uint32_t id, const struct stat *info, const char *name, const char *target, uint32_t link, bool again) {
  struct wire_file_entry entry = {
      .mode = info->st_mode,
      .uid = owner_inside(info->st_uid),
      .gid = owner_inside(info->st_gid),
      .link = link,
      .again = again,
      .size = (uint64_t)info->st_size,
      .mtime_s = info->st_mtim.tv_sec,
      .mtime_ns = (uint32_t)info->st_mtim.tv_nsec,
  };
  uint32_t name_len = (uint32_t)strlen(name) + 1, target_len = (uint32_t)strlen(target) + 1;
  uint8_t *start = room(sizeof entry + 8 + name_len + target_len), *at = start;
  memcpy(at, &entry, sizeof entry);
  at = put_str(put_str(at + sizeof entry, name, name_len), target, target_len);
  sent(FILE_ENTRY, id, (size_t)(at - start));
}

uint64_t wire_content(uint32_t id, int fd, uint64_t offset, uint64_t length, bool exact) {
  uint64_t done = 0;
  while (done < length) {
    size_t wanted = length - done < CHUNK_BYTES ? (size_t)(length - done) : CHUNK_BYTES;
    uint8_t *at = room(wanted);
    ssize_t n = pread(fd, at, wanted, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 && !exact) break;
    if (n <= 0) memset(at, 0, wanted);
    size_t len = n <= 0 ? wanted : (size_t)n;
    sent(FILE_BYTES, id, len);
    done += len;
  }
  return done;
}

void wire_progress(uint32_t id, uint64_t count) {
  if (count % PROGRESS_EVERY != 0) return;
  uint64_t now = now_us();
  if (now - told_us < PROGRESS_US) return;
  told_us = now;
  memcpy(room(sizeof count), &count, sizeof count);
  sent(FILE_PROGRESS, id, sizeof count);
  flush();
}
