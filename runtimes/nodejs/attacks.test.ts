/**
 * Hostile and broken handlers of nodejs against their process, without a container: the harness kills as minit does. Each
 * case states the effect on the other calls of the process.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { eventually } from "../../test/support/native.ts";
import { NodejsProcess } from "../../test/support/nodejs-process.ts";
import { callHead, resultOf } from "../../test/support/resident-requests.ts";
import { type BindHead, STATUS } from "../envelope.ts";

const started: NodejsProcess[] = [];

async function serve(code: string, bind: Partial<BindHead> = {}) {
  const process = await NodejsProcess.start({ "index.mjs": code }, bind);
  started.push(process);
  expect((await process.bound).status).toBe(STATUS.returned);
  return process;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
});

/** A handler that does what the payload says, and waits for a file to appear on "hold". */
const dispatcher = (cases: string, head = "") => `${head}
  const hold = () => new Promise((resolve) => setTimeout(resolve, 20000));
  export const handler = async (what, context) => { if (what === "hold") await hold(); ${cases} return what; };`;

const isAlive = (pid: number): boolean => {
  try {
    // The state follows the name in parentheses. A zombie is dead.
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
};

describe("a handler that ends its process", () => {
  it.each([
    [
      "an uncaught exception",
      "setTimeout(() => { throw new RangeError('late'); }); await hold();",
      "RangeError",
      "late",
      1,
    ],
    ["an unhandled rejection", "Promise.reject(new RangeError('late')); await hold();", "RangeError", "late", 1],
    ["an uncaught text", "setTimeout(() => { throw 'text'; }); await hold();", "string", "text", 1],
    ["process.exit", "process.exit(7);", "ProcessExit", "the function ended its process with exit code 7", 7],
  ])("by %s is failed, and its process ends", async (_, code, type, message, exit_code) => {
    const process = await serve(dispatcher(code));
    const answer = await process.call("x");
    expect([answer.status, resultOf(answer)]).toEqual([STATUS.exiting, { type, message }]);
    if (type !== "ProcessExit") expect(answer.stderr).toContain(message);
    expect(await process.resident.ended).toEqual({ code: exit_code, signal: null, broken: null });
  });

  const STRAYS: Readonly<Record<string, string>> = {
    "an exception of a timer": "setTimeout(() => { throw new RangeError('stray'); })",
    "an exception of a tick": "process.nextTick(() => { throw new RangeError('stray'); })",
    "a rejection": "Promise.reject(new RangeError('stray'))",
    "an async function": "(async () => { await null; throw new RangeError('stray'); })()",
    "an error event": "setImmediate(() => new EventEmitter().emit('error', new RangeError('stray')))",
    "a promise of the module": "setTimeout(() => stray.reject(new RangeError('stray')))",
    "a fetch without await": "fetch('http://127.0.0.1:1/')",
  };
  const IMPORTS =
    "import { EventEmitter } from 'node:events'; const stray = Promise.withResolvers(); const free = Promise.withResolvers();";

  it.each(Object.keys(STRAYS))("by %s is failed alone: other calls go on", async (name) => {
    const process = await serve(
      dispatcher(
        `if (what === "free") { free.resolve(); return "freed"; } if (what === "wait") { await free.promise; return "waited"; }
        if (what === "bad") { ${STRAYS[name]}; await hold(); }`,
        IMPORTS,
      ),
      { concurrency: 4 },
    );
    const held = process.call("wait");
    const bad = await process.call("bad");
    expect([bad.status, resultOf(bad).type]).toEqual([
      STATUS.exiting,
      name.includes("fetch") ? "TypeError" : "RangeError",
    ]);
    // The daemon sends no more calls, but one may be on its way.
    expect(resultOf(await process.call("free"))).toBe("freed");
    expect([resultOf(await held), process.resident.own.stderr]).toEqual(["waited", ""]);
  });

  it.each(Object.keys(STRAYS))("by %s after its answer harms no call, and is told with its id", async (name) => {
    for (const concurrency of [1, 4]) {
      const process = await serve(
        dispatcher(
          `if (what === "bad") { setTimeout(() => { ${STRAYS[name]}; }, 5); return what; }
           if (what === "next") await new Promise((resolve) => { globalThis.done = resolve; });
           if (what === "done") globalThis.done();`,
          IMPORTS,
        ),
        { concurrency, cleanup: false },
      );
      expect(resultOf(await process.call("bad", { invocation_id: "inv_bad" }))).toBe("bad");
      const next = concurrency === 1 ? null : process.call("next");
      const word = name.includes("fetch") ? "[TypeError: fetch failed] {\n" : "RangeError: stray\n    at ";
      const told = `uncaught in invocation inv_bad, after its answer: ${word}`;
      await eventually("the stray", () => process.resident.own.stderr.includes(told));
      const done = await process.call("done");
      if (next !== null) expect(resultOf(await next)).toBe("next");
      else expect(resultOf(done)).toMatchObject({ type: "TypeError" });
      expect(done.stderr).not.toContain("stray");
    }
  });

  it("by an exception of the module's own timer is blamed on no call", async () => {
    const process = await serve(
      dispatcher(
        "if (what === 'go') { go.emit('now'); return what; } await hold();",
        "import { EventEmitter } from 'node:events'; const go = new EventEmitter(); const own = setInterval(() => { if (globalThis.now) { clearInterval(own); throw new Error('own'); } }, 1); go.on('now', () => { globalThis.now = true; });",
      ),
      { concurrency: 4 },
    );
    const held = process.call("hold");
    expect(resultOf(await process.call("go"))).toBe("go");
    await eventually("the error", () => process.resident.own.stderr.includes("of any call: Error: own"));
    expect(resultOf(await process.call("go"))).toBe("go");
    await process.resident.end();
    expect((await held).ended).toBe("cancelled");
  });

  it("by process.exit after its answer is told", async () => {
    const process = await serve(
      dispatcher("if (what === 'bad') { setTimeout(() => process.exit(4), 20); return what; } await hold();"),
      { cleanup: false, concurrency: 2 },
    );
    expect(resultOf(await process.call("bad", { invocation_id: "inv_bad" }))).toBe("bad");
    expect((await process.call("hold")).ended).toBe("cancelled");
    expect(process.resident.own.stderr).toBe("process.exit(4) in invocation inv_bad, after its answer\n");
  });

  it.each([
    ["process.abort()", "SIGABRT"],
    ["process.kill(process.pid, 'SIGSEGV')", "SIGSEGV"],
    ["process.reallyExit(9)", null],
  ])("by %s is cancelled", async (code, signal) => {
    const process = await serve(dispatcher(`${code}; await hold();`));
    expect((await process.call("x")).ended).toBe("cancelled");
    expect((await process.resident.ended).signal).toBe(signal);
  });

  it("keeps what it printed before", async () => {
    const process = await serve(dispatcher("console.log('before'); process.exit(0);"));
    expect((await process.call("x")).stdout).toBe("before\n");
  });

  it("decides itself if it listens for uncaught exceptions", async () => {
    const process = await serve(
      dispatcher(
        "setTimeout(() => { throw new Error('x'); }); await new Promise((r) => setTimeout(r, 20));",
        "process.on('uncaughtException', () => {});",
      ),
    );
    expect(resultOf(await process.call("fine"))).toBe("fine");
  });
});

describe("a handler that does not end", () => {
  it("times out at the deadline if it only waits, and other calls continue", async () => {
    const process = await serve(dispatcher(""), { concurrency: 4 });
    const late = process.call("hold", { deadline_ms: Date.now() + 50 });
    const other = process.call("hold");
    expect((await late).status).toBe(STATUS.timed_out);
    expect(resultOf(await process.call("x"))).toBe("x");
    await process.resident.end();
    expect((await other).ended).toBe("cancelled");
  });

  it.each(["for (;;);", "for (;;) await null;", "const f = () => process.nextTick(f); f(); await hold();"])(
    "is killed in the loop %s",
    async (loop) => {
      const process = await serve(dispatcher(loop));
      const answer = await process.call("x", { deadline_ms: Date.now() + 20 }, { kill_after_ms: 270 });
      expect(answer.ended).toBe("timed_out");
      expect((await process.resident.ended).signal).toBe("SIGKILL");
    },
  );

  it("is killed whatever signals it handles and however it delays its exit", async () => {
    const process = await serve(
      dispatcher(
        "for (;;);",
        "for (const s of ['SIGTERM','SIGINT','SIGHUP']) process.on(s, () => {}); process.on('exit', () => { for (;;); });",
      ),
    );
    expect((await process.call("x", {}, { kill_after_ms: 100 })).ended).toBe("timed_out");
    expect((await process.resident.ended).signal).toBe("SIGKILL");
  });

  it("is killed if its module hangs", async () => {
    const process = await NodejsProcess.start({ "index.mjs": "for (;;);" });
    started.push(process);
    const call = process.resident.call(callHead());
    await eventually("the load", () => process.resident.inFlight === 2);
    await process.resident.end();
    expect([(await process.bound).ended, (await call).ended]).toEqual(["cancelled", "cancelled"]);
  });
});

describe("a handler against descriptor 3", () => {
  it.each([
    ["garbage", "writeSync(3, 'garbage '.repeat(100))"],
    ["a frame of a call that is not in flight", "writeSync(3, Buffer.from([9,0,0,0,0x64,99,0,0,0,0,0,0,0]))"],
    ["a second CALL_OPEN", "writeSync(3, Buffer.from([9,0,0,0,0x60,0,0,0,0,1,0,0,0]))"],
    ["its end", "closeSync(3)"],
  ])("that sends %s ends its own process", async (_, code) => {
    const process = await serve(
      dispatcher(`${code}; await hold();`, "import { writeSync, closeSync } from 'node:fs';"),
    );
    expect((await process.call("x")).ended).toBe("cancelled");
    await process.resident.ended;
  });

  it("cannot answer twice", async () => {
    const process = await serve(
      "import { writeSync } from 'node:fs'; export const handler = () => { writeSync(3, Buffer.from([10,0,0,0,0x64,2,0,0,0,0,0,0,0,0x31])); return 2; };",
    );
    expect(resultOf(await process.call("x"))).toBe(1);
    expect((await process.resident.ended).broken).toContain("not in flight");
  });

  it("does not pass it on to its children", async () => {
    const process = await serve(
      "import { execFileSync } from 'node:child_process'; export const handler = () => execFileSync('ls', ['-l', '/proc/self/fd']).toString();",
    );
    const answer = resultOf(await process.call());
    // The descriptor that `ls` reads from is the first free one.
    expect(answer).toMatch(/ 3 -> \/proc\/\d+\/fd$/m);
  });
});

describe("a flood of output", () => {
  it.each([
    ["a loop", "for (let i = 0; i < 200000; i++) console.log('x'.repeat(100));"],
    ["one write", "process.stdout.write('x'.repeat(64 * 1024 * 1024));"],
    [
      "turns of the loop",
      "for (let i = 0; i < 300; i++) { console.error('x'.repeat(100000)); await new Promise(setImmediate); }",
    ],
  ])("by %s is cut and does not grow the process", async (_, code) => {
    const process = await serve(
      dispatcher(`const before = process.memoryUsage(); ${code} const after = process.memoryUsage();
        return (after.arrayBuffers + after.external - before.arrayBuffers - before.external) / 1048576;`),
    );
    const answer = await process.call("x");
    expect(answer.is_truncated).toBe(true);
    expect(answer.stdout.length + answer.stderr.length).toBe(1024 * 1024);
    // A buffer of one text may wait for the collector.
    expect(resultOf(answer)).toBeLessThan(200);
    expect(resultOf(await process.call("hi"))).toBeTypeOf("number");
  });

  it("gathers a bounded amount while the daemon does not read, and continues afterwards", async () => {
    const process = await serve(
      dispatcher(
        "for (let i = 0; i < 2000; i++) console.log(String(i).padEnd(1023)); writeFileSync('done-' + ++count, '');",
        "import { writeFileSync } from 'node:fs'; let count = 0;",
      ),
      { concurrency: 50 },
    );
    process.resident.pause();
    const calls = Array.from({ length: 20 }, () => process.call("x"));
    await eventually("all handlers to be done", () => existsSync(join(process.code_directory, "done-20")));
    process.resident.resume();
    const answers = await Promise.all(calls);
    expect(answers.map(resultOf)).toEqual(calls.map(() => "x"));
    expect(answers[0]?.stdout.length).toBe(1024 * 1024);
    expect(answers.reduce((sum, { stdout }) => sum + stdout.length, 0)).toBeLessThan(8 * 1024 * 1024);
  });
});

describe("cleanup after a call", () => {
  const LEFTOVERS: readonly [string, string][] = [
    ["a timer", "setTimeout(() => { globalThis.touched = true; }, 30);"],
    ["an interval without a hold on the process", "setInterval(() => { globalThis.touched = true; }, 1).unref();"],
    ["a timer of timers/promises", "timers.setTimeout(20).then(() => { globalThis.touched = true; });"],
    ["immediates", "const again = () => { globalThis.touched = true; setImmediate(again); }; setTimeout(again, 1);"],
  ];
  const HEAD = "import * as timers from 'node:timers/promises';";
  // Its timer ends after those of the call before.
  const LATER =
    "if (what === 'look') { await new Promise((done) => setTimeout(done, 40)); return globalThis.touched ?? false; }";

  it.each(LEFTOVERS)("ends %s", async (_, code) => {
    const process = await serve(dispatcher(`${LATER} ${code}`, HEAD));
    await process.call("x");
    expect(resultOf(await process.call("look"))).toBe(false);
  });

  it.each(LEFTOVERS)("leaves %s with cleanup off", async (_, code) => {
    const process = await serve(dispatcher(`${LATER} ${code}`, HEAD), { cleanup: false });
    await process.call("x");
    await expect.poll(async () => resultOf(await process.call("look"))).toBe(true);
  });

  it("ends a timer that a call starts after its answer", async () => {
    const process = await serve(
      dispatcher(
        "if (what === 'look') return [made, process.getActiveResourcesInfo().filter((type) => type === 'Timeout').length]; stat('/').then(() => { setInterval(() => {}, 1000); made = true; });",
        "import { stat } from 'node:fs/promises'; let made = false;",
      ),
    );
    await process.call("x");
    // The runtime's own timer of deadlines is the one that stays.
    await expect.poll(async () => resultOf(await process.call("look"))).toEqual([true, 1]);
  });

  it("waits until no call is in flight", async () => {
    const process = await serve(
      dispatcher(
        "if (what === 'start') setTimeout(() => go(), 10); else await gone;",
        "let go; const gone = new Promise((resolve) => { go = resolve; });",
      ),
      { concurrency: 2 },
    );
    const waiting = process.call("wait");
    await process.call("start");
    expect(resultOf(await waiting)).toBe("wait");
  });

  it("leaves what the module made before the first call", async () => {
    const process = await serve(
      dispatcher(
        "return what === 'look' ? [count > 2, child.exitCode, server.listening] : 0;",
        `import { spawn } from "node:child_process"; import { createServer } from "node:net";
         let count = 0; setInterval(() => count++, 1); const child = spawn("sleep", ["100"]);
         const server = createServer().listen(0);`,
      ),
    );
    await process.call("x");
    await expect.poll(async () => resultOf(await process.call("look"))).toEqual([true, null, true]);
  });

  it("ends servers, sockets, watchers, workers and open files", async () => {
    const process = await serve(
      `import { createServer, connect } from "node:net"; import { createServer as http } from "node:http";
       import { Worker } from "node:worker_threads"; import { watch, watchFile } from "node:fs"; import { open } from "node:fs/promises";
       import { createSocket } from "node:dgram"; import { once } from "node:events";
       let before;
       export const handler = async (what) => {
         if (what === "look") return process.getActiveResourcesInfo().filter((type) => !before.includes(type));
         before = process.getActiveResourcesInfo();
         const server = createServer((socket) => socket.write("x")).listen(0);
         await once(server, "listening");
         await once(connect(server.address().port).on("error", () => {}), "data");
         http().listen(0); createSocket("udp4").bind(0); watch("."); watchFile("x", () => {});
         await open("index.mjs");
         const worker = new Worker("setInterval(() => {}, 10)", { eval: true });
         await once(worker, "online");
       };`,
    );
    expect((await process.call("x")).status).toBe(STATUS.returned);
    await expect.poll(async () => resultOf(await process.call("look"))).toEqual([]);
  });

  it("lets a library use its one timer again", async () => {
    const process = await serve(
      dispatcher(
        "if (what === 'look') return ticks; if (timer) timer.refresh(); else timer = setTimeout(() => ticks++, 5); if (what === 'wait') await new Promise((r) => setTimeout(r, 30));",
        "let timer; let ticks = 0;",
      ),
    );
    await process.call("x");
    await process.call("wait");
    expect(resultOf(await process.call("look"))).toBe(1);
  });

  it("lets fetch work in the next call", async () => {
    const process = await serve(
      `import { createServer } from "node:http"; const server = createServer((_, r) => r.end("ok")).listen(0);
       export const handler = async () => (await fetch("http://127.0.0.1:" + server.address().port)).text();`,
    );
    for (let i = 0; i < 3; i++) expect(resultOf(await process.call())).toBe("ok");
  });

  it.each([
    ["spawned", "spawn('sleep', ['100']).pid"],
    [
      "detached",
      "(() => { const c = spawn('sleep', ['100'], { detached: true, stdio: 'ignore' }); c.unref(); return c.pid; })()",
    ],
  ])("kills a child that was %s", async (_, code) => {
    const process = await serve(dispatcher(`return ${code};`, "import { spawn } from 'node:child_process';"));
    const pid = resultOf(await process.call("x"));
    expect(pid).toBeGreaterThan(1);
    await eventually("the child to be dead", () => !isAlive(pid));
  });

  it("empties the scratch directories, but for what the module wrote", async () => {
    const process = await serve(
      dispatcher(
        "if (what === 'look') return readdirSync(dir); writeFileSync(dir + '/b', 'x'); mkdirSync(dir + '/c/d', { recursive: true });",
        "import { writeFileSync, mkdirSync, readdirSync } from 'node:fs'; const dir = process.env.SCRATCH; writeFileSync(dir + '/a', 'x');",
      ),
    );
    for (let i = 0; i < 3; i++) {
      await process.call("x");
      expect(resultOf(await process.call("look"))).toEqual(["a"]);
    }
  });
});
