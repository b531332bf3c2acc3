#define _GNU_SOURCE
#include "adapter-server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter-command.h"
#include "http.h"

enum {
  IDLE_US = 1000 * 1000,
  HABIT_US = 10 * 1000, /* within this time after an answer a server closes a connection that it does not keep */
  PROBE_FIRST_US = 1000,
  PROBE_LAST_US = 20 * 1000, /* between two tries, after half a second of shorter ones */
  READS_PER_EVENT = 16,
  INTERIM_MAX = 16,          /* 1xx responses before the answer */
  LOST_US = 50 * 1000,       /* between the end of a connection and the command's own end, which may have caused it */
  SKIPPED_MAX = 64 * 1024,   /* bytes of an error's body that are dropped to keep the connection */
  METHOD_MAX = 7,            /* OPTIONS */
  GIVEN_NAME_MAX = 128,      /* call_header_name_bytes_max of src/base/function-limits.ts */
};

struct peer {
  enum { PEER_CLOSED, PEER_CONNECTING, PEER_IDLE, PEER_BUSY, PEER_LOST } state;
  int fd;
  uint32_t events;
  struct call *call; /* of a busy one, and of a connecting one that was made for a call */
  struct buf in, out;
  struct http http;
  int interim_count;
  size_t skipped;
  bool has_bytes; /* of the answer */
  bool is_used;   /* an answer came on it */
  bool is_head;   /* the request in flight is a HEAD */
  uint64_t used_us; /* when it became idle, or was lost */
};

static struct peer peers[CALLS_MAX];
static int peers_max;
static int port;
static bool is_open, is_gone;
/* Some servers close connections without `Connection: close`: the first connection shows if this one does. */
static enum { UNKNOWN, KEEPS, CLOSES } habit;
static uint64_t probe_us, probe_wait_us;
static struct text function_head; /* of `bind` */

void server_init_port(int number, int concurrency, struct text function) {
  port = number;
  peers_max = concurrency;
  function_head = function;
  probe_us = 0;
  probe_wait_us = PROBE_FIRST_US;
}

bool server_is_open(void) { return is_open; }

bool server_is_gone(void) { return is_gone; }

static void close_peer(struct peer *p) {
  if (p->state == PEER_CLOSED) return;
  if (p->state != PEER_LOST) close(p->fd);
  p->state = PEER_CLOSED;
  p->call = NULL;
  buf_take(&p->in, buf_len(&p->in));
  buf_take(&p->out, buf_len(&p->out));
}

static bool watch(struct peer *p, int op, uint32_t events) {
  p->events = events;
  return server_watch(&adapter_server, op, p->fd, events, TAG_SERVER, (uint32_t)(p - peers));
}

/* Handles a connection that could not be made. */
static void refused(struct peer *p, int error) {
  struct call *call = p->call;
  close_peer(p);
  if (!is_open) {
    probe_us = now_us() + probe_wait_us;
    probe_wait_us += probe_wait_us / 16;
    if (probe_wait_us > PROBE_LAST_US) probe_wait_us = PROBE_LAST_US;
    return;
  }
  if (error == ECONNREFUSED) is_gone = true;
  else if (call != NULL) call_failed(call, "HttpError", "cannot connect to port %d: %s", port, strerror(error));
}

static void become_idle(struct peer *p) {
  if (habit == CLOSES && p->is_used) {
    close_peer(p);
    return;
  }
  p->state = PEER_IDLE;
  p->call = NULL;
  p->used_us = now_us();
}

/* Sends the queued bytes. The next read finds an error, after an answer that came before it. */
static void flush(struct peer *p) {
  while (buf_len(&p->out) > 0) {
    ssize_t n = send(p->fd, p->out.data + p->out.start, buf_len(&p->out), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      buf_take(&p->out, (size_t)n);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) buf_take(&p->out, buf_len(&p->out));
      break;
    }
  }
  uint32_t events = buf_len(&p->out) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (events != p->events && !watch(p, EPOLL_CTL_MOD, events)) fatal("epoll");
}

/* A port in the ephemeral range can be connected to itself: then no process listens. */
static bool is_own_end(const struct peer *p) {
  struct sockaddr_in own;
  socklen_t len = sizeof own;
  return getsockname(p->fd, (struct sockaddr *)&own, &len) == 0 && ntohs(own.sin_port) == port;
}

static void connected(struct peer *p) {
  int error = 0, on = 1;
  socklen_t len = sizeof error;
  if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) error = errno;
  if (error == 0 && is_own_end(p)) error = ECONNREFUSED;
  if (error != 0) {
    refused(p, error);
    return;
  }
  setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  is_open = true;
  if (p->call == NULL) become_idle(p);
  else p->state = PEER_BUSY;
  flush(p);
}

static void open_peer(struct peer *p, struct call *call) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (p->fd < 0) {
    int error = errno;
    p->state = PEER_CLOSED;
    p->call = call;
    refused(p, error);
    return;
  }
  p->state = PEER_CONNECTING;
  p->call = call;
  p->is_used = false;
  bool done = connect(p->fd, (struct sockaddr *)&address, sizeof address) == 0;
  if (!done && errno != EINPROGRESS) {
    refused(p, errno);
  } else if (!watch(p, EPOLL_CTL_ADD, EPOLLOUT)) {
    refused(p, errno);
  } else if (done) {
    connected(p);
  }
}

/* Requests */

/* The method, path and headers that the caller gave: checked by the daemon (src/functions/http-fields.ts). */
static bool put_given(struct buf *out, struct text http) {
  struct text headers = json_member(http, "headers"), key, value;
  while (headers.len > 0 && json_next(&headers, &key, &value)) {
    char name[GIVEN_NAME_MAX + 1];
    json_copy(key, name, sizeof name);
    if (!http_put_json(out, name, value)) return false;
  }
  return true;
}

static bool has_given(struct text http, const char *wanted) {
  struct text headers = json_member(http, "headers"), key, value;
  while (headers.len > 0 && json_next(&headers, &key, &value)) {
    char name[GIVEN_NAME_MAX + 1];
    json_copy(key, name, sizeof name);
    if (strcasecmp(name, wanted) == 0) return true;
  }
  return false;
}

/* Returns true for a method whose requests announce a body even if that is empty (RFC 9110, section 8.6). */
static bool announces_body(const char *method) {
  return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
}

static bool put_start(struct buf *out, const char *method, struct text path) {
  if (!buf_put(out, method) || !buf_put(out, " ")) return false;
  return (json_is_string(path) ? json_decode(path, HTTP_HEAD_MAX, out) : buf_put(out, "/")) && buf_put(out, " HTTP/1.1\r\n");
}

static bool put_content(struct buf *out, struct text http, struct text body) {
  const char *type = json_is_valid(body) ? "application/json" : "text/plain; charset=utf-8";
  if (!has_given(http, "content-type") && !http_put(out, "Content-Type", text_of(type))) return false;
  return http_put_number(out, "Content-Length", body.len);
}

/* `*is_head` becomes true for a request whose response has no body. */
static bool make_request(struct buf *out, const struct call *c, bool *is_head) {
  struct text head = c->head, api = json_member(head, "api"), http = json_member(head, "http");
  char method[METHOD_MAX + 1] = "POST", host[64];
  if (http.at != NULL) json_copy(json_member(http, "method"), method, sizeof method);
  *is_head = strcmp(method, "HEAD") == 0;
  snprintf(host, sizeof host, "Host: 127.0.0.1:%d\r\n", port);
  return put_start(out, method, json_member(http, "path")) && buf_put(out, host) &&
         ((c->body.len == 0 && !announces_body(method)) || put_content(out, http, c->body)) &&
         http_put_json(out, "X-Hearth-Invocation-Id", json_member(head, "invocation_id")) &&
         http_put_number(out, "X-Hearth-Deadline-Ms", c->deadline_ms) &&
         http_put_json(out, "X-Hearth-Function-Id", json_member(function_head, "function_id")) &&
         http_put_json(out, "X-Hearth-Function-Name", json_member(function_head, "function_name")) &&
         http_put_number(out, "X-Hearth-Function-Version", json_number(json_member(function_head, "version"), 0)) &&
         http_put_json(out, "traceparent", json_member(head, "traceparent")) &&
         http_put_json(out, "tracestate", json_member(head, "tracestate")) &&
         http_put_ascii(out, "X-Hearth-Environment", json_member(head, "environment")) &&
         http_put_json(out, "X-Hearth-Api-Url", json_member(api, "url")) &&
         http_put_json(out, "X-Hearth-Api-Token", json_member(api, "token")) && put_given(out, http) && buf_put(out, "\r\n") &&
         buf_append(out, c->body.at, c->body.len);
}

static void begin_answer(struct peer *p) {
  http_begin(&p->http, true);
  p->http.is_bodiless = p->is_head;
}

static bool is_young(const struct peer *p) { return habit == UNKNOWN && p->is_used && now_us() < p->used_us + HABIT_US; }

/* Returns an open connection that is not in use, the last used first, or NULL. */
static struct peer *take_idle(void) {
  for (;;) {
    struct peer *last = NULL;
    for (int i = 0; i < peers_max; i++) {
      if (peers[i].state == PEER_IDLE && !is_young(&peers[i]) && (last == NULL || peers[i].used_us > last->used_us)) last = &peers[i];
    }
    uint8_t byte;
    if (last == NULL || (recv(last->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)) return last;
    close_peer(last);
  }
}

static struct peer *find_closed(void) {
  for (int i = 0; i < peers_max; i++) {
    if (peers[i].state == PEER_CLOSED) return &peers[i];
  }
  return NULL;
}

void server_dispatch(void) {
  struct call *c;
  while (!is_gone && (c = call_first(CALL_WAITING)) != NULL) {
    struct peer *p = take_idle();
    bool is_new = p == NULL;
    if (is_new && (p = find_closed()) == NULL) return;
    p->interim_count = 0;
    p->skipped = 0;
    p->has_bytes = false;
    c->state = CALL_RUNNING;
    if (!make_request(&p->out, c, &p->is_head)) {
      buf_take(&p->out, buf_len(&p->out));
      close_peer(p);
      call_failed(c, "OutOfMemory", "out of memory");
      continue;
    }
    begin_answer(p);
    buf_take(&c->request, buf_len(&c->request));
    if (is_new) {
      open_peer(p, c);
      continue;
    }
    p->state = PEER_BUSY;
    p->call = c;
    flush(p);
  }
}

/* Answers */

static void end_call(struct peer *p, bool keeps) {
  struct call *c = p->call;
  int code = p->http.status;
  command_settle();
  struct text body = buf_text(&c->result);
  p->is_used = true;
  if (code >= 200 && code < 300) {
    call_returned_text(c, body);
  } else {
    body = json_trimmed(body);
    call_failed(c, "HttpError", "answered %d%s%.*s", code, body.len > 0 ? ": " : "", (int)body.len, (const char *)body.at);
  }
  if (keeps) become_idle(p);
  else close_peer(p);
}

static void break_call(struct peer *p, const char *why) {
  command_settle();
  call_failed(p->call, "HttpError", "%s", why);
  close_peer(p);
}

/* Takes a piece of the body. Returns false if the call is over. */
static bool take_piece(struct peer *p, struct text piece) {
  bool is_error = p->http.status >= 300;
  struct buf *result = &p->call->result;
  size_t max = is_error ? ERROR_TEXT_MAX : RESULT_MAX;
  size_t room = max - buf_len(result), taken = piece.len < room ? piece.len : room;
  if (taken > 0 && !buf_append(result, piece.at, taken)) {
    break_call(p, "out of memory");
    return false;
  }
  p->skipped += piece.len - taken;
  if (is_error && p->skipped <= SKIPPED_MAX) return true;
  if (p->skipped == 0) return true;
  if (is_error) {
    end_call(p, false);
  } else {
    command_settle();
    call_too_large(p->call);
    close_peer(p);
  }
  return false;
}

/* Takes the received bytes. Returns false if the call is over. */
static bool take_answer(struct peer *p) {
  for (;;) {
    struct text piece = {0}, bytes = buf_text(&p->in);
    size_t used;
    enum http_step step = http_read(&p->http, bytes, &used, &piece);
    if (step == HTTP_BAD) {
      char why[128];
      snprintf(why, sizeof why, "broken HTTP response: %s", p->http.why);
      break_call(p, why);
      return false;
    }
    bool is_too_large = step == HTTP_HEAD && p->http.status / 100 == 2 && p->http.length > RESULT_MAX;
    if (is_too_large) {
      command_settle();
      call_too_large(p->call);
      close_peer(p);
      return false;
    }
    if (step == HTTP_BODY && !take_piece(p, piece)) return false;
    buf_take(&p->in, used);
    if (step == HTTP_MORE) return true;
    if (step != HTTP_END) continue;
    if (p->http.status < 200 && p->http.status != 101) {
      if (++p->interim_count > INTERIM_MAX) {
        break_call(p, "broken HTTP response: too many interim responses");
        return false;
      }
      begin_answer(p);
      continue;
    }
    /* Bytes behind the answer belong to no call, and a request that was answered early cannot be followed by another. */
    end_call(p, p->http.keeps && p->http.status != 101 && buf_len(&p->in) == 0 && buf_len(&p->out) == 0);
    return false;
  }
}

static void take_end(struct peer *p, int error) {
  if (http_ends_by_close(&p->http) && error == 0) {
    end_call(p, false);
    return;
  }
  close(p->fd);
  p->state = PEER_LOST;
  p->used_us = now_us();
}

static void receive(struct peer *p, int reads) {
  while (reads-- > 0) {
    if (!buf_reserve(&p->in, 1)) {
      break_call(p, "out of memory");
      return;
    }
    size_t room = p->in.cap - p->in.end;
    ssize_t n = recv(p->fd, p->in.data + p->in.end, room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      take_end(p, n < 0 ? errno : 0);
      return;
    }
    p->in.end += (size_t)n;
    p->has_bytes = true;
    if (!take_answer(p) || (size_t)n < room) return;
  }
}

void server_event(uint32_t slot) {
  struct peer *p = &peers[slot];
  if (p->state == PEER_CONNECTING) {
    connected(p);
  } else if (p->state == PEER_IDLE) {
    if (p->is_used && now_us() < p->used_us + HABIT_US) habit = CLOSES;
    close_peer(p);
  } else if (p->state == PEER_BUSY) {
    if (buf_len(&p->out) > 0) flush(p);
    receive(p, READS_PER_EVENT);
  }
}

void server_drop(const struct call *c) {
  for (int i = 0; i < peers_max; i++) {
    if (peers[i].state != PEER_CLOSED && peers[i].call == c) close_peer(&peers[i]);
  }
}

void server_finish(void) {
  for (int i = 0; i < peers_max; i++) {
    if (peers[i].state == PEER_BUSY) receive(&peers[i], 2 * RESULT_MAX / 4096);
  }
}

/* Turns */

void server_turn(uint64_t now) {
  if (!is_open) {
    if (peers[0].state == PEER_CLOSED && now >= probe_us) open_peer(&peers[0], NULL);
    return;
  }
  for (int i = 0; i < peers_max; i++) {
    struct peer *p = &peers[i];
    if (p->state == PEER_IDLE && p->is_used && habit == UNKNOWN && now >= p->used_us + HABIT_US) habit = KEEPS;
    if (p->state == PEER_IDLE && now >= p->used_us + IDLE_US) close_peer(p);
    if (p->state != PEER_LOST || now < p->used_us + LOST_US) continue;
    break_call(p, p->has_bytes ? "closed the connection within its answer" : "closed the connection without an answer");
  }
}

uint64_t server_wake_us(void) {
  uint64_t wake = UINT64_MAX;
  if (!is_open) return peers[0].state == PEER_CLOSED ? probe_us : wake;
  for (int i = 0; i < peers_max; i++) {
    uint64_t after = peers[i].state != PEER_IDLE ? LOST_US : habit == UNKNOWN && peers[i].is_used ? HABIT_US : IDLE_US;
    if (peers[i].state != PEER_IDLE && peers[i].state != PEER_LOST) continue;
    if (peers[i].used_us + after < wake) wake = peers[i].used_us + after;
  }
  return wake;
}
