#define _GNU_SOURCE
#include "http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { CUT_FROM = 4 * 1024 }; /* a head of fewer bytes is left as it is */

void http_begin(struct http *h, bool is_response) { *h = (struct http){.is_response = is_response}; }

static enum http_step bad(struct http *h, const char *why) {
  h->why = why;
  return HTTP_BAD;
}

static bool is_token(uint8_t c) {
  if (c >= 'a' && c <= 'z') return true;
  return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_blank(uint8_t c) { return c == ' ' || c == '\t'; }

static struct text trimmed(struct text text) {
  while (text.len > 0 && is_blank(text.at[text.len - 1])) text.len--;
  while (text.len > 0 && is_blank(text.at[0])) text.at++, text.len--;
  return text;
}

static bool is_word(struct text text, const char *word) {
  return text.len == strlen(word) && strncasecmp((const char *)text.at, word, text.len) == 0;
}

/* Returns true if a list separated by commas has the word. */
static bool lists(struct text list, const char *word) {
  while (list.len > 0) {
    const uint8_t *comma = memchr(list.at, ',', list.len);
    size_t len = comma == NULL ? list.len : (size_t)(comma - list.at);
    if (is_word(trimmed((struct text){list.at, len}), word)) return true;
    len += comma != NULL;
    list.at += len;
    list.len -= len;
  }
  return false;
}

/* Takes a line and its end off the text: CR LF, or LF alone, which simple programs send. False: no end yet. */
static bool take_line(struct text *text, struct text *line) {
  const uint8_t *end = text->len == 0 ? NULL : memchr(text->at, '\n', text->len);
  if (end == NULL) return false;
  *line = (struct text){text->at, (size_t)(end - text->at)};
  text->len -= line->len + 1;
  text->at = end + 1;
  if (line->len > 0 && line->at[line->len - 1] == '\r') line->len--;
  return true;
}

/* Returns the bytes of the head up to its blank line, 0 if that has not come yet. */
static size_t head_len(struct http *h, struct text bytes) {
  for (size_t i = h->scanned; i < bytes.len; i++) {
    const uint8_t *end = memchr(bytes.at + i, '\n', bytes.len - i);
    if (end == NULL) break;
    i = (size_t)(end - bytes.at);
    if (i + 1 < bytes.len && bytes.at[i + 1] == '\n') return i + 2;
    if (i + 2 < bytes.len && bytes.at[i + 1] == '\r' && bytes.at[i + 2] == '\n') return i + 3;
  }
  h->scanned = bytes.len < 3 ? 0 : bytes.len - 3;
  return 0;
}

void http_cut_field(struct http *h, struct buf *in, const char *name) {
  size_t name_len = strlen(name);
  for (size_t at = 0, len; h->at == AT_HEAD && buf_len(in) >= CUT_FROM && at < buf_len(in); at += len + 1) {
    uint8_t *line = in->data + in->start + at;
    size_t left = buf_len(in) - at;
    const uint8_t *end = memchr(line, '\n', left);
    len = end == NULL ? left : (size_t)(end - line);
    if (len == 0 || (len == 1 && *line == '\r')) return;
    bool is_field = len > name_len && line[name_len] == ':' && is_word((struct text){line, name_len}, name);
    size_t cut = is_field ? len - name_len - 1 : 0;
    if (cut == 0 || h->cut + cut > HTTP_CUT_MAX) continue;
    memmove(line + name_len + 1, line + len, left - len);
    in->end -= cut;
    len -= cut;
    h->cut += cut;
    h->scanned = 0;
  }
}

static bool read_version(struct http *h, struct text version) {
  if (version.len != 8 || memcmp(version.at, "HTTP/1.", 7) != 0) return false;
  h->keeps = version.at[7] == '1';
  return version.at[7] == '0' || version.at[7] == '1';
}

static bool read_status_line(struct http *h, struct text line) {
  if (line.len < 12 || line.at[8] != ' ' || !read_version(h, (struct text){line.at, 8})) return false;
  for (int i = 9; i < 12; i++) {
    if (line.at[i] < '0' || line.at[i] > '9') return false;
    h->status = h->status * 10 + (line.at[i] - '0');
  }
  return h->status >= 100 && (line.len == 12 || line.at[12] == ' ');
}

static bool read_request_line(struct http *h, struct text line) {
  const uint8_t *first = memchr(line.at, ' ', line.len);
  if (first == NULL || first == line.at) return false;
  h->method = (struct text){line.at, (size_t)(first - line.at)};
  for (size_t i = 0; i < h->method.len; i++) {
    if (!is_token(h->method.at[i])) return false;
  }
  struct text rest = {first + 1, line.len - h->method.len - 1};
  const uint8_t *second = rest.len == 0 ? NULL : memchr(rest.at, ' ', rest.len);
  if (second == NULL || rest.at[0] != '/') return false;
  h->path = (struct text){rest.at, (size_t)(second - rest.at)};
  for (size_t i = 0; i < h->path.len; i++) {
    if (h->path.at[i] <= ' ' || h->path.at[i] >= 0x7f) return false;
  }
  const uint8_t *query = memchr(h->path.at, '?', h->path.len);
  struct text version = {second + 1, rest.len - h->path.len - 1};
  if (query != NULL) h->path.len = (size_t)(query - h->path.at);
  return read_version(h, version);
}

/* Splits a field line. Returns false if it is malformed. */
static bool split_field(struct text line, struct text *name, struct text *value) {
  const uint8_t *colon = line.len == 0 ? NULL : memchr(line.at, ':', line.len);
  if (colon == NULL || colon == line.at) return false;
  *name = (struct text){line.at, (size_t)(colon - line.at)};
  for (size_t i = 0; i < name->len; i++) {
    if (!is_token(name->at[i])) return false;
  }
  *value = trimmed((struct text){colon + 1, line.len - name->len - 1});
  for (size_t i = 0; i < value->len; i++) {
    if (value->at[i] < ' ' && value->at[i] != '\t') return false;
  }
  return true;
}

static bool read_length(struct http *h, struct text value) {
  uint64_t length = json_number(value, UINT64_MAX);
  if (length > INT64_MAX || (h->has_length && length != h->length)) return false;
  h->has_length = true;
  h->length = length;
  return true;
}

/* Reads the fields that describe the body and the connection. Returns the error, or NULL. */
static const char *read_fields(struct http *h, bool *is_chunked) {
  struct text rest = h->head, line, name, value;
  while (take_line(&rest, &line) && line.len > 0) {
    if (!split_field(line, &name, &value)) return "a malformed header";
    if (is_word(name, "content-length")) {
      if (!read_length(h, value)) return "a malformed Content-Length";
    } else if (is_word(name, "transfer-encoding")) {
      if (*is_chunked || !is_word(value, "chunked")) return "an unknown Transfer-Encoding";
      *is_chunked = true;
    } else if (is_word(name, "connection")) {
      if (lists(value, "close")) h->keeps = false;
      else if (lists(value, "keep-alive")) h->keeps = true;
    } else if (is_word(name, "expect") && is_word(value, "100-continue")) {
      h->continues = !h->is_response;
    }
  }
  return *is_chunked && h->has_length ? "both Content-Length and Transfer-Encoding" : NULL;
}

static enum http_step read_head(struct http *h, struct text bytes, size_t *used) {
  /* Empty lines before a request are skipped (RFC 9112, section 2.2). */
  if (!h->is_response && bytes.len > 0 && (bytes.at[0] == '\r' || bytes.at[0] == '\n')) {
    if (bytes.at[0] == '\r' && bytes.len == 1) return HTTP_MORE;
    if (bytes.at[0] == '\r' && bytes.at[1] != '\n') return bad(h, "a malformed first line");
    *used = bytes.at[0] == '\r' ? 2 : 1;
    h->scanned = 0;
    return HTTP_MORE;
  }
  size_t len = head_len(h, bytes);
  if (len > HTTP_HEAD_MAX || (len == 0 && bytes.len >= HTTP_HEAD_MAX)) return bad(h, "a head above 16 KiB");
  if (len == 0) {
    /* A response that does not begin with `HTTP/` fails at once. */
    size_t known = bytes.len < 5 ? bytes.len : 5;
    if (h->is_response && memcmp(bytes.at, "HTTP/", known) != 0) return bad(h, "a malformed first line");
    return HTTP_MORE;
  }
  struct text line;
  bool is_chunked = false;
  h->head = (struct text){bytes.at, len};
  take_line(&h->head, &line);
  if (!(h->is_response ? read_status_line(h, line) : read_request_line(h, line))) return bad(h, "a malformed first line");
  const char *why = read_fields(h, &is_chunked);
  if (why != NULL) return bad(h, why);
  bool is_interim = h->is_response && h->status < 200;
  bool has_body = !is_interim && !h->is_bodiless && (!h->is_response || (h->status != 204 && h->status != 304));
  if (!has_body) h->length = 0;
  h->left = h->length;
  if (!has_body) h->at = AT_END;
  else if (is_chunked) h->at = AT_CHUNK_LINE;
  else if (h->has_length || !h->is_response) h->at = h->left > 0 ? AT_LENGTH : AT_END;
  else h->at = AT_CLOSE;
  if (h->at == AT_CLOSE) h->keeps = false;
  *used = len;
  return HTTP_HEAD;
}

/* Reads a line of a chunked body: the size of a chunk, the end of one, or a field behind the last. */
static enum http_step read_chunk_line(struct http *h, struct text bytes, size_t *used) {
  struct text rest = bytes, line;
  if (!take_line(&rest, &line)) {
    return bytes.len > HTTP_LINE_MAX ? bad(h, "a malformed chunk") : HTTP_MORE;
  }
  *used = bytes.len - rest.len;
  if (*used > HTTP_LINE_MAX) return bad(h, "a malformed chunk");
  if (h->at == AT_CHUNK_END) {
    if (line.len > 0) return bad(h, "a malformed chunk");
    h->at = AT_CHUNK_LINE;
    return HTTP_MORE;
  }
  if (h->at == AT_TRAILER) {
    h->left += *used;
    if (h->left > HTTP_HEAD_MAX) return bad(h, "trailers above 16 KiB");
    if (line.len == 0) h->at = AT_END;
    return HTTP_MORE;
  }
  size_t digits = 0;
  h->left = 0;
  for (; digits < line.len; digits++) {
    int value = hex_value(line.at[digits]);
    if (value < 0) break;
    h->left = h->left << 4 | (uint64_t)value;
  }
  bool ends = digits == line.len || line.at[digits] == ';' || is_blank(line.at[digits]);
  if (digits == 0 || digits > 15 || !ends) return bad(h, "a malformed chunk");
  h->at = h->left == 0 ? AT_TRAILER : AT_CHUNK;
  return HTTP_MORE;
}

static enum http_step read_piece(struct http *h, struct text bytes, size_t *used, struct text *piece) {
  size_t len = bytes.len;
  if (h->at != AT_CLOSE) {
    if (len > h->left) len = (size_t)h->left;
    h->left -= len;
    if (h->left == 0) h->at = h->at == AT_CHUNK ? AT_CHUNK_END : AT_END;
  }
  *used = len;
  *piece = (struct text){bytes.at, len};
  return HTTP_BODY;
}

enum http_step http_read(struct http *h, struct text bytes, size_t *used, struct text *piece) {
  size_t sum = 0;
  *used = 0;
  for (;;) {
    struct text rest = {bytes.at + sum, bytes.len - sum};
    size_t step_used = 0;
    enum http_step step = HTTP_MORE;
    if (h->at == AT_END) return HTTP_END;
    if (rest.len == 0) return HTTP_MORE;
    if (h->at == AT_HEAD) step = read_head(h, rest, &step_used);
    else if (h->at == AT_LENGTH || h->at == AT_CHUNK || h->at == AT_CLOSE) step = read_piece(h, rest, &step_used, piece);
    else step = read_chunk_line(h, rest, &step_used);
    sum += step_used;
    *used = sum;
    if (step != HTTP_MORE || step_used == 0) return step;
  }
}

bool http_ends_by_close(const struct http *h) { return h->at == AT_CLOSE; }

struct text http_field(const struct http *h, const char *wanted) {
  struct text rest = h->head, line, name, value;
  while (take_line(&rest, &line) && split_field(line, &name, &value)) {
    if (is_word(name, wanted)) return value;
  }
  return (struct text){0};
}

static bool put_name(struct buf *out, const char *name) { return buf_put(out, name) && buf_put(out, ": "); }

/* The value that begins at `start`, and the end of its line. */
static bool end_value(struct buf *out, size_t start) {
  for (size_t i = start; i < buf_len(out); i++) {
    uint8_t *c = &out->data[out->start + i];
    if (*c < ' ' || *c == 0x7f) *c = ' ';
  }
  return buf_put(out, "\r\n");
}

bool http_put(struct buf *out, const char *name, struct text value) {
  if (!put_name(out, name)) return false;
  size_t start = buf_len(out);
  return buf_append(out, value.at, value.len) && end_value(out, start);
}

bool http_put_json(struct buf *out, const char *name, struct text string) {
  if (!json_is_string(string)) return true;
  if (!put_name(out, name)) return false;
  size_t start = buf_len(out);
  return json_decode(string, HTTP_HEAD_MAX, out) && end_value(out, start);
}

bool http_put_ascii(struct buf *out, const char *name, struct text json) {
  if (json.len == 0) return true;
  if (!put_name(out, name)) return false;
  size_t start = buf_len(out);
  while (json.len > 0) {
    size_t len = utf8_len(json);
    char text[16];
    if (len == 0) return false;
    uint32_t code = len == 1 ? json.at[0] : json.at[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) code = code << 6 | (json.at[i] & 0x3f);
    int n;
    if (code < 0x7f) n = snprintf(text, sizeof text, "%c", (int)code);
    else if (code < 0x10000) n = snprintf(text, sizeof text, "\\u%04x", code);
    else n = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 | (code & 0x3ff));
    if (n < 0 || !buf_append(out, text, (size_t)n)) return false;
    json.at += len;
    json.len -= len;
  }
  return end_value(out, start);
}

bool http_put_number(struct buf *out, const char *name, uint64_t number) {
  char text[32];
  int n = snprintf(text, sizeof text, "%lu", number);
  return http_put(out, name, (struct text){(const uint8_t *)text, n < 0 ? 0 : (size_t)n});
}
