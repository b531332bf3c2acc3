/* The launcher, for main.c. */
#include <stdlib.h>

#include "modes.h"

#include "../../../../runtimes/minit/launcher.c"

struct server *launcher_mode(void) {
  if (results == NULL) {
    results = mmap(NULL, sizeof *results * JOBS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED || !storage_init(JOBS_MAX)) abort();
  }
  null_fd = STDIN_FILENO;
  server = hooks;
  return &server;
}

bool launcher_busy(void) {
  for (int i = 0; i < JOBS_MAX; i++) {
    if (jobs[i].kind != NO_JOB) return true;
  }
  return false;
}
