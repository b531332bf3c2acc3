/*
 * The protocol `http`: the command listens on a port of the loopback, each call is a request on a connection of its own.
 *
 * S1 There are at most as many connections as calls at the same time. The adapter closes a connection after IDLE_US
 *    without use: most servers close theirs later, so a request meets no connection that is being closed. If a server
 *    closes connections after each answer, the adapter uses none again.
 * S2 No request is repeated: the command may have acted on it.
 */
#ifndef MINIT_ADAPTER_SERVER_H
#define MINIT_ADAPTER_SERVER_H

#include "adapter-call.h"

void server_init_port(int port, int concurrency, struct text function);
/* Returns true once the port has accepted a connection. Retries to connect until then. */
bool server_is_open(void);
/* Returns true if the port refused a connection after it had accepted one. */
bool server_is_gone(void);
/* Sends waiting calls, as far as there are connections. */
void server_dispatch(void);
void server_event(uint32_t slot);
/* Closes the connection of a call that is over. */
void server_drop(const struct call *c);
/* Reads all answers that wait in the sockets, after the command has ended. */
void server_finish(void);
void server_turn(uint64_t now);
uint64_t server_wake_us(void);

#endif
