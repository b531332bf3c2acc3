/*
 * The protocol `lambda`: a server of the AWS Lambda Runtime API on a port of the loopback, for the command of this
 * instance alone.
 *
 * L1 A client answers only a call that was handed out, and only once: any other answer is refused, and changes nothing.
 * L2 There are at most CLIENTS_MAX connections. A new one closes the one that was idle longest, or is closed itself.
 * L3 Only bodies of answers are kept, one for each call: all other bytes are dropped.
 */
#ifndef MINIT_ADAPTER_LAMBDA_H
#define MINIT_ADAPTER_LAMBDA_H

#include "adapter-call.h"

/* Listens. Returns the port, 0 if it cannot (errno). */
int lambda_listen(struct text function);
/* Returns true once a client has asked for its first call. */
bool lambda_is_open(void);
/* Sets type and message of the error with which the command reported its failed start. Returns false without one. */
bool lambda_init_error(const char **type, const char **message);
/* Hands waiting calls to the clients that ask, the longest waiting first. */
void lambda_dispatch(void);
void lambda_event(uint32_t tag, uint32_t slot);
/* Forgets a call that the protocol did not end. */
void lambda_drop(const struct call *c);
/* Reads all answers that wait in the sockets, after the command has ended. */
void lambda_finish(void);
void lambda_turn(uint64_t now);
uint64_t lambda_wake_us(void);

#endif
