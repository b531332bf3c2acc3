/* The resident process, for main.c. */
#include "modes.h"

#include "../../../../runtimes/minit/resident.c"

void resident_reset(void) {
  is_spoiled = false;
  if (resident.state == NONE) return;
  close_socket();
  proc_close(&resident.proc);
  resident.state = NONE;
}
