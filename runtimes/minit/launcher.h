#ifndef MINIT_LAUNCHER_H
#define MINIT_LAUNCHER_H

#include <stdbool.h>

/* Serves the daemon on a unix socket at `path` until standard input ends; with `private_tmp` in a /tmp of its own. */
int launcher_main(const char *path, bool private_tmp);

#endif
