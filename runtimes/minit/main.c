/* One static binary, two modes: PID 1 of a container, and the daemon's helper for what needs a small process. */
#include <stdio.h>
#include <string.h>

#include "init.h"
#include "launcher.h"

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "init") == 0) return init_main();
  if (argc == 3 && strcmp(argv[1], "launcher") == 0) return launcher_main(argv[2]);
  fputs("usage: minit init | minit launcher <socket path>\n", stderr);
  return 2;
}
