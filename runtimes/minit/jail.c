#define _GNU_SOURCE
#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <stddef.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Open directories of the deepest tree that a path can name (PATH_MAX), and a few more. */
enum { FILES_MAX = 4096 };

#ifdef __SANITIZE_ADDRESS__
/* The sanitizer reserves terabytes of addresses, and makes system calls of its own at each end of a process. */
static const rlim_t MEMORY_MAX = RLIM_INFINITY;
static const uint32_t OTHER_CALLS = SECCOMP_RET_ALLOW;
#else
static const rlim_t MEMORY_MAX = 128 * 1024 * 1024;
static const uint32_t OTHER_CALLS = SECCOMP_RET_KILL_PROCESS;
#endif

static const uint32_t KEPT = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID;

#if defined __x86_64__
enum { ARCHITECTURE = AUDIT_ARCH_X86_64 };
#elif defined __aarch64__
enum { ARCHITECTURE = AUDIT_ARCH_AARCH64 };
#else
#error "the numbers of system calls are not known for this architecture"
#endif

/* Opening goes by openat2 and openat; whatever makes a device, a socket, a process or a mount is absent. */
static const uint16_t CALLS[] = {
    SYS_read,       SYS_pread64,   SYS_write,       SYS_lseek,        SYS_close,      SYS_recvfrom,   SYS_sendto,
    SYS_accept4,    SYS_ppoll,     SYS_getsockopt,  SYS_setsockopt,   SYS_openat,     SYS_openat2,    SYS_getdents64,
    SYS_fstat,      SYS_newfstatat, SYS_fstatfs,    SYS_readlinkat,   SYS_mkdirat,    SYS_unlinkat,   SYS_renameat2,
    SYS_symlinkat,  SYS_linkat,    SYS_fchown,      SYS_fchownat,     SYS_fchmod,     SYS_utimensat,  SYS_mmap,
    SYS_munmap,     SYS_mremap,    SYS_clock_gettime, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit_group,
};
enum { CALL_COUNT = sizeof CALLS / sizeof CALLS[0] };

static bool bound(int resource, rlim_t most) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0) return false;
  if (limit.rlim_max > most) limit.rlim_max = most;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(resource, &limit) == 0;
}

/* Also from the bounding set, and so that being uid 0 gives none back. */
static bool drop_capabilities(uint32_t owner) {
  for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
    if ((cap >= 32 || (KEPT & 1u << cap) == 0) && prctl(PR_CAPBSET_DROP, cap) != 0) return false;
  }
  unsigned bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                  SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  if (prctl(PR_SET_SECUREBITS, bits) != 0) return false;
  /* On a file system of a user namespace that this one's 0 is not in, nothing can be made as 0. */
  setfsuid(owner);
  setfsgid(owner);
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct sets[2] = {{.effective = KEPT, .permitted = KEPT}};
  return syscall(SYS_capset, &head, sets) == 0;
}

bool jail_enter(const char *root, uint32_t owner) {
  umask(0);
  int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fchdir(fd) != 0 || chroot(".") != 0 || chdir("/") != 0) return false;
  close(fd);
  return bound(RLIMIT_CORE, 0) && bound(RLIMIT_NOFILE, FILES_MAX) && bound(RLIMIT_AS, MEMORY_MAX) &&
         prctl(PR_SET_DUMPABLE, 0) == 0 && drop_capabilities(owner);
}

bool jail_seal(void) {
  struct sock_filter code[5 + CALL_COUNT + 1], *at = code;
  *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
  *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  /* Each match jumps over the rest and the killing to the last instruction. */
  for (int i = 0; i < CALL_COUNT; i++) {
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[i], (uint8_t)(CALL_COUNT - i), 0);
  }
  *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, OTHER_CALLS);
  *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog filter = {.len = (unsigned short)(at - code), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}
