/*
 * The adapter: the resident process of the runtime `custom`. It takes its function with `bind`, starts the function's
 * command, and passes calls to it with one of two protocols: adapter-server.c asks the command by HTTP, adapter-lambda.c
 * is asked by it. It runs with the command's uid and trusts nothing that the command sends.
 *
 * A1 The memory that the command can make it use is bounded: C2, L2, L3, H1. It has one thread, which blocks only in
 *    epoll_wait.
 * A2 Each call is answered by its deadline, and all calls when the command ends. The adapter ends with the command once
 *    that has served.
 */
#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "adapter-call.h"
#include "adapter-command.h"
#include "adapter-lambda.h"
#include "adapter-server.h"

enum {
  LINK_FD = 3,
  LOAD_MS_DEFAULT = 60 * 1000, /* of a bind without a deadline */
  LOAD_MARGIN_MS = 250,        /* the answer to `bind` comes so long before minit's deadline */
  LAST_WORDS_US = 1000 * 1000, /* for the last answers to be read */
};

static enum { UNBOUND, LOADING, SERVING, NOT_LOADED, ENDING } state;
static struct setup setup;
static struct buf bind_head;
static struct call *bind_call;
static uint64_t load_ms, load_deadline_us, end_us;
static char failure_type[128], failure[1024];

static void drop(const struct call *c) {
  if (setup.is_lambda) lambda_drop(c);
  else server_drop(c);
}

static void exit_all(const char *type, const char *message) {
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].state == CALL_FREE) continue;
    drop(&calls[i]);
    call_exiting(&calls[i], type, message);
  }
}

/* Ends the adapter after its last answers, and with it all processes of the instance. */
static void end(const char *type, const char *message) {
  command_drain();
  exit_all(type, message);
  state = ENDING;
  end_us = now_us() + LAST_WORDS_US;
}

/* Loading */

static void not_loaded(const char *type, const char *message) {
  command_drain();
  snprintf(failure_type, sizeof failure_type, "%s", type);
  snprintf(failure, sizeof failure, "%s", message);
  state = NOT_LOADED;
  command_kill();
}

static void not_served(const char *how) {
  char message[1024];
  command_drain();
  const char *what = setup.is_lambda ? "asked for an event" : "listened";
  char where[32] = "";
  if (!setup.is_lambda) snprintf(where, sizeof where, " on port %d", setup.port);
  snprintf(message, sizeof message, "the command %s before it %s%s%s", how, what, where, command_tail());
  not_loaded("CommandNotReady", message);
}

static void take_bind(struct call *c) {
  char protocol[16], why[512];
  bind_call = c;
  c->state = CALL_BINDING;
  if (!buf_append(&bind_head, c->head.at, c->head.len)) fatal("bind");
  setup.head = buf_text(&bind_head);
  json_copy(json_member(setup.head, "protocol"), protocol, sizeof protocol);
  setup.is_lambda = strcmp(protocol, "lambda") == 0;
  setup.cleans = json_member(setup.head, "cleanup").len == 4; /* true */
  uint64_t concurrency = json_number(json_member(setup.head, "concurrency"), 1);
  setup.concurrency = concurrency < 1 ? 1 : concurrency > CALLS_MAX ? CALLS_MAX : (int)concurrency;
  load_ms = c->timeout_ms == 0 ? LOAD_MS_DEFAULT : c->timeout_ms > 2 * LOAD_MARGIN_MS ? c->timeout_ms - LOAD_MARGIN_MS : c->timeout_ms / 2;
  load_deadline_us = c->started_us + load_ms * 1000;
  state = LOADING;
  if (setup.is_lambda && (setup.api_port = lambda_listen(setup.head)) == 0) {
    snprintf(why, sizeof why, "cannot serve the Runtime API: %s", strerror(errno));
    not_loaded("CommandNotReady", why);
  } else if (!command_start(&setup, why, sizeof why)) {
    not_loaded("CommandNotReady", why);
  } else if (!setup.is_lambda) {
    server_init_port(setup.port, setup.concurrency, setup.head);
  }
}

static void load_turn(uint64_t now) {
  const char *type, *message;
  char how[64];
  if (setup.is_lambda) lambda_turn(now);
  else server_turn(now);
  if (setup.is_lambda && lambda_init_error(&type, &message)) {
    not_loaded(type, message);
  } else if (setup.is_lambda ? lambda_is_open() : server_is_open()) {
    command_loaded();
    state = SERVING;
    call_returned(bind_call, (struct text){0});
  } else if (now >= load_deadline_us) {
    snprintf(how, sizeof how, "took more than %lu ms", load_ms);
    not_served(how);
  }
}

/* Serving */

static void on_frame(struct conn *link, uint8_t type, uint32_t id, struct cursor *body) {
  bool is_valid;
  struct call *c = call_frame(type, id, body, &is_valid);
  if (!is_valid) link->dead = true;
  if (c == NULL || !is_valid) return;
  char kind[16];
  json_copy(json_member(c->head, "type"), kind, sizeof kind);
  bool is_bind = strcmp(kind, "bind") == 0;
  if (is_bind != (state == UNBOUND)) call_failed(c, "ProtocolError", is_bind ? "bound already" : "not bound yet");
  else if (is_bind) take_bind(c);
}

static void on_event(uint32_t tag, uint32_t slot) {
  if (tag == TAG_STDOUT || tag == TAG_STDERR) command_output(tag);
  else if (tag == TAG_SERVER) server_event(slot);
  else lambda_event(tag, slot);
}

/* A2 */
static void check_deadlines(uint64_t now) {
  for (int i = 0; i < CALLS_MAX; i++) {
    struct call *c = &calls[i];
    if (c->state == CALL_FREE || now < c->deadline_us) continue;
    command_settle();
    drop(c);
    call_timed_out(c);
  }
}

static void command_over(void) {
  const char *type, *told;
  char message[128];
  if (state != LOADING && state != SERVING) return;
  if (setup.is_lambda) lambda_finish();
  else server_finish();
  if (state == SERVING) {
    snprintf(message, sizeof message, "the command %s", command_ending());
    end("CommandExited", message);
  } else if (setup.is_lambda && lambda_init_error(&type, &told)) {
    not_loaded(type, told);
  } else {
    not_served(command_ending());
  }
}

static void serve_turn(uint64_t now) {
  check_deadlines(now);
  if (setup.is_lambda) {
    lambda_dispatch();
    lambda_turn(now);
    return;
  }
  server_turn(now);
  server_dispatch();
  if (!server_is_gone()) return;
  char message[128];
  snprintf(message, sizeof message, "the command no longer listens on port %d", setup.port);
  end("CommandNotListening", message);
}

static void on_turn(uint64_t now) {
  if (adapter_server.child_ended) {
    adapter_server.child_ended = false;
    if (command_ended()) command_over();
  }
  if (state == LOADING) load_turn(now);
  if (state == LOADING) check_deadlines(now);
  if (state == SERVING) serve_turn(now);
  if (state == NOT_LOADED) {
    for (int i = 0; i < CALLS_MAX; i++) {
      bool is_whole = calls[i].state != CALL_FREE && calls[i].state != CALL_ARRIVING;
      if (is_whole) call_not_loaded(&calls[i], failure_type, failure);
    }
  }
  if (state != UNBOUND) command_turn();
  if (state != ENDING) return;
  if (buf_len(&adapter_server.conns[0].out) == 0 || now >= end_us) _exit(command_runs() ? 1 : command_exit_code());
  conn_flush(&adapter_server.conns[0]);
  adapter_server.again = buf_len(&adapter_server.conns[0].out) == 0;
}

static uint64_t next_wake_us(void) {
  uint64_t wake = state == ENDING ? end_us : state == LOADING ? load_deadline_us : UINT64_MAX;
  if (state != LOADING && state != SERVING) return wake;
  uint64_t other = setup.is_lambda ? lambda_wake_us() : server_wake_us();
  if (other < wake) wake = other;
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].state != CALL_FREE && calls[i].deadline_us < wake) wake = calls[i].deadline_us;
  }
  return wake;
}

/* minit has ended, or has closed the connection. */
static void on_close(struct conn *link) {
  (void)link;
  command_kill();
  _exit(0);
}

int adapter_main(const char *code) {
  uint32_t version = CALL_VERSION;
  setup.code = code;
  if (fcntl(LINK_FD, F_SETFD, FD_CLOEXEC) != 0) fatal("fd 3 is no socket");
  if (close_range(LINK_FD + 1, ~0U, 0) != 0) fatal("close_range");
  /* Not dumpable: the command, of the same uid, cannot take descriptors from here or trace this. */
  if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fatal("prctl");
  reset_signals();
  adapter_server = (struct server){
      .listen_fd = -1,
      .connections_max = 1,
      .conns_top = 1,
      .accept_us = UINT64_MAX,
      .on_frame = on_frame,
      .on_close = on_close,
      .on_event = on_event,
      .on_turn = on_turn,
      .next_wake_us = next_wake_us,
  };
  if (!server_init(&adapter_server)) fatal("epoll");
  adapter_server.conns[0] = (struct conn){.fd = LINK_FD, .events = EPOLLIN};
  if (!server_watch(&adapter_server, EPOLL_CTL_ADD, LINK_FD, EPOLLIN, TAG_CONN, 0)) fatal("epoll");
  conn_send(&adapter_server.conns[0], CALL_OPEN, 0, &version, sizeof version, NULL, 0);
  conn_flush(&adapter_server.conns[0]);
  server_run(&adapter_server);
}
