/*
 * A reader of HTTP/1.1 messages (RFC 9112), requests or responses, from pieces of any size. It keeps no bytes: the
 * caller's buffer holds a head until it is complete.
 *
 * H1 A head has at most HTTP_HEAD_MAX bytes, a chunk's line HTTP_LINE_MAX. Of a field that is cut, HTTP_CUT_MAX more may come.
 * H2 A message with two lengths that differ, or with a length and chunks, is refused.
 * H3 Each step uses up bytes, asks for more, or ends the message: a caller that loops comes to an end.
 */
#ifndef MINIT_HTTP_H
#define MINIT_HTTP_H

#include "json.h"

enum { HTTP_HEAD_MAX = 16 * 1024, HTTP_LINE_MAX = 256, HTTP_CUT_MAX = 1024 * 1024 };

enum http_step {
  HTTP_MORE, /* the reader needs more bytes */
  HTTP_HEAD, /* the head is complete, and its fields are set */
  HTTP_BODY, /* `piece` is more of the body */
  HTTP_END,  /* the message is complete; bytes behind it belong to the next one */
  HTTP_BAD,  /* `why` says what is wrong */
};

struct http {
  enum { AT_HEAD, AT_LENGTH, AT_CHUNK_LINE, AT_CHUNK, AT_CHUNK_END, AT_TRAILER, AT_CLOSE, AT_END } at;
  bool is_response;
  bool is_bodiless; /* it answers HEAD: its lengths describe a body that does not come */
  bool keeps;     /* the sender keeps the connection afterwards */
  bool continues; /* of a request: it waits for 100 Continue */
  int status;     /* of a response */
  struct text method, path; /* of a request, as long as the head is in the caller's buffer; of a path without its query */
  struct text head;         /* the fields, as long */
  bool has_length;
  uint64_t length; /* Content-Length; 0 without one */
  uint64_t left;
  size_t cut;     /* bytes of fields that were cut */
  size_t scanned; /* bytes of an incomplete head that were searched for its end */
  const char *why;
};

/* Prepares for the next message of the connection. `is_bodiless` is the caller's to set afterwards. */
void http_begin(struct http *h, bool is_response);
/*
 * Before http_read: cuts the value of the field of that name (lower case) out of a long head in the caller's buffer, as far as it
 * has come.
 */
void http_cut_field(struct http *h, struct buf *in, const char *name);
/* Reads one step. The caller drops `*used` bytes afterwards; `*piece` is among them. */
enum http_step http_read(struct http *h, struct text bytes, size_t *used, struct text *piece);
/* Returns true if the message ends with the connection. */
bool http_ends_by_close(const struct http *h);
/* Returns the value of the first field of that name (lower case); `at` NULL if there is none. Valid from HTTP_HEAD to the next step. */
struct text http_field(const struct http *h, const char *name);

/* Appends one field line. Control characters become spaces. False: no memory. */
bool http_put(struct buf *out, const char *name, struct text value);
/* The same with a decoded JSON string. Appends nothing for any other value. */
bool http_put_json(struct buf *out, const char *name, struct text string);
/* The same with the text of a JSON value, escaped to ASCII. Appends nothing for an empty text. */
bool http_put_ascii(struct buf *out, const char *name, struct text json);
bool http_put_number(struct buf *out, const char *name, uint64_t number);

#endif
