/*
 * One static binary, six modes: PID 1 of an instance and of a container, the daemon's helper for small things, a
 * server of the files of one tree, the process that passes calls to a command (runtime `custom`), and the one that waits for a
 * program started in its place (runtime `nodejs`).
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "await.h"
#include "files.h"
#include "init.h"
#include "launcher.h"

static int usage(void) {
  fputs("usage: minit init | minit container [--user <user>] [--home] [--no-home] [--restricted] [--hold <ms>] [--stall <ms>] [--stdin] [-- command] | "
        "minit launcher <socket path> [private-tmp] | minit files <root> <uid base> | minit adapter <code directory> | minit await\n",
        stderr);
  return 2;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "init") == 0) return init_main();
  if (argc >= 2 && strcmp(argv[1], "container") == 0) {
    struct container_options options = {0};
    char **at = argv + 2;
    for (; *at != NULL && strcmp(*at, "--") != 0; at++) {
      if (strcmp(*at, "--home") == 0) options.finds_home = true;
      else if (strcmp(*at, "--no-home") == 0) options.drops_home = true;
      else if (strcmp(*at, "--restricted") == 0) options.is_restricted = true;
      else if (strcmp(*at, "--stdin") == 0) options.has_stdin = true;
      else if (strcmp(*at, "--user") == 0 && at[1] != NULL) options.user = *++at;
      else if (strcmp(*at, "--stall") == 0 && at[1] != NULL) options.stall_ms = (uint32_t)strtoul(*++at, NULL, 10);
      else if (strcmp(*at, "--hold") == 0 && at[1] != NULL) options.hold_ms = (uint32_t)strtoul(*++at, NULL, 10);
      else return usage();
    }
    if (*at == NULL) return container_main(NULL, &options);
    return at[1] == NULL ? usage() : container_main(at + 1, &options);
  }
  if (argc >= 3 && argc <= 4 && strcmp(argv[1], "launcher") == 0) {
    bool private_tmp = argc == 4 && strcmp(argv[3], "private-tmp") == 0;
    if (argc == 3 || private_tmp) return launcher_main(argv[2], private_tmp);
  }
  if (argc == 4 && strcmp(argv[1], "files") == 0) return files_main(argv[2], argv[3]);
  if (argc == 3 && strcmp(argv[1], "adapter") == 0) return adapter_main(argv[2]);
  if (argc == 2 && strcmp(argv[1], "await") == 0) return await_main();
  return usage();
}
