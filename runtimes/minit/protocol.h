/*
 * The wire format that minit and the launcher speak with the daemon. All integers are little-endian.
 *
 *   frame = u32 length of what follows, u8 type, u32 id, body
 *   str   = u32 length including one trailing NUL byte, then the bytes
 *
 * A malformed frame closes the connection. `id` is chosen by the daemon; an answer carries the id of its request.
 * Strings keep their NUL on the wire, so that argv and envp point straight into the receive buffer.
 */
#ifndef MINIT_PROTOCOL_H
#define MINIT_PROTOCOL_H

#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "integers are copied to the wire as they lie in memory");

#define PACKED __attribute__((packed))

enum {
  PROTOCOL_VERSION = 2,
  FRAME_HEAD = 9,                           /* length, type, id */
  FRAME_MAX = 16 * 1024 * 1024 + 64 * 1024, /* largest value of the length field */
  OUTPUT_FRAME_MAX = 64 * 1024,             /* output bytes in one STDOUT or STDERR frame */
};

/* Daemon to minit. */
enum { PING = 0x01, EXEC = 0x02, STDIN = 0x03, STDIN_CLOSE = 0x04, KILL = 0x05, SHUTDOWN = 0x06 };
enum { RUN = 0x07, RESIZE = 0x08, SIGNAL_PID = 0x09, SERVE = 0x0a, SERVE_TAKE = 0x0b, MAIN_ATTACH = 0x0c };

/* minit to daemon. */
enum { READY = 0x80, PONG, STARTED, STDOUT, STDERR, EXIT, IDLE, ERROR, SIGNALLED };

/* Daemon to launcher, and the answers. */
enum { SPAWN = 0x11, NETNS_ADD, NETNS_CUT, STAT_IN_ROOT, LAUNCHER_PING, NETNS_REMOVE, ATTACH };
enum { SPAWNED = 0x91, NETNS, STATED = 0x94, LAUNCHER_PONG, ATTACHED = 0x97 };

/* Flags of EXEC and RUN. */
enum {
  EXEC_SOLE = 1,       /* a function call: the whole container belongs to it */
  EXEC_STREAM = 2,     /* forward output as it happens instead of gathering it */
  EXEC_STDIN_OPEN = 4, /* STDIN frames follow; without it stdin ends after the initial bytes */
  EXEC_WIPE = 8,       /* afterwards remove everything inside /tmp and /dev/shm */
  EXEC_TTY = 16,       /* on a terminal of its own: its output is STDOUT, STDIN is what is typed */
  EXEC_DETACHED = 32,  /* it outlives its connection, its output then goes nowhere */
  EXEC_USER = 64,      /* of RUN, with READY_USER: a str of identity_find in front of the directory */
};

/* Flags of EXIT; SPAWNED uses TIMED_OUT, TRUNCATED and SPAWN_FAILED of them. */
enum {
  RESULT_TIMED_OUT = 1,
  RESULT_STDOUT_TRUNCATED = 2,
  RESULT_TRUNCATED = 2,
  RESULT_STDERR_TRUNCATED = 4,
  RESULT_SPAWN_FAILED = 8,
  RESULT_STRAYS = 16,    /* processes outlived the command and were killed */
  RESULT_CANCELLED = 32, /* ended by KILL, or because nobody is connected any more */
  RESULT_BROKEN = 64,    /* a resident process broke the protocol */
};

/* Flags of READY, as they are when the connection is accepted. */
enum {
  READY_BUSY = 1,    /* a command runs, what follows its end is not over, or another connection may ask for one */
  READY_SPOILED = 2, /* what its last commands did to the container is not known to be undone: it is not to be used again */
  READY_RESIDENT = 4, /* a resident process is open and waits for SERVE_TAKE */
  READY_ATTACH = 8,   /* MAIN_ATTACH is known; a container that an earlier version started ends the connection at it */
  READY_USER = 16,    /* EXEC_USER is known; an earlier version would misread the request */
};

struct PACKED wire_ready {
  uint32_t version;
  uint8_t nonce[16]; /* drawn at start: tells one boot of an instance from another */
  uint32_t flags;
};

/* Then: str cwd ("" is /), argc x str, envc x str "NAME=value", the rest is initial stdin (of a call its payload). */
struct PACKED wire_exec {
  uint32_t flags;
  uint32_t timeout_ms; /* 0: none */
  uint32_t output_max[2]; /* bytes of each output that are kept; UINT32_MAX: all */
  uint16_t argc;
  uint16_t envc;
};

/* RUN is EXEC with this after its wire_exec. */
struct PACKED wire_run {
  uint32_t grace_ms; /* between SIGTERM and SIGKILL at the deadline and when the connection ends; 0: SIGKILL at once */
  uint16_t cols, rows; /* of EXEC_TTY */
};

/*
 * MAIN_ATTACH: the main command's output comes on this connection from now on, as it is written, in STDOUT and STDERR frames
 * between STARTED and the container's EXIT. STDIN and STDIN_CLOSE with its id are the command's input, where the container has
 * one and the request asks for it. Refused by ERROR: EBUSY while another connection is attached, ENOENT where there is no main
 * command. Later ERROR with ETIMEDOUT says that a connection that took nothing is attached no longer.
 */
struct PACKED wire_main_attach {
  uint32_t flags;
};
enum { ATTACH_STDIN = 1 }; /* without it the input is left to another connection, and what comes for it is dropped */

/* RESIZE. */
struct PACKED wire_size {
  uint16_t cols, rows;
};

/*
 * SIGNAL_PID, answered by SIGNALLED: u32 errno, 0 for sent. KILL carries only the signal: with the id of a command for
 * its process group (of a terminal: the one in the foreground), with id 0 for the container's main command, where it
 * is answered by SIGNALLED too. Without a main command, a TERM, INT, QUIT or KILL to it ends the container.
 */
struct PACKED wire_signal_pid {
  int32_t pid;
  uint32_t signal;
};

struct PACKED wire_exit {
  uint32_t exit_code; /* 0 to 255; 128 + signal when signalled */
  uint32_t signal;
  uint32_t flags;
  uint32_t error; /* errno of a failed spawn */
  uint64_t duration_us;
  uint64_t cpu_us;
  uint64_t maxrss_kb;
  uint32_t spawn_us; /* until exec succeeded or failed */
};

/*
 * A resident process serves the calls of an instance, up to `concurrency` at a time. SERVE starts it. It belongs to one
 * connection. If that closes while the process is open and no call is in flight, it waits for another one, and minit reads
 * nothing from it. SERVE_TAKE, without a body, makes it belong to another connection; CALL_OPEN answers.
 *
 * Descriptor 3 of the process is a stream socket with frames of the same form and the types below. minit checks each frame
 * of the process, and passes it on with the id of its call:
 *
 *   daemon to minit     SERVE or SERVE_TAKE, then of each call CALL_BEGIN, CALL_CHUNK, CALL_END
 *   minit to process    CALL_BEGIN, CALL_CHUNK, CALL_END
 *   process to minit    CALL_OPEN once and first; CALL_CHUNK and CALL_LOG of a call, CALL_RESULT as its last frame
 *   minit to daemon     CALL_OPEN with the id of SERVE or SERVE_TAKE, CALL_CHUNK, CALL_LOG, CALL_RESULT, in the end EXIT
 *                       with that id
 *
 * The daemon chooses the ids of calls: not 0, and not that of a call in flight. CALL_LOG with id 0 belongs to the
 * instance. Bytes that the process writes to its standard output and error belong to the sole call in flight; with none or
 * several in flight they belong to the instance.
 *
 * Each frame carries at most CALL_CHUNK_MAX bytes of content. Result bytes above `result_max` and log bytes above
 * `log_max` of a call are dropped and flagged. A side that does not read stops the other side, and nothing gathers:
 * minit holds at most CALL_QUEUE_MAX bytes and a frame in each direction.
 * In 8 milliseconds minit takes at most 1,024 frames of the process. A CALL_CHUNK or CALL_LOG that it passes on counts as 4
 * frames, and each 64 bytes of the instance's output as one more. The rest waits.
 *
 * These end the process, everything it started and all calls in flight, each with CALL_RESULT; the instance is spoiled:
 *   the process exits, or is killed       calls: RESULT_CANCELLED
 *   a call passes its deadline            EXIT: RESULT_TIMED_OUT, that call: the same, the others: RESULT_CANCELLED
 *   no CALL_OPEN before the deadline      EXIT: RESULT_TIMED_OUT
 *   the process breaks the protocol       EXIT: RESULT_BROKEN, calls: RESULT_CANCELLED
 *   the process closes descriptor 3       the same
 *   the connection closes during a call   no frame: minit has no connection to send it on
 *   KILL with the id of SERVE, any signal EXIT: RESULT_CANCELLED, calls: the same
 * A call that was cancelled may have had effects: the daemon decides if it is repeated.
 *
 * minit cannot tell the calls of one process apart by anything but their ids: a handler that forges frames can answer
 * for another call in flight of the same process, so one process serves one version of one function.
 */
enum { CALL_OPEN = 0x60, CALL_BEGIN, CALL_CHUNK, CALL_END, CALL_RESULT, CALL_LOG };

enum {
  CALL_VERSION = 1,
  CALL_CHUNK_MAX = 64 * 1024,
  CALL_QUEUE_MAX = 1024 * 1024,
  CALLS_MAX = 100, /* largest `concurrency` */
};
enum { CALL_MORE = 1 }; /* flag of CALL_BEGIN: CALL_CHUNK and CALL_END follow */

/* SERVE. Then: str cwd, argc x str, envc x str. */
struct PACKED wire_serve {
  uint32_t timeout_ms; /* until CALL_OPEN; 0: none */
  uint16_t concurrency;
  uint16_t argc;
  uint16_t envc;
};

/* CALL_OPEN to the daemon. The process sends u32 CALL_VERSION. */
struct PACKED wire_opened {
  uint32_t pid;
  uint64_t duration_us; /* from SERVE until the process was open */
};

/* CALL_BEGIN of the daemon, then the first bytes of the request. The process gets flags and timeout_ms, then the bytes. */
struct PACKED wire_call {
  uint32_t flags;
  uint32_t timeout_ms; /* 0: none */
  uint32_t result_max, log_max;
};

/* CALL_RESULT to the daemon, then the last bytes of the result. The process sends u32 status, then the bytes. */
struct PACKED wire_result {
  uint32_t flags;  /* RESULT_TIMED_OUT, RESULT_CANCELLED, RESULT_TRUNCATED of the result, RESULT_STDERR_TRUNCATED of the log */
  uint32_t status; /* 0: the handler returned; else it failed, and the bytes say how */
  uint64_t duration_us;
};

/* CALL_LOG, then the bytes. Its id may be that of a call that was answered, for what comes late; minit keeps no list of these. */
struct PACKED wire_call_log {
  uint8_t stream; /* LOG_OF_STDOUT or LOG_OF_STDERR */
};

/*
 * Then: str cwd, argc x str, envc x str, listen_count x str path at which to listen, file_count x str path of a file
 * to open for reading and writing and to make where there is none. Both are passed on from descriptor 3. The rest is
 * stdin.
 */
struct PACKED wire_spawn {
  uint32_t timeout_ms;
  uint16_t argc;
  uint16_t envc;
  uint16_t listen_count;
  uint16_t file_count;
};

/*
 * The log of a container's main command: LOG_SEGMENTS files used in a ring. Each begins with a log_head; the newest
 * has the highest first_seq. Entries follow, each a log_entry, `length` bytes (one line without its newline, at most
 * LOG_PIECE_MAX of it) and a u32 seal, which is length ^ the lower half of seq. Numbers go up by one from entry to
 * entry and segment to segment, over restarts too. Whatever does not fit that is a torn end.
 */
enum {
  LOG_SEGMENTS = 4,
  LOG_SEGMENT_BYTES = 4 * 1024 * 1024,
  LOG_PIECE_MAX = 16 * 1024,
  LOG_MAGIC = 0x474f4c48, /* "HLOG" */
  LOG_VERSION = 1,
};
enum { LOG_OF_MINIT = 0, LOG_OF_STDOUT = 1, LOG_OF_STDERR = 2 }; /* streams */
enum { LOG_PARTIAL = 1, LOG_GAP = 2 }; /* flags: no newline follows; of minit: lines are missing here */

struct PACKED log_head {
  uint32_t magic, version;
  uint64_t first_seq;
};

struct PACKED log_entry {
  uint32_t length;
  uint8_t stream, flags;
  uint16_t reserved;
  uint64_t seq;
  uint64_t at_us; /* since the epoch */
};

/* How a container ended, written with one call at its end: a file that is empty says that minit was killed or runs. */
enum { RECORD_MAGIC = 0x54495845, RECORD_VERSION = 1 }; /* "EXIT" */
enum {
  RECORD_ASKED = 1,       /* a signal or SHUTDOWN came through the socket before */
  RECORD_NO_COMMAND = 2,  /* there was no main command */
  RECORD_NOT_STARTED = 4, /* the main command could not be started */
};

struct PACKED exit_record {
  uint32_t magic, version;
  uint32_t exit_code, signal, flags, reserved;
  uint64_t ended_at_us; /* since the epoch */
};

/* Then: stdout, stderr. */
struct PACKED wire_spawned {
  uint32_t exit_code;
  uint32_t signal;
  uint32_t flags;
  uint32_t error;
  uint64_t duration_us;
  uint32_t stdout_len;
};

/* Ids in the user namespace of a container: enough for every user and group that a distribution makes, `nobody` too. */
enum { USER_IDS = 65536 };

/*
 * Then: str host_ifname. Addresses are numbers: 10.42.0.1 is 0x0a2a0001. With a `first_id` the namespace is that of a new
 * user namespace, whose ids 0 to USER_IDS - 1 are those from there on outside.
 */
struct PACKED wire_netns_add {
  uint32_t first_id; /* 0: none, it is the machine's */
  uint32_t address;
  uint32_t gateway;
  uint32_t group; /* of the host end */
};

/*
 * NETNS_CUT and NETNS_REMOVE. Then: fds_count x u32 descriptor of NETNS_ADD to be closed, bits_bytes of bits, str names of
 * host ends, each with a newline behind it. NETNS_CUT moves them into the group. NETNS_REMOVE deletes all links of the
 * group afterwards, and the tracked connections of each address first_address + n whose bit n is set.
 */
struct PACKED wire_netns_end {
  uint32_t group;
  uint32_t fds_count;
  uint32_t first_address;
  uint32_t bits_bytes;
};

/*
 * The answer to all three. Then: str message. Descriptors are the launcher's; others name the namespaces
 * /proc/<launcher pid>/fd/<fd>. UINT32_MAX where there is none: of a user namespace, or at all.
 */
struct PACKED wire_netns {
  uint32_t error;
  uint32_t fd, user_fd;
};

/* Bounds of the secrets of an instance: their number, their bytes together, and the length of a name. */
enum { SECRET_FILES_MAX = 64, SECRET_FILES_BYTES_MAX = 256 * 1024, SECRET_NAME_MAX = 64 };

/*
 * ATTACH. Then: str path of the `cgroup.procs` of the instance's control group, str name of a subvolume of the kind
 * `code` or "", and secret_count x (str name, u32 length, bytes). A name has A-Z, a-z, 0-9, `_`, `-` and `.`, not at its
 * begin. The answer is ATTACHED: u32 error, str message.
 */
struct PACKED wire_attach {
  uint32_t uid; /* owner of the secrets */
  uint32_t secret_count;
};

struct PACKED wire_stated {
  uint32_t error;
  uint32_t mode;
  uint64_t size;
};

/*
 * Daemon to launcher: the storage pool and mounts. All have the head below and the strings named here; a name is
 * "<kind>/<id>", and "" where it may be the whole pool. The answer is STORED, of LSTAT_IN_ROOT it is STATED.
 */
enum {
  STORAGE_OPEN = 0x20, /* str file ("": the target's own file system), str target; bytes: least size of the file */
  STORAGE_CLOSE,       /* str target */
  STORAGE_CREATE,      /* str name; bytes: its limit, 0 for none */
  STORAGE_SNAPSHOT,    /* str name of the source, str name; bytes as above, flags: 1 read-only */
  STORAGE_DELETE,      /* str name */
  STORAGE_LIMIT,       /* str name, "" for the pool or the owner; bytes as above */
  STORAGE_USAGE,       /* str name, "" likewise */
  STORAGE_LIST,        /* str kind */
  OVERLAY_MOUNT,       /* str lower, str directory of upper and work, str target; flags: 1 read-only; the two of a user
                          namespace: all layers as seen from there, and `lower` is one or more, each with a newline behind */
  UNMOUNT,             /* str target */
  STORAGE_RENAME,      /* str name, str new name: EEXIST if the new name is taken; flags: 2 exchanges the two */
  STORAGE_SNAPSHOTS,   /* str file of a freezer ("": none), str lines "<name of the source> <name>"; bytes: microseconds
                          to wait until the group is frozen, flags: 1 read-only */
  LSTAT_IN_ROOT = 0x2f, /* like STAT_IN_ROOT, but a link is not followed at the end; without the head */
};
enum { STORED = 0xa0 };

enum { STORAGE_READONLY = 1, STORAGE_EXCHANGE = 2 };

struct PACKED wire_storage {
  uint64_t bytes;
  uint64_t owner; /* of what is made: the number of a tenant's quota group, 0 for none */
  uint32_t flags;
  uint32_t user_fd, first_id; /* a user namespace of NETNS_ADD, or UINT32_MAX and 0 */
};

/*
 * Then: str text: what went wrong, or the names of STORAGE_LIST, each with a newline behind it. Values in bytes unless said:
 *   STORAGE_OPEN   size of the file system, kind of quotas (1 simple, 2 full)
 *   STORAGE_USAGE  of a subvolume: referenced, exclusive, limit (0: none); of the pool: the same, then free, size of all.
 *                  Referenced is what has been written; what waits in memory is in the sixth value
 *   STORAGE_SNAPSHOTS  microseconds from the request to freeze until the thaw, 1 if the group was frozen
 */
struct PACKED wire_stored {
  uint32_t error;
  uint64_t value[6];
};

/* Daemon to `minit files`, each with struct wire_file but FILE_DATA, FILE_END and FILE_ABORT; and the answers. */
enum {
  FILE_BASE = 0x40, /* names the directory that FILE_BENEATH is about, and makes it */
  FILE_STAT,
  FILE_LIST,       /* `length` entries from number `offset` of the names in order of their bytes */
  FILE_READ,       /* `length` bytes from `offset`, as far as they go */
  FILE_WRITE,      /* a new regular file in the place of whatever is there but a directory */
  FILE_DATA,       /* more of its content, the bytes alone */
  FILE_END,        /* its content is complete */
  FILE_ABORT,      /* it is not to be */
  FILE_MKDIR,
  FILE_REMOVE,
  FILE_RENAME,     /* to `other` */
  FILE_SYMLINK,    /* with the target `other` */
  FILE_LINK,       /* another name for `other` */
  FILE_ATTRIBUTES, /* of a file or directory */
  FILE_WALK,       /* a tree, directories before what is in them, with the content of files */
};
enum {
  FILE_DONE = 0xc0, /* the last answer to each request but the three without a struct */
  FILE_ENTRY,
  FILE_BYTES,
  FILE_PROGRESS, /* u64: the request is being worked at, so many entries are done */
};

enum { FILE_FRAME_MAX = 288 * 1024 }; /* largest value of the length field of a request to `minit files` */

enum {
  FILE_BENEATH = 1, /* the path begins at the base and never leaves it */
  FILE_PARENTS = 2, /* missing directories above it are made */
  FILE_FOLLOW = 4,  /* the link that the path itself may be is followed */
  FILE_RECURSIVE = 8,
  FILE_MODE = 16, /* `mode` counts */
  FILE_OWNER = 32,
  FILE_MTIME = 64,
  FILE_MORE = 128, /* of FILE_WRITE: FILE_DATA and FILE_END follow */
  FILE_OTHERS = 256, /* of FILE_WALK: entries of pipes, sockets and devices too, without content */
};

/* Then: str path, str other ("" where there is none), the rest is content. */
struct PACKED wire_file {
  uint32_t flags;
  uint32_t mode;
  uint32_t uid, gid;
  int64_t mtime_s;
  uint32_t mtime_ns;
  uint64_t offset, length;
};

/* Then: str name (of a walk the path below the start), str target of a link. */
struct PACKED wire_file_entry {
  uint32_t mode;
  uint32_t uid, gid;
  uint32_t link;  /* of a walk: number of a file with several names, 0 for all others */
  uint32_t again; /* 1: an entry with that number came before, and no content follows */
  uint64_t size;
  int64_t mtime_s;
  uint32_t mtime_ns;
};

struct PACKED wire_file_done {
  uint32_t error;
  uint64_t count; /* entries in the directory, bytes read, entries removed */
};

#endif
