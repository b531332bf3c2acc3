/*
 * The protocol `http`: the command listens on a port of the loopback, each call is a request on a connection of its own.
 *
 * S1 There are at most as many connections as calls at the same time. One that was not used for IDLE_US is closed: most
 *    servers close theirs later, so none is used that is being closed. Of a server that closes each at once, none is
 *    used again.
 * S2 No request is repeated: the command may have acted on it.
 */
#ifndef MINIT_ADAPTER_SERVER_H
#define MINIT_ADAPTER_SERVER_H

#include "adapter-call.h"

void server_init_port(int port, int concurrency, struct text function);
/* Whether the port has answered once. Connects again and again before. */
bool server_is_open(void);
/* Whether the port refused a connection after it had answered. */
bool server_is_gone(void);
/* Sends waiting calls, as far as there are connections. */
void server_dispatch(void);
void server_event(uint32_t slot);
/* Closes the connection of a call that is over. */
void server_drop(const struct call *c);
/* Reads all answers that are there: the command has ended. */
void server_finish(void);
void server_turn(uint64_t now);
uint64_t server_wake_us(void);

#endif
