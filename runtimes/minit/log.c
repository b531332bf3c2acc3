#define _GNU_SOURCE
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frame.h"
#include "protocol.h"

enum {
  SEAL_BYTES = 4,
  BATCH_BYTES = 128 * 1024,
  LINE_WAIT_US = 1000000,
  BYTES_PER_US = 32, /* of the files: a million short lines a second, twice what the ring keeps */
  AHEAD_MAX_US = LOG_SEGMENTS * LOG_SEGMENT_BYTES / BYTES_PER_US, /* at once: what the ring keeps */
  REST_US = 50000, /* so that a writer held back wakes this process 20 times a second at most */
};

/* A line that has begun. */
struct line {
  uint8_t bytes[LOG_PIECE_MAX];
  size_t len;
  uint64_t since_us;
};

static int fds[LOG_SEGMENTS];
static int current;
static off_t size;        /* of the current segment; 0: it has no head yet */
static uint64_t next_seq; /* of the next entry of the batch */
static uint8_t batch[BATCH_BYTES];
static size_t batch_len;
static uint64_t batch_entries;
static struct line lines[LOG_OF_STDERR + 1];
static uint64_t dropped;
static int dropped_for;     /* errno; 0: they came too fast */
static uint64_t covered_us; /* when the rate will have covered all that was written */
static bool rests;

static uint32_t seal_of(uint32_t length, uint64_t seq) { return length ^ (uint32_t)seq; }

/* Finding the end of the last run */

/* Gives where the whole entries of a segment end, and the number after theirs. */
static off_t find_end(const uint8_t *bytes, off_t len, uint64_t *seq) {
  off_t at = sizeof(struct log_head);
  for (;;) {
    struct log_entry entry;
    uint32_t seal;
    if (len - at < (off_t)(sizeof entry + SEAL_BYTES)) return at;
    memcpy(&entry, bytes + at, sizeof entry);
    off_t end = at + (off_t)(sizeof entry + SEAL_BYTES) + entry.length;
    if (entry.length > LOG_PIECE_MAX || end > len || entry.seq != *seq) return at;
    memcpy(&seal, bytes + end - SEAL_BYTES, sizeof seal);
    if (seal != seal_of(entry.length, entry.seq)) return at;
    at = end;
    ++*seq;
  }
}

static bool read_head(int fd, struct log_head *head) {
  return pread(fd, head, sizeof *head, 0) == sizeof *head && head->magic == LOG_MAGIC &&
         head->version == LOG_VERSION && head->first_seq > 0;
}

void log_open(int first_fd) {
  struct log_head head;
  uint64_t newest = 0;
  for (int i = 0; i < LOG_SEGMENTS; i++) {
    struct stat info;
    fds[i] = first_fd + i;
    bool usable = fstat(fds[i], &info) == 0 && S_ISREG(info.st_mode) && fcntl(fds[i], F_SETFD, FD_CLOEXEC) == 0;
    if (!usable) fatal("log segment");
    if (!read_head(fds[i], &head) || head.first_seq <= newest) continue;
    newest = head.first_seq;
    current = i;
    size = info.st_size;
  }
  next_seq = newest;
  if (newest == 0) {
    next_seq = 1;
    if (ftruncate(fds[current], 0) != 0) fatal("log segment");
    return;
  }
  uint8_t *bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fds[current], 0);
  if (bytes == MAP_FAILED) fatal("log segment");
  off_t end = find_end(bytes, size, &next_seq);
  munmap(bytes, (size_t)size);
  if (end < size && ftruncate(fds[current], end) != 0) fatal("log segment");
  size = end;
}

/* Writing */

/* Gives how many of the bytes were written. */
static size_t write_all(const void *bytes, size_t len, off_t at) {
  size_t done = 0;
  while (done < len) {
    ssize_t n = pwrite(fds[current], (const uint8_t *)bytes + done, len - done, at + (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    done += (size_t)n;
  }
  return done;
}

/* Writes the batch, which fits into the current segment, as far as the disk takes it. */
static void flush_batch(void) {
  if (batch_len == 0) return;
  uint64_t now = now_us();
  covered_us = (covered_us > now ? covered_us : now) + batch_len / BYTES_PER_US + 1;
  struct log_head head = {LOG_MAGIC, LOG_VERSION, next_seq - batch_entries};
  off_t at = size == 0 ? (off_t)sizeof head : size;
  bool has_head = size > 0 || write_all(&head, sizeof head, 0) == sizeof head;
  size_t written = has_head ? write_all(batch, batch_len, at) : 0;
  if (written < batch_len) dropped_for = errno;
  if (has_head) size = at;
  for (size_t begin = 0; begin < batch_len;) {
    struct log_entry entry;
    memcpy(&entry, batch + begin, sizeof entry);
    begin += sizeof entry + entry.length + SEAL_BYTES;
    if (begin <= written) size = at + (off_t)begin;
    else dropped++;
    if (begin > written) next_seq--;
  }
  /* Whole entries stay, a follower may have them. Where the rest cannot be cut off, the seals tell. */
  if (written < batch_len && ftruncate(fds[current], size) != 0) dropped_for = errno;
  batch_len = 0;
  batch_entries = 0;
}

static void add_entry(int stream, int flags, const uint8_t *bytes, size_t len, uint64_t at_us) {
  size_t total = sizeof(struct log_entry) + len + SEAL_BYTES;
  off_t begin = size == 0 ? (off_t)sizeof(struct log_head) : size;
  if (begin + (off_t)(batch_len + total) > LOG_SEGMENT_BYTES) {
    flush_batch();
    current = (current + 1) % LOG_SEGMENTS;
    size = 0;
    if (ftruncate(fds[current], 0) != 0) dropped_for = errno;
  }
  if (batch_len + total > sizeof batch) flush_batch();
  struct log_entry entry = {
      .length = (uint32_t)len, .stream = (uint8_t)stream, .flags = (uint8_t)flags, .seq = next_seq, .at_us = at_us};
  uint32_t seal = seal_of(entry.length, entry.seq);
  uint8_t *to = batch + batch_len;
  memcpy(to, &entry, sizeof entry);
  if (len > 0) memcpy(to + sizeof entry, bytes, len);
  memcpy(to + sizeof entry + len, &seal, sizeof seal);
  batch_len += total;
  batch_entries++;
  next_seq++;
}

/* Says how many lines are missing at this place. Where that is not written either, `dropped` keeps them. */
static void tell_dropped(uint64_t at_us) {
  char text[128];
  int n = snprintf(text, sizeof text, "minit: %llu log lines were %s: %s", (unsigned long long)dropped,
                   dropped_for == 0 ? "left out" : "lost",
                   dropped_for == 0 ? "written faster than the log takes" : strerror(dropped_for));
  uint64_t before = dropped;
  dropped = 0;
  add_entry(LOG_OF_MINIT, LOG_GAP, (const uint8_t *)text, (size_t)n, at_us);
  flush_batch();
  /* The note is the last of what was given up, and no line. */
  if (dropped > 0) dropped += before - 1;
}

/* Says first how many lines are missing. Where that is not written either, this line is one more. */
static void add(int stream, int flags, const uint8_t *bytes, size_t len, uint64_t at_us) {
  if (dropped > 0) tell_dropped(at_us);
  if (dropped > 0) dropped++;
  else add_entry(stream, flags, bytes, len, at_us);
}

static void end_line(int stream, int flags, uint64_t at_us) {
  struct line *line = &lines[stream];
  add(stream, flags, line->bytes, line->len, at_us);
  line->len = 0;
}

void log_bytes(int stream, const uint8_t *bytes, size_t len) {
  struct line *line = &lines[stream];
  uint64_t at_us = epoch_us();
  while (len > 0) {
    const uint8_t *newline = memchr(bytes, '\n', len);
    size_t room = LOG_PIECE_MAX - line->len;
    size_t take = newline == NULL ? len : (size_t)(newline - bytes);
    if (take > room) {
      newline = NULL;
      take = room;
    }
    /* A full piece waits for the byte after it: it may be the newline. */
    bool whole = newline != NULL || (line->len + take == LOG_PIECE_MAX && take < len);
    if (whole && line->len == 0) {
      add(stream, newline == NULL ? LOG_PARTIAL : 0, bytes, take, at_us);
    } else {
      memcpy(line->bytes + line->len, bytes, take);
      if (line->len == 0) line->since_us = now_us();
      line->len += take;
      if (whole) end_line(stream, newline == NULL ? LOG_PARTIAL : 0, at_us);
    }
    if (newline != NULL) take++;
    bytes += take;
    len -= take;
  }
  flush_batch();
}

void log_skip(int stream, const uint8_t *bytes, size_t len) {
  if (lines[stream].len > 0) end_line(stream, LOG_PARTIAL, epoch_us());
  flush_batch();
  if (dropped == 0) dropped_for = 0;
  uint64_t before = dropped;
  for (const uint8_t *at = bytes, *end = bytes + len; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++) dropped++;
  /* A piece of a line is one that is not whole. */
  if (before == 0 && dropped == 0) dropped = 1;
}

bool log_takes(uint64_t now) {
  rests = covered_us > now + AHEAD_MAX_US - (rests ? REST_US : 0);
  return !rests;
}

void log_line(const char *text) {
  add(LOG_OF_MINIT, 0, (const uint8_t *)text, strlen(text), epoch_us());
  flush_batch();
}

void log_turn(uint64_t now) {
  for (int i = 0; i <= LOG_OF_STDERR; i++) {
    if (lines[i].len > 0 && now >= lines[i].since_us + LINE_WAIT_US) end_line(i, LOG_PARTIAL, epoch_us());
  }
  if (dropped > 0 && dropped_for == 0 && log_takes(now)) tell_dropped(epoch_us());
  flush_batch();
}

uint64_t log_wake_us(void) {
  uint64_t wake = rests ? covered_us - AHEAD_MAX_US + REST_US : UINT64_MAX;
  for (int i = 0; i <= LOG_OF_STDERR; i++) {
    if (lines[i].len > 0 && lines[i].since_us + LINE_WAIT_US < wake) wake = lines[i].since_us + LINE_WAIT_US;
  }
  return wake;
}

void log_finish(void) {
  for (int i = 0; i <= LOG_OF_STDERR; i++) {
    if (lines[i].len > 0) end_line(i, LOG_PARTIAL, epoch_us());
  }
  if (dropped > 0) tell_dropped(epoch_us());
  flush_batch();
}
