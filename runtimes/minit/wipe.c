/*
 * Works without recursion and with two open directories, however deep the tree is: a directory that is not empty is
 * emptied of its files, and its subdirectories are moved up to the top, where their turn comes. The state between two
 * slices is the tree itself. Symbolic links are never followed. What belongs to another uid stays.
 */
#define _GNU_SOURCE
#include "wipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLICE_ENTRIES = 4096, LIST_BYTES = 4096, RENAME_TRIES = 16 };

static const char *const TOPS[] = {"/tmp", "/dev/shm"};
enum { TOP_COUNT = sizeof TOPS / sizeof TOPS[0] };

static int open_dir(int at, const char *name) {
  return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool is_dots(const char *name) { return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0)); }

/* Calls `remove` for each entry until the budget is used up. Returns how many it removed. */
static int each_entry(int dir, int top, int budget, int (*remove)(int dir, int top, const char *name, int budget)) {
  char list[LIST_BYTES] __attribute__((aligned(8)));
  int done = 0;
  ssize_t n;
  while (done < budget && (n = getdents64(dir, list, sizeof list)) > 0) {
    for (ssize_t at = 0; at < n && done < budget;) {
      const struct dirent64 *entry = (const struct dirent64 *)(list + at);
      at += entry->d_reclen;
      if (!is_dots(entry->d_name)) done += remove(dir, top, entry->d_name, budget - done);
    }
  }
  return done;
}

/* Removes a file, a link or an empty directory. */
static bool remove_simple(int dir, const char *name) {
  if (unlinkat(dir, name, 0) == 0) return true;
  return (errno == EISDIR || errno == EPERM) && unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

/* Removes one entry of a directory below the top, or moves it up when it is a directory with something inside. */
static int remove_below(int dir, int top, const char *name, int budget) {
  (void)budget;
  if (remove_simple(dir, name)) return 1;
  if (errno != ENOTEMPTY && errno != EEXIST) return 0;
  static uint32_t serial;
  char moved[32];
  for (int i = 0; i < RENAME_TRIES; i++) {
    snprintf(moved, sizeof moved, ".wipe-%u", serial++);
    if (renameat(dir, name, top, moved) == 0) return 1;
    /* Moving a directory rewrites its "..", which takes write permission on it. */
    if (errno == EACCES && fchmodat(dir, name, 0700, 0) != 0) return 0;
  }
  return 0;
}

static int remove_at_top(int dir, int top, const char *name, int budget) {
  (void)top;
  if (remove_simple(dir, name)) return 1;
  if (errno != ENOTEMPTY && errno != EEXIST) return 0;
  int inner = open_dir(dir, name);
  if (inner < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0) inner = open_dir(dir, name);
  if (inner < 0) return 0;
  /* Without write permission nothing inside can be unlinked; failing here only leaves the entries where they are. */
  struct stat info;
  if (fstat(inner, &info) == 0 && (info.st_mode & 0700) != 0700) (void)!fchmod(inner, 0700);
  int done = each_entry(inner, dir, budget, remove_below);
  close(inner);
  if (unlinkat(dir, name, AT_REMOVEDIR) == 0) done++;
  return done;
}

static int found(int dir, int top, const char *name, int budget) {
  (void)dir, (void)top, (void)name, (void)budget;
  return 1;
}

static int over_tops(int budget, int (*remove)(int, int, const char *, int)) {
  int done = 0;
  for (int i = 0; i < TOP_COUNT && done < budget; i++) {
    int dir = open_dir(AT_FDCWD, TOPS[i]);
    if (dir < 0) continue;
    done += each_entry(dir, dir, budget - done, remove);
    close(dir);
  }
  return done;
}

bool wipe_needed(void) { return over_tops(1, found) > 0; }

/* Any progress means another slice: the last one finds nothing to do. */
bool wipe_slice(void) { return over_tops(SLICE_ENTRIES, remove_at_top) > 0; }
