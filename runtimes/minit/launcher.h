#ifndef MINIT_LAUNCHER_H
#define MINIT_LAUNCHER_H

/* Serves the daemon on a unix socket at `path` until standard input ends. */
int launcher_main(const char *path);

#endif
