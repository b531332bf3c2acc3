/* Container mode without its commands, for main.c. The container has no main command. */
#include "modes.h"

#include "../../../../runtimes/minit/container.c"

void container_reset(void) {
  is_ending = is_told = false;
  reader = NULL;
  hold_us = 0;
  drain_until_us = UINT64_MAX;
  reads_left[0] = reads_left[1] = -1;
  proc = (struct proc){.in_fd = -1, .out_fd = {-1, -1}, .report_fd = -1};
  record = (struct exit_record){.flags = RECORD_NO_COMMAND};
}
