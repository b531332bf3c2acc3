/*
 * The command of a function: its words, its environment, its output and its end.
 *
 * The command runs in a session of its own with pipes as output. What it writes belongs to the call in flight where
 * calls come one at a time, else to the instance. Processes whose parents ended become children of the adapter, a
 * subreaper; those that came up since the command was ready are killed whenever no call is in flight, if asked for.
 */
#ifndef MINIT_ADAPTER_COMMAND_H
#define MINIT_ADAPTER_COMMAND_H

#include "adapter-call.h"

/* The AWS region in a function's ARN, and in its variables. */
#define LAMBDA_REGION "local"

struct setup {
  struct text head; /* of `bind` */
  const char *code; /* directory of the version's files */
  bool is_lambda;
  int port;     /* of the command; 0: not known yet */
  int api_port; /* of the Runtime API, for lambda */
  int concurrency;
  bool cleans;
};

/* Starts the command and sets `port`. Returns false if it cannot: `why` has the reason. */
bool command_start(struct setup *setup, char *why, size_t size);
bool command_runs(void);
/* Reaps processes that ended. Returns true once, when the command has ended. */
bool command_ended(void);
/* "exited with 3" or "was killed by signal 9". */
const char *command_ending(void);
int command_exit_code(void);
/* Returns ": " and the last standard error of the command while it loaded; "" if it wrote none. */
const char *command_tail(void);
/* Notes that the command serves: processes that it has started until now stay. */
void command_loaded(void);
/* Kills the command and its process group. */
void command_kill(void);

/* Reads an output pipe after its event; `tag` as proc.h has it. */
void command_output(uint32_t tag);
/* Reads what the pipes hold now. */
void command_drain(void);
/* Reads the output before the answer of a call: it belongs to that call. */
void command_settle(void);
/* In each turn: watches the pipes while minit reads, and ends processes that calls left behind. */
void command_turn(void);

#endif
