/*
 * One static binary, five modes: PID 1 of an instance and of a container, the daemon's helper for small things, a
 * server of the files of one tree, and the process that passes calls to a command (runtime `custom`).
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "adapter.h"
#include "files.h"
#include "init.h"
#include "launcher.h"

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "init") == 0) return init_main();
  if (argc == 2 && strcmp(argv[1], "container") == 0) return container_main(NULL);
  if (argc > 3 && strcmp(argv[1], "container") == 0 && strcmp(argv[2], "--") == 0) return container_main(argv + 3);
  if (argc >= 3 && argc <= 4 && strcmp(argv[1], "launcher") == 0) {
    bool private_tmp = argc == 4 && strcmp(argv[3], "private-tmp") == 0;
    if (argc == 3 || private_tmp) return launcher_main(argv[2], private_tmp);
  }
  if (argc == 4 && strcmp(argv[1], "files") == 0) return files_main(argv[2], argv[3]);
  if (argc == 3 && strcmp(argv[1], "adapter") == 0) return adapter_main(argv[2]);
  fputs("usage: minit init | minit container [-- command] | minit launcher <socket path> [private-tmp] | "
        "minit files <root> <uid base> | minit adapter <code directory>\n", stderr);
  return 2;
}
