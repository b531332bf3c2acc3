#define _GNU_SOURCE
#include "adapter-lambda.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter-command.h"
#include "http.h"

enum {
  CLIENTS_MAX = 256,
  BACKLOG = 256,
  ACCEPTS_PER_EVENT = 16,
  ACCEPT_AGAIN_US = 100 * 1000,
  READS_PER_EVENT = 16,
  NOTES_MAX = 16 * 1024,        /* of the body of an init/error */
  PAST_MAX = 16 * 1024 * 1024, /* bytes that are read past before a connection is closed */
};

enum route { NO_ROUTE, NEXT, RESPONSE, INVOCATION_ERROR, INIT_ERROR };

struct client {
  enum { CLIENT_FREE, CLIENT_READING, CLIENT_POLLING, CLIENT_CLOSING } state;
  int fd;
  uint32_t events;
  struct http http;
  struct buf in, out, notes;
  enum route route;
  const char *refusal; /* of the request that is being read: its status line; NULL: none */
  struct call *call;   /* whose answer it sends */
  struct call *event;  /* that it is being sent */
  char error_type[128];
  uint64_t past;
  uint64_t order; /* of its last step */
};

static const char OK[] = "202 Accepted", BAD_ID[] = "400 Bad Request", BAD_STATE[] = "403 Forbidden", NOT_FOUND[] = "404 Not Found",
                  BAD_METHOD[] = "405 Method Not Allowed", TOO_LARGE[] = "413 Payload Too Large", MALFORMED[] = "400 Malformed";

static struct client clients[CLIENTS_MAX];
static int listen_fd = -1;
static uint64_t accept_us = UINT64_MAX; /* when to watch the listening socket again */
static uint64_t last_order;
static bool is_open, has_init_error;
static char init_type[128], init_message[ERROR_TEXT_MAX + 1];
static struct text function_head;

bool lambda_is_open(void) { return is_open; }

bool lambda_init_error(const char **type, const char **message) {
  *type = init_type;
  *message = init_message;
  return has_init_error;
}

int lambda_listen(struct text function) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof address;
  function_head = function;
  listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listen_fd < 0 || bind(listen_fd, (struct sockaddr *)&address, len) != 0 || listen(listen_fd, BACKLOG) != 0) return 0;
  if (getsockname(listen_fd, (struct sockaddr *)&address, &len) != 0) return 0;
  return server_watch(&adapter_server, EPOLL_CTL_ADD, listen_fd, EPOLLIN, TAG_LISTENER, 0) ? ntohs(address.sin_port) : 0;
}

/* Connections */

static void watch(struct client *k, uint32_t events) {
  if (k->events == events) return;
  k->events = events;
  if (!server_watch(&adapter_server, EPOLL_CTL_MOD, k->fd, events, TAG_CLIENT, (uint32_t)(k - clients))) fatal("epoll");
}

/* The call may be answered by another request. */
static void let_go(struct client *k) {
  if (k->call == NULL) return;
  k->call->has_client = false;
  buf_take(&k->call->result, buf_len(&k->call->result));
  k->call = NULL;
}

static void close_client(struct client *k) {
  let_go(k);
  struct call *event = k->event;
  close(k->fd);
  buf_free(&k->in);
  buf_free(&k->out);
  buf_free(&k->notes);
  *k = (struct client){.state = CLIENT_FREE};
  if (event == NULL) return;
  lambda_drop(event);
  call_failed(event, "Runtime.ConnectionClosed", "closed the connection before it had read the event");
}

void lambda_drop(const struct call *c) {
  for (int i = 0; i < CLIENTS_MAX; i++) {
    struct client *k = &clients[i];
    if (k->call == c) {
      k->call = NULL;
      k->refusal = BAD_ID;
    }
    if (k->event == c) k->event = NULL;
  }
}

static void flush(struct client *k) {
  while (buf_len(&k->out) > 0) {
    ssize_t n = send(k->fd, k->out.data + k->out.start, buf_len(&k->out), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      buf_take(&k->out, (size_t)n);
    } else if (errno != EINTR) {
      if (errno == EAGAIN) break;
      close_client(k);
      return;
    }
  }
  if (buf_len(&k->out) > 0) {
    watch(k, EPOLLOUT);
    return;
  }
  k->event = NULL;
  /* If the client still sends, close(2) would destroy an answer that it has not read yet. */
  if (k->state == CLIENT_CLOSING) shutdown(k->fd, SHUT_WR);
  watch(k, k->state == CLIENT_POLLING ? EPOLLRDHUP : EPOLLIN);
}

/* Answers */

static bool put_head(struct client *k, const char *status, size_t len) {
  return buf_put(&k->out, "HTTP/1.1 ") && buf_put(&k->out, status) && buf_put(&k->out, "\r\nContent-Type: application/json\r\n") &&
         (k->http.keeps || buf_put(&k->out, "Connection: close\r\n")) && http_put_number(&k->out, "Content-Length", len);
}

static const char *reply_text(const char *status) {
  if (status == OK) return "{\"status\":\"OK\"}";
  if (status == BAD_ID) return "{\"errorType\":\"InvalidRequestID\",\"errorMessage\":\"Invalid request ID\"}";
  if (status == BAD_STATE) return "{\"errorType\":\"InvalidStateTransition\",\"errorMessage\":\"Transition is not allowed\"}";
  if (status == TOO_LARGE) return "{\"errorType\":\"RequestEntityTooLarge\",\"errorMessage\":\"Exceeded maximum allowed payload size\"}";
  if (status == MALFORMED) return "{\"errorType\":\"InvalidRequest\",\"errorMessage\":\"malformed HTTP request\"}";
  return "{\"errorType\":\"NotFound\",\"errorMessage\":\"no such operation of the Runtime API\"}";
}

/* Queues an answer. `ends`: the connection ends with it, whatever the client still sends. */
static void reply(struct client *k, const char *status, bool ends) {
  const char *text = reply_text(status);
  if (ends) k->http.keeps = false;
  bool made = put_head(k, status, strlen(text)) && buf_put(&k->out, "\r\n") && buf_put(&k->out, text);
  if (!made || !k->http.keeps) k->state = CLIENT_CLOSING;
}

/* AWS X-Ray's form of a W3C traceparent, "00-<32 digits>-<16 digits>-<2 digits>". */
static void trace_of(const char *parent, char *out, size_t size) {
  if (strlen(parent) < 55) snprintf(out, size, "Root=1-00000000-000000000000000000000000;Sampled=0");
  else snprintf(out, size, "Root=1-%.8s-%.24s;Parent=%.16s;Sampled=%d", parent + 3, parent + 11, parent + 36, parent[54] & 1);
}

/* Queues a call's event. Text that is no JSON becomes a JSON string: programs of this API parse it. */
static bool make_event(struct client *k, struct call *c) {
  char name[256], arn[384], parent[64], trace[128];
  json_copy(json_member(function_head, "function_name"), name, sizeof name);
  snprintf(arn, sizeof arn, "arn:aws:lambda:" LAMBDA_REGION ":000000000000:function:%s:%lu", name,
           json_number(json_member(function_head, "version"), 0));
  json_copy(json_member(c->head, "traceparent"), parent, sizeof parent);
  trace_of(parent, trace, sizeof trace);
  bool is_json = json_is_valid(c->body);
  size_t len = c->body.len == 0 ? 2 : is_json ? c->body.len : json_encoded_len(c->body);
  if (!put_head(k, "200 OK", len) || !http_put(&k->out, "Lambda-Runtime-Aws-Request-Id", text_of(c->invocation_id)) ||
      !http_put_number(&k->out, "Lambda-Runtime-Deadline-Ms", c->deadline_ms) ||
      !http_put(&k->out, "Lambda-Runtime-Invoked-Function-Arn", text_of(arn)) ||
      !http_put(&k->out, "Lambda-Runtime-Trace-Id", text_of(trace)) ||
      !http_put_json(&k->out, "traceparent", json_member(c->head, "traceparent")) || !buf_put(&k->out, "\r\n")) {
    return false;
  }
  if (c->body.len == 0) return buf_put(&k->out, "{}");
  return is_json ? buf_append(&k->out, c->body.at, len) : json_encode(c->body, &k->out);
}

static struct client *longest(int state) {
  struct client *first = NULL;
  for (int i = 0; i < CLIENTS_MAX; i++) {
    struct client *k = &clients[i];
    if ((int)k->state == state && (first == NULL || k->order < first->order)) first = k;
  }
  return first;
}

static void take_requests(struct client *k);

void lambda_dispatch(void) {
  struct call *c;
  struct client *k;
  while ((c = call_first(CALL_WAITING)) != NULL && (k = longest(CLIENT_POLLING)) != NULL) {
    k->state = k->http.keeps ? CLIENT_READING : CLIENT_CLOSING;
    c->state = CALL_RUNNING;
    k->event = c;
    if (!make_event(k, c)) {
      close_client(k);
      continue;
    }
    http_begin(&k->http, false);
    buf_take(&c->request, buf_len(&c->request));
    flush(k);
    /* The buffer may have bytes that the client sent after its request. */
    take_requests(k);
  }
}

/* Requests */

static void copy_text(struct text text, char *out, size_t size) {
  size_t len = text.len < size - 1 ? text.len : size - 1;
  memcpy(out, text.at == NULL ? (const uint8_t *)"" : text.at, len);
  out[len] = 0;
}

/* The call that a client may answer by this id. */
static struct call *find_running(const char *id, size_t len) {
  for (int i = 0; i < CALLS_MAX; i++) {
    struct call *c = &calls[i];
    if (c->state == CALL_RUNNING && !c->has_client && strlen(c->invocation_id) == len && memcmp(c->invocation_id, id, len) == 0) return c;
  }
  return NULL;
}

static enum route route_of(const char *path, struct call **call) {
  static const char BASE[] = "/2018-06-01/runtime/", INVOCATION[] = "invocation/";
  if (strncmp(path, BASE, sizeof BASE - 1) != 0) return NO_ROUTE;
  path += sizeof BASE - 1;
  if (strcmp(path, "invocation/next") == 0) return NEXT;
  if (strcmp(path, "init/error") == 0) return INIT_ERROR;
  const char *id = path + sizeof INVOCATION - 1, *end;
  if (strncmp(path, INVOCATION, sizeof INVOCATION - 1) != 0 || (end = strchr(id, '/')) == NULL) return NO_ROUTE;
  enum route route = strcmp(end, "/response") == 0 ? RESPONSE : strcmp(end, "/error") == 0 ? INVOCATION_ERROR : NO_ROUTE;
  if (route != NO_ROUTE) *call = find_running(id, (size_t)(end - id));
  return route;
}

static void take_head(struct client *k) {
  char path[256], method[8];
  struct call *call = NULL;
  copy_text(k->http.path, path, sizeof path);
  copy_text(k->http.method, method, sizeof method);
  copy_text(http_field(&k->http, "lambda-runtime-function-error-type"), k->error_type, sizeof k->error_type);
  k->route = k->http.path.len < sizeof path ? route_of(path, &call) : NO_ROUTE;
  k->refusal = NULL;
  k->past = 0;
  k->order = ++last_order;
  if (k->route == NO_ROUTE) k->refusal = NOT_FOUND;
  else if (strcmp(method, k->route == NEXT ? "GET" : "POST") != 0) k->refusal = BAD_METHOD;
  else if (k->route == INIT_ERROR && (is_open || has_init_error)) k->refusal = BAD_STATE;
  else if ((k->route == RESPONSE || k->route == INVOCATION_ERROR) && call == NULL) k->refusal = BAD_ID;
  if (k->refusal == NULL && call != NULL) {
    k->call = call;
    call->has_client = true;
    buf_take(&call->result, buf_len(&call->result));
  }
}

/* Ends the call of an answer that is too large. */
static void refuse_large(struct client *k) {
  struct call *call = k->call;
  lambda_drop(call);
  command_settle();
  call_failed(call, "Function.ResponseSizeTooLarge", "result too large: more than %d bytes (limit)", RESULT_MAX);
  k->refusal = TOO_LARGE;
}

static void take_piece(struct client *k, struct text piece) {
  struct buf *kept = k->call != NULL ? &k->call->result : &k->notes;
  size_t max = k->refusal != NULL ? 0 : k->call != NULL ? RESULT_MAX : k->route == INIT_ERROR ? NOTES_MAX : 0;
  if (max > 0 && buf_len(kept) + piece.len <= max && buf_append(kept, piece.at, piece.len)) return;
  if (k->call != NULL) refuse_large(k);
  k->past += piece.len;
}

/* Reads type and message of an error's body in the form of the Runtime API; any other text is the message. */
static void read_error(const struct client *k, struct text body, char *type, size_t type_size, char *message, size_t size) {
  struct text error = json_is_valid(body) ? json_trimmed(body) : (struct text){0};
  json_copy(json_member(error, "errorType"), type, type_size);
  json_copy(json_member(error, "errorMessage"), message, size);
  if (*type == 0) snprintf(type, type_size, "%s", *k->error_type == 0 ? "Error" : k->error_type);
  if (*message == 0) copy_text(json_trimmed(body), message, size);
}

/* Writes the lines of a stack to the standard error of the call. */
static void log_stack(const struct call *call, struct text body) {
  if (!json_is_valid(body)) return;
  struct text stack = json_trimmed(json_member(body, "stackTrace")), line;
  struct buf lines = {0};
  while (stack.len > 0 && json_next_element(&stack, &line)) {
    if (!json_is_string(line)) continue;
    bool made = json_decode(line, RESULT_MAX, &lines);
    if (!made || (buf_len(&lines) > 0 && lines.data[lines.end - 1] != '\n' && !buf_append(&lines, "\n", 1))) break;
  }
  call_log(call, LOG_OF_STDERR, buf_text(&lines).at, buf_len(&lines));
  buf_free(&lines);
}

static void answer_call(struct client *k) {
  struct call *call = k->call;
  struct text body = buf_text(&call->result);
  lambda_drop(call);
  command_settle();
  if (k->route == RESPONSE) {
    call_returned_text(call, body);
  } else {
    char type[128], message[ERROR_TEXT_MAX + 1];
    read_error(k, body, type, sizeof type, message, sizeof message);
    log_stack(call, body);
    call_failed(call, type, "%s", message);
  }
  k->refusal = NULL;
}

/* A request is complete. */
static void take_end(struct client *k) {
  if (k->refusal != NULL) {
    reply(k, k->refusal, false);
  } else if (k->route == NEXT) {
    is_open = true;
    k->state = CLIENT_POLLING;
  } else if (k->route == INIT_ERROR) {
    read_error(k, buf_text(&k->notes), init_type, sizeof init_type, init_message, sizeof init_message);
    has_init_error = true;
    buf_free(&k->notes);
    reply(k, OK, false);
  } else {
    answer_call(k);
    reply(k, OK, false);
  }
}

/* Takes the received requests, one after the other: each is answered before the next is read. */
static void take_requests(struct client *k) {
  while (k->state == CLIENT_READING && buf_len(&k->out) == 0) {
    /* The stack for X-Ray in a header, which may be longer than all others and which nothing here reads. */
    http_cut_field(&k->http, &k->in, "lambda-runtime-function-xray-error-cause");
    struct text piece = {0}, bytes = buf_text(&k->in);
    size_t used;
    enum http_step step = http_read(&k->http, bytes, &used, &piece);
    bool waits = false;
    if (step == HTTP_HEAD) {
      take_head(k);
      if (k->call != NULL && k->http.length > RESULT_MAX) refuse_large(k);
      waits = k->http.continues && bytes.len == used;
    } else if (step == HTTP_BODY) {
      take_piece(k, piece);
    }
    buf_take(&k->in, used);
    if (step == HTTP_BAD) {
      let_go(k);
      reply(k, MALFORMED, true);
    } else if (step == HTTP_END) {
      take_end(k);
      if (k->state == CLIENT_READING) http_begin(&k->http, false);
    } else if ((k->refusal != NULL && waits) || k->past > PAST_MAX) {
      reply(k, k->refusal == NULL ? TOO_LARGE : k->refusal, true);
    } else if (waits && !buf_put(&k->out, "HTTP/1.1 100 Continue\r\n\r\n")) {
      k->state = CLIENT_CLOSING;
    }
    flush(k);
    if (step == HTTP_MORE) return;
  }
}

static void receive(struct client *k, int reads) {
  while (reads-- > 0 && k->state == CLIENT_READING && buf_len(&k->out) == 0) {
    ssize_t n = -1;
    size_t room = 0;
    errno = ENOMEM;
    if (buf_reserve(&k->in, 1)) {
      room = k->in.cap - k->in.end;
      n = recv(k->fd, k->in.data + k->in.end, room, MSG_DONTWAIT);
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      close_client(k);
      return;
    }
    k->in.end += (size_t)n;
    take_requests(k);
    if ((size_t)n < room) return;
  }
}

/* Drops bytes after the last answer, until the client closes. */
static void read_past(struct client *k) {
  uint8_t bytes[4096];
  for (int i = 0; i < READS_PER_EVENT; i++) {
    ssize_t n = recv(k->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) k->past += (uint64_t)n;
    if (n > 0 && k->past <= PAST_MAX) continue;
    close_client(k);
    return;
  }
}

static void accept_one(int fd) {
  struct client *k = longest(CLIENT_FREE);
  if (k == NULL) {
    /* Only connections without a request or an answer in progress are closed. */
    for (int i = 0; i < CLIENTS_MAX; i++) {
      struct client *other = &clients[i];
      bool idle = other->state == CLIENT_CLOSING || (other->state == CLIENT_READING && other->call == NULL && other->event == NULL);
      if (idle && (k == NULL || other->order < k->order)) k = other;
    }
    if (k != NULL) close_client(k);
  }
  int on = 1;
  if (k == NULL || !server_watch(&adapter_server, EPOLL_CTL_ADD, fd, EPOLLIN, TAG_CLIENT, (uint32_t)(k - clients))) {
    close(fd);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  *k = (struct client){.state = CLIENT_READING, .fd = fd, .events = EPOLLIN, .order = ++last_order};
  http_begin(&k->http, false);
}

static void accept_some(void) {
  for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      accept_one(fd);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    /* Without a free descriptor the event stays pending, so the loop would spin: watch again later. */
    if (!server_watch(&adapter_server, EPOLL_CTL_DEL, listen_fd, 0, TAG_LISTENER, 0)) fatal("epoll");
    accept_us = now_us() + ACCEPT_AGAIN_US;
    return;
  }
}

void lambda_event(uint32_t tag, uint32_t slot) {
  if (tag == TAG_LISTENER) {
    accept_some();
    return;
  }
  struct client *k = &clients[slot];
  if (k->state == CLIENT_FREE) return;
  if (k->state == CLIENT_POLLING) {
    close_client(k);
    return;
  }
  if (buf_len(&k->out) > 0) {
    flush(k);
    /* Requests that came with the last one are in the buffer. */
    take_requests(k);
    return;
  }
  if (k->state == CLIENT_READING) receive(k, READS_PER_EVENT);
  else read_past(k);
}

void lambda_finish(void) {
  accept_some();
  for (int i = 0; i < CLIENTS_MAX; i++) {
    if (clients[i].state == CLIENT_READING) receive(&clients[i], 2 * RESULT_MAX / 4096);
  }
}

void lambda_turn(uint64_t now) {
  if (now < accept_us) return;
  if (server_watch(&adapter_server, EPOLL_CTL_ADD, listen_fd, EPOLLIN, TAG_LISTENER, 0)) accept_us = UINT64_MAX;
  else accept_us = now + ACCEPT_AGAIN_US;
}

uint64_t lambda_wake_us(void) { return accept_us; }
