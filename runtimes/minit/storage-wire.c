#include "storage-wire.h"

#include <stdio.h>

#include "protocol.h"

bool storage_failed(struct storage_result *result, const char *step, int error) {
  if (error == 0) return false;
  result->error = error;
  snprintf(result->step, sizeof result->step, "%s", step);
  return true;
}

bool is_storage_request(uint8_t type) { return type >= STORAGE_OPEN && type <= STORAGE_SNAPSHOTS; }

bool storage_read(struct storage_request *request, uint8_t type, struct cursor *body) {
  static const int counts[] = {
      [STORAGE_OPEN - STORAGE_OPEN] = 2,   [STORAGE_CLOSE - STORAGE_OPEN] = 1,
      [STORAGE_CREATE - STORAGE_OPEN] = 1, [STORAGE_SNAPSHOT - STORAGE_OPEN] = 2,
      [STORAGE_DELETE - STORAGE_OPEN] = 1, [STORAGE_LIMIT - STORAGE_OPEN] = 1,
      [STORAGE_USAGE - STORAGE_OPEN] = 1,  [STORAGE_LIST - STORAGE_OPEN] = 1,
      [OVERLAY_MOUNT - STORAGE_OPEN] = 3,  [UNMOUNT - STORAGE_OPEN] = 1,
      [STORAGE_RENAME - STORAGE_OPEN] = 2, [STORAGE_SNAPSHOTS - STORAGE_OPEN] = 2,
  };
  struct wire_storage wire;
  bool read = take_bytes(body, &wire, sizeof wire);
  *request = (struct storage_request){
      .type = type, .bytes = wire.bytes, .owner = wire.owner, .flags = wire.flags, .user_fd = (int)wire.user_fd, .first_id = wire.first_id};
  for (int i = 0; i < counts[type - STORAGE_OPEN]; i++) request->text[i] = take_str(body);
  return read && !body->bad && body->left == 0;
}
