#define _GNU_SOURCE
#include "file-tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file-wire.h"

enum {
  LIST_BYTES = 32 * 1024,
  WINDOW_NAMES = 64 * 1024, /* names compared at once when a directory is put in order */
  WALK_DEPTH = PATH_MAX / 2,
  REMOVE_DEPTH = 512,  /* what lies deeper is moved up */
  REMOVE_TRIES = 16,   /* for a directory that others go on filling */
  LINKS_MAX = 16 * 1024, /* files with several names that a walk remembers; of others each name has the content */
  LINK_PATHS_MAX = 4 * 1024 * 1024, /* the other end remembers their first names */
};

static char list[LIST_BYTES] __attribute__((aligned(8)));

/* The next entries, 0 at the end; a directory that was removed meanwhile is at its end. */
static ssize_t read_list(int dir) {
  ssize_t n = getdents64(dir, list, sizeof list);
  return n < 0 && errno == ENOENT ? 0 : n;
}

#define EACH_ENTRY(entry, at, n)                                                                                      \
  for (ssize_t at = 0; at < (n); at += ((const struct dirent64 *)(list + at))->d_reclen)                              \
    for (const struct dirent64 *entry = (const struct dirent64 *)(list + at); entry != NULL; entry = NULL)            \
      if (!is_dots(entry->d_name))

static void read_target(int dir, const char *name, char target[PATH_MAX]) {
  ssize_t n = readlinkat(dir, name, target, PATH_MAX - 1);
  target[n < 0 ? 0 : n] = 0;
}

void file_tree_entry(uint32_t id, int dir, const char *name) {
  char target[PATH_MAX] = "";
  struct stat info;
  if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (S_ISLNK(info.st_mode)) read_target(dir, name, target);
  wire_entry(id, &info, name, target, 0, false);
}

/*
 * A page in the order of names, without ever holding all of them: one pass over the directory keeps the smallest names
 * that are greater than those of the passes before, in a heap with the greatest on top.
 */
struct window_name {
  char text[NAME_MAX + 1];
};

static struct window_name *window;
static size_t window_count;

static void swap(size_t a, size_t b) {
  struct window_name kept = window[a];
  window[a] = window[b];
  window[b] = kept;
}

static void sink(size_t at, size_t count) {
  for (;;) {
    size_t top = at, child = 2 * at + 1;
    for (size_t i = child; i < child + 2 && i < count; i++) {
      if (strcmp(window[i].text, window[top].text) > 0) top = i;
    }
    if (top == at) return;
    swap(at, top);
    at = top;
  }
}

static void keep(const char *name, size_t count_max) {
  if (window_count < count_max) {
    size_t at = window_count++;
    strcpy(window[at].text, name);
    for (; at > 0 && strcmp(window[at].text, window[(at - 1) / 2].text) > 0; at = (at - 1) / 2) swap(at, (at - 1) / 2);
  } else if (strcmp(name, window[0].text) < 0) {
    strcpy(window[0].text, name);
    sink(0, window_count);
  }
}

/* The window is in order from `sorted` on. */
static int fill_window(uint32_t id, int dir, const char *after, size_t count_max, uint64_t sorted, uint64_t *total) {
  ssize_t n;
  window_count = 0;
  *total = 0;
  if (lseek(dir, 0, SEEK_SET) != 0) return errno;
  while ((n = read_list(dir)) > 0) {
    EACH_ENTRY(entry, at, n) {
      wire_progress(id, ++*total);
      if (strcmp(entry->d_name, after) > 0) keep(entry->d_name, count_max);
    }
  }
  for (size_t end = window_count; end > 1 && end > sorted;) {
    swap(0, --end);
    sink(0, end);
  }
  return n < 0 ? errno : 0;
}

int file_tree_list(uint32_t id, int dir, uint64_t offset, uint64_t length, uint64_t *total) {
  struct window_name after = {""};
  if (window == NULL) {
    size_t bytes = WINDOW_NAMES * sizeof *window;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno;
    window = memory;
  }
  for (uint64_t first = 0;; first += window_count) {
    uint64_t wanted = offset + length > first ? offset + length - first : 1;
    size_t count_max = wanted < WINDOW_NAMES ? (size_t)wanted : WINDOW_NAMES;
    /* The page is the end of its window; of a window before it only the greatest name matters. */
    uint64_t start = offset > first ? offset - first : 0;
    int error = fill_window(id, dir, after.text, count_max, start < count_max ? start : count_max - 1, total);
    if (error != 0) return error;
    for (uint64_t i = start; i < window_count && first + i < offset + length; i++) {
      file_tree_entry(id, dir, window[i].text);
    }
    if (window_count < count_max || first + window_count >= offset + length) return 0;
    after = window[window_count - 1];
  }
}

/* Walk */

struct seen {
  uint64_t dev, ino;
  uint32_t number;
};

static struct seen seen[2 * LINKS_MAX];
static uint32_t seen_count;
static size_t seen_bytes;

/* The number of a file with several names, and whether an earlier name of it was sent. 0: it is not remembered. */
static uint32_t link_number(const struct stat *info, size_t path_len, bool *again) {
  *again = false;
  if (info->st_nlink < 2 || !S_ISREG(info->st_mode)) return 0;
  uint64_t hash = (info->st_ino ^ info->st_dev << 40) * 0x9e3779b97f4a7c15u;
  for (size_t at = hash >> 32;; at++) {
    struct seen *slot = &seen[at % (2 * LINKS_MAX)];
    if (slot->number == 0) {
      if (seen_count == LINKS_MAX || seen_bytes + path_len > LINK_PATHS_MAX) return 0;
      seen_bytes += path_len;
      *slot = (struct seen){info->st_dev, info->st_ino, ++seen_count};
      return slot->number;
    }
    if (slot->ino == info->st_ino && slot->dev == info->st_dev) {
      *again = true;
      return slot->number;
    }
  }
}

struct level {
  int fd;
  off_t next; /* where its list goes on */
  size_t path_len;
};

static struct level levels[WALK_DEPTH];
static int depth;
static bool sends_others; /* also what is no file, directory or link, without content */

/* Sends one entry with its content. A directory that is to be entered is opened at `*inner`. */
static int walk_entry(uint32_t id, int dir, const char *name, const char *path, int *inner) {
  char target[PATH_MAX] = "";
  struct stat info;
  if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
  if (S_ISDIR(info.st_mode)) {
    wire_entry(id, &info, path, "", 0, false);
    *inner = open_dir_at(dir, name);
    bool skipped = errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES;
    return *inner >= 0 || skipped ? 0 : errno;
  }
  if (S_ISLNK(info.st_mode)) {
    read_target(dir, name, target);
    wire_entry(id, &info, path, target, 0, false);
  } else if (S_ISREG(info.st_mode)) {
    int fd = open_file_at(dir, name, &info);
    /* What was replaced in this very moment is as good as gone. */
    if (fd < 0) return errno == EMFILE || errno == ENFILE || errno == EIO ? errno : 0;
    bool again;
    uint32_t number = link_number(&info, strlen(path), &again);
    wire_entry(id, &info, path, "", number, again);
    if (!again) wire_content(id, fd, 0, (uint64_t)info.st_size, true);
    close(fd);
  } else if (sends_others) {
    wire_entry(id, &info, path, "", 0, false);
  }
  return 0;
}

static int walk_list(uint32_t id, char path[PATH_MAX + NAME_MAX + 2], int *inner) {
  struct level *level = &levels[depth - 1];
  static uint64_t count;
  if (lseek(level->fd, level->next, SEEK_SET) < 0) return errno;
  ssize_t n = read_list(level->fd);
  if (n <= 0) {
    close(level->fd);
    depth--;
    return n < 0 ? errno : 0;
  }
  EACH_ENTRY(entry, at, n) {
    level->next = entry->d_off;
    size_t len = strlen(entry->d_name);
    if (level->path_len + len + 1 >= PATH_MAX) return ENAMETOOLONG;
    strcpy(path + level->path_len, entry->d_name);
    wire_progress(id, ++count);
    int error = walk_entry(id, level->fd, entry->d_name, path, inner);
    if (error != 0 || *inner >= 0) return error;
  }
  level->next = lseek(level->fd, 0, SEEK_CUR);
  return 0;
}

int file_tree_walk(uint32_t id, int start, bool with_others) {
  sends_others = with_others;
  static char path[PATH_MAX + NAME_MAX + 2];
  int error = 0;
  memset(seen, 0, sizeof seen);
  seen_count = 0;
  seen_bytes = 0;
  levels[0] = (struct level){.fd = start};
  for (depth = 1; depth > 0 && error == 0;) {
    int inner = -1;
    error = walk_list(id, path, &inner);
    if (inner < 0) continue;
    size_t len = strlen(path);
    if (depth == WALK_DEPTH) {
      close(inner);
      return ENAMETOOLONG;
    }
    path[len] = '/';
    levels[depth++] = (struct level){.fd = inner, .path_len = len + 1};
  }
  while (depth > 0) close(levels[--depth].fd);
  return error;
}

/* Removal */

struct removal {
  int fd;
  int tries;
  char name[NAME_MAX + 1];
};

static struct removal removals[REMOVE_DEPTH];

/* A directory that lies too deep becomes one of the top. */
static int move_up(int dir, const char *name) {
  static uint32_t serial;
  char moved[32];
  for (int i = 0; i < REMOVE_TRIES; i++) {
    snprintf(moved, sizeof moved, ".removed-%u", serial++);
    if (rename_at(dir, name, removals[0].fd, moved, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EEXIST) break;
  }
  return errno;
}

/* Removes what a directory lists until there is one to enter first, which is put on the stack. */
static int remove_listed(uint32_t id, int *deep, uint64_t *removed, bool *any) {
  struct removal *level = &removals[*deep - 1];
  ssize_t n;
  while ((n = read_list(level->fd)) > 0) {
    EACH_ENTRY(entry, at, n) {
      *any = true;
      if (remove_simple(level->fd, entry->d_name)) {
        wire_progress(id, ++*removed);
        continue;
      }
      if (errno == ENOENT) continue;
      if (errno != ENOTEMPTY && errno != EEXIST) return errno;
      if (*deep == REMOVE_DEPTH) {
        int error = move_up(level->fd, entry->d_name);
        if (error != 0) return error;
        continue;
      }
      int fd = open_dir_at(level->fd, entry->d_name);
      if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) continue;
      if (fd < 0) return errno;
      struct removal *inner = &removals[(*deep)++];
      inner->fd = fd;
      inner->tries = 0;
      strcpy(inner->name, entry->d_name);
      return 0;
    }
  }
  return n < 0 ? errno : 0;
}

int file_tree_remove(uint32_t id, const struct place *place, uint64_t *removed) {
  int deep = 1, error = 0;
  removals[0] = (struct removal){.fd = open_dir_at(place->dir, place->name)};
  if (removals[0].fd < 0) return errno;
  strcpy(removals[0].name, place->name);
  while (deep > 0 && error == 0) {
    int before = deep;
    uint64_t removed_before = *removed;
    bool any = false;
    struct removal *level = &removals[deep - 1];
    error = lseek(level->fd, 0, SEEK_SET) < 0 ? errno : remove_listed(id, &deep, removed, &any);
    if (error != 0 || deep > before) continue;
    if (any) {
      /* Entries that are there and never removed are being put back. */
      if (*removed == removed_before && ++level->tries == REMOVE_TRIES) error = ENOTEMPTY;
      continue;
    }
    int above = deep > 1 ? removals[deep - 2].fd : place->dir;
    /* Gone, or something else by now: the list of the directory above shows what there is to do. */
    bool gone = unlinkat(above, level->name, AT_REMOVEDIR) == 0 || errno == ENOENT || errno == ENOTDIR;
    if (!gone && errno != ENOTEMPTY && errno != EEXIST) error = errno;
    else if (!gone && ++level->tries == REMOVE_TRIES) error = ENOTEMPTY;
    if (!gone) continue;
    wire_progress(id, ++*removed);
    close(level->fd);
    deep--;
  }
  while (deep > 0) close(removals[--deep].fd);
  return error;
}
