/** The view and rights of a handler inside a real instance, against each line of src/engine/bundles/instance.ts. */
import { createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start());
afterAll(() => daemon.dispose());

/** Runs one shell line in an instance of a function of its own; answers its standard output. */
async function inside(name: string, handler: string): Promise<string> {
  await daemon.deploy({ name, handler });
  const record = await daemon.invoke(name);
  return record.stdout + record.stderr;
}

/** Runs Python statements inside and answers what they printed. */
function python(name: string, code: string): Promise<string> {
  return inside(name, `python3 - <<'EOF'\n${code}\nEOF`);
}

describe("an instance", () => {
  it("has no capability, no way to gain one, and a system-call filter", async () => {
    const status = await inside("status", "cat /proc/self/status");
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
      expect(status).toContain(`${set}:\t0000000000000000`);
    expect(status).toContain("NoNewPrivs:\t1");
    expect(status).toContain("Seccomp:\t2");
  });

  it("runs as a uid of its own, not shared with another instance", async () => {
    await daemon.deploy({ name: "uid", handler: "id -u; id -G; sleep 1", max_instances: 2 });
    const both = await Promise.all([daemon.invoke("uid"), daemon.invoke("uid")]);
    const ids = both.map(({ stdout }) => stdout.split("\n"));
    for (const [uid, groups] of ids) {
      expect(Number(uid)).toBeGreaterThanOrEqual(700_000_000);
      expect(groups).toBe(uid);
    }
    expect(ids[0]?.[0]).not.toBe(ids[1]?.[0]);
  });

  it("sees only its own processes and none of the machine's", async () => {
    const seen = await inside("processes", "ls /proc | grep -E '^[0-9]+$' | wc -l; hostname; cat /proc/1/comm");
    const [count, host, first] = seen.split("\n");
    expect(Number(count)).toBeLessThanOrEqual(6);
    expect([host, first]).toEqual(["hearth", "minit"]);
  });

  it("has exactly the mounts of its bundle, the root read-only", async () => {
    const mounts = (await inside("mounts", "cat /proc/mounts"))
      .trim()
      .split("\n")
      .map((line) => line.split(" "));
    const points = mounts.map(([, point = "", , options = ""]) => [point, options.split(",")] as const);
    expect(points.find(([point]) => point === "/")?.[1]).toContain("ro");
    const writable = points.filter(([, options]) => !options.includes("ro")).map(([point]) => point);
    // /proc is further narrowed by the read-only and masked paths, /dev belongs to root.
    expect(writable.sort()).toEqual(["/dev", "/dev/shm", "/proc", "/tmp"]);
    for (const [point, options] of points) {
      if (["/dev/shm", "/proc", "/tmp", "/sys"].includes(point))
        expect(options).toEqual(expect.arrayContaining(["nosuid", "nodev"]));
    }
  });

  it("can write nowhere but to /tmp and /dev/shm", async () => {
    const line =
      "for d in / /etc /usr /bin /dev /proc /proc/sys/kernel /sys /run /var /home /root; do touch $d/x 2>/dev/null && echo $d; done; touch /tmp/x /dev/shm/x && echo fine";
    expect(await inside("writes", line)).toBe("fine\n");
  });

  it("cannot change the kernel's settings or read its secrets", async () => {
    const attempts = [
      "echo 1 > /proc/sys/kernel/panic",
      "echo b > /proc/sysrq-trigger",
      "echo x > /proc/sys/kernel/core_pattern",
      "head -c1 /proc/kcore | grep -q .",
      "grep -q . /proc/keys",
      "mount -t tmpfs x /tmp",
      "unshare -U true",
      "unshare -n true",
      "chroot / true",
      "mknod /tmp/null c 1 3",
      "mknod /tmp/disk b 254 0",
      "dmesg",
      "nsenter -t 1 -m true",
    ];
    const line = attempts.map((attempt, n) => `(${attempt}) >/dev/null 2>&1 && echo ${n}`).join("; ");
    expect(await inside("kernel", `${line}; echo end`)).toBe("end\n");
  });

  it("is refused the system calls that lead out", async () => {
    const out = await python(
      "calls",
      `import ctypes, errno, os, socket, threading
libc = ctypes.CDLL(None, use_errno=True)
numbers = dict(mount=165, umount2=166, pivot_root=155, init_module=175, bpf=321, keyctl=250, add_key=248,
  perf_event_open=298, userfaultfd=323, kexec_load=246, open_by_handle_at=304, setns=308, reboot=169, swapon=167,
  unshare=272, fsopen=430, open_tree=428, io_uring_setup=425, clone3=435)
if os.uname().machine == "aarch64":
    numbers = dict(mount=40, umount2=39, pivot_root=41, init_module=105, bpf=280, keyctl=219, add_key=217,
      perf_event_open=241, userfaultfd=282, kexec_load=104, open_by_handle_at=265, setns=268, reboot=142, swapon=224,
      unshare=97, fsopen=430, open_tree=428, io_uring_setup=425, clone3=435)
for name, number in numbers.items():
    ctypes.set_errno(0)
    result = libc.syscall(number, 0, 0, 0, 0, 0)
    print(name, result, errno.errorcode.get(ctypes.get_errno()))
for name, flag in dict(user=0x10000000, net=0x40000000, mount=0x20000, pid=0x20000000).items():
    ctypes.set_errno(0)
    result = libc.syscall(56 if os.uname().machine == "x86_64" else 220, flag | 17, 0, 0, 0, 0)
    if result == 0: os._exit(0)
    print("clone_new" + name, result, errno.errorcode.get(ctypes.get_errno()))
for name in ("AF_VSOCK", "AF_ALG", "AF_PACKET"):
    try: socket.socket(getattr(socket, name), socket.SOCK_STREAM if name == "AF_VSOCK" else socket.SOCK_RAW); print(name, 0, None)
    except OSError as error: print(name, -1, errno.errorcode.get(error.errno))`,
    );
    const rows = out
      .trim()
      .split("\n")
      .map((line) => line.split(" "));
    expect(rows.length).toBe(26);
    for (const [name, result, code] of rows) {
      const codes = name?.startsWith("AF_") ? ["EAFNOSUPPORT"] : ["EPERM", "ENOSYS"];
      expect([name, result, codes.includes(code ?? "")]).toEqual([name, "-1", true]);
    }
  });

  it("cannot change limits, priority or processors of its minit for the calls after it", async () => {
    const out = await python(
      "disarm",
      `import os, resource
def refused(what, act):
    try: act(); print(what, "done")
    except OSError as error: print(what, "refused")
refused("prlimit", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (4, 4)))
refused("setpriority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
refused("setpriority_user", lambda: os.setpriority(os.PRIO_USER, 0, 19))
refused("affinity", lambda: os.sched_setaffinity(1, {0}))
refused("scheduler", lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
refused("own_prlimit", lambda: resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (64, 64)))
refused("own_nice", lambda: os.nice(5))
refused("own_affinity", lambda: os.sched_setaffinity(0, {0}))`,
    );
    const names = ["prlimit", "setpriority", "setpriority_user", "affinity", "scheduler"];
    const own = ["own_prlimit", "own_nice", "own_affinity"];
    expect(out.trim().split("\n")).toEqual([
      ...names.map((name) => `${name} refused`),
      ...own.map((name) => `${name} done`),
    ]);
  });

  it("still has what ordinary programs need: threads, processes, pipes, sockets, shared memory", async () => {
    const out = await python(
      "ordinary",
      `import multiprocessing, socket, subprocess, threading
thread = threading.Thread(target=lambda: print("thread")); thread.start(); thread.join()
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
left, right = socket.socketpair(); left.send(b"pair"); print(right.recv(4).decode())
socket.socket(socket.AF_INET); socket.socket(socket.AF_INET6); socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print("families")
queue = multiprocessing.get_context("fork").Queue(); queue.put("shared"); print(queue.get())`,
    );
    expect(out).toBe("thread\nchild\npair\nfamilies\nshared\n");
  });

  it("cannot look into, stop or overwrite its minit", async () => {
    const line =
      "cat /proc/1/environ >/dev/null 2>&1 && echo environ; ls /proc/1/fd >/dev/null 2>&1 && echo fd; cat /proc/1/mem >/dev/null 2>&1 && echo mem; (echo x >> /dev/init) 2>/dev/null && echo init; (echo x >> /proc/1/exe) 2>/dev/null && echo exe; kill -9 1; kill -STOP 1; kill -TERM 1; echo alive";
    const out = await inside("minit", line);
    expect(out.split("\n")[0]).toBe("alive");
    const again = await daemon.invoke("minit");
    expect(again).toMatchObject({ status: "success", cold_start: false });
  });

  it("cannot reach a neighbour nor a service of this machine, and has no IPv6", async () => {
    let server: Server | undefined;
    try {
      server = createServer((socket) => socket.end("secret")).listen(0, "0.0.0.0");
      const listening = server;
      await eventually("the server listens", () => listening.listening);
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      await daemon.deploy({
        name: "listens",
        timeout_seconds: 20,
        handler:
          "python3 -c \"import socket,time; s=socket.create_server(('0.0.0.0',9000)); s.settimeout(15); print(open('/proc/net/fib_trie').read()); time.sleep(6)\"",
      });
      const neighbour = daemon.invoke("listens");
      await daemon.deploy({
        name: "reaches",
        timeout_seconds: 20,
        handler: `python3 - <<'EOF'
import os, socket
gateway = [l.split()[2] for l in open('/proc/net/route') if l.split()[1] == '00000000'][0]
gateway = socket.inet_ntoa(bytes.fromhex(gateway)[::-1])
base = gateway.rsplit('.', 1)[0]
def reach(host, port):
    s = socket.socket(); s.settimeout(0.4)
    try: s.connect((host, port)); return True
    except OSError: return False
print('host', reach(gateway, ${port}))
print('neighbours', [n for n in range(2, 12) if reach('%s.%d' % (base, n), 9000)])
print('ipv6', os.path.exists('/proc/net/if_inet6') and open('/proc/net/if_inet6').read().count('eth0'))
EOF`,
      });
      const record = await daemon.invoke("reaches");
      expect(record.stdout).toBe("host False\nneighbours []\nipv6 0\n");
      await neighbour;
    } finally {
      server?.close();
    }
  });

  it("survives a fork bomb in it: the pids limit holds, and the deadline ends all of it", async () => {
    await daemon.deploy({ name: "bomb", handler: "f() { f | f & }; f; sleep 60", timeout_seconds: 2 });
    const record = await daemon.invoke("bomb");
    expect(["timeout", "failed", "success"]).toContain(record.status);
    await daemon.deploy({ name: "after", handler: "echo fine" });
    expect((await daemon.invoke("after")).stdout).toBe("fine\n");
    await eventually("nothing of the bomb is left", () => daemon.processes().every((line) => !line.includes("f() {")));
  });

  it("cannot fill the machine's memory or disk through /tmp", async () => {
    await daemon.deploy({
      name: "fills",
      handler: "dd if=/dev/zero of=/tmp/big bs=1M count=2000; echo $?",
      timeout_seconds: 20,
    });
    const record = await daemon.invoke("fills");
    expect(record.stdout.trim()).not.toBe("0");
  });

  it("gets no descriptor beside its three", async () => {
    expect((await inside("descriptors", "exec ls /proc/self/fd")).trim().split("\n")).toEqual(["0", "1", "2", "3"]);
  });
});
