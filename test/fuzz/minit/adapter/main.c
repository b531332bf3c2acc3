/*
 * What a command sends to the adapter: JSON, HTTP messages, requests of the Runtime API and answers to calls. The first
 * byte of an input chooses one of them, the second how the rest is cut. A message means the same however it is cut, each
 * call is answered once, and no memory stays.
 */
#include "stubs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter-call.h"
#include "http.h"
#include "parts.h"

enum { TURNS_MAX = 100000, MESSAGES_MAX = 1000, CALL_COUNT = 3 };

static struct conn minit_end = {.fd = 1001};

static struct {
  const uint8_t *at;
  size_t left;
  uint32_t cut;
} said;

/* The adapter's own parts that are left out. */
void command_settle(void) {}

ssize_t stub_recv(void *bytes, size_t size) {
  said.cut = said.cut * 1103515245 + 12345;
  errno = EAGAIN;
  if (said.cut >> 30 == 0) return -1;
  size_t n = said.cut >> 28 < 12 ? said.left : 1 + (said.cut >> 16 & 31);
  if (n > said.left) n = said.left;
  if (n > size) n = size;
  memcpy(bytes, said.at, n);
  said.at += n;
  said.left -= n;
  return (ssize_t)n;
}

static void require(bool is_so) {
  if (!is_so) abort();
}

/* Whatever is encoded is JSON, and what is decoded from it is encoded to the same again. */
static void check_string(struct text text) {
  struct buf once = {0}, plain = {0}, twice = {0};
  require(json_encode(text, &once));
  struct text string = {once.data, buf_len(&once)};
  require(json_is_valid(string) && json_is_string(string) && buf_len(&once) == json_encoded_len(text));
  require(json_decode(string, SIZE_MAX, &plain));
  require(json_encode((struct text){plain.data, buf_len(&plain)}, &twice));
  require(buf_len(&once) == buf_len(&twice) && memcmp(once.data, twice.data, buf_len(&once)) == 0);
  buf_free(&once);
  buf_free(&plain);
  buf_free(&twice);
}

static void check_json(struct text text) {
  check_string(text);
  if (!json_is_valid(text)) return;
  struct text rest = json_trimmed(text), key, value;
  char copy[32];
  require(rest.len > 0);
  while (json_next(&rest, &key, &value)) {
    require(json_is_valid(value) && json_is_valid(key) && json_is_string(key));
    json_copy(key, copy, sizeof copy);
    require(strlen(copy) < sizeof copy);
    struct buf plain = {0};
    require(json_decode(value, 100, &plain) && buf_len(&plain) <= 100);
    check_string((struct text){plain.data, buf_len(&plain)});
    buf_free(&plain);
    if (*copy != 0 && strlen(copy) < sizeof copy - 4) require(json_member(text, copy).at != NULL);
    struct buf field = {0};
    require(http_put_ascii(&field, "a", value) && http_put_json(&field, "b", value));
    for (size_t i = 0; i + 2 < buf_len(&field); i++) require(field.data[i] >= ' ' || field.data[i] == '\r' || field.data[i] == '\n');
    buf_free(&field);
  }
  rest = json_trimmed(text);
  while (json_next_element(&rest, &value)) require(json_is_valid(value));
}

static void note(struct buf *log, char what, const void *bytes, size_t len) {
  require(buf_append(log, &what, 1) && (len == 0 || buf_append(log, bytes, len)));
}

/* Reads all messages, of which `step` more bytes come each time. Fills in what they are. */
static void read_messages(struct text text, bool is_response, size_t step, struct buf *log) {
  struct http http;
  size_t start = 0, end = 0;
  http_begin(&http, is_response);
  for (int count = 0; count < MESSAGES_MAX;) {
    /* A copy of exactly these bytes: ASan finds a read beyond their end. */
    size_t len = end - start, used;
    uint8_t *bytes = malloc(len);
    if (len > 0) memcpy(bytes, text.at + start, len);
    struct text piece = {0};
    enum http_step got = http_read(&http, (struct text){bytes, len}, &used, &piece);
    require(used <= len);
    if (got == HTTP_HEAD) {
      note(log, 'H', &http.status, sizeof http.status);
      note(log, 'M', http.method.at, http.method.len);
      struct text field = http_field(&http, "a");
      note(log, 'A', field.at, field.len);
    } else if (got == HTTP_BODY) {
      require(piece.len > 0);
      /* How a body is cut does not count. */
      require(buf_append(log, piece.at, piece.len));
    }
    free(bytes);
    start += used;
    if (got == HTTP_BAD) {
      note(log, 'X', http.why, strlen(http.why));
      return;
    }
    if (got == HTTP_END) {
      note(log, 'E', &http.keeps, 1);
      http_begin(&http, is_response);
      count++;
    }
    if (got != HTTP_MORE) continue;
    if (end == text.len) break;
    end = end + step < text.len ? end + step : text.len;
  }
  bool closes = http_ends_by_close(&http);
  note(log, 'C', &closes, 1);
}

static void check_messages(struct text text, bool is_response, uint8_t cut) {
  struct buf whole = {0}, parts = {0};
  read_messages(text, is_response, text.len + 1, &whole);
  read_messages(text, is_response, 1 + cut % 16, &parts);
  require(buf_len(&whole) == buf_len(&parts) && memcmp(whole.data, parts.data, buf_len(&whole)) == 0);
  buf_free(&whole);
  buf_free(&parts);
}

static void begin_calls(int running) {
  for (int i = 0; i < CALL_COUNT; i++) {
    calls[i].state = i < running ? CALL_RUNNING : CALL_WAITING;
    calls[i].id = (uint32_t)i + 1;
    calls[i].order = (uint64_t)i;
    calls[i].has_client = false;
    calls[i].deadline_us = UINT64_MAX;
    calls[i].invocation_id[0] = (char)('a' + i);
    calls[i].invocation_id[1] = 0;
    calls[i].head = (struct text){(const uint8_t *)"{}", 2};
    calls[i].body = (struct text){(const uint8_t *)"x", 1};
  }
}

/* Counts the answers in what minit was sent. */
static void end_calls(void) {
  int answers[CALL_COUNT] = {0};
  for (int i = 0; i < CALL_COUNT; i++) {
    if (calls[i].state != CALL_FREE) call_timed_out(&calls[i]);
    buf_free(&calls[i].request);
    buf_free(&calls[i].result);
  }
  const uint8_t *at = minit_end.out.data + minit_end.out.start;
  for (size_t left = buf_len(&minit_end.out); left > 0;) {
    uint32_t len, id;
    memcpy(&len, at, sizeof len);
    memcpy(&id, at + 5, sizeof id);
    require(id <= CALL_COUNT && (id > 0 || at[4] == CALL_LOG));
    if (at[4] == CALL_RESULT) answers[id - 1]++;
    else require(id == 0 || answers[id - 1] == 0);
    at += 4 + len;
    left -= 4 + len;
  }
  for (int i = 0; i < CALL_COUNT; i++) require(answers[i] == 1);
  buf_free(&minit_end.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  struct text text = {data + 2, size - 2};
  said.at = text.at;
  said.left = text.len;
  said.cut = data[1];
  adapter_server.conns = &minit_end;
  int turns = 0;
  switch (data[0] % 5) {
    case 0: check_json(text); break;
    case 1: check_messages(text, false, data[1]); break;
    case 2: check_messages(text, true, data[1]); break;
    case 3:
      begin_calls(2);
      lambda_part_begin();
      while (lambda_part_turn() && turns++ < TURNS_MAX) continue;
      lambda_part_end();
      end_calls();
      break;
    default:
      begin_calls(CALL_COUNT);
      server_part_begin(&calls[0]);
      while (server_part_turn() && turns++ < TURNS_MAX) continue;
      server_part_end();
      end_calls();
  }
  require(turns < TURNS_MAX);
  return 0;
}
