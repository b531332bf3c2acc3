/** Calls of the runtime python3 without a container: output, deadlines, overlapping calls, forks, memory. */
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { eventually } from "../../test/support/native.ts";
import { PythonFunctions, pythonHead, startPython, writeCode } from "../../test/support/python-function.ts";
import type { ResidentProcess } from "../../test/support/resident-process.ts";
import { callHead } from "../../test/support/resident-requests.ts";
import { STATUS } from "../envelope.ts";

const MIB = 1024 * 1024;
const functions = new PythonFunctions();
const loaded = functions.loaded;

afterEach(() => functions.end());

describe("output", () => {
  it("belongs to its call in the order in which it was written", async () => {
    const function_ = await loaded(`
import sys
def handler(payload, context):
    print("a", end=""); sys.stdout.buffer.write(b"b\\xff\\n"); print("c", file=sys.stderr); sys.stdout.write("\\ud800")
    sys.stdout.writelines(["d", "e"]); print("f", flush=True)
    return [sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.writable()]
`);
    const answer = await function_.call();
    expect(answer.stdout).toBe("ab\uFFFD\n\\ud800def\n");
    expect(answer.stderr).toBe("c\n");
    expect(JSON.parse(answer.content.toString())).toEqual([false, "utf-8", 1, 2, true]);
  });

  it.each([
    ["def", 1],
    ["def", 4],
    ["async def", 1],
    ["async def", 4],
  ])("of a %s with concurrency %d is out before an abrupt end, in order", async (kind, concurrency) => {
    const function_ = await loaded(
      `import os, sys
${kind} handler(payload, context):
    print("first")
    if payload == "raw": os.write(1, b"raw ")
    print("part", end="")
    sys.stderr.write("error")
    if payload == "raw": os.write(2, b" raw")
    while payload == "loop": pass
    os.kill(os.getpid(), 9)`,
      { concurrency },
    );
    const what = concurrency === 1 ? "raw" : "";
    const { stdout, stderr } = await function_.call(`"${what}"`);
    expect([stdout, stderr]).toEqual(what === "raw" ? ["first\nraw part", "error raw"] : ["first\npart", "error"]);
  });

  it("of a handler that never ends is in its record", async () => {
    const function_ = await loaded("def handler(p, c):\n  print('first', end='')\n  while True: pass");
    expect(await function_.call("", {}, { kill_after_ms: 300 })).toMatchObject({ ended: "timed_out", stdout: "first" });
  });

  it("of logging, warnings and threads goes to the call", async () => {
    const function_ = await loaded(`
import logging, threading, warnings
def handler(payload, context):
    logging.warning("logged")
    thread = threading.Thread(target=print, args=("threaded",)); thread.start(); thread.join()
    warnings.warn("warned")
`);
    const answer = await function_.call();
    expect(answer.stdout).toBe("threaded\n");
    expect(answer.stderr).toMatch(/^WARNING:root:logged\n.*UserWarning: warned\n/);
  });

  it("of overlapping calls is kept apart, in tasks and threads", async () => {
    const tasks = `
import asyncio
async def handler(payload, context):
    for n in range(20):
        print(payload, n)
        await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(print, payload, n))
`;
    const threads =
      "import time\ndef handler(p, c):\n  for n in range(20):\n    print(p, n); time.sleep(0.001); print(p, n)";
    for (const code of [tasks, threads]) {
      const function_ = await loaded(code, { concurrency: 8 });
      const answers = await Promise.all(Array.from({ length: 16 }, (_, n) => function_.call(`"call ${n}"`)));
      for (const [n, { stdout, status }] of answers.entries()) {
        const lines = Array.from({ length: 20 }, (_, line) => `call ${n} ${line}\n`.repeat(2));
        expect([status, stdout]).toEqual([STATUS.returned, lines.join("")]);
      }
      expect(function_.process.own.stdout).toBe("");
    }
  });

  it("survives a handler that closes stdout", async () => {
    const function_ = await loaded(
      "import os, sys\ndef handler(p, c):\n  sys.stdout.close()\n  os.close(1)\n  print('on')",
    );
    expect((await function_.call()).stdout).toBe("on\n");
    const again = await function_.call();
    expect(JSON.parse(again.content.toString()).type).toBe("OSError");
  });

  it("is bounded per call, and by the reader", async () => {
    const function_ = await loaded(`
def handler(payload, context):
    for _ in range(64): print("x" * (1 << 20))
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
`);
    const answer = await function_.call();
    expect([answer.status, answer.is_truncated, answer.stdout.length]).toEqual([STATUS.returned, true, MIB]);
    expect(Number(answer.content)).toBeLessThan(40_000);
    expect((await function_.call("")).status).toBe(STATUS.returned);
  });

  it("and answers stay whole while signal handlers raise and print in the middle of them", async () => {
    const function_ = await loaded(`
import signal
class Late(Exception): ...
def raises(*_):
    print("signal")
    raise Late
def handler(payload, context):
    signal.signal(signal.SIGALRM, raises)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    lates = 0
    for n in range(1500):
        try: print("y" * 500)
        except Late: lates += 1
    try: signal.setitimer(signal.ITIMER_REAL, 0)
    except Late: signal.setitimer(signal.ITIMER_REAL, 0)
    return lates
`);
    for (let n = 0; n < 3; n++) {
      const answer = await function_.call();
      expect(answer.ended).toBe("answered");
      expect(answer.stdout).toContain("signal");
      expect(answer.stdout.split("\n").filter((line) => !/^(y{500}|signal)*$/.test(line))).toEqual([]);
    }
  });
});

describe("deadlines", () => {
  const soon = (ms = 100) => ({ deadline_ms: Date.now() + ms });

  it.each([
    ["a coroutine that never ends", "async def handler(payload, context):\n  await asyncio.Event().wait()", 1],
    ["a coroutine a sync handler returns", "def handler(payload, context): return asyncio.Event().wait()", 1],
    ["one of several coroutines", "async def handler(payload, context):\n  if not payload: await asyncio.sleep(99)", 4],
    ["one of several threads", "def handler(payload, context):\n  if not payload: time.sleep(99)", 4],
    [
      "a coroutine that refuses to be cancelled",
      "async def handler(payload, context):\n  while not payload:\n    try: await asyncio.sleep(99)\n    except BaseException: print('no')",
      2,
    ],
  ])("answer TIMED_OUT for %s", async (_what, code, concurrency) => {
    const function_ = await loaded(`import asyncio, time\n${code}`, { concurrency });
    const answer = await function_.call("", soon());
    expect([answer.status, answer.content.length]).toEqual([STATUS.timed_out, 0]);
    if (concurrency > 1) expect(await function_.value('"next"')).toBe(null);
    expect(function_.process.own.stderr).toBe("");
  });

  it("of overlapping calls are their own", async () => {
    for (const wait of ["async def handler(p, c): await asyncio.sleep(p)", "def handler(p, c): time.sleep(p)"]) {
      const function_ = await loaded(`import asyncio, time\n${wait}`, { concurrency: 8 });
      const statuses = [0, 99, 0.3, 99].map(async (seconds, n) => {
        const answer = await function_.call(String(seconds), seconds === 99 ? soon(50 + 50 * n) : {});
        return answer.status;
      });
      const { returned, timed_out } = STATUS;
      expect(await Promise.all(statuses)).toEqual([returned, timed_out, returned, timed_out]);
    }
  });

  it("tell a TimeoutError of the handler from the end of its time", async () => {
    const function_ = await loaded("async def f(): raise TimeoutError('mine')\ndef handler(p, c): return f()");
    expect(await function_.value()).toEqual({ type: "TimeoutError", message: "mine" });
  });

  it("of an endless loop are minit's", async () => {
    const function_ = await loaded("def handler(payload, context):\n  while True: pass");
    expect((await function_.call("", soon(), { kill_after_ms: 350 })).ended).toBe("timed_out");
  });
});

describe("overlapping calls", () => {
  it("run at the same time up to the concurrency, in tasks and in threads", async () => {
    const tasks = `
import asyncio
gate = asyncio.Barrier(5)
async def handler(payload, context):
    await gate.wait()
    return payload
`;
    const threads = "import threading\ngate = threading.Barrier(5)\ndef handler(p, c):\n  gate.wait()\n  return p";
    for (const code of [tasks, threads]) {
      const function_ = await loaded(code, { concurrency: 5 });
      for (let round = 0; round < 5; round++) {
        expect(await Promise.all([1, 2, 3, 4, 5].map((n) => function_.value(String(n))))).toEqual([1, 2, 3, 4, 5]);
      }
    }
  });

  it("run in no more threads than the concurrency", async () => {
    const code = "import threading\ndef handler(p, c): return threading.current_thread().name";
    const function_ = await loaded(code, { concurrency: 3 });
    const names = await Promise.all(Array.from({ length: 50 }, () => function_.value()));
    expect(["calls-1", "calls-2", "calls-3"]).toEqual(expect.arrayContaining([...new Set(names)]));
  });

  it("fail alone: a task that exits or stops the loop harms no other", async () => {
    const function_ = await loaded(
      `
import asyncio, sys
async def leaves(): sys.exit(1)
async def handler(payload, context):
    if payload == "exit": asyncio.create_task(leaves())
    if payload == "stop": asyncio.get_running_loop().stop()
    await asyncio.sleep(0.1)
    return payload
`,
      { concurrency: 8, cleanup: false },
    );
    const payloads = ["one", "exit", "two", "stop", "three"];
    const answers = await Promise.all(payloads.map((payload) => function_.call(`"${payload}"`)));
    expect(answers.map(({ content }) => JSON.parse(String(content)))).toEqual(payloads);
    const told = answers.map(({ stderr }) => stderr.includes("SystemExit: 1"));
    expect(told).toEqual([false, true, false, false, false]);
  });

  it("leave os.environ alone", async () => {
    const code = "import os\ndef handler(p, c): return [c.environment['A'], os.environ.get('A')]";
    const function_ = await loaded(code, { concurrency: 2 });
    expect(await function_.value("", { environment: { A: "1" } })).toEqual(["1", null]);
  });
});

describe("forked children", () => {
  it("cannot answer for a call, and end when they return from it", async () => {
    const function_ = await loaded(`
import os
def handler(payload, context):
    if os.fork() == 0:
        print("child")
        return "child"
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    return "parent"
`);
    for (let n = 0; n < 3; n++) {
      const answer = await function_.call();
      expect([answer.stdout, answer.content.toString()]).toEqual(["child\n0\n", '"parent"']);
    }
  });

  it("have no descriptor of the runtime", async () => {
    const function_ = await loaded(`
import os, subprocess
def handler(payload, context):
    if os.fork() == 0:
        try: os.fstat(3)
        except OSError: os._exit(7)
    links = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout
    return [os.waitstatus_to_exitcode(os.wait()[1]), [word for word in links.split() if "socket:" in word or "/loadavg" in word]]
`);
    expect(await function_.value()).toEqual([7, []]);
  });

  it.each(["fork", "spawn", "forkserver"])("of multiprocessing work (%s)", async (method) => {
    const function_ = await loaded({
      "main.py": `
import multiprocessing, work
def handler(payload, context):
    with multiprocessing.get_context("${method}").Pool(2) as pool: return pool.map(work.double, payload)
`,
      "work.py": "def double(n): return 2 * n",
    });
    expect(await function_.value("[1, 2, 3]")).toEqual([2, 4, 6]);
  });
});

describe("after a call", () => {
  it("asyncio tasks and timers, threading timers and alarms end", async () => {
    const tasks = `
import asyncio
from main_state import seen
async def later():
    try: await asyncio.sleep(99)
    except asyncio.CancelledError: seen.append("cancelled")
async def handler(payload, context):
    if payload: return seen
    asyncio.create_task(later())
    asyncio.get_running_loop().call_later(0.01, seen.append, "timer")
    await asyncio.sleep(0)
`;
    const function_ = await loaded({ "main.py": tasks, "main_state.py": "seen = []" });
    await function_.call();
    await eventually("it is cancelled", async () => ((await function_.value("1")) as string[]).length > 0);
    expect(await function_.value("1")).toEqual(["cancelled"]);
    const timers = await loaded(`
import signal, threading
def handler(payload, context):
    if payload: return [threading.active_count(), signal.getitimer(signal.ITIMER_REAL)[0]]
    threading.Timer(99, print).start()
    signal.alarm(99)
`);
    await timers.call();
    await eventually("both are gone", async () => String(await timers.value("1")) === "1,0");
  });

  it("they stay without cleanup", async () => {
    const function_ = await loaded(
      `
import asyncio
seen = []
async def later():
    await asyncio.sleep(0.01)
    seen.append("later")
async def handler(payload, context):
    if not payload: asyncio.create_task(later())
    return seen
`,
      { cleanup: false },
    );
    await function_.call();
    await eventually("it ran", async () => String(await function_.value("1")) === "later");
  });
});

/** True once an idle process has imported what an async function needs: it reads descriptor 3, and polls no more. */
const isPrepared = ({ pid }: ResidentProcess): boolean =>
  /^0 0x3 /.test(readFileSync(`/proc/${pid}/syscall`, "utf8")) &&
  readFileSync(`/proc/${pid}/maps`, "utf8").includes("/_asyncio.");

describe("an idle process", () => {
  it("takes at most 8 MB of memory with asyncio (PSS, mean of 20)", async () => {
    const all = await Promise.all(Array.from({ length: 20 }, startPython));
    functions.add(...all);
    await eventually("all are prepared", () => all.every(isPrepared));
    const pss = all.map(({ pid }) =>
      Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1]),
    );
    expect(pss.reduce((sum, kb) => sum + kb, 0) / pss.length).toBeLessThan(8_000);
  });

  it("gives functions the modules whole that the import of asyncio only names", async () => {
    const code = `
import asyncio, concurrent.futures, inspect, logging, ssl, subprocess, sys, threading, traceback
from asyncio import sslproto, staggered
from asyncio.log import logger
found = []
threads = [threading.Thread(target=lambda: found.append(ssl.create_default_context)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
async def handler(payload, context):
    logging.basicConfig(level=logging.DEBUG)
    logger.debug("asked for")
    ran = await asyncio.create_subprocess_exec("echo", "x", stdout=subprocess.PIPE)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        done, _ = concurrent.futures.wait([pool.submit(int, "7")], return_when=concurrent.futures.FIRST_COMPLETED)
    return [len(found), (await ran.communicate())[0].decode(), done.pop().result(), inspect.iscoroutinefunction(handler),
        traceback.extract_stack()[-1].name, sslproto.SSLProtocol.__name__, staggered.staggered_race.__name__,
        sorted(type(sys.modules[name]).__name__ for name in ("logging", "ssl", "traceback", "inspect", "subprocess"))]
`;
    const value = [8, "x\n", 7, true, "handler", "SSLProtocol", "staggered_race", Array(5).fill("module")];
    const process = await startPython();
    functions.add(process);
    await eventually("it is prepared", () => isPrepared(process));
    writeCode(process.directory, code);
    expect((await process.bind(pythonHead())).status).toBe(STATUS.returned);
    const idle = await process.call(callHead());
    expect([JSON.parse(idle.content.toString()), idle.stderr]).toEqual([value, expect.stringContaining("asked for")]);
    // A process that had its bind at once.
    expect(await (await loaded(code)).value()).toEqual(value);
  });

  it("keeps its standard library apart from a file of the code with the name of one of asyncio's modules", async () => {
    const code = { "main.py": "import socket\ndef handler(p, c): return hasattr(socket, 'AF_INET')", "socket.py": "" };
    expect(await (await loaded(code)).value()).toBe(true);
  });
});
