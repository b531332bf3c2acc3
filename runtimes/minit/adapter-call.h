/*
 * The calls of the adapter and its link to minit: requests come in, each is answered once. Leaves to the protocols how
 * the command gets them. The text of requests and answers is described in runtimes/envelope.ts.
 *
 * C1 A call is answered once: answering frees its slot.
 * C2 A call holds at most its request (REQUEST_MAX) and RESULT_MAX bytes of its result.
 */
#ifndef MINIT_ADAPTER_CALL_H
#define MINIT_ADAPTER_CALL_H

#include "frame.h"
#include "json.h"
#include "protocol.h"

enum {
  REQUEST_MAX = FRAME_MAX,
  RESULT_MAX = 1024 * 1024,
  INVOCATION_ID_MAX = 127,
  ERROR_TEXT_MAX = 512, /* bytes of the command's output that an error shows */
};

enum call_state {
  CALL_FREE,
  CALL_ARRIVING, /* some of its request is missing */
  CALL_WAITING,  /* for the command */
  CALL_RUNNING,  /* the command has it */
  CALL_BINDING,  /* it is `bind`, and the command loads */
};

struct call {
  enum call_state state;
  uint32_t id;
  uint32_t timeout_ms; /* as minit gave it */
  uint64_t order, started_us;
  uint64_t deadline_us, deadline_ms; /* monotonic; since the epoch */
  char invocation_id[INVOCATION_ID_MAX + 1];
  struct buf request, result; /* pages of its slot, used again by later calls */
  struct text head, body;     /* of the request */
  bool has_client;            /* of lambda: a client sends its answer */
};

extern struct server adapter_server;
extern struct call calls[CALLS_MAX];

/* The tags of the adapter's own epoll events, beside those of frame.h. */
enum { TAG_SERVER = 64, TAG_CLIENT, TAG_LISTENER };

/* Takes a frame of minit. Returns the call whose request is complete with it, or NULL. False in `*valid`: not allowed. */
struct call *call_frame(uint8_t type, uint32_t id, struct cursor *body, bool *valid);
/* Returns the call in that state that came first, or NULL. */
struct call *call_first(enum call_state state);
/* Returns the only call that the command has, or NULL. */
struct call *call_sole(void);
bool calls_any(void);

/* The answers. `format` makes the text of an error as printf(3) does, cut at 1 KiB. */
void call_returned(struct call *c, struct text json);
/* Answers with the command's text: as it is where it is JSON that the daemon takes, else as a JSON string; fails above RESULT_MAX. */
void call_returned_text(struct call *c, struct text body);
void call_too_large(struct call *c);
void call_timed_out(struct call *c);
__attribute__((format(printf, 3, 4))) void call_failed(struct call *c, const char *type, const char *format, ...);
void call_not_loaded(struct call *c, const char *type, const char *message);
/* Fails a call, and says that the adapter exits. */
void call_exiting(struct call *c, const char *type, const char *message);
/* Sends log lines of a call, or with NULL of the instance. */
void call_log(const struct call *c, uint8_t stream, const uint8_t *bytes, size_t len);
/* Returns true while minit reads more slowly than the adapter writes. */
bool link_is_full(void);

#endif
