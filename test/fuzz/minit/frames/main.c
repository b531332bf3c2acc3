/*
 * The frame parsers: a connection's bytes, in pieces, through frame.c into the handlers of one mode; or what a resident
 * process sends while two calls are in flight, or none and the connection changes. The first byte of an input chooses that, the second how it is cut. Nothing
 * may stay: no command, no job, no process, no descriptor.
 */
#include <stdlib.h>

#include "../../../../runtimes/minit/frame.c"
#include "modes.h"
#include "resident.h"

enum { SLOTS_MAX = 8, TURNS_MAX = 10000, TURN_US = 1000 };

static struct conn connection;

/* Bytes that the resident process sends. `feed` passes those of connections. */
static struct {
  const uint8_t *at;
  size_t left;
} said;

ssize_t stub_recv(void *bytes, size_t size) {
  errno = EAGAIN;
  if (said.left == 0) return -1;
  size_t n = said.left < size ? said.left : size;
  memcpy(bytes, said.at, n);
  said.at += n;
  said.left -= n;
  return (ssize_t)n;
}

static void settle(struct server *s) {
  static const uint32_t TAGS[] = {TAG_STDIN, TAG_STDOUT, TAG_STDERR, TAG_REPORT};
  for (uint32_t slot = 0; slot < SLOTS_MAX; slot++) {
    for (size_t i = 0; i < sizeof TAGS / sizeof TAGS[0]; i++) s->on_event(TAGS[i], slot);
  }
  /* The launcher has none. While it waits, only the end of its socket is an event. */
  if (s->on_open != NULL && !resident_waits()) s->on_event(TAG_RESIDENT, RESIDENT_SLOT);
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

static void say(struct server *s, const void *bytes, size_t size) {
  said.at = bytes;
  said.left = size;
  for (int i = 0; i < TURNS_MAX && said.left > 0 && init_busy(); i++) settle(s);
  said.left = 0;
}

/* Returns the length of the next piece. */
static size_t piece(size_t size, uint32_t *cut) {
  *cut = *cut * 1103515245 + 12345;
  size_t n = *cut >> 28 < 8 ? size : 1 + (*cut >> 16 & 63);
  return n < size ? n : size;
}

/* Another connection takes the process over. */
static void change_connection(struct server *s) {
  struct cursor body = {0};
  connection.dead = true;
  settle(s);
  connection = (struct conn){.fd = dup(STDIN_FILENO)};
  if (connection.fd < 0) abort();
  s->on_open(&connection);
  s->on_frame(&connection, SERVE_TAKE, 1, &body);
}

static void serve(struct server *s, const uint8_t *data, size_t size, uint32_t cut) {
  struct PACKED {
    struct wire_serve serve;
    uint32_t cwd_len;
    char cwd;
    uint32_t name_len;
    char name[8];
  } request = {{.concurrency = 1 + cut % 3, .argc = 1}, 1, 0, 8, "program"};
  struct cursor body = {.at = (const uint8_t *)&request, .left = sizeof request};
  s->on_frame(&connection, SERVE, 1, &body);
  if (cut & 128) say(s, "\x09\0\0\0\x60\0\0\0\0\1\0\0\0", 13);
  if (cut & 64) change_connection(s);
  for (uint32_t id = 1; id <= 2 && (cut & 32) == 0; id++) {
    struct wire_call call = {.flags = id == 2, .timeout_ms = 50, .result_max = 100, .log_max = 100};
    body = (struct cursor){.at = (const uint8_t *)&call, .left = sizeof call};
    s->on_frame(&connection, CALL_BEGIN, id, &body);
  }
  while (size > 0 && init_busy()) {
    size_t n = piece(size, &cut);
    say(s, data, n);
    data += n;
    size -= n;
  }
}

static void feed(struct server *s, const uint8_t *data, size_t size, uint32_t cut) {
  while (size > 0 && !connection.dead && connection.fd >= 0) {
    size_t n = piece(size, &cut);
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
  int kind = data[0] % 4;
  struct server *s = kind == 1 ? container_mode() : kind == 2 ? launcher_mode() : instance_mode();
  s->conns = &connection;
  s->conns_top = 1;
  connection = (struct conn){.fd = dup(STDIN_FILENO)};
  const int lowest = connection.fd;
  if (lowest < 0) abort();
  if (setjmp(stub_ended) == 0) {
    if (s->on_open != NULL) s->on_open(&connection);
    if (kind == 3) serve(s, data + 2, size - 2, data[1]);
    else feed(s, data + 2, size - 2, data[1]);
    end(s, kind == 2 ? launcher_busy : init_busy);
  }
  init_reset();
  if (connection.fd >= 0) close(connection.fd);
  buf_free(&connection.in);
  buf_free(&connection.out);
  if (dup(STDIN_FILENO) != lowest || close(lowest) != 0) abort();
  return 0;
}
