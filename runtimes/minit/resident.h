/*
 * The resident process of an instance, which serves its calls (protocol.h, SERVE): its life is in resident.c, its frames
 * in resident-frames.c. Leaves to proc.c how it is started, to init.c the loop and the reaping.
 *
 * R1 At most one exists, and beside it no SOLE command: it owns the container from SERVE to EXIT.
 * R2 Each call that began ends with exactly one CALL_RESULT, and all of them before EXIT.
 * R3 After EXIT no process of the container is left, and the instance is spoiled.
 * R4 The process is untrusted: a frame that is not allowed ends it, and no length it claims is reserved before it is
 *    checked.
 * R5 An open process without calls in flight outlives its connection. Until another one takes it over, nothing is read of
 *    it: it blocks. The end of its socket ends it.
 * R6 Output of descriptors 1 and 2 belongs to the only call in flight, else to the instance. What the process wrote there before
 *    a frame that changes which call is the only one is read before that frame is taken, and the other way round.
 */
#ifndef MINIT_RESIDENT_H
#define MINIT_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "container.h"
#include "frame.h"

enum { RESIDENT_SLOT = CONTAINER_SLOT + 1 }; /* of its events */

/* `is_taken`: a command runs in the container. */
void resident_serve(struct conn *c, uint32_t id, struct cursor *body, bool is_taken);
/* SERVE_TAKE */
void resident_take(struct conn *c, uint32_t id, const struct cursor *body);
/* CALL_BEGIN, CALL_CHUNK and CALL_END of the daemon. */
void resident_request(struct conn *c, uint8_t type, uint32_t id, struct cursor *body);
/* Returns false unless `id` is that of SERVE or SERVE_TAKE. */
bool resident_kill(const struct conn *c, uint32_t id);

void resident_event(uint32_t tag);
void resident_reaped(pid_t pid, int status, const struct rusage *usage);
void resident_turn(uint64_t now);
uint64_t resident_wake_us(void);
void resident_closed(struct conn *c);
bool resident_any(void);
/* R5: another connection may take the process over. */
bool resident_waits(void);
bool resident_spoiled(void);

#endif
