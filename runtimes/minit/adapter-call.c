#define _GNU_SOURCE
#include "adapter-call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RETURNED, FAILED, TIMED_OUT, NOT_LOADED, EXITING }; /* STATUS of envelope.ts */

struct server adapter_server;
struct call calls[CALLS_MAX];
static uint64_t last_order;

static struct conn *minit_link(void) { return &adapter_server.conns[0]; }

bool link_is_full(void) { return buf_len(&minit_link()->out) > OUT_PAUSE; }

/* Requests */

static struct call *find_call(uint32_t id) {
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].state != CALL_FREE && calls[i].id == id) return &calls[i];
  }
  return NULL;
}

static struct call *find_free(void) {
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].state == CALL_FREE) return &calls[i];
  }
  return NULL;
}

/* Splits a complete request. */
static bool split_request(struct call *c) {
  struct cursor all = {.at = c->request.data + c->request.start, .left = buf_len(&c->request)};
  uint32_t len;
  if (!take_bytes(&all, &len, sizeof len)) return false;
  const uint8_t *head = take_room(&all, len);
  if (head == NULL) return false;
  c->head = (struct text){head, len};
  c->body = (struct text){all.at, all.left};
  if (!json_is_valid(c->head)) return false;
  json_copy(json_member(c->head, "invocation_id"), c->invocation_id, sizeof c->invocation_id);
  c->deadline_ms = json_number(json_member(c->head, "deadline_ms"), 0);
  c->deadline_us = UINT64_MAX;
  if (c->deadline_ms == 0) return true;
  uint64_t now = epoch_us() / 1000;
  c->deadline_us = now_us() + (c->deadline_ms > now ? (c->deadline_ms - now) * 1000 : 0);
  return true;
}

static struct call *begin_call(uint32_t id, struct cursor *body, uint32_t *flags) {
  uint32_t timeout_ms;
  struct call *c = find_free();
  if (!take_bytes(body, flags, sizeof *flags) || !take_bytes(body, &timeout_ms, sizeof timeout_ms)) return NULL;
  if (id == 0 || c == NULL || find_call(id) != NULL) return NULL;
  c->state = CALL_ARRIVING;
  c->id = id;
  c->timeout_ms = timeout_ms;
  c->order = ++last_order;
  c->started_us = now_us();
  c->deadline_us = UINT64_MAX;
  c->has_client = false;
  return c;
}

struct call *call_frame(uint8_t type, uint32_t id, struct cursor *body, bool *valid) {
  uint32_t flags = CALL_MORE;
  struct call *c;
  *valid = true;
  if (type == CALL_BEGIN) {
    c = begin_call(id, body, &flags);
    *valid = c != NULL;
  } else {
    c = find_call(id);
    /* Drops the rest of a request that is answered already. */
    if (type != CALL_CHUNK && type != CALL_END) *valid = false;
    if (c == NULL || c->state != CALL_ARRIVING) return NULL;
    if (type == CALL_END) flags = 0;
  }
  if (!*valid) return NULL;
  *valid = buf_len(&c->request) + body->left <= REQUEST_MAX && buf_append(&c->request, body->at, body->left);
  if (!*valid || (flags & CALL_MORE)) return NULL;
  *valid = split_request(c);
  c->state = CALL_WAITING;
  return *valid ? c : NULL;
}

struct call *call_first(enum call_state state) {
  struct call *first = NULL;
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].state == state && (first == NULL || calls[i].order < first->order)) first = &calls[i];
  }
  return first;
}

struct call *call_sole(void) {
  struct call *sole = NULL;
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].state != CALL_RUNNING && calls[i].state != CALL_BINDING) continue;
    if (sole != NULL) return NULL;
    sole = &calls[i];
  }
  return sole;
}

bool calls_any(void) {
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].state != CALL_FREE) return true;
  }
  return false;
}

/* Answers */

static void answer(struct call *c, uint32_t status, struct text content) {
  while (content.len > CALL_CHUNK_MAX) {
    conn_send(minit_link(), CALL_CHUNK, c->id, content.at, CALL_CHUNK_MAX, NULL, 0);
    content.at += CALL_CHUNK_MAX;
    content.len -= CALL_CHUNK_MAX;
  }
  conn_send(minit_link(), CALL_RESULT, c->id, &status, sizeof status, content.at, content.len);
  buf_take(&c->request, buf_len(&c->request));
  buf_take(&c->result, buf_len(&c->result));
  c->state = CALL_FREE;
}

void call_returned(struct call *c, struct text json) { answer(c, RETURNED, json); }

void call_too_large(struct call *c) { call_failed(c, "ResultTooLarge", "result too large: more than %d bytes (limit)", RESULT_MAX); }

void call_returned_text(struct call *c, struct text body) {
  struct text value = json_trimmed(body);
  struct buf string = {0};
  if (value.len > RESULT_MAX) {
    call_too_large(c);
  } else if (body.len == 0 || (json_is_valid(value) && json_is_result(value))) {
    answer(c, RETURNED, value);
  } else if (json_encoded_len(body) > RESULT_MAX) {
    call_too_large(c);
  } else if (json_encode(body, &string)) {
    answer(c, RETURNED, buf_text(&string));
  } else {
    call_failed(c, "OutOfMemory", "out of memory");
  }
  buf_free(&string);
}

void call_timed_out(struct call *c) { answer(c, TIMED_OUT, (struct text){0}); }

static void answer_error(struct call *c, uint32_t status, const char *type, const char *message) {
  struct buf json = {0};
  bool made = buf_put(&json, "{\"type\":") && json_encode(text_of(type), &json) && buf_put(&json, ",\"message\":") &&
              json_encode(text_of(message), &json) && buf_put(&json, "}");
  if (!made) buf_free(&json);
  answer(c, status, buf_text(&json));
  buf_free(&json);
}

void call_failed(struct call *c, const char *type, const char *format, ...) {
  char message[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  answer_error(c, FAILED, type, message);
}

void call_not_loaded(struct call *c, const char *type, const char *message) { answer_error(c, NOT_LOADED, type, message); }

void call_exiting(struct call *c, const char *type, const char *message) { answer_error(c, EXITING, type, message); }

void call_log(const struct call *c, uint8_t stream, const uint8_t *bytes, size_t len) {
  struct wire_call_log head = {.stream = stream};
  while (len > 0) {
    size_t part = len > CALL_CHUNK_MAX ? CALL_CHUNK_MAX : len;
    conn_send(minit_link(), CALL_LOG, c == NULL ? 0 : c->id, &head, sizeof head, bytes, part);
    bytes += part;
    len -= part;
  }
}
