/*
 * Works without recursion and with two open directories, however deep the tree is: a directory that is not empty is
 * emptied of its files, and its subdirectories are moved up to the top, where their turn comes. The state between two
 * slices is the tree itself. Symbolic links are never followed. What belongs to another uid stays.
 *
 * The objects of System V belong to the ipc namespace and outlive every process of the call too. They are found by
 * their index, which asks for no permission, and whoever made one may remove it, whatever has become of it since.
 */
#define _GNU_SOURCE
#include "wipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
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

/* include/uapi/linux/{shm,sem,msg}.h, for C libraries that do not name them yet. */
enum { SHM_AT = 15, SEM_AT = 20, MSG_AT = 13 };

union sem_argument {
  struct semid_ds *set;
  struct seminfo *info;
};

/* The answers are the highest index in use, or below zero without System V objects in this kernel. */
static int last_shm(int *count) {
  struct shm_info info;
  int last = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&info);
  *count = last < 0 ? 0 : info.used_ids;
  return last;
}

static int last_sem(int *count) {
  struct seminfo info;
  int last = semctl(0, 0, SEM_INFO, (union sem_argument){.info = &info});
  *count = last < 0 ? 0 : info.semusz;
  return last;
}

static int last_msg(int *count) {
  struct msginfo info;
  int last = msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&info);
  *count = last < 0 ? 0 : info.msgpool;
  return last;
}

static bool remove_shm(int index) {
  struct shmid_ds segment;
  int id = shmctl(index, SHM_AT, &segment);
  return id >= 0 && shmctl(id, IPC_RMID, NULL) == 0;
}

static bool remove_sem(int index) {
  struct semid_ds set;
  int id = semctl(index, 0, SEM_AT, (union sem_argument){.set = &set});
  return id >= 0 && semctl(id, 0, IPC_RMID) == 0;
}

static bool remove_msg(int index) {
  struct msqid_ds queue;
  int id = msgctl(index, MSG_AT, &queue);
  return id >= 0 && msgctl(id, IPC_RMID, NULL) == 0;
}

static const struct {
  int (*last)(int *count);
  bool (*remove)(int index);
} KINDS[] = {{last_shm, remove_shm}, {last_sem, remove_sem}, {last_msg, remove_msg}};
enum { KIND_COUNT = sizeof KINDS / sizeof KINDS[0] };

static bool has_objects(void) {
  int all = 0;
  for (int i = 0, count; i < KIND_COUNT; i++) {
    KINDS[i].last(&count);
    all += count;
  }
  return all > 0;
}

/* Removes objects until the budget is used up. Returns how many it removed. */
static int remove_objects(int budget) {
  int done = 0;
  for (int i = 0, count; i < KIND_COUNT; i++) {
    int last = KINDS[i].last(&count);
    for (int index = 0; count > 0 && index <= last && done < budget; index++) {
      if (KINDS[i].remove(index)) done++;
    }
  }
  return done;
}

bool wipe_needed(void) { return over_tops(1, found) > 0 || has_objects(); }

/* Any progress means another slice: the last one finds nothing to do. */
bool wipe_slice(void) {
  int done = remove_objects(SLICE_ENTRIES);
  return over_tops(SLICE_ENTRIES - done, remove_at_top) + done > 0;
}
