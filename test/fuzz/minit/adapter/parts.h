/* The adapter's two protocols, each with one connection whose other end is the input. */
#ifndef FUZZ_ADAPTER_PARTS_H
#define FUZZ_ADAPTER_PARTS_H

#include "adapter-call.h"
#include "stubs.h"

/* Opens a connection of a client of the Runtime API. */
void lambda_part_begin(void);
/* Reads what it sends. Returns false once it is closed. */
bool lambda_part_turn(void);
/* Closes all. */
void lambda_part_end(void);

/* Opens a connection that a call was sent on. */
void server_part_begin(struct call *c);
bool server_part_turn(void);
void server_part_end(void);

#endif
