/** Budgets of the machine's kernel (src/engine/README.md): code in one container tries to use up those of all. */
import { existsSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { detectCgroupMode } from "../../src/engine/kernel/control-groups.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const ids = { attacker: "", victim: "" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1" });
  ids.attacker = (await containers.create({ name: "attacker" })).container_id;
  ids.victim = (await containers.create({ name: "victim" })).container_id;
});
afterAll(() => daemon.dispose());

/** Numbers of system calls on both architectures, and what a call answers as text. */
const CALLS = `import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
arm = os.uname().machine == "aarch64"
numbers = dict(io_setup=(206,0), io_submit=(209,2), io_getevents=(208,4), io_destroy=(207,1), io_cancel=(210,3),
  io_pgetevents=(333,292), io_uring_setup=(425,425), io_uring_enter=(426,426), io_uring_register=(427,427),
  seccomp=(317,277), bpf=(321,280), perf_event_open=(298,241), userfaultfd=(323,282), fanotify_init=(300,262),
  fanotify_mark=(301,263), keyctl=(250,219), add_key=(248,217), request_key=(249,218), mq_open=(240,180),
  mount=(165,40), prctl=(157,167), mmap=(9,222), memfd_create=(319,279), shmget=(29,194), setsockopt=(54,208),
  prlimit64=(302,261), sched_setaffinity=(203,122), setpriority=(141,140))
def call(name, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(numbers[name][arm]), *[ctypes.c_long(arg) if type(arg) is int else arg for arg in args])
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
`;

/** Each line: a name and what the call answered. Upper halves of registers are not what the kernel looks at. */
const ATTACKS = `${CALLS}
context = ctypes.c_ulong(0)
print("io_setup", call("io_setup", 1000, ctypes.byref(context)))
for name in ("io_submit", "io_getevents", "io_destroy", "io_cancel", "io_pgetevents", "io_uring_setup",
    "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd", "fanotify_init", "fanotify_mark",
    "keyctl", "add_key", "request_key", "mount"):
    print(name, call(name, 0, 0, 0, 0, 0, 0))
print("mq_open", call("mq_open", b"q", os.O_CREAT | os.O_RDWR, 0o600, None))
class Filter(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("at", ctypes.c_void_p)]
program = ctypes.create_string_buffer(b"\\x06\\x00\\x00\\x00\\x00\\x00\\xff\\x7f", 8)
filter = Filter(1, ctypes.addressof(program))
print("seccomp", call("seccomp", 1, 0, ctypes.byref(filter)))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for upper in (0, 1 << 32):
    print("prctl", call("prctl", upper | 22, 2, ctypes.byref(filter), 0, 0))
    for option in (26, 50, 51, 52):
        print("setsockopt", call("setsockopt", s.fileno(), upper | 1, upper | option, ctypes.byref(filter), 16))
    print("mmap", call("mmap", 0, 2 << 20, 3, upper | 0x40022, -1, 0))
    print("memfd_create", call("memfd_create", b"x", upper | 4))
    print("shmget", call("shmget", 0, 2 << 20, upper | 0o4600))
    print("prlimit64", call("prlimit64", upper | 1, 7, (ctypes.c_ulong * 2)(4, 4), None))
    print("sched_setaffinity", call("sched_setaffinity", upper | 1, 8, ctypes.byref(ctypes.c_ulong(1))))
    print("setpriority", call("setpriority", 0, upper | 1, 19))
`;

const SOUND = `${CALLS}
s = socket.socket()
for option in (socket.SO_REUSEADDR, socket.SO_KEEPALIVE, socket.SO_REUSEPORT, socket.SO_SNDBUF, socket.SO_PRIORITY):
    s.setsockopt(socket.SOL_SOCKET, option, 1)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(socket.SOL_SOCKET, 46, 1)
print("prctl", call("prctl", 15, b"renamed", 0, 0, 0))
os.memfd_create("x")
print("shmget", call("shmget", 0, 4096, 0o600))
import mmap; mmap.mmap(-1, 1 << 20)
`;

describe.each(["a container", "a strict container", "a function instance"])("in %s", (kind) => {
  const state = { id: "" };

  async function python(code: string): Promise<string> {
    if (kind !== "a function instance") return containers.python(state.id, code);
    const { stdout, stderr } = await daemon.invoke("budgets", { payload: code });
    return stdout + stderr;
  }

  beforeAll(async () => {
    if (kind === "a function instance") await daemon.deploy({ name: "budgets", handler: "python3 -" });
    else {
      const strict = kind.includes("strict");
      const made = await containers.create({ name: kind.replaceAll(" ", "-"), strict, read_only_root: strict });
      state.id = made.container_id;
    }
  });

  it("refuses the calls that draw on budgets of the machine", async () => {
    const rows = (await python(ATTACKS)).trim().split("\n");
    expect(rows.length).toBe(20 + 2 * 11);
    expect(rows.filter((row) => !/ (EPERM|ENOSYS|EINVAL)$/.test(row))).toEqual([]);
    // A kernel that had been asked would say ENOMEM or EINVAL of these.
    expect(rows.filter((row) => /^(mmap|memfd|shmget|setsockopt)/.test(row) && !/ (EPERM|ENOSYS)$/.test(row))).toEqual(
      [],
    );
  });

  it("allows the same calls where they draw on nothing of the machine's", async () => {
    expect(await python(SOUND)).toBe("prctl done\nshmget done\n");
  });

  it("bounds files in memory, timers and queues", async () => {
    const out = await python(`import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
print(resource.getrlimit(resource.RLIMIT_MSGQUEUE if hasattr(resource, "RLIMIT_MSGQUEUE") else 12))
timer, count = ctypes.c_void_p(), 0
while count < 100000 and libc.timer_create(0, None, ctypes.byref(timer)) == 0: count += 1
print(count)
for path in ("/tmp", "/dev/shm", "/dev"): print(path, os.statvfs(path).f_files)`);
    const [queues, timers, tmp = "", shm, dev] = out.trim().split("\n");
    expect([queues, shm, dev]).toEqual([
      "(0, 0)",
      `/dev/shm ${LIMITS.tmpfs_inodes_max}`,
      `/dev ${LIMITS.dev_inodes_max}`,
    ]);
    expect(Number(timers)).toBe(LIMITS.pending_signals_max);
    // That of a container with a writable root lies on its own disk.
    if (kind !== "a container") expect(tmp).toBe(`/tmp ${LIMITS.tmpfs_inodes_max}`);
  });
});

describe("terminals", () => {
  const OPEN = `import os
fds = []
try:
    while len(fds) < 3000: fds.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError as error: print(os.strerror(error.errno))
print(len(fds), flush=True)`;

  it("of one container are used up without those of another", async () => {
    const spent = await containers.python(
      ids.attacker,
      `${OPEN}
import ctypes
libc = ctypes.CDLL(None)
print(libc.mount(b"devpts", b"/dev/pts", b"devpts", 32, b"max=100000"))
print(libc.mount(b"devpts", b"/tmp", b"devpts", 0, b"newinstance,max=100000"))
try: fds.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)); print("one more")
except OSError: print("no more")`,
    );
    expect(spent.trim().split("\n").slice(1)).toEqual([String(LIMITS.container_terminals_max), "-1", "-1", "no more"]);
  });

  it("are enough on this machine for all containers", async () => {
    expect(Number(readFileSync("/proc/sys/kernel/pty/max", "utf8"))).toBeGreaterThanOrEqual(
      LIMITS.containers_max * LIMITS.container_terminals_max,
    );
    const { budgets } = (await daemon.call("GET", "/api/system/info")).body.engine;
    const unbounded = budgets.filter(({ is_bounded }: { is_bounded: boolean }) => !is_bounded);
    expect(unbounded.map(({ name }: { name: string }) => name)).toEqual(["uplink", "disk_io"]);
  });

  it("are left to another container while one holds all that it may have", async () => {
    const holding = containers.python(
      ids.attacker,
      `${OPEN}
import time
open("/tmp/held", "w").close()
while not os.path.exists("/tmp/done"): time.sleep(0.01)`,
    );
    await containers.shell(ids.attacker, "until test -e /tmp/held; do sleep 0.05; done");
    const out = await containers.python(ids.victim, "import os; print(os.ttyname(os.openpty()[1]))");
    await containers.shell(ids.attacker, "touch /tmp/done");
    await holding;
    expect(out).toBe("/dev/pts/0\n");
  });
});

describe("budgets of a user", () => {
  it("inotify instances of one container are used up without those of another", async () => {
    const code = `import ctypes
libc = ctypes.CDLL(None)
count = 0
while count < 10000 and libc.inotify_init() >= 0: count += 1
print(count, flush=True)`;
    const held = containers.python(
      ids.attacker,
      `${code}
import os, time
open("/tmp/watching", "w").close()
while not os.path.exists("/tmp/seen"): time.sleep(0.01)`,
    );
    await containers.shell(ids.attacker, "until test -e /tmp/watching; do sleep 0.05; done");
    const other = await containers.python(ids.victim, code);
    await containers.shell(ids.attacker, "touch /tmp/seen");
    expect(Number(await held)).toBeLessThan(10_000);
    expect(Number(other)).toBe(Number(await held));
  });
});

describe("memory of sockets", () => {
  const CONNECTIONS = 200;
  /** Fills buffers over loopback that nobody reads, and prints how many bytes the kernel took. */
  const FILL = `import socket
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
server.bind(("127.0.0.1", 0))
server.listen(${CONNECTIONS})
ends, taken = [], 0
for _ in range(${CONNECTIONS}):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    client.connect(server.getsockname())
    client.setblocking(False)
    ends += [client, server.accept()[0]]
    try:
        while True: taken += client.send(bytes(1 << 18))
    except BlockingIOError: pass
print(taken)`;
  /** A connection has a little beyond the limit, so that none stands still. */
  const MOST = (256 << 20) + CONNECTIONS * 160 * 1024;

  /** On v1 the kernel refuses more buffers; on v2 they are memory like any other, and it kills the process at the limit. */
  function expectBounded({ exit_code, stdout, stderr }: { exit_code: number; stdout: string; stderr: string }): void {
    expect(stderr).toBe("");
    if (detectCgroupMode() === "v2") {
      expect([exit_code, stdout]).toEqual([137, ""]);
      return;
    }
    expect(Number(stdout)).toBeGreaterThan(16 << 20);
    expect(Number(stdout)).toBeLessThan(MOST);
  }

  it("of a function instance is bounded by its memory limit", async () => {
    await daemon.deploy({ name: "sockets", handler: "python3 -", memory_limit_mb: 256 });
    expectBounded(await daemon.invoke("sockets", { payload: FILL }));
  });

  it("of a container is bounded by its memory limit", async () => {
    const { container_id } = await containers.create({ name: "sockets", memory_limit_mb: 256 });
    expectBounded(await containers.exec(container_id, ["python3", "-"], { stdin_data: FILL }));
    await containers.delete(container_id);
  });

  it("is shown for the whole machine", async () => {
    const metrics = (await daemon.call("GET", "/metrics")).body;
    expect(metrics).toMatch(/^hearth_socket_memory_bytes{[^}]*protocol="tcp"[^}]*} \d+$/m);
    const { budgets } = (await daemon.call("GET", "/api/system/info")).body.engine;
    expect(budgets.find(({ name }: { name: string }) => name === "socket_memory")).toMatchObject({ is_bounded: true });
  });
});

describe("processes", () => {
  const FORK = `import os, time
count = 0
try:
    while count < 600:
        if os.fork() == 0: time.sleep(600)
        count += 1
except OSError: pass
print(count, flush=True)`;

  it("of all containers of a tenant together are bounded, and another tenant's are not", async () => {
    const made = await daemon.call("POST", "/api/tenants", { name: "forks", limits: { processes_max: 300 } });
    const path = `/api/tenants/${made.body.tenant_id}`;
    const { key: api_key } = (await daemon.call("POST", `${path}/api-keys`, { name: "forks" })).body;
    const call = (method: string, to: string, body?: unknown) =>
      daemon.call(method, to, body, { "x-api-key": api_key });
    const create = async (name: string, command: string[]): Promise<string> =>
      (await call("POST", "/api/containers", { name, command })).body.container_id;
    const quiet = await create("quiet", ["sleep", "600"]);
    const forking = await create("forking", ["python3", "-c", `${FORK}\nos.wait()`]);
    const count = async (id: string): Promise<number> =>
      (await call("GET", `/api/containers/${id}/metrics`)).body.processes_count;
    await eventually("one has forked", async () => (await count(forking)) + (await count(quiet)) === 300);
    // Nothing more can be started, in the other one either.
    const refused = await call("POST", `/api/containers/${quiet}/exec`, { command: ["true"] });
    expect(refused.body.exit_code).not.toBe(0);
    expect(Number(await containers.python(ids.victim, `${FORK}\nos.killpg(0, 9)`).catch(() => "600"))).toBe(600);
    await daemon.call("DELETE", `${path}?force=true`);
  });

  it("of all containers, and of all instances, leave some of the machine's to its host", () => {
    const machine = Number(readFileSync("/proc/sys/kernel/pid_max", "utf8"));
    for (const suffix of ["", "-c"]) {
      const folder = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].find((root) =>
        existsSync(`${root}/hearth-${daemon.tag}`),
      );
      const bound = Number(readFileSync(`${folder}/hearth-${daemon.tag}${suffix}/pids.max`, "utf8"));
      expect(bound).toBeLessThan(machine / 2);
    }
  });
});
