/*
 * A reader of HTTP/1.1 messages (RFC 9112), requests or responses, from bytes that come in any pieces. It keeps no bytes:
 * the caller's buffer holds a head until it is whole.
 *
 * H1 A head has at most HTTP_HEAD_MAX bytes, a chunk's line HTTP_LINE_MAX.
 * H2 A message with two lengths that differ, or with a length and chunks, is refused.
 * H3 Each step uses up bytes, asks for more, or ends the message: a caller that loops comes to an end.
 */
#ifndef MINIT_HTTP_H
#define MINIT_HTTP_H

#include "json.h"

enum { HTTP_HEAD_MAX = 16 * 1024, HTTP_LINE_MAX = 256 };

enum http_step {
  HTTP_MORE, /* all of it is used up as far as it goes: more has to come */
  HTTP_HEAD, /* the head is whole, its fields are set */
  HTTP_BODY, /* `piece` is more of the body */
  HTTP_END,  /* the message is complete: what follows is another one */
  HTTP_BAD,  /* `why` says what is wrong */
};

struct http {
  enum { AT_HEAD, AT_LENGTH, AT_CHUNK_LINE, AT_CHUNK, AT_CHUNK_END, AT_TRAILER, AT_CLOSE, AT_END } at;
  bool is_response;
  bool keeps;     /* the sender keeps the connection afterwards */
  bool continues; /* of a request: it waits for 100 Continue */
  int status;     /* of a response */
  struct text method, path; /* of a request, as long as the head is in the caller's buffer; of a path without its query */
  struct text head;         /* the fields, as long */
  bool has_length;
  uint64_t length; /* Content-Length; 0 without one */
  uint64_t left;
  size_t scanned; /* bytes of an incomplete head in which no end is */
  const char *why;
};

/* Gets ready for the next message of the connection. */
void http_begin(struct http *h, bool is_response);
/* One step. `*used` of the bytes are done with; `*piece` is among them. */
enum http_step http_read(struct http *h, struct text bytes, size_t *used, struct text *piece);
/* Returns true if the message ends with the connection. */
bool http_ends_by_close(const struct http *h);
/* Returns the value of the first field of that name in lower case, none where there is none. Between HTTP_HEAD and the next step. */
struct text http_field(const struct http *h, const char *name);

/* Appends one field line. Control characters become spaces. False: no memory. */
bool http_put(struct buf *out, const char *name, struct text value);
/* The same with a decoded JSON string; nothing where there is none. */
bool http_put_json(struct buf *out, const char *name, struct text string);
/* The same with a JSON value as it is, all of it in ASCII; nothing where there is none. */
bool http_put_ascii(struct buf *out, const char *name, struct text json);
bool http_put_number(struct buf *out, const char *name, uint64_t number);

#endif
