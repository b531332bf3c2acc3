/* PID 1 of an instance and of a container, for main.c. */
#include "modes.h"

#include "../../../../runtimes/minit/exec.c"
#include "../../../../runtimes/minit/init.c"

static struct server *start(bool container) {
  is_container = container;
  is_spoiled = false;
  server = hooks;
  return &server;
}

struct server *instance_mode(void) { return start(false); }

struct server *container_mode(void) { return start(true); }

bool init_busy(void) { return execs_any() || resident_any(); }

void init_reset(void) {
  for (int i = 0; i < execs_top; i++) {
    proc_close(&execs[i].proc);
    buf_free(&execs[i].gathered[0]);
    buf_free(&execs[i].gathered[1]);
    execs[i].state = FREE;
  }
  execs_top = 0;
  resident_reset();
  sole = NULL;
  has_children = false;
}
