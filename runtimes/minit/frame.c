#define _GNU_SOURCE
#include "frame.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"

/* An idle buffer keeps this much. */
enum { BUF_MIN = 4096, EVENTS_MAX = 32, READS_PER_TURN = 16, WAIT_MS_MAX = 3600 * 1000, ACCEPT_AGAIN_US = 100000 };

static uint64_t clock_us(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t now_us(void) { return clock_us(CLOCK_MONOTONIC); }

uint64_t epoch_us(void) { return clock_us(CLOCK_REALTIME); }

void fatal(const char *what) {
  dprintf(2, "minit: %s: %s\n", what, strerror(errno));
  _exit(1);
}

/* Makes room for `extra` more bytes behind `end`. */
bool buf_reserve(struct buf *b, size_t extra) {
  if (b->start == b->end) b->start = b->end = 0;
  if (b->data != NULL && b->cap - b->end >= extra) return true;
  size_t len = buf_len(b);
  if (b->data != NULL && b->start >= len && b->cap - len >= extra) {
    memcpy(b->data, b->data + b->start, len);
    b->start = 0;
    b->end = len;
    return true;
  }
  size_t cap = b->data == NULL ? BUF_MIN : b->cap;
  while (cap - b->end < extra) cap *= 2;
  void *data = b->data == NULL
                   ? mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                   : mremap(b->data, b->cap, cap, MREMAP_MAYMOVE);
  if (data == MAP_FAILED) return false;
  b->data = data;
  b->cap = cap;
  return true;
}

bool buf_append(struct buf *b, const void *bytes, size_t len) {
  if (!buf_reserve(b, len)) return false;
  memcpy(b->data + b->end, bytes, len);
  b->end += len;
  return true;
}

bool buf_put(struct buf *b, const char *text) { return buf_append(b, text, strlen(text)); }

/* Drops `len` bytes at the front; a buffer that ran empty shrinks to one page. */
void buf_take(struct buf *b, size_t len) {
  b->start += len;
  if (b->start < b->end) return;
  b->start = b->end = 0;
  if (b->cap <= BUF_MIN) return;
  if (mremap(b->data, b->cap, BUF_MIN, 0) != MAP_FAILED) b->cap = BUF_MIN;
}

void buf_free(struct buf *b) {
  if (b->data != NULL) munmap(b->data, b->cap);
  *b = (struct buf){0};
}

bool take_bytes(struct cursor *c, void *out, size_t len) {
  if (c->bad || c->left < len) {
    c->bad = true;
    memset(out, 0, len);
    return false;
  }
  memcpy(out, c->at, len);
  c->at += len;
  c->left -= len;
  return true;
}

const uint8_t *take_room(struct cursor *c, size_t len) {
  const uint8_t *at = c->at;
  if (c->bad || c->left < len) {
    c->bad = true;
    return NULL;
  }
  c->at += len;
  c->left -= len;
  return at;
}

/* Returns a string of the body, in place; NULL unless it ends with its only NUL byte. */
char *take_str(struct cursor *c) {
  uint32_t len;
  if (!take_bytes(c, &len, sizeof len)) return NULL;
  if (len == 0 || len > c->left || memchr(c->at, 0, len) != c->at + len - 1) {
    c->bad = true;
    return NULL;
  }
  char *text = (char *)c->at;
  c->at += len;
  c->left -= len;
  return text;
}

bool server_watch(struct server *s, int op, int fd, uint32_t events, uint32_t tag, uint32_t slot) {
  struct epoll_event event = {.events = events, .data.u64 = (uint64_t)tag << 32 | slot};
  return epoll_ctl(s->epoll_fd, op, fd, &event) == 0;
}

static void on_quiet_signal(int signal) { (void)signal; }

void quiet_signal(int signal) {
  struct sigaction quiet = {.sa_handler = on_quiet_signal, .sa_flags = SA_RESTART};
  sigaction(signal, &quiet, NULL);
}

void reset_signals(void) {
  for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
}

bool server_init(struct server *s) {
  static struct conn conns[CONNECTIONS_MAX];
  s->conns = conns;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  quiet_signal(SIGPIPE);
  if (sigprocmask(SIG_SETMASK, &child, NULL) != 0) return false;
  s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  s->signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  return s->epoll_fd >= 0 && s->signal_fd >= 0 && server_watch(s, EPOLL_CTL_ADD, s->signal_fd, EPOLLIN, TAG_SIGNAL, 0);
}

struct PACKED head {
  uint32_t len;
  uint8_t type;
  uint32_t id;
};

void conn_send(struct conn *c, uint8_t type, uint32_t id, const void *a, size_t a_len, const void *b, size_t b_len) {
  if (c == NULL || c->dead) return;
  struct head head = {(uint32_t)(5 + a_len + b_len), type, id};
  if (!buf_reserve(&c->out, sizeof head + a_len + b_len)) {
    c->dead = true;
    return;
  }
  buf_append(&c->out, &head, sizeof head);
  if (a_len > 0) buf_append(&c->out, a, a_len);
  if (b_len > 0) buf_append(&c->out, b, b_len);
}

uint8_t *conn_room(struct conn *c, size_t max) {
  if (!c->dead && buf_reserve(&c->out, sizeof(struct head) + max)) return c->out.data + c->out.end + sizeof(struct head);
  c->dead = true;
  return NULL;
}

void conn_commit(struct conn *c, uint8_t type, uint32_t id, size_t len) {
  struct head head = {(uint32_t)(5 + len), type, id};
  buf_append(&c->out, &head, sizeof head);
  c->out.end += len;
}

void conn_flush(struct conn *c) {
  while (!c->dead && buf_len(&c->out) > 0) {
    ssize_t n = send(c->fd, c->out.data + c->out.start, buf_len(&c->out), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      buf_take(&c->out, (size_t)n);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) c->dead = true;
      return;
    }
  }
}

static bool conn_paused(const struct conn *c) { return c->held || buf_len(&c->out) > OUT_HOLD; }

/* A connection that cannot be accepted (no descriptor left) stays announced: look away for a while, or it spins. */
static void server_accept(struct server *s) {
  int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    if (!server_watch(s, EPOLL_CTL_DEL, s->listen_fd, 0, TAG_LISTEN, 0)) fatal("epoll");
    s->accept_us = now_us() + ACCEPT_AGAIN_US;
    return;
  }
  int slot = 0;
  while (slot < s->conns_top && s->conns[slot].fd >= 0) slot++;
  if (slot == s->connections_max || !s->may_connect(fd) ||
      !server_watch(s, EPOLL_CTL_ADD, fd, EPOLLIN, TAG_CONN, (uint32_t)slot)) {
    close(fd);
    return;
  }
  struct conn *c = &s->conns[slot];
  *c = (struct conn){.fd = fd, .events = EPOLLIN};
  if (slot >= s->conns_top) s->conns_top = slot + 1;
  if (s->on_open != NULL) s->on_open(c);
}

/* Hands all complete frames to the mode and makes room for the rest of an incomplete one. */
static void conn_frames(struct server *s, struct conn *c) {
  while (!c->dead && !conn_paused(c) && buf_len(&c->in) >= 4) {
    const uint8_t *at = c->in.data + c->in.start;
    uint32_t len, id;
    memcpy(&len, at, sizeof len);
    if (len < FRAME_HEAD - 4 || len > FRAME_MAX) {
      c->dead = true;
      return;
    }
    if (buf_len(&c->in) < 4 + (size_t)len) {
      if (!buf_reserve(&c->in, 4 + len - buf_len(&c->in))) c->dead = true;
      return;
    }
    memcpy(&id, at + 5, sizeof id);
    struct cursor body = {.at = at + FRAME_HEAD, .left = len - (FRAME_HEAD - 4)};
    s->on_frame(c, at[4], id, &body);
    buf_take(&c->in, 4 + (size_t)len);
  }
}

static void conn_read(struct server *s, struct conn *c) {
  for (int i = 0; i < READS_PER_TURN && !c->dead && !conn_paused(c); i++) {
    if (!buf_reserve(&c->in, 1)) {
      c->dead = true;
      return;
    }
    size_t room = c->in.cap - c->in.end;
    ssize_t n = recv(c->fd, c->in.data + c->in.end, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      c->dead = true;
      return;
    }
    c->in.end += (size_t)n;
    conn_frames(s, c);
    if ((size_t)n < room) return;
  }
}

/* The end of a turn: what was paused goes on, what is queued goes out, what is dead goes. */
static void conn_settle(struct server *s, struct conn *c, uint32_t slot) {
  size_t unread = buf_len(&c->in);
  if (unread >= 4) conn_frames(s, c);
  if (buf_len(&c->in) != unread) s->again = true;
  bool full = buf_len(&c->out) > OUT_PAUSE;
  conn_flush(c);
  if (full && buf_len(&c->out) <= OUT_PAUSE) s->again = true;
  uint32_t events = conn_paused(c) ? EPOLLRDHUP : EPOLLIN;
  if (buf_len(&c->out) > 0) events |= EPOLLOUT;
  if (!c->dead && events != c->events) {
    c->events = events;
    if (!server_watch(s, EPOLL_CTL_MOD, c->fd, events, TAG_CONN, slot)) c->dead = true;
  }
  if (!c->dead) return;
  s->again = true;
  s->on_close(c);
  close(c->fd);
  buf_free(&c->in);
  buf_free(&c->out);
  *c = (struct conn){.fd = -1};
}

static void server_event(struct server *s, const struct epoll_event *event) {
  uint32_t tag = (uint32_t)(event->data.u64 >> 32), slot = (uint32_t)event->data.u64;
  if (tag == TAG_CONN) {
    struct conn *c = &s->conns[slot];
    if (event->events & EPOLLIN) conn_read(s, c);
    else if (event->events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) c->dead = true;
  } else if (tag == TAG_SIGNAL) {
    struct signalfd_siginfo info;
    s->child_ended = read(s->signal_fd, &info, sizeof info) == sizeof info || s->child_ended;
  } else if (tag == TAG_LISTEN) {
    server_accept(s);
  } else {
    s->on_event(tag, slot);
  }
}

void server_run(struct server *s) {
  struct epoll_event events[EVENTS_MAX];
  uint64_t now = now_us();
  for (;;) {
    if (now >= s->accept_us && server_watch(s, EPOLL_CTL_ADD, s->listen_fd, EPOLLIN, TAG_LISTEN, 0)) {
      s->accept_us = UINT64_MAX;
    }
    uint64_t wake = s->next_wake_us();
    if (s->accept_us < wake) wake = s->accept_us;
    int timeout_ms = -1;
    if (wake <= now || s->again) {
      timeout_ms = 0;
    } else if (wake != UINT64_MAX) {
      uint64_t wait_ms = (wake - now + 999) / 1000;
      timeout_ms = wait_ms > WAIT_MS_MAX ? WAIT_MS_MAX : (int)wait_ms;
    }
    s->again = false;
    int count = epoll_wait(s->epoll_fd, events, EVENTS_MAX, timeout_ms);
    if (count < 0 && errno != EINTR) fatal("epoll_wait");
    for (int i = 0; i < count; i++) server_event(s, &events[i]);
    now = now_us();
    s->on_turn(now);
    for (int i = 0; i < s->conns_top; i++) {
      if (s->conns[i].fd >= 0) conn_settle(s, &s->conns[i], (uint32_t)i);
    }
    while (s->conns_top > 0 && s->conns[s->conns_top - 1].fd < 0) s->conns_top--;
  }
}
