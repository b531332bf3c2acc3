#include "parts.h"

#include "../../../../runtimes/minit/adapter-lambda.c"

enum { FAKE_FD = 1000 };

void lambda_part_begin(void) {
  clients[0] = (struct client){.state = CLIENT_READING, .fd = FAKE_FD, .events = EPOLLIN};
  http_begin(&clients[0].http, false);
  is_open = has_init_error = false;
}

bool lambda_part_turn(void) {
  if (clients[0].state != CLIENT_FREE) lambda_event(TAG_CLIENT, 0);
  lambda_dispatch();
  if (clients[0].state == CLIENT_CLOSING) lambda_event(TAG_CLIENT, 0);
  return clients[0].state != CLIENT_FREE;
}

void lambda_part_end(void) {
  for (int i = 0; i < CALLS_MAX; i++) lambda_drop(&calls[i]);
  if (clients[0].state != CLIENT_FREE) close_client(&clients[0]);
}
