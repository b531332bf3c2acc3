/*
 * A resident process for the tests: does what the text of each call says, and what a hostile handler might do. Calls
 * that `hold` are answered by a later `release`.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPEN = 0x60, BEGIN, CHUNK, END, RESULT, LOG, FD = 3, FRAME_MAX = 80 * 1024, CALLS_MAX = 128 };

struct call {
  uint32_t id;
  uint64_t bytes;
  char text[256];
};

static struct call calls[CALLS_MAX];
static uint32_t held[CALLS_MAX];
static int held_count;
static uint8_t frame[FRAME_MAX];

static void put(const void *bytes, size_t len) {
  for (const char *at = bytes; len > 0;) {
    ssize_t n = write(FD, at, len);
    if (n <= 0 && errno != EINTR) exit(9);
    if (n > 0) at += n, len -= (size_t)n;
  }
}

static void get(void *bytes, size_t len) {
  for (char *at = bytes; len > 0;) {
    ssize_t n = read(FD, at, len);
    if (n <= 0) exit(8);
    at += n, len -= (size_t)n;
  }
}

/* In one write, so that frames of children do not mix. */
static void tell(uint8_t type, uint32_t id, const void *head, size_t head_len, const void *bytes, size_t len) {
  static uint8_t out[FRAME_MAX];
  uint32_t counted = (uint32_t)(5 + head_len + len);
  memcpy(out, &counted, 4);
  out[4] = type;
  memcpy(out + 5, &id, 4);
  memcpy(out + 9, head, head_len);
  memcpy(out + 9 + head_len, bytes, len);
  put(out, 9 + head_len + len);
}

static void answer(uint32_t id, uint32_t status, const void *bytes, size_t len) {
  tell(RESULT, id, &status, 4, bytes, len);
}

static void log_text(uint32_t id, uint8_t stream, const char *text) { tell(LOG, id, &stream, 1, text, strlen(text)); }

static struct call *find(uint32_t id) {
  for (int i = 0; i < CALLS_MAX; i++) {
    if (calls[i].id == id) return &calls[i];
  }
  exit(7);
}

static const char *after(const char *text, const char *word) {
  size_t len = strlen(word);
  if (strncmp(text, word, len) != 0 || (text[len] != ' ' && text[len] != 0)) return NULL;
  return text[len] == ' ' ? text + len + 1 : text + len;
}

static void attack(uint32_t id, const char *how) {
  static uint8_t large[70 * 1024];
  const char *rest;
  if ((rest = after(how, "forge"))) answer((uint32_t)strtoul(rest, NULL, 10), 0, "forged", 6);
  else if ((rest = after(how, "log"))) log_text((uint32_t)strtoul(rest, NULL, 10), 1, "forged");
  else if (after(how, "stream")) log_text(id, 9, "x");
  else if (after(how, "open")) tell(OPEN, 0, &(uint32_t){1}, 4, "", 0);
  else if (after(how, "type")) tell(0x85, id, "", 0, "", 0);
  else if (after(how, "begin")) tell(BEGIN, id, "", 0, "", 0);
  else if (after(how, "statusless")) tell(RESULT, id, "", 0, "x", 1);
  else if (after(how, "twice")) answer(id, 0, "1", 1), answer(id, 0, "2", 1);
  else if (after(how, "late")) answer(id, 0, "1", 1), tell(CHUNK, id, "", 0, "2", 1);
  else if (after(how, "huge")) put("\xff\xff\xff\xff\x62\0\0\0\0", 9);
  else if (after(how, "above")) tell(CHUNK, id, "", 0, large, 64 * 1024 + 1);
  else if (after(how, "short")) put("\4\0\0\0\x62\0\0\0", 8);
  else if (after(how, "close")) close(FD);
  else if (after(how, "half")) put("\x40\0\0\0\x62", 5);
  else exit(6);
  for (;;) pause();
}

/* Between two calls. */
static void on_usr1(int signal) {
  (void)signal;
  if (write(1, "background", 10) != 10) exit(3);
}

static void on_usr2(int signal) {
  (void)signal;
  close(FD);
  for (;;) pause();
}

static void run(const struct call *call) {
  uint32_t id = call->id;
  const char *text = call->text, *rest;
  static char bytes[64 * 1024];
  if ((rest = after(text, "echo"))) answer(id, 0, rest, strlen(rest));
  else if ((rest = after(text, "fail"))) answer(id, 1, rest, strlen(rest));
  else if (after(text, "size")) answer(id, 0, bytes, (size_t)sprintf(bytes, "%llu", (unsigned long long)call->bytes));
  else if ((rest = after(text, "log"))) log_text(id, 1, rest), log_text(id, 2, "error"), answer(id, 0, "", 0);
  else if ((rest = after(text, "note"))) log_text(0, 2, rest), answer(id, 0, "", 0);
  else if ((rest = after(text, "print"))) {
    printf("%s", rest);
    fflush(stdout);
    answer(id, 0, "", 0);
  } else if ((rest = after(text, "chunks"))) {
    memset(bytes, 'c', sizeof bytes);
    for (int left = atoi(rest); left > 0; left--) tell(CHUNK, id, "", 0, bytes, sizeof bytes);
    answer(id, 0, "end", 3);
  } else if ((rest = after(text, "crumbs"))) {
    for (int left = atoi(rest); left > 0; left--) tell(CHUNK, id, "", 0, "c", 1);
    answer(id, 0, "end", 3);
  } else if (after(text, "hold")) held[held_count++] = id;
  else if (after(text, "release")) {
    answer(id, 0, bytes, (size_t)sprintf(bytes, "%d", held_count));
    while (held_count > 0) answer(held[--held_count], 0, "held", 4);
  } else if (after(text, "flood")) {
    for (;;) log_text(id, 1, "flood\n");
  } else if (after(text, "shout")) {
    memset(bytes, 's', sizeof bytes);
    for (;;) fwrite(bytes, 1, sizeof bytes, stdout);
  } else if ((rest = after(text, "pour"))) {
    memset(bytes, 'p', 1024);
    bytes[1024] = 0;
    for (int left = atoi(rest); left > 0; left--) log_text(0, 1, bytes);
    answer(id, 0, "", 0);
  } else if (after(text, "babble")) {
    answer(id, 0, "", 0);
    for (;;) log_text(0, 1, "babble\n");
  } else if (after(text, "deaf")) {
    for (;;) pause();
  } else if ((rest = after(text, "exit"))) {
    answer(id, 0, "last", 4);
    exit(atoi(rest));
  } else if (after(text, "die")) {
    printf("last words");
    fflush(stdout);
    raise(SIGKILL);
  } else if (after(text, "orphan")) {
    /* A child that has the socket too, and outlives its parent. */
    if (fork() == 0) for (;;) pause();
    exit(5);
  } else if ((rest = after(text, "attack"))) attack(id, rest);
  else answer(id, 1, "what?", 5);
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "mute") == 0) for (;;) pause();
  if (strcmp(mode, "early") == 0) log_text(0, 1, "early");
  signal(SIGUSR1, on_usr1);
  signal(SIGUSR2, on_usr2);
  tell(OPEN, 0, &(uint32_t){strcmp(mode, "version") == 0 ? 99 : 1}, 4, "", 0);
  for (;;) {
    uint32_t len, id;
    get(&len, 4);
    if (len > FRAME_MAX) exit(4);
    get(frame, len);
    memcpy(&id, frame + 1, 4);
    struct call *call = find(frame[0] == BEGIN ? 0 : id);
    size_t head = frame[0] == BEGIN ? 13 : 5, content = len - head;
    int more = 1;
    if (frame[0] == BEGIN) {
      memset(call, 0, sizeof *call);
      call->id = id;
      memcpy(call->text, frame + head, content < sizeof call->text ? content : sizeof call->text - 1);
      more = frame[5];
    } else if (frame[0] == END) {
      more = 0;
    }
    call->bytes += content;
    if (more) continue;
    run(call);
    call->id = 0;
  }
}
