/*
 * The only program of an image without a shell. Each argument is a verb with its path behind a colon; it prints one line for each:
 *   id:              ids, effective capabilities and no_new_privs of the process
 *   read:<path>      the file's text
 *   list:<path>      names of a directory, sorted
 *   stat:<path>      mode, links, uid, gid and inode
 *   xattr:<path>     names and values of extended attributes that anybody may read
 *   count:<path>     number of entries of a directory and of those in it
 *   write:<path>     writes "changed" into the file
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int failed(const char *what) {
  printf("%s: %s\n", what, strerror(errno));
  return 1;
}

static int identity(void) {
  char line[256];
  FILE *file = fopen("/proc/self/status", "r");
  if (file == NULL) return failed("status");
  printf("uid %d %d gid %d %d", (int)getuid(), (int)geteuid(), (int)getgid(), (int)getegid());
  while (fgets(line, sizeof line, file) != NULL) {
    char *end = strchr(line, '\n');
    if (end != NULL) *end = 0;
    if (strncmp(line, "CapEff:\t", 8) == 0) printf(" caps %s", line + 8);
    if (strncmp(line, "NoNewPrivs:\t", 12) == 0) printf(" no_new_privs %s", line + 12);
  }
  fclose(file);
  puts("");
  return 0;
}

static int text(const char *path) {
  char bytes[4096];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t count = file < 0 ? -1 : read(file, bytes, sizeof bytes - 1);
  if (count < 0) return failed(path);
  bytes[count] = 0;
  close(file);
  puts(bytes);
  return 0;
}

static int change(const char *path) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || write(file, "changed", 7) != 7) return failed(path);
  close(file);
  puts("written");
  return 0;
}

static int names(const char *path) {
  struct dirent **found;
  int count = scandir(path, &found, NULL, alphasort);
  if (count < 0) return failed(path);
  for (int i = 0; i < count; i++) {
    if (strcmp(found[i]->d_name, ".") != 0 && strcmp(found[i]->d_name, "..") != 0) printf("%s ", found[i]->d_name);
  }
  puts("");
  return 0;
}

static long entries(const char *path, int depth) {
  char inner[4096];
  DIR *directory = opendir(path);
  long count = 0;
  if (directory == NULL) return 0;
  for (struct dirent *one; (one = readdir(directory)) != NULL;) {
    if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0) continue;
    count++;
    if (depth == 0 || one->d_type != DT_DIR) continue;
    snprintf(inner, sizeof inner, "%s/%s", path, one->d_name);
    count += entries(inner, depth - 1);
  }
  closedir(directory);
  return count;
}

static int information(const char *path) {
  struct stat info;
  if (lstat(path, &info) != 0) return failed(path);
  printf("mode %o links %d uid %d gid %d ino %llu\n", (unsigned)info.st_mode, (int)info.st_nlink, (int)info.st_uid,
         (int)info.st_gid, (unsigned long long)info.st_ino);
  return 0;
}

static int attributes(const char *path) {
  char list[4096], value[256];
  ssize_t bytes = llistxattr(path, list, sizeof list);
  if (bytes < 0) return failed(path);
  for (char *name = list; name < list + bytes; name += strlen(name) + 1) {
    ssize_t length = lgetxattr(path, name, value, sizeof value);
    printf("%s=", name);
    for (ssize_t i = 0; i < length; i++) printf("%02x", (unsigned char)value[i]);
    printf(" ");
  }
  puts("");
  return 0;
}

int main(int argc, char **argv) {
  int failures = 0;
  for (int i = 1; i < argc; i++) {
    char *path = strchr(argv[i], ':');
    if (path == NULL) return 2;
    *path++ = 0;
    if (strcmp(argv[i], "id") == 0) failures += identity();
    else if (strcmp(argv[i], "read") == 0) failures += text(path);
    else if (strcmp(argv[i], "list") == 0) failures += names(path);
    else if (strcmp(argv[i], "stat") == 0) failures += information(path);
    else if (strcmp(argv[i], "xattr") == 0) failures += attributes(path);
    else if (strcmp(argv[i], "write") == 0) failures += change(path);
    else if (strcmp(argv[i], "count") == 0) printf("%ld\n", entries(path, 3));
    else return 2;
  }
  return failures;
}
