#ifndef MINIT_FILES_H
#define MINIT_FILES_H

/*
 * Serves the files below `root` to one connection on descriptor 3, a listening socket. Returns an exit code: 0 once a
 * child of it serves, 64 + errno where there is no such tree or the jail could not be made.
 */
int files_main(const char *root, const char *uid_base);

#endif
