/*
 * The parser of `minit files` and what it calls, on a directory of the environment's FUZZ_ROOT: an input is what the
 * connection receives, in pieces. The first byte chooses how it is cut. Nothing may stay: no descriptor and, by the
 * harness, no file.
 */
#include "stubs.h"

#include <ftw.h>
#include <stdlib.h>

#include "../../../../runtimes/minit/file-wire.c"
#include "files-mode.h"

enum { DESCRIPTORS_MAX = 64 };

static const uint8_t *left;
static size_t left_size;
static uint32_t cut;

ssize_t stub_recv(void *bytes, size_t size) {
  cut = cut * 1103515245 + 12345;
  size_t n = cut >> 28 < 8 ? left_size : 1 + (cut >> 16 & 255);
  if (n > left_size) n = left_size;
  if (n > size) n = size;
  memcpy(bytes, left, n);
  left += n;
  left_size -= n;
  return (ssize_t)n;
}

static void leave(void) {
  files_reset();
  longjmp(stub_ended, 1);
}

static int descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind;
  if (at->level > 0) remove(path);
  return 0;
}

/* A directory may have lost its mode. */
static int open_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)at;
  if (kind == FTW_DNR || kind == FTW_D) chmod(path, 0700);
  return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  stub_root = getenv("FUZZ_ROOT");
  if (stub_root == NULL || !wire_init(STDIN_FILENO, leave) || !place_init(0) || !place_set_base("/", NULL)) abort();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  int before = descriptors();
  left = data + 1;
  left_size = size - 1;
  cut = data[0];
  in.start = in.end = out.len = 0;
  if (setjmp(stub_ended) == 0) {
    for (;;) {
      struct request request;
      wire_next(&request);
      files_serve(&request);
      stub_now_us += 1000;
    }
  }
  /* The modes come first: this process lacks CAP_DAC_OVERRIDE, so a root without its mode would refuse the base. */
  for (int i = 0; i < 3; i++) nftw(stub_root, open_one, DESCRIPTORS_MAX, FTW_PHYS);
  if (!place_set_base("/", NULL) || descriptors() != before) abort();
  nftw(stub_root, remove_one, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS);
  return 0;
}
