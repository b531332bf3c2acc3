#include "parts.h"

#include "../../../../runtimes/minit/adapter-server.c"

enum { FAKE_FD = 1000 };

void server_part_begin(struct call *c) {
  server_init_port(80, 1, (struct text){0});
  is_open = true;
  peers[0].state = PEER_BUSY;
  peers[0].fd = FAKE_FD;
  peers[0].call = c;
  peers[0].interim_count = 0;
  peers[0].skipped = 0;
  peers[0].has_bytes = peers[0].is_used = false;
  habit = UNKNOWN;
  http_begin(&peers[0].http, true);
}

bool server_part_turn(void) {
  server_event(0);
  return peers[0].state == PEER_BUSY;
}

void server_part_end(void) {
  stub_now_us += 2 * IDLE_US;
  server_turn(stub_now_us);
  if (peers[0].state != PEER_CLOSED) abort();
  buf_free(&peers[0].in);
  buf_free(&peers[0].out);
}
