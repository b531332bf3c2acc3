/*
 * Byte buffers, body cursors, and the socket server that both modes share: one thread, one epoll, framed
 * connections. The mode plugs in its rules through the hooks of `struct server`.
 *
 * F1 Memory per connection is bounded: one frame in, and no more requests are read while OUT_HOLD bytes wait to go out.
 * F2 A connection is torn down only at the end of a loop turn (`dead` until then), so no handler sees a freed one.
 * F3 Frames leave once per turn: all that a turn produced for a connection is one write.
 */
#ifndef MINIT_FRAME_H
#define MINIT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

enum {
  CONNECTIONS_MAX = 320, /* of any mode; a mode pays only for its own `connections_max` */
  OUT_PAUSE = 256 * 1024, /* above this many unsent bytes the output of commands is not read */
  OUT_HOLD = 1024 * 1024, /* above this many, neither are requests */
};

/* Bytes [start, end) of an own mapping: what is not in use goes back to the system, whatever malloc would keep. */
struct buf {
  uint8_t *data;
  size_t cap, start, end;
};

static inline size_t buf_len(const struct buf *b) { return b->end - b->start; }
bool buf_reserve(struct buf *b, size_t extra);
bool buf_append(struct buf *b, const void *bytes, size_t len);
/* Appends a C string without its NUL. */
bool buf_put(struct buf *b, const char *text);
void buf_take(struct buf *b, size_t len);
void buf_free(struct buf *b);

/* Reads a body front to back. After the first read that does not fit, `bad` stays set and all reads give zeros. */
struct cursor {
  const uint8_t *at;
  size_t left;
  bool bad;
};

bool take_bytes(struct cursor *c, void *out, size_t len);
/* Returns `len` bytes of the body, in place; NULL if fewer are left. */
const uint8_t *take_room(struct cursor *c, size_t len);
char *take_str(struct cursor *c);

struct conn {
  int fd; /* -1: free slot */
  uint32_t events;
  bool dead;
  bool held; /* set by the mode: read no requests for now */
  struct buf in, out;
};

/* What an epoll event is about, in the upper half of its data; the lower half is the slot. */
enum { TAG_LISTEN, TAG_SIGNAL, TAG_CONN, TAG_PARENT, TAG_STDIN, TAG_STDOUT, TAG_STDERR, TAG_REPORT, TAG_RESIDENT };

struct server {
  int epoll_fd, listen_fd, signal_fd;
  int connections_max;
  int conns_top;      /* slots from here on are free */
  uint64_t accept_us; /* when to watch the listening socket again; UINT64_MAX: it is watched */
  bool child_ended; /* a SIGCHLD came in since the mode last cleared this */
  bool again;       /* something changed after the mode's turn: take another one without waiting */
  struct conn *conns; /* memory of frame.c's: a slot that was never used costs none */
  bool (*may_connect)(int fd);
  void (*on_open)(struct conn *c);
  void (*on_frame)(struct conn *c, uint8_t type, uint32_t id, struct cursor *body);
  void (*on_close)(struct conn *c);
  void (*on_event)(uint32_t tag, uint32_t slot);
  void (*on_turn)(uint64_t now_us);     /* after the events of a turn, before the writes */
  uint64_t (*next_wake_us)(void);       /* monotonic time of the next timer, UINT64_MAX for none */
};

/* Microseconds of the monotonic clock, and since the epoch. */
uint64_t now_us(void);
uint64_t epoch_us(void);
/* Ignored signals stay ignored through exec, so what a parent left ignored would reach every command. */
void reset_signals(void);
/* As good as ignored, but exec resets it. */
void quiet_signal(int signal);
/* Epoll, SIGCHLD and SIGPIPE. */
bool server_init(struct server *s);
bool server_watch(struct server *s, int op, int fd, uint32_t events, uint32_t tag, uint32_t slot);
_Noreturn void server_run(struct server *s);

/* Queues one frame of two pieces. Out of memory costs the connection, never a frame in the middle. */
void conn_send(struct conn *c, uint8_t type, uint32_t id, const void *a, size_t a_len, const void *b, size_t b_len);
/* Reserves one frame and returns the place of its body, at most `max` bytes; NULL if memory ran out. */
uint8_t *conn_room(struct conn *c, size_t max);
/* Queues that frame, with the `len` bytes that are there now. */
void conn_commit(struct conn *c, uint8_t type, uint32_t id, size_t len);
void conn_flush(struct conn *c);
_Noreturn void fatal(const char *what);

#endif
