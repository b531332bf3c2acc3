#define _GNU_SOURCE
#include "await.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int await_main(void) {
  int status;
  close_range(0, ~0U, 0);
  while (waitpid(-1, &status, 0) < 0) {
    if (errno != EINTR) return 1;
  }
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}
