/*
 * minit as a container's own program in its place would use it: with HOSTILE set, PID 1 writes to the files of this machine
 * that it was handed, and notes in /report how far it came. Without, it is minit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int minit_main(int argc, char **argv);

enum { FIRST_FILE = 4, EXIT_FILE = 8, TRIES = 64 };

static uint8_t block[1024 * 1024];

int main(int argc, char **argv) {
  if (argc < 2 || strcmp(argv[1], "container") != 0 || getenv("HOSTILE") == NULL) return minit_main(argc, argv);
  struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &none);
  /* An end that never was: the head of protocol.h's exit_record, then numbers that nothing has. */
  uint32_t record[8] = {0x54495845, 1, 0xffffffff, 0xffffffff, 0, 0, 0xffffffff, 0xffffffff};
  if (pwrite(EXIT_FILE, record, sizeof record, 0) != sizeof record) return 1;
  int grown = ftruncate(EXIT_FILE, 2LL << 30) == 0;
  uint64_t written = 0;
  int error = 0;
  memset(block, 0x5a, sizeof block);
  for (int fd = FIRST_FILE; fd < EXIT_FILE; fd++) {
    for (int i = 0; i < TRIES; i++) {
      ssize_t n = pwrite(fd, block, sizeof block, (off_t)i * (off_t)sizeof block);
      if (n <= 0) {
        error = errno;
        break;
      }
      written += (uint64_t)n;
    }
    fsync(fd);
  }
  FILE *report = fopen("/report", "w");
  if (report == NULL) return 1;
  fprintf(report, "%d %llu %d\n", grown, (unsigned long long)written, error);
  return fclose(report) == 0 ? 0 : 1;
}
