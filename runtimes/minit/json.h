/*
 * JSON texts (RFC 8259) without a tree: checks them, walks the members of an object, decodes and encodes strings. Walking
 * and decoding take only texts that were checked. No function recurses.
 */
#ifndef MINIT_JSON_H
#define MINIT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "frame.h"

enum {
  JSON_DEPTH_MAX = 512,
  JSON_RESULT_DEPTH_MAX = 128,    /* json_depth_max of src/base/limits.ts */
  JSON_RESULT_VALUES_MAX = 65536, /* json_values_max */
};

/* Borrowed bytes. Of JSON: one value without space around it. `at` NULL: no value. */
struct text {
  const uint8_t *at;
  size_t len;
};

static inline struct text text_of(const char *text) { return (struct text){(const uint8_t *)text, strlen(text)}; }

/* Returns the bytes of a buffer; `at` is not NULL, even if the buffer never had any. */
static inline struct text buf_text(const struct buf *b) {
  return buf_len(b) == 0 ? (struct text){(const uint8_t *)"", 0} : (struct text){b->data + b->start, buf_len(b)};
}

/* Returns true for one value in valid UTF-8, not deeper than JSON_DEPTH_MAX, with or without space around it. */
bool json_is_valid(struct text text);
/* Returns true for a valid text that the daemon takes as a result: it has no more levels and values than JSON_RESULT_*. */
bool json_is_result(struct text text);
/* Returns the value without the space around it. */
struct text json_trimmed(struct text text);
/* Takes the next member off an object, with the `{` before the first. Returns false at the end. */
bool json_next(struct text *object, struct text *key, struct text *value);
/* The same of an array. */
bool json_next_element(struct text *array, struct text *value);
/* Returns the last member of that name; `at` NULL if there is none, or if `object` is no object. */
struct text json_member(struct text object, const char *key);
bool json_is_string(struct text value);
/* Returns a whole number, at most UINT64_MAX; `missing` for any other value. */
uint64_t json_number(struct text value, uint64_t missing);
/* Decodes a string into at most `max` bytes of `out`, whole characters; U+FFFD for half a surrogate pair. False: no memory. */
bool json_decode(struct text string, size_t max, struct buf *out);
/* Decodes a string as a C string, up to its first NUL and as far as it fits; "" for any other value. */
void json_copy(struct text string, char *out, size_t size);

/* Returns the value of a hexadecimal digit, -1 for anything else. */
int hex_value(uint8_t c);
/* Returns the length of the character at the front of `text`, 0 if it is no UTF-8. */
size_t utf8_len(struct text text);
/* Returns the length of the JSON string for `text`. U+FFFD replaces bytes that are no UTF-8. */
size_t json_encoded_len(struct text text);
/* Appends the JSON string. False: no memory. */
bool json_encode(struct text text, struct buf *out);

#endif
