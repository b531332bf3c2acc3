/*
 * Linked into the sanitized helper of the tests: the first error report goes into the file REPORT, which is mapped
 * before main. No descriptor, no path and no system call is needed later, so that it works in a jail, too.
 */
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPORT_BYTES = 64 * 1024 };

static char *report;

/* Undefined behaviour is a SIGILL (-fsanitize-undefined-trap-on-error). 2: a handler of the program does not replace it. */
const char *__asan_default_options(void) {
  return "detect_leaks=0:symbolize=0:exitcode=99:"
         "handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2:handle_abort=2";
}

static void keep(const char *text) {
  if (report != NULL && *report == 0) snprintf(report, REPORT_BYTES, "%s", text);
}

__attribute__((constructor)) static void map_report(void) {
  int fd = open(REPORT, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *memory = mmap(NULL, REPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return;
  report = memory;
  __asan_set_error_report_callback(keep);
}
