/** What programs find inside of containers and instances: errors of refused calls, limits, names, files of /etc. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { SnapshotUser } from "../support/snapshots.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const snapshots = new SnapshotUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(async () => {
  await daemon.stop("SIGTERM");
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

/** Stops and starts a container. Resolves to its record. */
async function again(id: string) {
  for (const verb of ["stop", "start"]) {
    const { status, body } = await daemon.call("POST", `/api/containers/${id}/${verb}?execution=sync`, {});
    expect([verb, status, body.error]).toEqual([verb, 200, undefined]);
  }
  return containers.until(id, "runs again", (record) => record.state === "running");
}

const KINDS = [
  { name: "plain", fields: {} },
  { name: "strict", fields: { strict: true } },
];

/** Memory limit in bytes, and quota and period of the processor in microseconds, on v1 and v2. */
const LIMITS_OF = `cd /sys/fs/cgroup; if [ -e memory.max ]; then cat memory.max cpu.max; else
cat memory/memory.limit_in_bytes; echo $(cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us); fi`;

/** Prints the type of the answer to an echo request, and what raw sockets fail with. */
const ECHO = `import errno, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); s.settimeout(10)
s.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 1]), ("127.0.0.1", 0)); print(s.recv(100)[0])
for kind in ((socket.SOCK_RAW, 1), (10, 0x300)):
    try: socket.socket(socket.AF_INET, *kind); print("done")
    except OSError as error: print(errno.errorcode[error.errno])`;

/** Prints each attempt that succeeds. */
const ATTACKS = `import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
ROOT = "/sys/fs/cgroup"
def attempt(name, act):
    try:
        if act() not in (-1, False): print(name, "done")
    except OSError: pass
for folder, folders, files in os.walk(ROOT):
    attempt(folder, lambda: os.mkdir(folder + "/mine"))
    attempt(folder, lambda: os.open(folder + "/mine", os.O_CREAT | os.O_WRONLY))
    attempt(folder, lambda: os.chmod(folder, 0o777))
    attempt(folder, lambda: os.rename(folder, folder + "x"))
    for name in files:
        path = folder + "/" + name
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
            attempt(path, lambda: os.open(path, flags))
        attempt(path, lambda: os.chmod(path, 0o777))
        attempt(path, lambda: os.chown(path, os.getuid(), os.getgid()))
        attempt(path, lambda: os.setxattr(path, "trusted.x", b"x"))
    if folder != ROOT:
        attempt(folder, lambda: os.path.samefile(folder + "/..", folder))
        attempt(folder, lambda: any(one in os.listdir(folder + "/..") for one in ("hearth", "release_agent", "tasks")))
MS_REMOUNT, MS_BIND = 32, 4096
for target in [ROOT] + [os.path.join(ROOT, name) for name in os.listdir(ROOT)]:
    target = target.encode()
    attempt(target, lambda: libc.mount(None, target, None, MS_REMOUNT | MS_BIND, None))
    attempt(target, lambda: libc.mount(None, target, None, MS_REMOUNT, None))
    attempt(target, lambda: libc.umount2(target, 2))
    attempt(target, lambda: libc.mount(target, b"/tmp", None, MS_BIND, None))
for kind in (b"cgroup", b"cgroup2"):
    attempt(kind, lambda: libc.mount(kind, b"/tmp", kind, 0, b"memory" if kind == b"cgroup" else None))
for flag in (0x10000000, 0x02000000, 0x00020000, 0x12020000):
    attempt("unshare %x" % flag, lambda: libc.unshare(flag))
print("end")`;

describe.each(KINDS)("in a $name container", ({ name, fields }) => {
  const state = { id: "" };
  const python = (code: string) => containers.python(state.id, code);

  beforeAll(async () => {
    state.id = (
      await containers.create({ name, ...fields, memory_limit_mb: 256, cpu_limit_percent: 150 })
    ).container_id;
  });
  afterAll(() => containers.delete(state.id));

  it("sockets that it cannot have fail as on a kernel without them", async () => {
    const asked = {
      audit: [16, 3, 9],
      audit_datagram: [16, 2, 9],
      vsock: [40, 1, 0],
      crypto: [38, 5, 0],
      packet: [17, 3, 0],
    };
    const out = await python(`import errno, socket
for name, kind in ${JSON.stringify(asked)}.items():
    for make in (socket.socket, socket.socketpair):
        try: make(*kind); print(name, "done")
        except OSError as error: print(name, errno.errorcode[error.errno])`);
    const lines = Object.keys(asked).flatMap((one) => {
      const code = one.startsWith("audit") ? "EINVAL" : "EAFNOSUPPORT";
      return [`${one} ${code}`, `${one} ${code}`];
    });
    expect(out.trim().split("\n")).toEqual(lines);
  });

  it("localhost is one address, ::1 works, and eth0 has no IPv6", async () => {
    const out = await python(`import socket
found = [at for flags in (0, socket.AI_ADDRCONFIG) for at in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM, flags=flags)]
found += socket.getaddrinfo("::1", 0, type=socket.SOCK_STREAM) + socket.getaddrinfo("ip6-localhost", 0, type=socket.SOCK_STREAM)
for family, kind, _, _, address in found:
    server = socket.socket(family, kind); server.bind(address); server.listen()
    client = socket.create_connection(server.getsockname()[:2], 5)
    print(server.getsockname()[0], client.getpeername()[0])
print([line.split()[-1] for line in open("/proc/net/if_inet6")])`);
    expect(out.trim().split("\n")).toEqual([
      ...Array(2).fill("127.0.0.1 127.0.0.1"),
      ...Array(2).fill("::1 ::1"),
      "['lo']",
    ]);
  });

  it("echo requests need no capability, and no raw socket can be had", async () => {
    expect(await python(ECHO)).toBe("0\nEPERM\nEPERM\n");
  });

  it("files of /etc are its own to write, and others after a start", async () => {
    const files = ["hosts", "hostname", "resolv.conf"];
    const read = () =>
      containers.shell(state.id, "cd /etc; cat hosts hostname resolv.conf; ls -ln hosts hostname resolv.conf");
    const before = await read();
    expect(before).toContain(`\n${name}\n`);
    expect(before.match(/^-rw-r--r-- 1 0 0 /gm)).toHaveLength(3);
    for (const file of files)
      await containers.shell(state.id, `echo 127.0.0.1 mine >> /etc/${file}; chmod 600 /etc/${file}`);
    expect(
      await containers.shell(state.id, "getent hosts mine; tail -qn 1 /etc/hosts /etc/hostname /etc/resolv.conf"),
    ).toBe("127.0.0.1       mine\n127.0.0.1 mine\n127.0.0.1 mine\n127.0.0.1 mine\n");
    // fs-verity (include/uapi/linux/fsverity.h), where the kernel has it, forbids every later write.
    const sealed = await python(`import errno, fcntl, struct
with open("/etc/hostname") as file:
    try: fcntl.ioctl(file, 0x40806685, struct.pack("<IIIIQIIQ88x", 1, 1, 4096, 0, 0, 0, 0, 0)); print("sealed")
    except OSError as error: print(errno.errorcode[error.errno])`);
    expect(sealed).toMatch(/^(sealed|ENOTSUP|ENOTTY)\n$/);
    const { ip_address } = await again(state.id);
    const after = await read();
    expect(after).not.toContain("mine");
    expect(after).toContain(`${ip_address}\t${name}\n`);
    expect(after.match(/^-rw-r--r-- 1 0 0 /gm)).toHaveLength(3);
  });

  it("files of /etc count in its disk limit, and full ones keep it from nothing", async () => {
    const FILL =
      "for file in hosts hostname resolv.conf; do head -c 100000000 /dev/zero >> /etc/$file; done 2>/dev/null";
    const { container_id } = await containers.create({
      ...{ name: `${name}-full`, disk_limit_mb: 64 },
      ...{ command: ["sh", "-c", `echo begun; ${FILL}; seq 20000; exit 7`] },
    });
    const ended = await containers.until(container_id, "ends", ({ state }) => state === "exited");
    // Its log and its end have room of their own.
    expect(ended.exit_code).toBe(7);
    expect((await containers.logs(container_id)).at(-1)).toMatchObject({ message: "20000" });
    expect(await containers.shell(state.id, `${FILL}; cat /etc/hosts | wc -c`)).not.toBe("0\n");
    await again(state.id);
    expect(await containers.shell(state.id, "cat /etc/hosts /etc/hostname")).toMatch(
      new RegExp(`^127.0.0.1\tlocalhost\n[^]*\n${name}\n$`),
    );
    const { status } = await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`, {});
    expect(status).toBe(200);
    await containers.delete(container_id);
  });

  it("its own limits are at /sys/fs/cgroup, and nothing of others", async () => {
    const other = await containers.create({ name: `${name}-other`, memory_limit_mb: 333 });
    const seen = await containers.shell(state.id, LIMITS_OF);
    expect(seen).toBe(`${256 * 1024 * 1024}\n150000 100000\n`);
    const own = await containers.shell(state.id, "cat /proc/self/cgroup /proc/1/cgroup");
    expect(
      own
        .trim()
        .split("\n")
        .filter((line) => !line.endsWith(":/")),
    ).toEqual([]);
    const mounts = await containers.shell(state.id, "cat /proc/self/mountinfo");
    const groups = mounts.split("\n").filter((line) => / - cgroup2? /.test(line));
    expect(groups.length).toBeGreaterThan(0);
    for (const line of groups)
      expect(line.split(" ").slice(3, 6)).toEqual(["/", expect.any(String), expect.stringMatching(/^ro,/)]);
    const all = await containers.shell(
      state.id,
      "find /sys/fs/cgroup -mindepth 1 -type d; find /sys/fs/cgroup -type f -exec grep -H . {} + 2>/dev/null",
    );
    expect(all).toContain(`:${256 * 1024 * 1024}\n`);
    expect(all).not.toContain(String(333 * 1024 * 1024));
    for (const word of [daemon.tag, "hearth", "ctr_", "tnt_"]) expect(all + groups.join()).not.toContain(word);
    await containers.delete(other.container_id);
  });

  it("nothing at /sys/fs/cgroup can be written, made, mounted or left", async () => {
    const out = await python(ATTACKS);
    expect(out).toBe("end\n");
  });
});

it("files of /etc are no part of copies, and only root writes them", async () => {
  const { container_id } = await containers.create({ name: "copied" });
  await containers.shell(container_id, "for file in hosts hostname resolv.conf; do echo mine > /etc/$file; done");
  await snapshots.fork(container_id, { name: "copy", resume_policy: "immediate" });
  const copy = (await containers.get("copy")).container_id;
  await containers.until(copy, "runs", (record) => record.state === "running");
  expect(await containers.shell(copy, "cat /etc/hosts /etc/hostname /etc/resolv.conf")).not.toContain("mine");
  const { container_id: other } = await containers.create({ name: "other-user", user: "1234:55" });
  const { container_id: fixed } = await containers.create({ name: "read-only", read_only_root: true });
  const write =
    "for file in hosts hostname resolv.conf; do echo mine >> /etc/$file && echo wrote; done 2>/dev/null; echo end";
  expect(await containers.shell(other, write)).toBe("end\n");
  expect(await containers.shell(fixed, write)).toBe("end\n");
  await containers.delete(container_id, copy, other, fixed);
});

it("echo requests are any user's, and of function instances too", async () => {
  const { container_id } = await containers.create({ name: "user", user: "1234:55" });
  expect(await containers.python(container_id, ECHO)).toBe("0\nEPERM\nEPERM\n");
  await containers.delete(container_id);
  await daemon.deploy({ name: "echo", handler: "python3 -" });
  expect(await daemon.invoke("echo", { payload: ECHO })).toMatchObject({ stdout: "0\nEPERM\nEPERM\n" });
});

it("programs size themselves by the limits of a function's version", async () => {
  await daemon.deploy({ name: "limits", handler: LIMITS_OF, memory_limit_mb: 300, cpu_limit_percent: 150 });
  expect(await daemon.invoke("limits")).toMatchObject({ stdout: `${300 * 1024 * 1024}\n150000 100000\n` });
  await daemon.deploy({ name: "attacks", handler: "python3 -" });
  expect(await daemon.invoke("attacks", { payload: ATTACKS })).toMatchObject({ stdout: "end\n" });
});

it("Node sizes its heap by the limit of a container", async () => {
  const { container_id } = await containers.create({ name: "heap", memory_limit_mb: 512 });
  const out = await containers.shell(
    container_id,
    "node -p 'Math.round(v8.getHeapStatistics().heap_size_limit / 2 ** 20) + \" \" + process.constrainedMemory()'",
  );
  const [heap_mb, constrained] = out.trim().split(" ").map(Number);
  expect(constrained).toBe(512 * 1024 * 1024);
  expect(heap_mb).toBeLessThan(512);
  await containers.delete(container_id);
});
