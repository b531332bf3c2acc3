/** What a call of the runtime python3 leaves behind, in threads, pools and tasks: its output and exceptions are that call's. */
import { afterEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { eventually } from "../../test/support/native.ts";
import { PythonFunctions } from "../../test/support/python-function.ts";
import { resultOf } from "../../test/support/resident-requests.ts";
import { STATUS } from "../envelope.ts";

const functions = new PythonFunctions();

afterEach(() => functions.end());

/** `stray` waits until a later call lets it go on, and says when it has ended. */
const SYNC = `
import _thread, asyncio, gc, logging, threading, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
go, ended = threading.Event(), threading.Event()
executor, pool, loop = ThreadPoolExecutor(1), ThreadPool(1), asyncio.new_event_loop()
def stray(*_):
    go.wait()
    print("printed", flush=True); logging.warning("logged")
    ended.set()
    raise ValueError("stray")
async def stray_task():
    while not go.is_set(): await asyncio.sleep(0.01)
    stray()
def handler(payload, context):
    if payload == "bad":
        START
        return payload
    if payload == "warm": return [executor.submit(int, "1").result(), pool.apply(int, ("2",))]
    go.set(); ended.wait(); TURN; gc.collect()
    print("own"); print("own error", file=__import__("sys").stderr)
    return payload
`;

const STARTS: Readonly<Record<string, readonly [start: string, traceback: boolean]>> = {
  "a thread": ["threading.Thread(target=stray).start()", true],
  "a thread of _thread": ["_thread.start_new_thread(stray, ())", true],
  "a timer": ["threading.Timer(0.01, stray).start()", true],
  "a thread of a thread": ["threading.Thread(target=lambda: threading.Thread(target=stray).start()).start()", true],
  "an executor of the module": ["executor.submit(stray)", false],
  "a map of an executor": ["executor.map(stray, [1])", false],
  "a pool of the module": ["pool.apply_async(stray)", false],
  "a map of a pool": ["pool.map_async(stray, [1])", false],
  "an iterator of a pool": ["pool.imap_unordered(stray, [1])", false],
  "a task of the module's loop": ["loop.create_task(stray_task())", true],
  "gather in the module's loop": ["asyncio.gather(stray_task(), loop=loop)", true],
};

describe("what a call leaves behind", () => {
  it.each(Object.entries(STARTS))("in %s is that call's, whoever runs meanwhile", async (name, [start, traceback]) => {
    const isLoops = name.endsWith("loop");
    const turn = isLoops ? "loop.run_until_complete(asyncio.sleep(0.1))" : "time.sleep(0.02)";
    const begin = name.startsWith("gather")
      ? "asyncio.set_event_loop(loop); loop.call_soon(lambda: asyncio.gather(stray_task())); loop.run_until_complete(asyncio.sleep(0))"
      : start;
    const code = SYNC.replace("START", begin)
      .replace("TURN", turn)
      .replace("ended.wait();", isLoops ? "" : "ended.wait();");
    for (const concurrency of [1, 4]) {
      const one = await functions.loaded(code, { cleanup: false, concurrency });
      // Threads of the pools are those of this call.
      expect(await one.value('"warm"')).toEqual([1, 2]);
      const bad = await one.call('"bad"');
      expect([resultOf(bad), bad.stdout, bad.stderr]).toEqual(["bad", "", ""]);
      const next = await one.call('"next"');
      expect([next.status, next.stdout, next.stderr]).toEqual([STATUS.returned, "own\n", "own error\n"]);
      const late = () => one.process.late.get(bad.id) ?? "";
      await eventually("its output", () => !traceback || late().includes("ValueError: stray"));
      expect(late()).toMatch(/^printed\nWARNING:root:logged\n/);
      expect([...one.process.late.keys()]).toEqual([bad.id]);
    }
  });

  const ASYNC = `
import asyncio, gc, time
go = asyncio.Event()
def fail(): time.sleep(0.01); print("printed"); raise ValueError("stray")
async def stray():
    await go.wait()
    print("printed")
    raise ValueError("stray")
async def leave(): await go.wait(); asyncio.get_running_loop().run_in_executor(None, fail)
async def callback(): await go.wait(); print("printed"); asyncio.get_running_loop().call_soon(lambda: [].pop())
def exits(): print("printed"); raise SystemExit("stray")
async def leaves(): await go.wait(); asyncio.get_running_loop().call_soon(exits)
async def handler(payload, context):
    if payload == "bad": asyncio.ensure_future(START)
    if payload == "next":
        go.set()
        await asyncio.sleep(0.1); gc.collect(); print("own")
    return payload
`;

  it.each([
    ["a task", "stray()", "ValueError: stray"],
    ["gather", "asyncio.gather(stray(), stray(), return_exceptions=False)", "ValueError: stray"],
    ["an executor's future", "leave()", "ValueError: stray"],
    ["a callback", "callback()", "IndexError: pop from empty list"],
    ["an exit", "leaves()", "SystemExit: stray"],
  ])("in %s of an async handler is that call's", async (_what, start, exception) => {
    for (const concurrency of [1, 4]) {
      const one = await functions.loaded(ASYNC.replace("START", start), { cleanup: false, concurrency });
      const bad = await one.call('"bad"');
      const next = await one.call('"next"');
      expect([resultOf(next), next.stdout, next.stderr]).toEqual(["next", "own\n", ""]);
      expect(one.process.late.get(bad.id)).toMatch(/^printed\n/);
      expect(one.process.late.get(bad.id)).toContain(exception);
      expect(one.process.late.size).toBe(1);
    }
  });

  it("is printed, and fails no call, while its call is open", async () => {
    const code = `
import threading
def fail(): print("printed"); raise ValueError("stray")
def handler(payload, context):
    if payload == "bad": thread = threading.Thread(target=fail); thread.start(); thread.join()
    return payload
`;
    for (const concurrency of [1, 4]) {
      const one = await functions.loaded(code, { concurrency });
      const bad = await one.call('"bad"');
      expect([resultOf(bad), bad.stdout]).toEqual(["bad", "printed\n"]);
      expect(bad.stderr).toMatch(/^Exception in thread Thread-.*\nTraceback[\s\S]*ValueError: stray\n$/);
      expect(await one.call('"next"')).toMatchObject({ stdout: "", stderr: "" });
    }
  });

  it("by an exception in a thread of the module is the instance's", async () => {
    const code = `
import threading
go = threading.Event()
def fail(): go.wait(); raise ValueError("of the module")
thread = threading.Thread(target=fail)
thread.start()
def handler(payload, context): go.set(); thread.join()
`;
    for (const concurrency of [1, 4]) {
      const one = await functions.loaded(code, { concurrency });
      expect(await one.call()).toMatchObject({ status: STATUS.returned, stdout: "", stderr: "" });
      await eventually("the exception", () => one.process.own.stderr.includes("ValueError: of the module"));
    }
  });

  it("keeps variables of contexts, and arguments of threads, as Python has them", async () => {
    const code = `
import _thread, contextvars, threading, queue
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
var, out = contextvars.ContextVar("var", default="none"), queue.Queue()
executor, pool = ThreadPoolExecutor(1), ThreadPool(1)
def put(*words, **options): out.put([var.get(), *words, options])
def handler(payload, context):
    var.set("call")
    _thread.start_new_thread(put, (1,), {"a": 2}); threading.Thread(target=put, args=(3,), kwargs={"b": 4}).start()
    got = [out.get(), out.get()]
    executor.submit(put, 5, func=6).result(); pool.apply(put, (7,), {"func": 8})
    got += [out.get(), out.get(), pool.starmap(pow, [(2, 3)]), list(pool.imap(abs, [-1]))]
    try: _thread.start_new_thread(1, ())
    except TypeError as error: got.append(str(error))
    return sorted(map(str, got))
`;
    const one = await functions.loaded(code);
    expect(await one.value()).toEqual(
      [
        "['none', 1, {'a': 2}]",
        "['none', 3, {'b': 4}]",
        "['none', 5, {'func': 6}]",
        "['none', 7, {'func': 8}]",
        "[8]",
        "[1]",
        "first arg must be callable",
      ].sort(),
    );
  });

  it("is bounded: the rest goes to the instance", async () => {
    const code = `
import threading
def fill(): [print("x" * 999) for _ in range(100)]; print("end")
def handler(payload, context): threading.Timer(0.02, fill).start()
`;
    const one = await functions.loaded(code, { cleanup: false });
    const { id } = await one.call();
    await eventually("the rest", () => one.process.own.stdout.endsWith("end\n"));
    expect(one.process.late.get(id)?.length).toBe(LIMITS.late_output_bytes_max);
  });
});
