/* The helper's modes as main.c drives them: each has the hooks of the loop. */
#ifndef FUZZ_MODES_H
#define FUZZ_MODES_H

#include "frame.h"

struct server *instance_mode(void);
struct server *container_mode(void);
struct server *launcher_mode(void);
/* Each removes the state that an _exit in the middle left. */
void init_reset(void);
void container_reset(void);
void resident_reset(void);
/* True while a command or job has not ended. */
bool init_busy(void);
bool launcher_busy(void);

#endif
