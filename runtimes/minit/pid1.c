#define _GNU_SOURCE
#include "pid1.h"

#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include "protocol.h"

struct server server;
struct identity *identity;
bool has_children;
static struct rlimit files_limit; /* as it was at the start */

void send_error(struct conn *c, uint32_t id, int error, const char *message) {
  struct PACKED {
    uint32_t error, len;
  } head = {(uint32_t)error, (uint32_t)strlen(message) + 1};
  conn_send(c, ERROR, id, &head, sizeof head, message, head.len);
}

bool keep_files_limit(void) { return getrlimit(RLIMIT_NOFILE, &files_limit) == 0; }

bool restore_files_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < files_limit.rlim_max) return false;
  return limit.rlim_cur == files_limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &files_limit) == 0;
}
