#define _GNU_SOURCE
#include "json.h"

static const char REPLACEMENT[] = "\xef\xbf\xbd";
static const char HEX[] = "0123456789abcdef";

size_t utf8_len(struct text text) {
  if (text.len == 0) return 0;
  uint8_t first = text.at[0];
  if (first < 0x80) return 1;
  size_t len = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.len < len) return 0;
  for (size_t i = 1; i < len; i++) {
    if ((text.at[i] & 0xc0) != 0x80) return 0;
  }
  uint8_t second = text.at[1];
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0; /* surrogates */
  if (first == 0xf0 && second < 0x90) return 0;
  return first == 0xf4 && second > 0x8f ? 0 : len;
}

static bool is_space(uint8_t c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

int hex_value(uint8_t c) {
  if (is_digit(c)) return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The scanners below move `*at` behind the part that they name. They return false if another one is there. */

static void skip_space(const uint8_t **at, const uint8_t *end) {
  while (*at < end && is_space(**at)) (*at)++;
}

static bool scan_string(const uint8_t **at, const uint8_t *end) {
  const uint8_t *c = *at;
  if (c == end || *c++ != '"') return false;
  while (c < end && *c != '"') {
    if (*c < 0x20) return false;
    if (*c != '\\') {
      size_t len = *c < 0x80 ? 1 : utf8_len((struct text){c, (size_t)(end - c)});
      if (len == 0) return false;
      c += len;
      continue;
    }
    if (++c == end || strchr("\"\\/bfnrtu", *c) == NULL || *c == 0) return false;
    if (*c++ != 'u') continue;
    for (int i = 0; i < 4; i++, c++) {
      if (c == end || hex_value(*c) < 0) return false;
    }
  }
  if (c == end) return false;
  *at = c + 1;
  return true;
}

static bool scan_digits(const uint8_t **at, const uint8_t *end) {
  const uint8_t *start = *at;
  while (*at < end && is_digit(**at)) (*at)++;
  return *at > start;
}

static bool scan_number(const uint8_t **at, const uint8_t *end) {
  if (*at < end && **at == '-') (*at)++;
  if (*at < end && **at == '0') (*at)++;
  else if (!scan_digits(at, end)) return false;
  if (*at < end && **at == '.') {
    (*at)++;
    if (!scan_digits(at, end)) return false;
  }
  if (*at == end || (**at | 0x20) != 'e') return true;
  (*at)++;
  if (*at < end && (**at == '+' || **at == '-')) (*at)++;
  return scan_digits(at, end);
}

static bool scan_word(const uint8_t **at, const uint8_t *end, const char *word) {
  size_t len = strlen(word);
  if ((size_t)(end - *at) < len || memcmp(*at, word, len) != 0) return false;
  *at += len;
  return true;
}

static bool scan_scalar(const uint8_t **at, const uint8_t *end) {
  if (*at == end) return false;
  if (**at == '"') return scan_string(at, end);
  if (**at == 't') return scan_word(at, end, "true");
  if (**at == 'f') return scan_word(at, end, "false");
  if (**at == 'n') return scan_word(at, end, "null");
  return scan_number(at, end);
}

/* A name and its colon. */
static bool scan_key(const uint8_t **at, const uint8_t *end) {
  skip_space(at, end);
  if (!scan_string(at, end)) return false;
  skip_space(at, end);
  return *at < end && *(*at)++ == ':';
}

/* One value with the space before it. */
static bool scan_value(const uint8_t **at, const uint8_t *end) {
  uint8_t closing[JSON_DEPTH_MAX];
  int depth = 0;
  for (;;) {
    skip_space(at, end);
    if (*at == end) return false;
    if (**at == '{' || **at == '[') {
      if (depth == JSON_DEPTH_MAX) return false;
      uint8_t close = closing[depth++] = *(*at)++ == '{' ? '}' : ']';
      skip_space(at, end);
      if (*at == end) return false;
      if (**at != close) {
        if (close == '}' && !scan_key(at, end)) return false;
        continue;
      }
    } else if (!scan_scalar(at, end)) {
      return false;
    }
    /* Behind a value, or before the end of an empty one. */
    for (;;) {
      if (depth == 0) return true;
      skip_space(at, end);
      if (*at == end) return false;
      uint8_t c = *(*at)++;
      if (c == closing[depth - 1]) {
        depth--;
        continue;
      }
      if (c != ',' || (closing[depth - 1] == '}' && !scan_key(at, end))) return false;
      break;
    }
  }
}

bool json_is_valid(struct text text) {
  const uint8_t *at = text.at, *end = text.at + text.len;
  if (text.at == NULL || !scan_value(&at, end)) return false;
  skip_space(&at, end);
  return at == end;
}

bool json_is_result(struct text text) {
  int depth = 0, values = 1;
  for (size_t i = 0; i < text.len; i++) {
    uint8_t c = text.at[i];
    if (c == '"') {
      while (text.at[++i] != '"') i += text.at[i] == '\\';
    } else if (c == '{' || c == '[') {
      values++;
      if (++depth > JSON_RESULT_DEPTH_MAX) return false;
    } else if (c == '}' || c == ']') {
      depth--;
    } else if (c == ',') {
      values++;
    }
  }
  return values <= JSON_RESULT_VALUES_MAX;
}

struct text json_trimmed(struct text text) {
  while (text.len > 0 && is_space(text.at[text.len - 1])) text.len--;
  while (text.len > 0 && is_space(text.at[0])) {
    text.at++;
    text.len--;
  }
  return text;
}

/* Sets `*at` to the next member or element: behind a comma, or behind the bracket with which the text begins. */
static bool enter(const struct text *rest, uint8_t bracket, const uint8_t **at) {
  const uint8_t *end = rest->at + rest->len;
  *at = rest->at;
  if (rest->at == NULL) return false;
  skip_space(at, end);
  if (*at == end || (**at != bracket && **at != ',')) return false;
  (*at)++;
  skip_space(at, end);
  return true;
}

/* Takes the value at `at` off the text. */
static bool take_value(struct text *rest, const uint8_t *at, struct text *value) {
  const uint8_t *start = at, *end = rest->at + rest->len;
  if (!scan_value(&at, end)) return false;
  *value = (struct text){start, (size_t)(at - start)};
  *rest = (struct text){at, (size_t)(end - at)};
  return true;
}

bool json_next(struct text *object, struct text *key, struct text *value) {
  const uint8_t *at, *end = object->at + object->len;
  if (!enter(object, '{', &at)) return false;
  const uint8_t *start = at;
  if (!scan_string(&at, end)) return false;
  *key = (struct text){start, (size_t)(at - start)};
  skip_space(&at, end);
  if (at == end || *at++ != ':') return false;
  skip_space(&at, end);
  return take_value(object, at, value);
}

bool json_next_element(struct text *array, struct text *value) {
  const uint8_t *at;
  return enter(array, '[', &at) && take_value(array, at, value);
}

struct text json_member(struct text object, const char *name) {
  struct text found = {0}, key, value;
  object = json_trimmed(object);
  if (object.len == 0 || object.at[0] != '{') return found;
  while (json_next(&object, &key, &value)) {
    char text[64];
    json_copy(key, text, sizeof text);
    if (strcmp(text, name) == 0) found = value;
  }
  return found;
}

bool json_is_string(struct text value) { return value.len >= 2 && value.at[0] == '"'; }

uint64_t json_number(struct text value, uint64_t missing) {
  if (value.len == 0) return missing;
  uint64_t number = 0;
  for (size_t i = 0; i < value.len; i++) {
    if (!is_digit(value.at[i])) return missing;
    if (__builtin_mul_overflow(number, 10, &number)) return UINT64_MAX;
    if (__builtin_add_overflow(number, (uint64_t)(value.at[i] - '0'), &number)) return UINT64_MAX;
  }
  return number;
}

static uint32_t unit_at(const uint8_t *at) {
  uint32_t unit = 0;
  for (int i = 0; i < 4; i++) unit = unit << 4 | (uint32_t)hex_value(at[i]);
  return unit;
}

static size_t put_utf8(uint32_t code, uint8_t out[4]) {
  if (code < 0x80) {
    out[0] = (uint8_t)code;
    return 1;
  }
  size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = len - 1; i > 0; i--, code >>= 6) out[i] = (uint8_t)(0x80 | (code & 0x3f));
  out[0] = (uint8_t)(0xf0 << (4 - len) | code);
  return len;
}

/* Decodes one character of a string, up to its closing quote. Returns its bytes in `out`, 0 at the end. */
static size_t decode_one(const uint8_t **at, const uint8_t *end, uint8_t out[4]) {
  static const char NAMES[] = "\"\\/bfnrt", CODES[] = "\"\\/\b\f\n\r\t";
  const uint8_t *c = *at;
  if (c >= end || *c == '"') return 0;
  if (*c != '\\') {
    size_t len = utf8_len((struct text){c, (size_t)(end - c)});
    if (len == 0) return 0;
    memcpy(out, c, len);
    *at = c + len;
    return len;
  }
  if (end - c < 2) return 0;
  if (c[1] != 'u') {
    const char *name = strchr(NAMES, c[1]);
    if (name == NULL || *name == 0) return 0;
    out[0] = (uint8_t)CODES[name - NAMES];
    *at = c + 2;
    return 1;
  }
  if (end - c < 6) return 0;
  uint32_t code = unit_at(c + 2);
  c += 6;
  if (code >= 0xd800 && code < 0xdc00 && end - c >= 6 && c[0] == '\\' && c[1] == 'u') {
    uint32_t low = unit_at(c + 2);
    if (low >= 0xdc00 && low < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      c += 6;
    }
  }
  if (code >= 0xd800 && code < 0xe000) code = 0xfffd;
  *at = c;
  return put_utf8(code, out);
}

bool json_decode(struct text string, size_t max, struct buf *out) {
  if (!json_is_string(string)) return true;
  const uint8_t *at = string.at + 1, *end = string.at + string.len;
  uint8_t bytes[4];
  size_t len;
  while ((len = decode_one(&at, end, bytes)) > 0 && len <= max) {
    if (!buf_append(out, bytes, len)) return false;
    max -= len;
  }
  return true;
}

void json_copy(struct text string, char *out, size_t size) {
  size_t used = 0;
  uint8_t bytes[4];
  size_t len;
  if (json_is_string(string)) {
    const uint8_t *at = string.at + 1, *end = string.at + string.len;
    while ((len = decode_one(&at, end, bytes)) > 0 && bytes[0] != 0 && used + len < size) {
      memcpy(out + used, bytes, len);
      used += len;
    }
  }
  out[used] = 0;
}

/* Encodes the character at the front of `text`, and moves behind it. Returns its bytes in `out`. */
static size_t encode_one(struct text *text, char out[6]) {
  uint8_t c = text->at[0];
  size_t len = utf8_len(*text), used = len;
  if (len == 0) {
    len = 1;
    used = sizeof REPLACEMENT - 1;
    memcpy(out, REPLACEMENT, used);
  } else if (c == '"' || c == '\\') {
    out[0] = '\\';
    out[1] = (char)c;
    used = 2;
  } else if (c < 0x20) {
    memcpy(out, "\\u00", 4);
    out[4] = HEX[c >> 4];
    out[5] = HEX[c & 15];
    used = 6;
    if (c == '\n') used = 2, out[1] = 'n';
    else if (c == '\t') used = 2, out[1] = 't';
    else if (c == '\r') used = 2, out[1] = 'r';
  } else {
    memcpy(out, text->at, len);
  }
  text->at += len;
  text->len -= len;
  return used;
}

size_t json_encoded_len(struct text text) {
  size_t sum = 2;
  char bytes[6];
  while (text.len > 0) sum += encode_one(&text, bytes);
  return sum;
}

bool json_encode(struct text text, struct buf *out) {
  char bytes[6];
  if (!buf_append(out, "\"", 1)) return false;
  while (text.len > 0) {
    size_t len = encode_one(&text, bytes);
    if (!buf_append(out, bytes, len)) return false;
  }
  return buf_append(out, "\"", 1);
}
