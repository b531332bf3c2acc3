/*
 * From a path to an open file or to a directory entry, where others rename and replace what is on the way. All of it
 * happens in a jail; beyond that:
 *
 * N1 No magic link (/proc/<pid>/fd/3) is followed, and nothing on a file system of the kernel's own (/proc, /sys) is
 *    read, listed or changed.
 * N2 With FILE_BENEATH nothing outside of the base is named: a link leads on only to what lies beneath the base too.
 * N3 Opening waits for nobody: what is no regular file or directory is not opened, and a pipe or device that took its
 *    place in that moment is opened without blocking, found out, and closed.
 */
#ifndef MINIT_PLACE_H
#define MINIT_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* A directory entry that may exist or not. `dir` is open. */
struct place {
  int dir;
  char name[NAME_MAX + 1];
};

/* As inside. */
struct owner {
  uint32_t uid, gid;
};

/* Call once, in the jail. `uid_base` is added to every owner that is written and taken off what is read. */
bool place_init(uint32_t uid_base);
/*
 * The directory that FILE_BENEATH is about, which is opened, and made with its parents where it is missing. `owner`: of
 * each directory that is made for it or, with FILE_BENEATH, beneath it; NULL: root. One that is there keeps its own.
 */
bool place_set_base(const char *path, const struct owner *owner);

/* All of these: errno on failure. `flags` are those of protocol.h. */
/* Opens a directory, as O_PATH, and makes it and those above it where they are missing. */
int place_make_dir(const char *path, uint32_t flags);
int place_open_dir(const char *path, uint32_t flags);
/* A regular file to read from. */
int place_open_file(const char *path, uint32_t flags, struct stat *info);
/* The same of an entry in an open directory; never through a link. */
int open_file_at(int dir, const char *name, struct stat *info);
int open_dir_at(int dir, const char *name);
/* The directory and the last name of a path. The name is no `.` or `..`, nor empty. */
bool place_find(const char *path, uint32_t flags, struct place *place);
void place_close(struct place *place);
bool place_stat(const char *path, uint32_t flags, struct stat *info);
/* Removes a file, a link or an empty directory. */
bool remove_simple(int dir, const char *name);
/* As renameat2, which the C library makes another call of when there are no flags. */
int rename_at(int from, const char *name, int to, const char *new_name, unsigned flags);

uint32_t owner_inside(uint32_t id);
/* False: there is no such owner outside. */
bool owner_outside(uint32_t id, uint32_t *outside);

static inline bool is_dots(const char *name) {
  return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

#endif
