/*
 * What a process that resolves paths in a tree of others gives up: everything but that tree. After jail_enter it sees
 * nothing else, and keeps four capabilities, all about ownership and modes; after jail_seal the kernel ends it at the
 * first system call that is not one of a file server's. Leaves what is done in the tree to files.c.
 */
#ifndef MINIT_JAIL_H
#define MINIT_JAIL_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Makes `root` the root of this process, which must be single-threaded, and `owner` the uid and gid of what it makes.
 * False with errno; the process is to end then.
 */
bool jail_enter(const char *root, uint32_t owner);
/* The system-call filter; nothing that was opened before is taken away. */
bool jail_seal(void);

#endif
