/**
 * What root in an API container can see and do, tried from inside of real ones: each line of
 * src/engine/bundles/container.ts held against it, and the escapes that were found in other runtimes.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser, commandLines, HostSecret, identityOf } from "../support/containers.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";

/** Numbers of system calls on both architectures (arch/x86/entry/syscalls, include/uapi/asm-generic/unistd.h). */
const CALLS = `import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
arm = os.uname().machine == "aarch64"
numbers = dict(mount=(165,40), umount2=(166,39), pivot_root=(155,41), init_module=(175,105), bpf=(321,280),
  keyctl=(250,219), add_key=(248,217), perf_event_open=(298,241), userfaultfd=(323,282), kexec_load=(246,104),
  open_by_handle_at=(304,265), setns=(308,268), reboot=(169,142), swapon=(167,224), unshare=(272,97),
  ptrace=(101,117), process_vm_writev=(311,271), pidfd_open=(434,434), pidfd_getfd=(438,438), fsopen=(430,430),
  open_tree=(428,428), io_uring_setup=(425,425), clone3=(435,435), clone=(56,220))
def call(name, *args):
    ctypes.set_errno(0)
    result = libc.syscall(numbers[name][arm], *args)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
`;

const digest = (file: string) => createHash("sha256").update(readFileSync(file)).digest("hex");
const linesOf = (text: string) => text.trim().split("\n");

const BOMB = `import os, time
while True:
    try: os.posix_spawn("/bin/sleep", ["sleep", "1001"], {})
    except OSError: time.sleep(0.01)`;

/** podman's eleven and CAP_NET_RAW (capabilities(7)). */
const CAPABILITIES = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 31].reduce((mask, bit) => mask + 2 ** bit, 0);

describe.each(["on", "off"])("with user namespaces %s", (user_namespaces) => {
  const daemon = new Daemon();
  const containers = new ContainerUser(daemon);
  const host = new HostSecret(daemon);
  const host_dir = host.directory;
  const SECRET = host.text;

  beforeAll(async () => {
    host.make();
    await daemon.start({ HEARTH_CELLS: "0", HEARTH_USER_NAMESPACES: user_namespaces });
  });
  afterAll(async () => {
    await daemon.dispose();
    host.remove();
  });

  const HELPER = () => {
    const launcher = commandLines().find(({ args }) => args[1] === "launcher" && args[2]?.startsWith(daemon.run_dir));
    return launcher?.args[0] ?? "";
  };
  describe.each([
    { kind: "plain", strict: false, capabilities: CAPABILITIES },
    { kind: "strict", strict: true, capabilities: 0 },
  ])("in a $kind container", ({ kind, strict, capabilities }) => {
    const state = { id: "", pid: 0 };
    const shell = (line: string, more: object = {}) => containers.shell(state.id, line, more);
    const python = (code: string) => containers.python(state.id, code);

    beforeAll(async () => {
      const made = await containers.create({ name: kind, strict });
      state.id = made.container_id;
      state.pid = made.pid;
    });
    afterAll(() => containers.delete(state.id));

    it("a command has these capabilities, no way to gain another one, and a system-call filter", async () => {
      const own = await shell("cat /proc/self/status");
      const expected = capabilities.toString(16).padStart(16, "0");
      for (const set of ["CapPrm", "CapEff", "CapBnd"]) expect(own).toContain(`${set}:\t${expected}`);
      for (const set of ["CapInh", "CapAmb"]) expect(own).toContain(`${set}:\t0000000000000000`);
      expect(own).toContain(`NoNewPrivs:\t${strict ? 1 : 0}`);
      expect(own).toContain("Seccomp:\t2");
    });

    it("the system calls that lead out are refused", async () => {
      const out = await python(`${CALLS}
for name in ("mount", "umount2", "pivot_root", "init_module", "bpf", "keyctl", "add_key", "perf_event_open",
    "userfaultfd", "kexec_load", "open_by_handle_at", "setns", "reboot", "swapon", "unshare", "fsopen", "open_tree",
    "io_uring_setup", "clone3"):
    print(name, call(name, 0x10000000 if name == "unshare" else 0, 0, 0, 0, 0))
for name, flag in dict(user=0x10000000, net=0x40000000, mount=0x20000, pid=0x20000000, cgroup=0x2000000).items():
    print("unshare_" + name, call("unshare", flag))
    ctypes.set_errno(0)
    pid = libc.syscall(numbers["clone"][arm], flag | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    print("clone_" + name, "done" if pid > 0 else errno.errorcode[ctypes.get_errno()])
for name in ("AF_VSOCK", "AF_ALG", "AF_PACKET", "AF_INET"):
    try: socket.socket(getattr(socket, name), socket.SOCK_STREAM if name == "AF_VSOCK" else socket.SOCK_RAW, 1 if name == "AF_INET" else 0); print(name, "done")
    except OSError as error: print(name, errno.errorcode[error.errno])`);
      const rows = linesOf(out);
      expect(rows.length).toBe(19 + 10 + 4);
      expect(rows.filter((row) => !/ (EPERM|ENOSYS|EAFNOSUPPORT|EPROTONOSUPPORT)$/.test(row))).toEqual([]);
    });

    it("the first process cannot be looked into, traced, changed, stopped or ended", async () => {
      const out = await python(`${CALLS}
print("ptrace", call("ptrace", 16, 1, 0, 0))
print("seize", call("ptrace", 0x4206, 1, 0, 0))
pair = (ctypes.c_size_t * 2)(0x400000, 8)
print("write", call("process_vm_writev", 1, pair, 1, pair, 1, 0))
fd = libc.syscall(numbers["pidfd_open"][arm], 1, 0)
print("getfd", "EPERM" if fd < 0 else [call("pidfd_getfd", fd, n, 0) for n in range(12)])
look = {"environ": open, "mem": open, "maps": open, "root": os.listdir, "cwd": os.listdir}
look.update({"fd/%d" % n: act for n in range(12) for act in (open, os.readlink)})
for path, act in look.items():
    try: act("/proc/1/" + path); print(path, "done")
    except OSError as error: print(path, errno.errorcode[error.errno])
for signal in (9, 19, 15, 1, 11):
    try: os.kill(1, signal)
    except OSError: pass
print("alive", open("/proc/1/comm").read().strip())`);
      expect(out).not.toContain("done");
      expect(out).toContain("alive minit");
      expect(await containers.get(state.id)).toMatchObject({ state: "running", pid: state.pid, exec_ready: true });
    });

    it("its descriptors and its socket reach nobody: a command has its own three, and nothing listens inside", async () => {
      expect(linesOf(await shell("exec ls /proc/self/fd"))).toEqual(["0", "1", "2", "3"]);
      const out = await python(`import socket
for line in open("/proc/net/unix").read().split("\\n")[1:-1]:
    path = line.split()[7] if len(line.split()) > 7 else ""
    for family in (path, "\\0" + path.lstrip("@")):
        s = socket.socket(socket.AF_UNIX)
        try: s.connect(family); print("connected", path)
        except OSError: pass
print("end")`);
      expect(out).toBe("end\n");
    });

    it("the helper and the OCI runtime on the host stay as they are (CVE-2019-5736)", async () => {
      const files = [HELPER(), "/usr/bin/crun"].filter((file) => existsSync(file));
      expect(files.length).toBeGreaterThan(0);
      const before = files.map(digest);
      const folder = strict ? "/dev/shm" : "/root";
      const out = await python(`import os
for path in ("/dev/init", "/proc/1/exe"):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_APPEND):
        try: os.write(os.open(path, flags), b"x"); print("wrote", path)
        except OSError: pass
for act in (lambda: os.rename("/dev/init", "/dev/gone"), lambda: os.unlink("/dev/init"), lambda: os.truncate("/dev/init", 0),
    lambda: os.chmod("/dev/init", 0o777)):
    try: act(); print("changed")
    except OSError: pass
script = "${folder}/evil"
open(script, "w").write("#!/proc/self/exe\\n"); os.chmod(script, 0o755)
print("end")`);
      expect(out).toBe("end\n");
      await containers.exec(state.id, [`${folder}/evil`], { timeout_ms: 1_000 });
      expect(files.map(digest)).toEqual(before);
    });

    it("no working directory leads out by a descriptor (CVE-2024-21626)", async () => {
      const up = "../../../../../../../../../..";
      for (const working_directory of [
        "/proc/self/fd/7",
        "/proc/1/cwd",
        "/proc/thread-self/fd/8",
        "//proc/./self/fd/9",
      ]) {
        const { status } = await daemon.call("POST", "/api/containers", { name: "out", working_directory });
        expect([working_directory, status]).toEqual([working_directory, 400]);
      }
      const folder = strict ? "/dev/shm" : "/root";
      for (let fd = 0; fd < 24; fd++) {
        await shell(`ln -sfn /proc/self/fd/${fd} ${folder}/cwd`);
        for (const workdir of [`/proc/self/fd/${fd}`, `${folder}/cwd`, `/proc/1/fd/${fd}`]) {
          const line = `cat ${up}${host_dir}/secret ${host_dir}/secret .${host_dir}/secret 2>/dev/null; echo end`;
          const answer = await daemon.call("POST", `/api/containers/${state.id}/exec`, {
            command: ["sh", "-c", line],
            workdir,
          });
          expect(JSON.stringify(answer.body)).not.toContain(SECRET);
        }
      }
    });

    it("no control group can be mounted, made or written to, and there is no release agent (CVE-2022-0492)", async () => {
      const attempts = [
        "mkdir -p /dev/shm/c && mount -t cgroup -o memory x /dev/shm/c",
        "mkdir -p /dev/shm/c && mount -t cgroup2 x /dev/shm/c",
        "unshare -UrmC sh -c 'mount -t cgroup -o rdma x /dev/shm/c'",
        "find / -xdev -name release_agent | grep -q .",
        "find /sys -name release_agent | grep -q .",
        "echo $$ > /sys/fs/cgroup/cgroup.procs",
        "mkdir /sys/fs/cgroup/mine || mkdir /sys/fs/cgroup/*/mine",
        "mount -o remount,rw /sys/fs/cgroup || mount -o remount,rw,bind /sys/fs/cgroup/memory",
        "find /sys/fs/cgroup -type f -exec sh -c 'for file; do (echo 1 > \"$file\") && echo wrote; done' _ {} + | grep -q wrote",
      ];
      const line = attempts.map((attempt, n) => `(${attempt}) >/dev/null 2>&1 && echo ${n}`).join("; ");
      expect(await shell(`${line}; echo end`)).toBe("end\n");
    });

    it("there are no devices of this machine, and none can be made", async () => {
      const devices = linesOf(
        await shell("find /dev ! -type l \\( -exec test -b {} \\; -o -exec test -c {} \\; \\) -print | sort"),
      );
      expect(devices).toEqual(
        ["full", "null", "pts/ptmx", "random", "tty", "urandom", "zero"].map((name) => `/dev/${name}`),
      );
      const folder = strict ? "/dev/shm" : "/root";
      const attempts = [
        `mknod ${folder}/null c 1 3`,
        `mknod ${folder}/mem c 1 1`,
        `mknod ${folder}/disk b 254 0`,
        `mknod ${folder}/disk b 7 0`,
        `mknod /dev/kmsg c 1 11`,
      ];
      const line = attempts.map((attempt, n) => `${attempt} 2>/dev/null && echo ${n}`).join("; ");
      expect(await shell(`${line}; echo end`)).toBe("end\n");
    });

    it("the kernel's settings cannot be changed, its secrets not be read", async () => {
      const attempts = [
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 0 > /proc/sys/net/ipv4/ip_forward",
        "head -c1 /proc/kcore | grep -q .",
        "grep -q . /proc/keys",
        "grep -q . /proc/timer_list",
        "ls /sys/firmware | grep -q .",
        "touch /sys/x",
        "find /sys -type f -writable | head -1 | xargs -r sh -c 'echo 0 > $0'",
        "mount -o remount,rw /proc/sys",
        "mount -o remount,rw /sys",
        "umount /proc/kcore",
        "mount -t tmpfs x /mnt",
        "mount --bind / /mnt",
        "dmesg",
        "nsenter -t 1 -m true",
        "unshare -U true",
        "unshare -n true",
        "hostname other",
        "date -s @0",
        "sysctl -w kernel.hostname=x",
      ];
      const line = attempts.map((attempt, n) => `(${attempt}) >/dev/null 2>&1 && echo ${n}`).join("; ");
      const done = linesOf(await shell(`${line}; echo end`));
      // Files of /sys say that they can be written to, and the mount does not let it: xargs then has run something.
      expect(done.filter((n) => n !== "9")).toEqual(["end"]);
    });

    it("only its own processes are seen, and a signal to all reaches no others", async () => {
      const other = await containers.create({ name: `${kind}-neighbour`, command: ["sleep", "1000"] });
      const before = identityOf(other.pid);
      const count = Number(await shell("ls /proc | grep -cE '^[0-9]+$'"));
      expect(count).toBeLessThanOrEqual(5);
      expect(await shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).not.toContain("sleep 1000");
      const running = containers.exec(state.id, ["sleep", "100"]);
      await eventually("it runs", async () => (await shell("cat /proc/[0-9]*/comm")).includes("sleep"));
      await shell("kill -9 -1");
      expect((await running).exit_code).toBe(137);
      expect(identityOf(other.pid)).toBe(before);
      expect(await containers.get(state.id)).toMatchObject({ state: "running", pid: state.pid, exec_ready: true });
      await containers.delete(other.container_id);
    });

    it("it reaches no neighbour and nothing of this machine, the API for handlers included", async () => {
      const serve =
        "import socket\ns=socket.create_server(('0.0.0.0',9000))\nwhile True: s.accept()[0].send(b'neighbour')";
      const other = await containers.create({ name: `${kind}-listens`, command: ["python3", "-c", serve] });
      const server: Server = createServer((socket) => socket.end("host")).listen(0, "0.0.0.0");
      try {
        await eventually("the server listens", () => server.listening);
        const own = server.address();
        const port = typeof own === "object" && own !== null ? own.port : 0;
        const gateway = linesOf(
          await python(
            "import socket\nprint([socket.inet_ntoa(bytes.fromhex(l.split()[2])[::-1]) for l in open('/proc/net/route') if l.split()[1] == '00000000'][0])",
          ),
        )[0] as string;
        // The API for handlers, and the name server, which answers containers with names alone.
        const ports = listenersAt(gateway);
        expect(ports.length).toBe(2);
        const machine = linesOf(execFileSync("hostname", ["-I"]).toString())[0]?.split(" ")[0] ?? "127.0.0.1";
        const targets = [
          [other.ip_address, 9000],
          [gateway, port],
          [gateway, Number(new URL(daemon.url).port)],
          [gateway, 22],
          [machine, port],
          ["169.254.169.254", 80],
          ["127.0.0.1", port],
        ];
        // A socket whose own port is the one that it asks for reaches itself. The name server drops what it does not answer,
        // and how soon the API answers is not looked at here.
        const out = await containers.python(
          state.id,
          `import json, socket
for host, port in json.loads('${JSON.stringify(targets)}'):
    s = socket.socket(); s.settimeout(0.5)
    try:
        s.connect((host, port))
        if s.getsockname() != s.getpeername(): print("reached", host, port)
    except OSError: pass
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(0.1)
    try:
        u.sendto(b"x", (host, port))
        if u.recvfrom(10)[1][1] != u.getsockname()[1]: print("answered", host, port)
    except OSError: pass
import http.client
for port in [53] + json.loads('${JSON.stringify(ports)}'):
    for headers in ({}, {"X-Api-Key": "${KEY}"}, {"Authorization": "Bearer ${KEY}"}):
        c = http.client.HTTPConnection("${gateway}", port, timeout=3)
        try: c.connect()
        except OSError: print("unreachable"); break
        c.sock.settimeout(60)
        try:
            c.request("GET", "/api/containers", headers=headers); print(c.getresponse().status)
        except (ConnectionError, http.client.HTTPException): print("closed")
print("ipv6", "eth0" in open("/proc/net/if_inet6").read())`,
          { timeout_ms: 240_000 },
        );
        const answers = [...Array(3).fill("closed"), "ipv6 False", "unreachable", "unreachable"];
        expect(linesOf(out).sort()).toEqual(answers);
      } finally {
        server.close();
      }
      await containers.delete(other.container_id);
    });

    it("variables that change the loader are refused wherever they could be set", async () => {
      const path = `/api/containers/${state.id}`;
      for (const name of ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "A=B", ""]) {
        const environment = { [name]: "x" };
        const answers = [
          await daemon.call("POST", "/api/containers", { name: "loader", environment }),
          await daemon.call("PUT", `${path}/env`, { environment }),
          await daemon.call("PATCH", `${path}/env`, { environment }),
          await daemon.call("POST", `${path}/exec`, { command: ["true"], environment }),
          await daemon.call("POST", `${path}/stream`, { command: ["true"], environment }),
        ];
        expect([name, ...answers.map(({ status }) => status)]).toEqual([name, 400, 400, 400, 400, 400]);
      }
    });

    it("a fork bomb stays in it: others and the daemon go on answering, and its end ends all of it", async () => {
      const bomb = await containers.create({
        name: `${kind}-bomb`,
        strict,
        command: ["python3", "-c", BOMB],
      });
      await eventually("as many as may run", async () => {
        const { body } = await daemon.call("GET", `/api/containers/${bomb.container_id}/metrics`);
        return body.processes_count >= LIMITS.container_pids_max - 1;
      });
      const { body } = await daemon.call("GET", `/api/containers/${bomb.container_id}/metrics`);
      expect(body.processes_count).toBeLessThanOrEqual(LIMITS.container_pids_max);
      expect(await shell("echo fine")).toBe("fine\n");
      const made = await containers.create({ name: `${kind}-after` });
      await containers.delete(made.container_id, bomb.container_id);
      expect(daemon.processes().filter((line) => line.includes("sleep 1001"))).toEqual([]);
    });
  });

  describe("when all of them are gone", () => {
    it("nothing is left of them", async () => {
      await daemon.stop();
      expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    });
  });
});

/** TCP ports of this machine on which somebody listens at an address (proc(5), /proc/net/tcp). */
function listenersAt(address: string): number[] {
  const hex = Buffer.from(address.split(".").map(Number)).reverse().toString("hex").toUpperCase();
  return linesOf(readFileSync("/proc/net/tcp", "utf8"))
    .map((line) => line.trim().split(/\s+/))
    .filter(([, local = "", , state]) => local.startsWith(`${hex}:`) && state === "0A")
    .map(([, local = ""]) => Number.parseInt(local.split(":")[1] ?? "0", 16));
}
