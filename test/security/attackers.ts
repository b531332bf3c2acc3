/** Functions that attack their own instance, in each runtime. */

/** A frame of descriptor 3 (runtimes/minit/protocol.h), as code in JavaScript. */
const FRAMES = `
const frame = (type, id, content = Buffer.alloc(0)) => {
  const head = Buffer.alloc(9);
  head.writeUInt32LE(5 + content.length, 0);
  head[4] = type;
  head.writeUInt32LE(id, 5);
  return Buffer.concat([head, content]);
};
const result = (id) => frame(0x64, id, Buffer.from('\\0\\0\\0\\0"forged"', 'latin1'));
`;

/** A handler of nodejs that runs the attack which its payload names; `fine` is none. So do the ones below. */
export const NODE_ATTACKS = `
import fs from "node:fs";
import { spawn, spawnSync } from "node:child_process";
${FRAMES}
const never = () => new Promise(() => {});
const all = [];
const attacks = {
  "a native crash": () => { process.kill(process.pid, "SIGSEGV"); return never(); },
  "an abort": () => process.abort(),
  "an endless loop": () => { for (;;); },
  "a promise that never settles": never,
  "a memory bomb": () => { for (;;) all.push(Buffer.alloc(1 << 24, 1)); },
  "a heap bomb": () => { for (;;) all.push(Array.from({ length: 1e5 }, (_, n) => ({ n }))); },
  "a fork bomb": () => { spawn("bash", ["-c", "f() { f | f & }; f; sleep 9"], { detached: true }); return never(); },
  "a flood on the console": () => { for (let n = 0; n < 64; n++) console.log("x".repeat(1 << 20)); return "flooded"; },
  "a flood on descriptor 1": () => { const b = Buffer.alloc(1 << 16, 120); for (let n = 0; n < 512; n++) fs.writeSync(1, b); return "flooded"; },
  "a BigInt": () => 1n,
  "a circle": () => { const a = {}; a.a = a; return a; },
  "a result with a getter that exits": () => ({ get a() { process.exit(9); } }),
  "a result of 64 MiB": () => "x".repeat(1 << 26),
  "a deep result": () => { let a = []; for (let n = 0; n < 5000; n++) a = [a]; return a; },
  "process.exit": () => process.exit(3),
  "process.exit with 0": () => process.exit(0),
  "process.reallyExit": () => process.reallyExit(4),
  "a crash at exit": () => { process.on("exit", () => process.abort()); process.exit(0); },
  "closed descriptors": () => { fs.closeSync(1); fs.closeSync(2); console.log("after"); return "closed"; },
  "ended streams": () => { process.stdout.end(); process.stdout.destroy(); console.log("after"); return "ended"; },
  "signal handlers that refuse": () => {
    for (const name of ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGXCPU"]) process.on(name, () => {});
    for (;;);
  },
  "an uncaught exception": () => { setTimeout(() => { throw new RangeError("thrown later"); }); return never(); },
  "an unhandled rejection": () => { Promise.reject(new RangeError("rejected")); return never(); },
  "a thrown null": () => { throw null; },
  "an error that throws": () => { throw { get message() { throw new Error("again"); }, toString() { process.exit(8); } }; },
  "garbage on descriptor 3": () => { fs.writeSync(3, Buffer.alloc(4096, 0xee)); return never(); },
  "a giant frame": () => { fs.writeSync(3, Buffer.from([255, 255, 255, 255, 0x64, 1, 0, 0, 0])); return never(); },
  "an answer for a call that is not there": () => { fs.writeSync(3, result(0xfffffff)); return never(); },
  "two answers": () => { for (let id = 1; id < 3; id++) for (let n = 0; n < 2; n++) fs.writeSync(3, result(id)); return never(); },
  "a second CALL_OPEN": () => { fs.writeSync(3, frame(0x60, 0, Buffer.from([1, 0, 0, 0]))); return never(); },
  "a closed descriptor 3": () => { fs.closeSync(3); return never(); },
  "a killed group": () => { process.kill(0, "SIGKILL"); return never(); },
  "a signal to all": () => { try { process.kill(-1, "SIGKILL"); } catch (error) { return error.code; } return never(); },
  "a signal to PID 1": () => { try { process.kill(1, "SIGKILL"); } catch (error) { return error.code; } return "sent"; },
  "a full /tmp": () => { for (let n = 0; n < 64; n++) fs.writeFileSync("/tmp/" + n, Buffer.alloc(1 << 22, 1)); return "full"; },
  "10,000 files": () => { for (let n = 0; n < 10000; n++) fs.writeFileSync("/tmp/f" + n, ""); return "made"; },
  "writes outside": () => ["/function/index.mjs", "/opt/hearth/x", "/run/secrets/x", "/usr/bin/x", "/etc/passwd", "/x", "/proc/1/mem", "/proc/1/oom_score_adj", "/sys/fs/cgroup/x", "/proc/sys/kernel/core_pattern"]
    .map((path) => { try { fs.writeFileSync(path, "x"); return path; } catch (error) { return error.code; } }),
  "reads of PID 1": () => ["/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/fd/0"]
    .map((path) => { try { fs.readFileSync(path); return path; } catch (error) { return error.code; } }),
  "a broken built-in": () => {
    JSON.stringify = () => { throw new Error("broken"); };
    Promise.prototype.then = undefined; Map.prototype.get = () => {}; Buffer.from = null; process.nextTick = () => {};
    globalThis.queueMicrotask = () => {};
    return "broken";
  },
};
export const handler = (name) => (name === "fine" ? "fine" : attacks[name]());
`;

/**
 * A version in TypeScript whose first process puts a file into its code cache: the attack that its variable POISON names.
 * Processes that get the cache run the attack. Its result is the name of the attack that it found.
 */
export const CACHE_POISONER = `
import fs from "node:fs";
import { getCompileCacheDir } from "node:module";
const file = getCompileCacheDir() + "/poison";
const found: string = fs.existsSync(file) ? fs.readFileSync(file, "utf8") : "none";
fs.writeFileSync(file, String(process.env.POISON));
const all: Buffer[] = [];
const attacks: Record<string, () => void> = {
  crash: () => process.kill(process.pid, "SIGSEGV"),
  exit: () => process.reallyExit(4),
  bomb: () => { for (;;) all.push(Buffer.alloc(1 << 24, 1)); },
  throw: () => { throw new RangeError("poisoned"); },
  loop: () => { for (;;); },
};
const [attack = "", when] = found.split(" at ");
if (when === "load") attacks[attack]?.();
export const handler = (): string => {
  if (when === "call") attacks[attack]?.();
  return found;
};
`;

/** A version in TypeScript that answers its own bind, in chunks of 64 KiB: as many as its variable CHUNKS says. */
export const CACHE_FORGER = `
import fs from "node:fs";
${FRAMES}
const BIND = 2;
const send = (bytes: Buffer) => {
  for (let at = 0; at < bytes.length; ) {
    try { at += fs.writeSync(3, bytes, at); } catch (error) { if (error.code !== "EAGAIN") throw error; }
  }
};
for (let n = 0; n < Number(process.env.CHUNKS); n++) send(frame(0x62, BIND, Buffer.alloc(1 << 16, n)));
if (process.env.CHUNKS) send(result(BIND));
export const handler = (): string => "loaded";
`;

export const PYTHON_ATTACKS = `
import asyncio, ctypes, math, os, signal, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def frame(type, id, content=b""): return struct.pack("<IBI", 5 + len(content), type, id) + content
def result(id): return frame(0x64, id, b"\\0\\0\\0\\0\\"forged\\"")
def forever():
    while True: pass
def refuse():
    for number in range(1, 32):
        try: signal.signal(number, lambda *_: None)
        except (OSError, ValueError): pass
    forever()
def flood(write):
    for _ in range(64): write("x" * (1 << 19))
    return "flooded"
def bomb():
    while True:
        try: os.fork()
        except OSError: pass
def circle():
    a = []
    a.append(a)
    return a
def thrown():
    class Odd(Exception):
        def __str__(self): raise ValueError("again")
    raise Odd()
def errno_of(result): return "done" if result >= 0 else os.strerror(ctypes.get_errno())
def fill():
    for n in range(128):
        with open(f"/tmp/{n}", "wb") as file: file.write(bytes(1 << 22))
def files():
    for n in range(10000): open(f"/tmp/f{n}", "w").close()
    return "made"
def exit_thread(): os._exit(6)
def waits(act):
    act()
    time.sleep(60)
class Never:
    def __await__(self): yield from asyncio.Event().wait().__await__()
attacks = {
  "a native crash": lambda: ctypes.string_at(0),
  "an abort": os.abort,
  "an endless loop": forever,
  "a coroutine that never settles": lambda: Never(),
  "a memory bomb": lambda: [bytes([1]) * (1 << 24) for _ in range(1 << 20)],
  "a fork bomb": bomb,
  "a flood on the console": lambda: flood(lambda text: print(text)),
  "a flood on descriptor 1": lambda: flood(lambda text: os.write(1, text.encode())),
  "a set": lambda: {1},
  "a circle": circle,
  "not a number": lambda: math.nan,
  "a result of 64 MiB": lambda: "x" * (1 << 26),
  "a deep result": lambda: __import__("functools").reduce(lambda inner, _: [inner], range(100000), 0),
  "sys.exit": lambda: sys.exit(3),
  "os._exit": lambda: os._exit(4),
  "os._exit in a thread": lambda: waits(threading.Thread(target=exit_thread).start),
  "closed descriptors": lambda: [os.close(1), os.close(2), print("after")][2],
  "closed streams": lambda: [sys.stdout.close(), print("after")][1],
  "signal handlers that refuse": refuse,
  "an error that throws": thrown,
  "endless recursion": lambda: attacks["endless recursion"](),
  "garbage on descriptor 3": lambda: waits(lambda: os.write(3, bytes([0xee]) * 4096)),
  "a giant frame": lambda: waits(lambda: os.write(3, b"\\xff\\xff\\xff\\xff\\x64\\1\\0\\0\\0")),
  "an answer for a call that is not there": lambda: waits(lambda: os.write(3, result(0xfffffff))),
  "two answers": lambda: waits(lambda: [os.write(3, result(id) * 2) for id in range(1, 3)]),
  "a second CALL_OPEN": lambda: waits(lambda: os.write(3, frame(0x60, 0, struct.pack("<I", 1)))),
  "a closed descriptor 3": lambda: waits(lambda: os.close(3)),
  "a shut descriptor 3": lambda: waits(lambda: __import__("socket").socket(fileno=3).shutdown(2)),
  "a signal to its group": lambda: waits(lambda: os.kill(0, 9)),
  "signals to PID 1": lambda: [os.kill(1, number) for number in (9, 19, 15, 2, 3, 1, 11, 10, 12, 17)] and "sent",
  "a full /tmp": fill,
  "10,000 files": files,
  "calls of the kernel": lambda: [errno_of(libc.ptrace(16, 1, 0, 0)), errno_of(libc.mount(b"x", b"/tmp", b"tmpfs", 0, 0)),
    errno_of(libc.unshare(0x10000000)), errno_of(libc.unshare(0x20000)), errno_of(libc.umount2(b"/function", 2)), errno_of(libc.chroot(b"/tmp"))],
  "a changed wire": lambda: [setattr(sys.modules["_hearth.wire"].Wire, name, None) for name in ("answer", "log", "flush")],
  "a stopped process": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}
def handler(name, context): return "fine" if name == "fine" else attacks[name]()
`;

/** The command of the runtime custom that listens on $PORT. */
export const SERVER_ATTACKS = `
import { createServer } from "node:http";
import { spawn } from "node:child_process";
import fs from "node:fs";
const all = [];
const attacks = {
  "an abort": () => process.abort(),
  "process.exit": () => process.exit(3),
  "an endless loop": () => { for (;;); },
  "no answer": () => {},
  "a memory bomb": () => { for (;;) all.push(Buffer.alloc(1 << 24, 1)); },
  "a fork bomb": () => { spawn("bash", ["-c", "f() { f | f & }; f; sleep 9"], { detached: true, stdio: "ignore" }); },
  "a flood on descriptor 1": (response) => { const b = Buffer.alloc(1 << 16, 120); for (let n = 0; n < 512; n++) fs.writeSync(1, b); response.end('"flooded"'); },
  "a result of 64 MiB": (response) => response.end("x".repeat(1 << 26)),
  "a closed connection": (response) => response.destroy(),
  "two answers": (response) => response.socket.end("HTTP/1.1 200 OK\\r\\ncontent-length: 1\\r\\n\\r\\n1HTTP/1.1 200 OK\\r\\ncontent-length: 1\\r\\n\\r\\n2"),
  "garbage for an answer": (response) => response.socket.end(Buffer.alloc(4096, 0xee)),
  "a giant length": (response) => response.socket.write("HTTP/1.1 200 OK\\r\\ncontent-length: 99999999999999999999\\r\\n\\r\\n"),
  "a head without end": (response) => { const more = () => response.socket.write("x: " + "y".repeat(4096) + "\\r\\n", (error) => error || setImmediate(more)); response.socket.write("HTTP/1.1 200 OK\\r\\n"); more(); },
  "closed descriptors": (response) => { fs.closeSync(1); fs.closeSync(2); response.end('"closed"'); },
  "a killed adapter": () => process.kill(process.ppid, "SIGKILL"),
  "a stopped adapter": () => process.kill(process.ppid, "SIGSTOP"),
  "a crash behind the answer": (response) => response.end('"answered"', () => process.abort()),
  "a closed port": (response) => { server.close(); response.writeHead(200, { connection: "close" }).end('"closed"'); },
  "writes to PID 1 and the adapter": (response) => response.end(JSON.stringify(["/proc/1/mem", "/proc/" + process.ppid + "/mem", "/proc/" + process.ppid + "/fd/3"]
    .map((path) => { try { fs.closeSync(fs.openSync(path, "r+")); return path; } catch (error) { return error.code; } }))),
};
const server = createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk)).on("end", () => (body === "fine" ? response.end('"fine"') : attacks[body](response)));
});
server.listen(process.env.PORT);
`;

/** A program that speaks the AWS Lambda Runtime API. */
export const LAMBDA_ATTACKS = `
import { spawn } from "node:child_process";
const api = "http://" + process.env.AWS_LAMBDA_RUNTIME_API + "/2018-06-01/runtime/";
const post = async (path, body) => (await fetch(api + path, { method: "POST", body })).status;
const never = () => new Promise(() => {});
const all = [];
const attacks = {
  "an abort": () => process.abort(),
  "process.exit": () => process.exit(3),
  "an endless loop": () => { for (;;); },
  "no answer": () => { setInterval(() => {}, 1000); return never(); },
  "a memory bomb": () => { for (;;) all.push(Buffer.alloc(1 << 24, 1)); },
  "a result of 64 MiB": (id) => post("invocation/" + id + "/response", "x".repeat(1 << 26)),
  "an answer for another call": async (id) => post("invocation/" + id + "/response", JSON.stringify([await post("invocation/inv_other/response", "1"), await post("invocation/" + "x".repeat(4000) + "/error", "{}")])),
  "two answers": async (id) => [await post("invocation/" + id + "/response", '"first"'), await post("invocation/" + id + "/response", '"second"')],
  "an init error": async (id) => post("invocation/" + id + "/response", String(await post("init/error", "{}"))),
  "a killed adapter": () => { process.kill(process.ppid, "SIGKILL"); return never(); },
};
for (;;) {
  const event = await fetch(api + "invocation/next");
  const id = event.headers.get("lambda-runtime-aws-request-id");
  const name = await event.json();
  if (name === "fine") await post("invocation/" + id + "/response", '"fine"');
  else await attacks[name](id);
}
`;

export const SHELL_ATTACKS = `#!/bin/bash
case $(cat) in
  "a native crash") kill -SEGV $$ ;;
  "an endless loop") while :; do :; done ;;
  "a memory bomb") exec head -c 1G /dev/zero | tail ;;
  "a fork bomb") f() { f | f & }; f; sleep 9 ;;
  "a flood") head -c 64M /dev/zero | tr '\\0' x; echo err >&2 ;;
  "an exit") exit 3 ;;
  "closed descriptors") exec >&- 2>&- <&-; echo after; exit 0 ;;
  "signal handlers that refuse") for n in {1..31}; do trap '' $n 2>/dev/null; done; while :; do :; done ;;
  "left children") for n in {1..50}; do setsid sleep 600 >/dev/null 2>&1 & done; echo left ;;
  "children that hold the output") sleep 600 & echo held ;;
  "10,000 files") cd /tmp && for n in {1..10000}; do : > f$n; done; echo made ;;
  "a full /tmp") head -c 1G /dev/zero > /tmp/full; echo full ;;
  "signals to all") kill -9 -1; echo sent ;;
  "signals to PID 1") for n in 9 19 15 2 3 1 11 17; do kill -$n 1; done; echo sent ;;
  "calls of the kernel") mount -t tmpfs x /tmp; unshare -U true; unshare -m true; chroot /tmp; exit 0 ;;
  "writes outside") for f in /function/attack.sh /usr/x /run/secrets/x /opt/hearth/x /proc/1/mem; do (echo x > $f) && echo $f; done; exit 0 ;;
  *) echo fine ;;
esac
`;
