/*
 * The user and groups as which the commands of a container run, and the user's home directory. Names are looked up once, at
 * the start, in /etc/passwd and /etc/group as PID 1 sees them: inside of the container's root, before anything else runs.
 *
 * U1 A command never has more rights than its user: its capabilities end with setresuid, or explicitly where the user is root
 *    in a container without capabilities.
 * U2 Files that are no regular files, or larger than IDENTITY_FILE_MAX, count as absent: /etc/passwd may be a device.
 */
#ifndef MINIT_IDENTITY_H
#define MINIT_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  IDENTITY_FILE_MAX = 1024 * 1024,
  IDENTITY_GROUPS_MAX = 256,
  IDENTITY_HOME_MAX = 1024,
};

struct identity {
  bool is_set;             /* commands change to it; otherwise they stay root */
  bool drops_capabilities; /* root keeps none either */
  uint32_t uid, gid;
  uint32_t groups[IDENTITY_GROUPS_MAX];
  int groups_count;
  char home[sizeof "HOME=" + IDENTITY_HOME_MAX]; /* NAME=value */
};

/*
 * Finds `<user>[:<group>]`, each a name or a number, as OCI images have it; NULL: root, of which only the home directory is
 * looked up. Without a group it has the user's own, and all groups that list the user. False: `problem` says why.
 */
bool identity_find(const char *text, struct identity *identity, char *problem, size_t size);
/* Changes this process to it. Makes plain system calls only: a child in its parent's memory may call it. */
bool identity_enter(const struct identity *identity);
/* While true, new pipes and terminals belong to the user, who can then open them by name (/dev/stdout). */
void identity_own(const struct identity *identity, bool owns);

#endif
