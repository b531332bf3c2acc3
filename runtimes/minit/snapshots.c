#define _GNU_SOURCE
#include "snapshots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "storage-pool.h"

enum {
  PAIRS_MAX = 32, /* a container and its volumes */
  PATH_BYTES = 512,
  NAME_BYTES = 96,
  POLL_US = 200,
};

/* The kernel writes less than this within milliseconds. */
static const uint64_t flushed_bytes_min = 1024 * 1024;

struct pair {
  char source[NAME_BYTES], name[NAME_BYTES];
};

struct pairs {
  struct pair pair[PAIRS_MAX];
  int count;
};

/* The freezer of a cgroup: `freezer.state` (v1), or `cgroup.freeze` (v2), whose effect `cgroup.events` reports. */
struct freezer {
  const char *file; /* "": nothing is frozen */
  char events[PATH_BYTES];
};

/* Pairs */

static bool take_name(const char **at, char end, char name[NAME_BYTES]) {
  const char *stop = strchr(*at, end);
  if (stop == NULL || stop == *at || stop - *at >= NAME_BYTES) return false;
  memcpy(name, *at, (size_t)(stop - *at));
  name[stop - *at] = 0;
  *at = stop + 1;
  return true;
}

static int read_pairs(const char *lines, struct pairs *pairs) {
  pairs->count = 0;
  while (*lines != 0) {
    if (pairs->count == PAIRS_MAX) return E2BIG;
    struct pair *pair = &pairs->pair[pairs->count];
    if (!take_name(&lines, ' ', pair->source) || !take_name(&lines, '\n', pair->name)) return EINVAL;
    pairs->count++;
  }
  return pairs->count == 0 ? EINVAL : 0;
}

/* Freezing */

static bool is_v2(const struct freezer *freezer) { return freezer->events[0] != 0; }

static int freezer_open(const char *file, struct freezer *freezer) {
  static const char v2_name[] = "/cgroup.freeze";
  *freezer = (struct freezer){.file = file};
  size_t len = strlen(file), name_len = sizeof v2_name - 1;
  if (len < name_len || strcmp(file + len - name_len, v2_name) != 0) return 0;
  int n = snprintf(freezer->events, PATH_BYTES, "%.*s/cgroup.events", (int)(len - name_len), file);
  return n < PATH_BYTES ? 0 : ENAMETOOLONG;
}

static int freezer_write(const struct freezer *freezer, bool freeze) {
  const char *text = is_v2(freezer) ? (freeze ? "1" : "0") : (freeze ? "FROZEN" : "THAWED");
  int fd = open(freezer->file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int error = write(fd, text, strlen(text)) < 0 ? errno : 0;
  close(fd);
  return error;
}

static bool is_frozen(const struct freezer *freezer) {
  char text[256];
  int fd = open(is_v2(freezer) ? freezer->events : freezer->file, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  return is_v2(freezer) ? strstr(text, "frozen 1") != NULL : strncmp(text, "FROZEN", 6) == 0;
}

/* A process that waits for the kernel freezes later, or not before the deadline. */
static bool freezer_wait(const struct freezer *freezer, uint64_t deadline_us) {
  while (!is_frozen(freezer)) {
    if (now_us() >= deadline_us) return false;
    usleep(POLL_US);
  }
  return true;
}

/* Snapshots */

/* A snapshot that is thrown away writes what waits (F3): no other call writes that of one subvolume alone. */
static void flush(int pool_fd, const struct pairs *pairs) {
  for (int i = 0; i < pairs->count; i++) {
    const struct pair *pair = &pairs->pair[i];
    if (storage_pool_waiting(pool_fd, pair->source) < flushed_bytes_min) continue;
    if (storage_pool_take(pool_fd, pair->source, pair->name, 0, true) == 0) storage_pool_remove(pool_fd, pair->name);
  }
}

/* F2. */
static void take_all(int pool_fd, const struct pairs *pairs, const struct storage_request *request,
                     struct storage_result *result) {
  bool read_only = request->flags & STORAGE_READONLY;
  for (int i = 0; i < pairs->count; i++) {
    const struct pair *pair = &pairs->pair[i];
    int error = storage_pool_take(pool_fd, pair->source, pair->name, request->owner, read_only);
    if (!storage_failed(result, pair->source, error)) continue;
    while (--i >= 0) storage_pool_remove(pool_fd, pairs->pair[i].name);
    return;
  }
}

void snapshots_take(int pool_fd, const struct storage_request *request, struct storage_result *result) {
  static struct pairs pairs;
  struct freezer freezer;
  if (storage_failed(result, "names", read_pairs(request->text[1], &pairs))) return;
  if (storage_failed(result, "freezer", freezer_open(request->text[0], &freezer))) return;
  if (*freezer.file == 0) {
    take_all(pool_fd, &pairs, request, result);
    return;
  }
  flush(pool_fd, &pairs);
  uint64_t begun_us = now_us();
  int error = freezer_write(&freezer, true);
  if (!storage_failed(result, "freeze", error)) {
    result->value[1] = freezer_wait(&freezer, begun_us + request->bytes);
    take_all(pool_fd, &pairs, request, result);
  }
  error = freezer_write(&freezer, false);
  result->value[0] = now_us() - begun_us;
  if (result->error == 0) storage_failed(result, "thaw", error);
}
