/*
 * The frame parsers: a connection's bytes, in pieces, through frame.c into the handlers of one mode. The first byte of
 * an input chooses the mode, the second how it is cut. Nothing may stay: no command, no job, no descriptor.
 */
#include <stdlib.h>

#include "../../../../runtimes/minit/frame.c"
#include "modes.h"

enum { SLOTS_MAX = 8, TURNS_MAX = 10000, TURN_US = 1000 };

static struct conn connection;

/* Connections are fed here. */
ssize_t stub_recv(void *bytes, size_t size) {
  (void)bytes, (void)size;
  return stub_refuse();
}

static void settle(struct server *s) {
  static const uint32_t TAGS[] = {TAG_STDIN, TAG_STDOUT, TAG_STDERR, TAG_REPORT};
  for (uint32_t slot = 0; slot < SLOTS_MAX; slot++) {
    for (size_t i = 0; i < sizeof TAGS / sizeof TAGS[0]; i++) s->on_event(TAGS[i], slot);
  }
  s->child_ended = true;
  s->on_turn(stub_now_us);
  if (connection.fd >= 0) conn_settle(s, &connection, 0);
  stub_now_us += TURN_US;
}

/* Time passes up to the next timer. */
static void end(struct server *s, bool (*busy)(void)) {
  connection.dead = true;
  for (int turn = 0; connection.fd >= 0 || busy(); turn++) {
    if (turn == TURNS_MAX) abort();
    uint64_t wake = s->next_wake_us();
    if (wake != UINT64_MAX && wake > stub_now_us) stub_now_us = wake;
    /* Jobs of the launcher end by themselves. */
    kill(-1, SIGKILL);
    settle(s);
  }
}

static void feed(struct server *s, const uint8_t *data, size_t size, uint32_t cut) {
  while (size > 0 && !connection.dead && connection.fd >= 0) {
    cut = cut * 1103515245 + 12345;
    size_t n = cut >> 28 < 8 ? size : 1 + (cut >> 16 & 63);
    if (n > size) n = size;
    if (!buf_append(&connection.in, data, n)) abort();
    conn_frames(s, &connection);
    settle(s);
    data += n;
    size -= n;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  signal(SIGPIPE, SIG_IGN);
  stub_forget_processes();
  container_reset();
  int kind = data[0] % 3;
  struct server *s = kind == 0 ? instance_mode() : kind == 1 ? container_mode() : launcher_mode();
  s->conns = &connection;
  s->conns_top = 1;
  connection = (struct conn){.fd = dup(STDIN_FILENO)};
  const int lowest = connection.fd;
  if (lowest < 0) abort();
  if (setjmp(stub_ended) == 0) {
    if (s->on_open != NULL) s->on_open(&connection);
    feed(s, data + 2, size - 2, data[1]);
    end(s, kind == 2 ? launcher_busy : init_busy);
  }
  init_reset();
  if (connection.fd >= 0) close(connection.fd);
  buf_free(&connection.in);
  buf_free(&connection.out);
  if (dup(STDIN_FILENO) != lowest || close(lowest) != 0) abort();
  return 0;
}
