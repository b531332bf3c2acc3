#define _GNU_SOURCE
#include "adapter-command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc.h"

enum {
  PORT_DEFAULT = 8080,
  VALUE_MAX = 1024 * 1024, /* of a variable or the handler: the daemon's limits are far below */
  TAIL_BYTES = ERROR_TEXT_MAX,
  LINE_MAX_KERNEL = 256, /* of a #! line */
  KEPT_MAX = 64,         /* processes started while it loaded, which stay */
  READS_PER_EVENT = 4,
  REAPS_PER_TURN = 256,
};

static struct proc proc = {.in_fd = -1, .out_fd = {-1, -1}, .report_fd = -1};
static int status;
static int concurrency;
static bool cleans, is_loaded, sweep_due;
static pid_t kept[KEPT_MAX];
static int kept_count;
static char tail[2 + TAIL_BYTES + 1];
static size_t tail_len;

/* Environment: strings one behind the other, each with its NUL. */
static struct buf variables;
static int variables_count;

/* The words of the command, in the same way. */
static struct buf words;
static int words_count;

static bool add_string(struct buf *strings, int *count, const char *text) {
  ++*count;
  return buf_append(strings, text, strlen(text) + 1);
}

static bool add_word(const char *word) { return add_string(&words, &words_count, word); }

static const char *variable(const char *name) {
  size_t len = strlen(name);
  const char *at = (const char *)variables.data + variables.start;
  for (int i = 0; i < variables_count; i++, at += strlen(at) + 1) {
    if (strncmp(at, name, len) == 0 && at[len] == '=') return at + len + 1;
  }
  return NULL;
}

/* Sets a variable, unless the version has it. */
static bool set_default(const char *name, const char *value) {
  if (variable(name) != NULL) return true;
  return buf_put(&variables, name) && buf_put(&variables, "=") && add_string(&variables, &variables_count, value);
}

/* Takes the version's own variables. execve(2) ends a variable at a NUL character, and so does this. */
static bool read_environment(struct text environment) {
  struct text key, value;
  environment = json_trimmed(environment);
  while (json_next(&environment, &key, &value)) {
    if (!json_is_string(value)) continue;
    struct buf pair = {0};
    bool made = json_decode(key, VALUE_MAX, &pair) && buf_put(&pair, "=") &&
                json_decode(value, VALUE_MAX, &pair) && buf_append(&pair, "", 1);
    made = made && add_string(&variables, &variables_count, (const char *)pair.data);
    buf_free(&pair);
    if (!made) return false;
  }
  return true;
}

static bool is_file(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Sets the path of the version's `bootstrap`. Returns true if that file is the program. */
static bool has_bootstrap(const struct setup *setup, char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/bootstrap", setup->code);
  return setup->is_lambda && is_file(path);
}

/*
 * Sets `_HANDLER`: the handler, which a bootstrap reads; without one the last word of the command line, less its quotes, as
 * in `npx aws-lambda-ric index.handler`, where a container image has it as its last argument.
 */
static bool add_handler_name(const struct setup *setup, const char *handler) {
  static const char SPACES[] = " \t\r\n", QUOTES[] = "\"'";
  char path[PATH_MAX];
  if (has_bootstrap(setup, path)) return set_default("_HANDLER", handler);
  char *line = strdup(handler), *last = NULL;
  if (line == NULL) return false;
  for (char *rest = line, *word; (word = strsep(&rest, SPACES)) != NULL;) {
    if (*word != 0) last = word;
  }
  size_t len = last == NULL ? 0 : strlen(last);
  bool is_quoted = len >= 2 && strchr(QUOTES, last[0]) != NULL && last[len - 1] == last[0];
  if (is_quoted) last[len - 1] = 0;
  bool made = set_default("_HANDLER", last == NULL ? "" : last + is_quoted);
  free(line);
  return made;
}

static bool add_lambda(const struct setup *setup, const char *handler) {
  char name[256], number[32], text[512];
  json_copy(json_member(setup->head, "function_name"), name, sizeof name);
  snprintf(number, sizeof number, "%lu", json_number(json_member(setup->head, "memory_limit_mb"), 0));
  bool made = set_default("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", number);
  snprintf(number, sizeof number, "%lu", json_number(json_member(setup->head, "version"), 0));
  made = made && set_default("AWS_LAMBDA_FUNCTION_VERSION", number) && set_default("AWS_LAMBDA_FUNCTION_NAME", name);
  snprintf(text, sizeof text, "/aws/lambda/%s", name);
  made = made && set_default("AWS_LAMBDA_LOG_GROUP_NAME", text) && set_default("AWS_LAMBDA_LOG_STREAM_NAME", number);
  made = made && set_default("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand") && add_handler_name(setup, handler);
  made = made && set_default("AWS_REGION", LAMBDA_REGION) && set_default("AWS_DEFAULT_REGION", LAMBDA_REGION);
  made = made && set_default("AWS_EXECUTION_ENV", "AWS_Lambda_Image");
  made = made && set_default("LAMBDA_TASK_ROOT", setup->code) && set_default("LAMBDA_RUNTIME_DIR", setup->code);
  if (setup->concurrency > 1) {
    snprintf(number, sizeof number, "%d", setup->concurrency);
    made = made && set_default("AWS_LAMBDA_MAX_CONCURRENCY", number);
  }
  snprintf(text, sizeof text, "127.0.0.1:%d", setup->api_port);
  return made && set_default("TZ", ":UTC") && set_default("AWS_LAMBDA_RUNTIME_API", text);
}

static bool add_http(struct setup *setup) {
  const char *own = variable("PORT");
  long port = own == NULL ? PORT_DEFAULT : strtol(own, NULL, 10);
  char text[16];
  setup->port = port > 0 && port <= UINT16_MAX ? (int)port : PORT_DEFAULT;
  snprintf(text, sizeof text, "%d", setup->port);
  return set_default("PORT", text) && set_default("HOST", "127.0.0.1");
}

/* Words */

/* Returns true if a shell would only split the line at its spaces. */
static bool is_plain(const char *line) {
  static const char OTHERS[] = "_@%+:,./=^ \t-";
  for (const char *c = line; *c != 0; c++) {
    bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
    if (!letter && strchr(OTHERS, *c) == NULL) return false;
  }
  size_t first = strcspn(line + strspn(line, " \t"), " \t");
  return memchr(line + strspn(line, " \t"), '=', first) == NULL;
}

/* Reads the #! line of a file as execve(2) does: the interpreter, and what follows as one argument, "" for none. */
static bool read_interpreter(const char *path, char line[LINE_MAX_KERNEL], char **argument) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, line, LINE_MAX_KERNEL - 1);
  if (fd >= 0) close(fd);
  line[n < 0 ? 0 : n] = 0;
  line[strcspn(line, "\n")] = 0;
  if (strncmp(line, "#!", 2) != 0) return false;
  char *interpreter = line + 2 + strspn(line + 2, " \t");
  size_t len = strlen(interpreter);
  while (len > 0 && (interpreter[len - 1] == ' ' || interpreter[len - 1] == '\t')) interpreter[--len] = 0;
  size_t first = strcspn(interpreter, " \t");
  *argument = interpreter + first + strspn(interpreter + first, " \t");
  interpreter[first] = 0;
  memmove(line, interpreter, first + 1);
  return *line == '/' && strchr(line, '\r') == NULL && strchr(*argument, '\r') == NULL;
}

/* Adds the words that run a script; an option or argument of "" is left out. */
static bool add_script(const char *interpreter, const char *option, const char *argument, const char *path) {
  return add_word(interpreter) && (*option == 0 || add_word(option)) && (*argument == 0 || add_word(argument)) && add_word(path);
}

static bool add_interpreter(const char *path, char *why, size_t size) {
  char line[LINE_MAX_KERNEL], *argument;
  if (read_interpreter(path, line, &argument)) return add_script(line, "", argument, path);
  snprintf(why, size, "%s is not executable and its first line is no #!<interpreter>", path);
  return false;
}

/* Adds the program: the version's file of that name, else the first in PATH. */
static bool add_program(const struct setup *setup, const char *word, char *why, size_t size) {
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/%s", *word == '/' ? "" : setup->code, word);
  bool is_own = n > 0 && (size_t)n < sizeof path && is_file(path);
  if (!is_own) return add_word(word);
  return access(path, X_OK) == 0 ? add_word(path) : add_interpreter(path, why, size);
}

static bool add_plain(const struct setup *setup, const char *line, char *why, size_t size) {
  char *copy = strdup(line), *rest = copy, *word;
  bool made = copy != NULL;
  for (bool first = true; made && (word = strsep(&rest, " \t")) != NULL;) {
    if (*word == 0) continue;
    made = first ? add_program(setup, word, why, size) : add_word(word);
    first = false;
  }
  free(copy);
  return made;
}

static bool add_shell(const char *line) {
  buf_take(&words, buf_len(&words));
  words_count = 0;
  return add_word("/bin/sh") && add_word("-c") && add_word(line);
}

/*
 * Adds the program `bootstrap` of the version if it exists, as AWS Lambda does. The program reads the handler then. On
 * Amazon Linux /bin/sh is bash, so bash runs scripts for /bin/sh.
 */
static bool add_bootstrap(const struct setup *setup, const char *path, char *why, size_t size) {
  char line[LINE_MAX_KERNEL], *argument;
  if (!read_interpreter(path, line, &argument) || strcmp(line, "/bin/sh") != 0 || access("/bin/bash", X_OK) != 0) {
    return add_program(setup, "bootstrap", why, size);
  }
  return add_script("/bin/bash", "--posix", argument, path);
}

static bool add_words(const struct setup *setup, const char *handler, char *why, size_t size) {
  char path[PATH_MAX];
  if (has_bootstrap(setup, path)) return add_bootstrap(setup, path, why, size);
  return is_plain(handler) ? add_plain(setup, handler, why, size) : add_shell(handler);
}

/* Start */

/* A vector of pointers to strings, with an empty place before the first. */
static char **vector_of(const struct buf *strings, int count) {
  char **vector = calloc((size_t)count + 2, sizeof(char *));
  if (vector == NULL) return NULL;
  char *at = (char *)strings->data + strings->start;
  for (int i = 0; i < count; i++, at += strlen(at) + 1) vector[1 + i] = at;
  return vector + 1;
}

static bool start_once(struct text cwd_json) {
  static char cwd[PATH_MAX];
  json_copy(cwd_json, cwd, sizeof cwd);
  char **argv = vector_of(&words, words_count), **env = vector_of(&variables, variables_count);
  proc.error = ENOMEM;
  proc.failed_at = "";
  if (argv == NULL || env == NULL) return false;
  struct command command = {.cwd = cwd, .argv = argv, .env = env};
  struct start start = {.command = &command, .null_fd = STDIN_FILENO};
  proc = (struct proc){.out_left = {UINT32_MAX, UINT32_MAX}};
  bool started = proc_start(&proc, &start);
  free(argv - 1);
  free(env - 1);
  return started;
}

bool command_start(struct setup *setup, char *why, size_t size) {
  struct buf line = {0};
  struct text cwd = json_member(setup->head, "working_directory");
  concurrency = setup->concurrency;
  cleans = setup->cleans;
  snprintf(why, size, "out of memory");
  bool made = read_environment(json_member(setup->head, "environment")) &&
              json_decode(json_member(setup->head, "handler"), VALUE_MAX, &line) && buf_append(&line, "", 1);
  const char *handler = made ? (const char *)line.data + line.start : "";
  made = made && (setup->is_lambda ? add_lambda(setup, handler) : add_http(setup));
  made = made && add_words(setup, handler, why, size);
  if (made && words_count == 0) {
    snprintf(why, size, "the handler is empty");
    made = false;
  }
  if (made) {
    made = start_once(cwd);
    /* A shell has commands that are no programs, and its error names the word that is neither. */
    if (!made && proc.error == ENOENT && *proc.failed_at == 0 && is_plain(handler) && add_shell(handler)) {
      made = start_once(cwd);
    }
    if (!made) {
      bool chdir = strcmp(proc.failed_at, "chdir") == 0;
      snprintf(why, size, "cannot %s %.200s: %s", chdir ? "change to" : "start", chdir ? "the working directory" : handler,
               strerror(proc.error));
    }
  }
  buf_free(&line);
  buf_free(&words);
  buf_free(&variables);
  return made;
}

bool command_runs(void) { return proc.pid > 0; }

/* Output */

/* Of standard error; of standard output while there is nothing else. */
static void keep_tail(int stream, const uint8_t *bytes, size_t len) {
  static int kept_stream = 0;
  if (stream < kept_stream) return;
  if (stream > kept_stream) tail_len = 0;
  kept_stream = stream;
  if (len > TAIL_BYTES) {
    bytes += len - TAIL_BYTES;
    len = TAIL_BYTES;
  }
  size_t stays = tail_len + len > TAIL_BYTES ? TAIL_BYTES - len : tail_len;
  memmove(tail + 2, tail + 2 + tail_len - stays, stays);
  memcpy(tail + 2 + stays, bytes, len);
  tail_len = stays + len;
}

const char *command_tail(void) {
  memcpy(tail, ": ", 2);
  size_t len = tail_len;
  while (len > 0 && (tail[1 + len] == '\n' || tail[1 + len] == '\r')) len--;
  tail[len == 0 ? 0 : 2 + len] = 0;
  return tail;
}

static enum proc_read read_output(int stream) {
  const uint8_t *bytes;
  size_t len;
  enum proc_read got = proc_read(&proc, stream, &bytes, &len);
  bool has_owner = concurrency == 1 || !is_loaded;
  if (len > 0) call_log(has_owner ? call_sole() : NULL, (uint8_t)(LOG_OF_STDOUT + stream), bytes, len);
  if (len > 0 && !is_loaded) keep_tail(stream, bytes, len);
  return got;
}

void command_output(uint32_t tag) {
  for (int i = 0; i < READS_PER_EVENT && !link_is_full(); i++) {
    if (read_output(tag == TAG_STDOUT ? 0 : 1) != READ_FULL) return;
  }
}

void command_drain(void) {
  for (int stream = 0; stream < 2; stream++) {
    int left = proc.out_fd[stream] < 0 ? 0 : proc_reads_left(&proc, stream);
    while (left-- > 0 && read_output(stream) == READ_FULL) continue;
  }
}

void command_settle(void) {
  if (concurrency == 1) command_drain();
}

/* End */

bool command_ended(void) {
  bool ended = false;
  int how;
  pid_t pid = 0;
  for (int i = 0; i < REAPS_PER_TURN; i++) {
    pid = waitpid(-1, &how, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    if (pid == proc.pid) {
      proc.pid = 0;
      status = how;
      ended = true;
      continue;
    }
    sweep_due = true;
    for (int k = 0; k < kept_count; k++) {
      if (kept[k] == pid) kept[k] = kept[--kept_count];
    }
  }
  /* More of them may have ended meanwhile: calls come first. */
  if (pid > 0) adapter_server.child_ended = adapter_server.again = true;
  return ended;
}

const char *command_ending(void) {
  static char text[64];
  if (WIFSIGNALED(status)) snprintf(text, sizeof text, "was killed by signal %d", WTERMSIG(status));
  else snprintf(text, sizeof text, "exited with %d", WEXITSTATUS(status));
  return text;
}

int command_exit_code(void) { return (int)exit_code_of(status); }

void command_kill(void) {
  if (proc.pid > 0) kill(-proc.pid, SIGKILL);
}

/* Fills in the children of the adapter but the command. Returns their number. */
static int orphans(pid_t *pids, int max) {
  char text[4096];
  int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC), count = 0;
  ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n < 0 ? 0 : n] = 0;
  /* A number that is cut off at the end of the text has no space behind it. */
  for (char *at = text, *end; count < max; at = end + 1) {
    long pid = strtol(at, &end, 10);
    if (end == at || *end != ' ') break;
    if (pid != proc.pid) pids[count++] = (pid_t)pid;
  }
  return count;
}

static bool is_kept(pid_t pid) {
  for (int i = 0; i < kept_count; i++) {
    if (kept[i] == pid) return true;
  }
  return false;
}

void command_loaded(void) {
  is_loaded = true;
  kept_count = orphans(kept, KEPT_MAX);
}

/* The children of a killed orphan become orphans when it ends: the next sweep finds them. */
static void sweep(void) {
  pid_t pids[KEPT_MAX * 4];
  int count = orphans(pids, KEPT_MAX * 4);
  for (int i = 0; i < count; i++) {
    if (!is_kept(pids[i])) kill(pids[i], SIGKILL);
  }
}

void command_turn(void) {
  if (!proc_watch(&proc, &adapter_server, 0, !link_is_full())) fatal("epoll");
  if (!is_loaded || !cleans) return;
  if (calls_any()) {
    sweep_due = true;
  } else if (sweep_due) {
    sweep_due = false;
    sweep();
  }
}
