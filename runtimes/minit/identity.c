#define _GNU_SOURCE
#include "identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "frame.h"
#include "protocol.h"

enum { FIELDS_MAX = 7, READ_BYTES = 16 * 1024 };

/* Reads a whole file, with a NUL behind it (U2). Returns NULL, or why it cannot be read. */
static const char *read_file(const char *path, struct buf *text) {
  struct stat info;
  /* Not opened before it is known to be a file: opening a device may do something. */
  if (stat(path, &info) != 0) return strerror(errno);
  if (!S_ISREG(info.st_mode)) return "not a regular file";
  struct open_how how = {
      .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
      .resolve = RESOLVE_NO_MAGICLINKS,
  };
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (fd < 0) return strerror(errno);
  const char *problem = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? NULL : "not a regular file";
  while (problem == NULL) {
    if (!buf_reserve(text, READ_BYTES)) {
      problem = "out of memory";
      break;
    }
    ssize_t n = read(fd, text->data + text->end, READ_BYTES);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) problem = strerror(errno);
    if (n <= 0) break;
    text->end += (size_t)n;
    if (buf_len(text) > IDENTITY_FILE_MAX) problem = "larger than 1 MiB";
  }
  close(fd);
  if (problem == NULL && !buf_append(text, "", 1)) problem = "out of memory";
  return problem;
}

/* Takes the next line out of `*at` and cuts it at its colons. Fields that it lacks are empty. Returns false at the end. */
static bool next_line(char **at, char *fields[FIELDS_MAX]) {
  static char nothing[1];
  char *line = *at;
  if (*line == 0) return false;
  char *end = strchrnul(line, '\n');
  *at = *end == 0 ? end : end + 1;
  *end = 0;
  for (int i = 0; i < FIELDS_MAX; i++) {
    fields[i] = line == NULL ? nothing : line;
    char *colon = line == NULL ? NULL : strchr(line, ':');
    if (colon != NULL) *colon = 0;
    line = colon == NULL ? NULL : colon + 1;
  }
  return true;
}

/* True for a number in decimal digits; `*id` is then UINT32_MAX if it is too large. */
static bool read_number(const char *text, uint32_t *id) {
  uint64_t value = 0;
  if (*text == 0) return false;
  for (; *text != 0; text++) {
    if (*text < '0' || *text > '9') return false;
    value = value * 10 + (uint64_t)(*text - '0');
    if (value > UINT32_MAX) value = UINT32_MAX;
  }
  *id = (uint32_t)value;
  return true;
}

static bool is_listed(const char *name, const char *members) {
  size_t len = strlen(name);
  for (const char *at = members; *at != 0;) {
    const char *end = strchrnul(at, ',');
    if ((size_t)(end - at) == len && memcmp(at, name, len) == 0) return true;
    at = *end == 0 ? end : end + 1;
  }
  return false;
}

/* What is asked for, and what the files say of it. */
struct wanted {
  const char *name;
  bool is_number;
  uint32_t id;
};

static struct wanted want(const char *name) {
  struct wanted wanted = {.name = name};
  wanted.is_number = read_number(name, &wanted.id);
  return wanted;
}

static bool is_it(const struct wanted *wanted, const char *name, const char *number) {
  uint32_t id;
  return strcmp(name, wanted->name) == 0 || (wanted->is_number && read_number(number, &id) && id == wanted->id);
}

static void not_found(char *problem, size_t size, const char *kind, const char *name, const char *path,
                      const char *unread) {
  snprintf(problem, size, "%s '%.100s' not found in %s%s%s", kind, name, path, unread == NULL ? "" : ": ",
           unread == NULL ? "" : unread);
}

/* The user's line in /etc/passwd; its own name goes to `name`, empty if it has no line. */
static bool find_user(const struct wanted *wanted, struct identity *identity, char *name, size_t name_size,
                      char *problem, size_t size) {
  struct buf text = {0};
  const char *unread = read_file("/etc/passwd", &text);
  char *at = unread == NULL ? (char *)text.data + text.start : "";
  char *fields[FIELDS_MAX];
  bool found = false;
  while (!found && next_line(&at, fields)) {
    if (!is_it(wanted, fields[0], fields[2]) || !read_number(fields[2], &identity->uid)) continue;
    found = read_number(fields[3], &identity->gid) && strlen(fields[0]) < name_size;
    if (!found) continue;
    strcpy(name, fields[0]);
    if (fields[5][0] == '/' && strlen(fields[5]) <= IDENTITY_HOME_MAX) {
      snprintf(identity->home, sizeof identity->home, "HOME=%s", fields[5]);
    }
  }
  buf_free(&text);
  if (found) return true;
  identity->uid = wanted->id;
  identity->gid = 0;
  if (!wanted->is_number) not_found(problem, size, "user", wanted->name, "/etc/passwd", unread);
  return wanted->is_number;
}

static bool add_group(struct identity *identity, uint32_t gid, char *problem, size_t size) {
  bool known = gid == identity->gid;
  for (int i = 0; i < identity->groups_count; i++) known = known || identity->groups[i] == gid;
  if (known || gid >= USER_IDS) return true;
  if (identity->groups_count == IDENTITY_GROUPS_MAX) {
    snprintf(problem, size, "too many groups of the user: more than %d", IDENTITY_GROUPS_MAX);
    return false;
  }
  identity->groups[identity->groups_count++] = gid;
  return true;
}

/* The group that is asked for, or without one all that list the user. */
static bool find_groups(const struct wanted *group, const char *user, struct identity *identity, char *problem,
                        size_t size) {
  struct buf text = {0};
  const char *unread = read_file("/etc/group", &text);
  char *at = unread == NULL ? (char *)text.data + text.start : "";
  char *fields[FIELDS_MAX];
  bool found = false, fits = true;
  uint32_t gid;
  while (!found && fits && next_line(&at, fields)) {
    if (group != NULL) {
      found = is_it(group, fields[0], fields[2]) && read_number(fields[2], &identity->gid);
    } else if (is_listed(user, fields[3]) && read_number(fields[2], &gid)) {
      fits = add_group(identity, gid, problem, size);
    }
  }
  buf_free(&text);
  if (group == NULL || found) return fits;
  identity->gid = group->id;
  if (!group->is_number) not_found(problem, size, "group", group->name, "/etc/group", unread);
  return group->is_number;
}

bool identity_find(const char *text, struct identity *identity, char *problem, size_t size) {
  char user[256], name[256] = "";
  *identity = (struct identity){.home = "HOME=/"};
  const char *colon = strchrnul(text == NULL ? "0" : text, ':');
  snprintf(user, sizeof user, "%.*s", (int)(text == NULL ? 1 : colon - text), text == NULL ? "0" : text);
  struct wanted wanted = want(user);
  if (!find_user(&wanted, identity, name, sizeof name, problem, size)) return false;
  if (text == NULL) return true;
  struct wanted group = want(*colon == 0 ? "" : colon + 1);
  bool has_group = *colon != 0;
  bool looks = has_group || *name != 0;
  if (looks && !find_groups(has_group ? &group : NULL, name, identity, problem, size)) return false;
  if (identity->uid >= USER_IDS || identity->gid >= USER_IDS) {
    const char *kind = identity->uid >= USER_IDS ? "user" : "group";
    uint32_t id = identity->uid >= USER_IDS ? identity->uid : identity->gid;
    snprintf(problem, size, "%s id out of range: %u (limit %d)", kind, id, USER_IDS - 1);
    return false;
  }
  identity->is_set = true;
  return true;
}

bool identity_enter(const struct identity *identity) {
  if (!identity->is_set) return true;
  bool entered = syscall(SYS_setgroups, (size_t)identity->groups_count, identity->groups) == 0 &&
                 syscall(SYS_setresgid, identity->gid, identity->gid, identity->gid) == 0 &&
                 syscall(SYS_setresuid, identity->uid, identity->uid, identity->uid) == 0;
  if (!entered || !identity->drops_capabilities) return entered;
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[2] = {{0}};
  return syscall(SYS_capset, &head, none) == 0;
}

void identity_own(const struct identity *identity, bool owns) {
  if (identity == NULL || !identity->is_set) return;
  syscall(SYS_setfsgid, owns ? identity->gid : 0);
  syscall(SYS_setfsuid, owns ? identity->uid : 0);
}
