/** The runtime nodejs in a process without a container: arguments, results and output of handlers. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { eventually } from "../../test/support/native.ts";
import { NodejsProcess } from "../../test/support/nodejs-process.ts";
import { resultOf, TRACEPARENT } from "../../test/support/resident-requests.ts";
import { type BindHead, STATUS } from "../envelope.ts";
import { nodejs } from "./index.ts";

const started: NodejsProcess[] = [];

async function start(code: string | Readonly<Record<string, string>>, bind: Partial<BindHead> = {}) {
  const files = typeof code === "string" ? { "index.mjs": code } : code;
  const process = await NodejsProcess.start(files, bind);
  started.push(process);
  return process;
}

/** Starts a function and waits until it is bound. */
async function serve(code: string | Readonly<Record<string, string>>, bind: Partial<BindHead> = {}) {
  const process = await start(code, bind);
  const bound = await process.bound;
  expect([bound.status, resultOf(bound)]).toEqual([STATUS.returned, undefined]);
  return process;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
});

describe("a handler of nodejs", () => {
  it.each(["a.mjs", "src/deep/a.cjs", "a.ts#main", "a.js#$x_1", "a b.mts#default", "a.cts", "..a.js"])(
    "may be %s",
    (handler) => {
      expect(nodejs.complaint(handler)).toBe(null);
    },
  );

  it.each([
    ["", "is empty"],
    ["a.py", "is not of the form"],
    ["#handler", "is not of the form"],
    ["a.js#", "no identifier"],
    ["a.js#b.c", "no identifier"],
    ["a.js#b#c", "no identifier"],
    ["/a.js", "absolute path"],
    ["../a.js", "must stay inside"],
    ["a/../../b.js", "must stay inside"],
    ["a\0.js", "NUL"],
  ])("cannot be %j", (handler, complaint) => {
    expect(nodejs.complaint(handler)).toContain(complaint);
  });
});

describe("the path of a handler", () => {
  it("has at most 1024 bytes", () => {
    expect(nodejs.complaint(`${"a".repeat(1021)}.js`)).toBe(null);
    expect(nodejs.complaint(`${"a".repeat(1022)}.js`)).toContain("above 1024 bytes");
  });
});

describe("payload and result", () => {
  const ECHO = "export const handler = (payload) => ({ payload, type: typeof payload });";

  it.each([
    ['{"a":[1,null]}', { a: [1, null] }, "object"],
    [" 3", 3, "number"],
    ["true", true, "boolean"],
    ['"text"', "text", "string"],
    ["true story", "true story", "string"],
    ["héllo €", "héllo €", "string"],
    ["{broken", "{broken", "string"],
    ["", undefined, "undefined"],
  ])("parses %j where it is JSON", async (body, payload, type) => {
    const process = await serve(ECHO);
    expect(resultOf(await process.call(body))).toEqual({ payload, type });
  });

  it("takes a payload of many frames, and frames in pieces", async () => {
    const process = await serve("export const handler = (text) => text.length;", { concurrency: 4 });
    const texts = [200_000, 300_000, 65_536].map((length) => "x".repeat(length));
    const answers = await Promise.all(texts.map((text) => process.call(text, {}, { chunk_bytes: 5000 })));
    expect(answers.map(resultOf)).toEqual(texts.map((text) => text.length));
  });

  it("returns nothing for undefined, and JSON up to the limit", async () => {
    const process = await serve("export const handler = (n) => n === 0 ? undefined : 'é'.repeat(n);");
    expect((await process.call(0)).content.length).toBe(0);
    const answer = await process.call(524_287);
    expect([answer.status, answer.content.length]).toEqual([STATUS.returned, 1024 * 1024]);
    const larger = await process.call(524_288);
    expect([larger.status, resultOf(larger)]).toEqual([
      STATUS.failed,
      { type: "ResultTooLarge", message: "the result has 1048578 bytes (limit 1048576)" },
    ]);
  });

  it.each([
    ["10n", "ResultNotJson", "bigint"],
    ["(() => { const a = {}; a.a = a; return a; })()", "ResultNotJson", "it contains itself"],
    ["() => {}", "ResultNotJson", "function"],
    ["Symbol('x')", "ResultNotJson", "symbol"],
    ["({ toJSON() { throw new RangeError('no JSON today'); } })", "RangeError", "no JSON today"],
    ["new Proxy({}, { ownKeys() { throw new Error('hostile'); } })", "Error", "hostile"],
    ["Buffer.alloc(64 * 1024 * 1024, 'x').toString()", "ResultTooLarge", "67108866 bytes"],
  ])("fails for the result %s", async (value, type, message) => {
    const process = await serve(`export const handler = async (n) => n === 1 ? 'fine' : ${value};`);
    const answer = await process.call(0);
    expect(answer.status).toBe(STATUS.failed);
    expect(resultOf(answer)).toMatchObject({ type, message: expect.stringContaining(message) });
    expect(resultOf(await process.call(1))).toBe("fine");
  });

  it.each([
    ["new TypeError('no')", { type: "TypeError", message: "no" }],
    ["'text'", { type: "string", message: "text" }],
    ["null", { type: "null", message: "null" }],
    ["undefined", { type: "undefined", message: "undefined" }],
    ["{ a: 1 }", { type: "Object", message: "{ a: 1 }" }],
    ["Object.create(null)", { type: "Object", message: "[Object: null prototype] {}" }],
    [
      "new Proxy(new Error(), { get() { throw 1; }, getPrototypeOf() { throw 1; } })",
      { type: "Object", message: expect.any(String) },
    ],
    [
      "Object.defineProperty(new Error('x'), 'message', { get() { throw 2; } })",
      { type: "Error", message: expect.any(String) },
    ],
  ])("fails with type and message for a throw of %s", async (thrown, content) => {
    const process = await serve(
      `export const handler = (how) => { if (how === 1) throw ${thrown}; return Promise.reject(${thrown}); };`,
    );
    for (const how of [1, 2]) {
      const answer = await process.call(how);
      expect([answer.status, resultOf(answer)]).toEqual([STATUS.failed, content]);
    }
  });

  it("writes the stack and the cause of an error to the standard error of its call", async () => {
    const process = await serve(
      "export function handler() { throw new Error('outer', { cause: new Error('inner') }); }",
    );
    const { stderr } = await process.call();
    expect(stderr).toMatch(/^Error: outer\n {4}at handler \(file:.*index\.mjs:1:[\s\S]*\[cause\]: Error: inner/);
  });
});

describe("the context", () => {
  it("has ids, deadline, trace, environment, API and memory limit", async () => {
    const process = await serve(`export const handler = (_, context) => {
      const { invocation_id, function_id, function_name, version, deadline_ms, memory_limit_mb, trace, api } = context;
      return { invocation_id, function_id, function_name, version, deadline_ms, memory_limit_mb, trace, api,
        remaining: context.remaining_ms() > 0 && context.remaining_ms() <= 20000, aborted: context.signal.aborted,
        colour: context.environment.COLOUR, size: context.environment.SIZE };
    };`);
    const deadline_ms = Date.now() + 15_000;
    const head = { invocation_id: "inv_7", deadline_ms, environment: { SIZE: "2" } };
    const api = { url: "http://10.0.0.1:80", token: "secret" };
    expect(resultOf(await process.call("", { ...head, api, tracestate: "a=b" }))).toEqual({
      invocation_id: "inv_7",
      function_id: "fn_1",
      function_name: "hello",
      version: 3,
      deadline_ms,
      memory_limit_mb: 256,
      trace: { traceparent: TRACEPARENT, tracestate: "a=b" },
      api,
      remaining: true,
      aborted: false,
      colour: "blue",
      size: "2",
    });
    expect(resultOf(await process.call())).toMatchObject({ api: null, trace: { tracestate: null } });
  });

  it("lends process.env of the call to the only call at a time", async () => {
    const code = "export const handler = () => [process.env.SIZE ?? null, process.env.COLOUR];";
    const environment = { SIZE: "2", COLOUR: "red" };
    const one = await serve(code);
    expect(resultOf(await one.call("", { environment }))).toEqual(["2", "red"]);
    expect(resultOf(await one.call())).toEqual([null, "blue"]);
    const many = await serve(code, { concurrency: 2 });
    expect(resultOf(await many.call("", { environment }))).toEqual([null, "blue"]);
  });

  it("replaces the environment of the process and goes to the working directory", async () => {
    const process = await serve(
      `export const handler = () => [Object.keys(process.env).sort(), process.cwd(), process.argv.length];`,
      { environment: { B: "1", A: "2" } },
    );
    expect(resultOf(await process.call())).toEqual([["A", "B"], process.code_directory, 2]);
  });

  it("logs lines of JSON with the id of the invocation", async () => {
    const process = await serve(`export const handler = (_, { log }) => {
      log.info("one", { count: 1 }); log.error("two", new TypeError("bad")); const a = {}; a.a = a; log.warn("three", a);
    };`);
    const { stderr } = await process.call("", { invocation_id: "inv_9" });
    const lines = stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const invocation_id = "inv_9";
    expect(lines).toMatchObject([
      { level: "info", message: "one", count: 1, invocation_id, time: expect.stringMatching(/Z$/) },
      { level: "error", message: "two", error: { type: "TypeError", message: "bad" }, invocation_id },
      { level: "warn", message: "three", fields_error: expect.stringContaining("circular"), invocation_id },
    ]);
  });

  it("aborts its signal at the deadline, and the call times out", async () => {
    const process = await serve(`export const handler = (never, { signal }) => new Promise((resolve) => {
      signal.addEventListener("abort", () => { console.log(signal.reason.name); if (!never) resolve("late"); });
    });`);
    for (const never of [0, 1]) {
      const answer = await process.call(never, { deadline_ms: Date.now() + 30 });
      expect([answer.status, answer.content.length, answer.stdout]).toEqual([STATUS.timed_out, 0, "TimeoutError\n"]);
    }
    expect(resultOf(await process.call("", { deadline_ms: Date.now() - 5 }))).toBe(undefined);
  });
});

describe("loading", () => {
  const answerOf = (text: string) => `handler() { return ${JSON.stringify(text)}; }`;

  it.each<[string, string, Readonly<Record<string, string>>]>([
    ["a.mjs", "default", { "a.mjs": `export default function ${answerOf("default")}` }],
    ["a.mjs", "handler", { "a.mjs": `export default 3; export function ${answerOf("handler")}` }],
    ["src/a.ts#main", "typed", { "src/a.ts": "export const main = (x: unknown): string => 'typed' as string;" }],
    ["a.mts", "typed", { "a.mts": "import type { X } from './none.ts';\nexport default (x: X) => 'typed';" }],
    ["a.cts", "typed", { "a.cts": "module.exports = (x: number): string => 'typed';" }],
    ["a.cjs", "function", { "a.cjs": "module.exports = () => 'function';" }],
    ["a.cjs#run", "object", { "a.cjs": "const o = {}; o['run'] = () => 'object'; module.exports = o;" }],
    ["a.js", "commonjs", { "a.js": "exports.handler = () => require('node:path').basename('/commonjs');" }],
    [
      "a.js",
      "module",
      { "a.js": "export default () => import.meta.url && 'module';", "package.json": '{"type":"module"}' },
    ],
    ["a.js", "awaited", { "a.js": "const x = await Promise.resolve('awaited'); export default () => x;" }],
    [
      "a.mjs",
      "dependency",
      {
        "a.mjs": "import { name } from 'dep'; export default () => name;",
        "node_modules/dep/package.json": '{"name":"dep","type":"module","exports":"./main.js"}',
        "node_modules/dep/main.js": "export const name = 'dependency';",
      },
    ],
    ["ä b#c.mjs".replace("#", "%23"), "odd", { "ä b%23c.mjs": "export default () => 'odd';" }],
  ])("loads %s: %s", async (handler, result, files) => {
    const process = await serve(files, { handler });
    expect(resultOf(await process.call())).toBe(result);
  });

  it.each<[string, string, Readonly<Record<string, string>>, string, string]>([
    ["a file that is missing", "b.mjs", {}, "HandlerFileMissing", "b.mjs"],
    ["an export that is missing", "a.mjs#x", { "a.mjs": "export const y = 1, z = 2;" }, "HandlerExportMissing", "y, z"],
    ["no default export", "a.mjs", { "a.mjs": "export const y = 1;" }, "HandlerExportMissing", "neither default nor"],
    ["an export that is no function", "a.mjs#y", { "a.mjs": "export const y = 1;" }, "HandlerNotAFunction", "number"],
    ["a throw", "a.mjs", { "a.mjs": "throw new RangeError('at the top');" }, "RangeError", "at the top"],
    ["a rejected await", "a.mjs", { "a.mjs": "await Promise.reject('text');" }, "string", "text"],
    ["a syntax error", "a.mjs", { "a.mjs": "export const = 1;" }, "SyntaxError", "Unexpected token"],
    [
      "an unexpected end",
      "a.mjs",
      { "a.mjs": "1;\nexport const\n" },
      "SyntaxError",
      "Unexpected end of input (a.mjs, line 3)",
    ],
    ["a missing dependency", "a.mjs", { "a.mjs": "import 'nothing';" }, "Error", "Cannot find package 'nothing'"],
    [
      "a late throw",
      "a.mjs",
      { "a.mjs": "setTimeout(() => { throw new Error('late'); }); await new Promise(() => {});" },
      "Error",
      "late",
    ],
    [
      "a stray rejection",
      "a.mjs",
      { "a.mjs": "Promise.reject(new RangeError('stray')); export default () => 1;" },
      "RangeError",
      "stray",
    ],
    [
      "a stray tick",
      "a.cjs",
      { "a.cjs": "process.nextTick(() => { throw new RangeError('stray'); }); module.exports = () => 1;" },
      "RangeError",
      "stray",
    ],
    ["process.exit", "a.mjs", { "a.mjs": "process.exit(4);" }, "ProcessExit", "exit code 4"],
  ])("answers NOT_LOADED for %s", async (_, handler, files, type, message) => {
    const process = await start(files, { handler });
    const [bound, called] = await Promise.all([process.bound, process.call()]);
    expect([bound.status, resultOf(bound).type]).toEqual([STATUS.not_loaded, type]);
    expect(resultOf(bound).message).toContain(message);
    if (called.ended === "answered")
      expect([called.status, called.content]).toEqual([STATUS.not_loaded, bound.content]);
  });

  it("writes the stack of a failed load to the standard error of the bind", async () => {
    const process = await start("console.log('begins');\nthrow new Error('at the top');");
    const { stdout, stderr } = await process.bound;
    expect([stdout, stderr]).toEqual([
      "begins\n",
      expect.stringMatching(/^Error: at the top\n {4}at file:.*index.mjs:2:7/),
    ]);
  });

  it("runs the module once, before a first call that was sent before the bind was answered", async () => {
    const process = await start(
      "let count = 0; await new Promise((r) => setTimeout(r, 20)); count++; export const handler = () => count;",
    );
    const order: string[] = [];
    const first = process.call().finally(() => order.push("call"));
    await Promise.all([process.bound.finally(() => order.push("bind")), first]);
    expect([resultOf(await first), resultOf(await process.call()), order]).toEqual([1, 1, ["bind", "call"]]);
  });

  it("refuses a second bind", async () => {
    const process = await serve("export const handler = () => 1;");
    const head: BindHead = JSON.parse(JSON.stringify({ type: "bind", handler: "x.mjs" }));
    expect(resultOf(await process.resident.bind(head))).toMatchObject({ type: "ProtocolError" });
    expect(resultOf(await process.call())).toBe(1);
  });
});

describe("output", () => {
  it("belongs to the call in whose context it was written, in order", async () => {
    const process = await serve(
      `import { setTimeout as after } from "node:timers/promises";
      export const handler = async (name) => {
        for (let i = 0; i < 5; i++) { console.log(name, i); process.stderr.write(name + "!\\n"); await after(1); }
        await Promise.all([1, 2].map(async (n) => { await after(1); process.stdout.write(name + n); }));
      };`,
      { concurrency: 10 },
    );
    const names = ["a", "b", "c", "d"].map((name) => name.repeat(5));
    const answers = await Promise.all(names.map((name) => process.call(name)));
    expect(answers.map(({ stdout }) => stdout)).toEqual(
      names.map((name) => `${[0, 1, 2, 3, 4].map((i) => `${name} ${i}\n`).join("")}${name}1${name}2`),
    );
    expect(answers.map(({ stderr }) => stderr)).toEqual(names.map((name) => `${name}!\n`.repeat(5)));
  });

  it("belongs to the instance after the call's answer", async () => {
    const process = await serve("export const handler = () => { setTimeout(() => console.log('afterwards'), 5); };", {
      cleanup: false,
    });
    expect((await process.call()).stdout).toBe("");
    await expect.poll(() => process.resident.own.stdout).toBe("afterwards\n");
  });

  it("takes bytes, encodings, pipes and an end of the streams", async () => {
    const process =
      await serve(`import { Readable } from "node:stream"; import { pipeline } from "node:stream/promises";
      export const handler = async () => {
        process.stdout.write(Buffer.from([0xc3])); process.stdout.write("a9", "hex");
        await new Promise((done) => process.stdout.write(" ", done));
        await pipeline(Readable.from(["pi", "ped"]), process.stdout, { end: false });
        process.stdout.end("."); await new Promise((done) => process.stdout.end(done)); process.stdout.destroy();
        console.log("on");
      };`);
    expect((await process.call()).stdout).toBe("é piped.on\n");
  });

  it("of the only call needs no frame", async () => {
    const process = await serve("export const handler = () => { for (let i = 0; i < 1000; i++) console.log(i); };");
    const before = process.resident.frame_count;
    expect((await process.call()).stdout.length).toBe(3890);
    expect(process.resident.frame_count - before).toBe(1);
  });

  it("passes on what the process's own descriptors get", async () => {
    const process = await serve(
      "import { execSync } from 'node:child_process'; export const handler = () => { execSync('echo raw', { stdio: 'inherit' }); };",
    );
    expect((await process.call()).stdout).toBe("raw\n");
  });

  const ENDS: Readonly<Record<string, string>> = {
    loop: "for (;;);",
    "microtasks without end": "for (;;) await null;",
    abort: "process.abort();",
    SIGKILL: "process.kill(process.pid, 'SIGKILL'); for (;;);",
    reallyExit: "process.reallyExit(3);",
  };
  const PRINTER = (end: string) => `import { writeSync } from "node:fs";
    console.log("1 log"); process.stderr.write("1 error ");
    export const handler = async () => {
      console.log("2 log"); writeSync(1, "3 raw\\n"); console.log("4 log"); console.error("2 error");
      ${end}
    };`;

  it.each(Object.keys(ENDS))("before an abrupt end is kept, in order: %s", async (name) => {
    const process = await serve(PRINTER(ENDS[name] ?? ""));
    const { ended, stdout, stderr } = await process.call("", {}, { kill_after_ms: 400 });
    expect([stdout, stderr.slice(0, 8)]).toEqual(["2 log\n3 raw\n4 log\n", "2 error\n"]);
    expect(ended).toBe(ENDS[name]?.includes("for (;;)") && name !== "SIGKILL" ? "timed_out" : "cancelled");
    expect(await process.bound).toMatchObject({ stdout: "1 log\n", stderr: "1 error " });
  });

  it.each(Object.keys(ENDS))("of one of several calls before an abrupt end is kept: %s", async (name) => {
    const code = `export const handler = async (what) => { console.log(what, "x".repeat(300_000));
      if (what === "hold") await new Promise((resolve) => setTimeout(resolve, 20_000)); ${ENDS[name]} };`;
    const process = await serve(code, { concurrency: 2 });
    const held = process.call("hold");
    const other = await process.call("end", {}, { kill_after_ms: 400 });
    expect([(await held).stdout.length, other.stdout.length]).toEqual([300_006, 300_005]);
  });

  it.each(Object.keys(ENDS))("of a module before an abrupt end is kept: %s", async (name) => {
    const process = await start(`console.log("1 log"); console.error("1 error"); ${ENDS[name]}`);
    // CALL_OPEN and one for each stream.
    await eventually("the output", () => process.resident.frame_count === 3);
    process.resident.child.kill("SIGKILL");
    const { stdout, stderr } = await process.bound;
    expect([stdout, stderr.slice(0, 8)]).toEqual(["1 log\n", "1 error\n"]);
  });
});

describe("the example", () => {
  it("answers its test payload", async () => {
    const example = join(import.meta.dirname, "example");
    const process = await serve(
      { "index.mjs": readFileSync(join(example, "index.mjs"), "utf8") },
      { handler: "index.mjs#handler" },
    );
    const payload = JSON.parse(readFileSync(join(example, "payload.json"), "utf8"));
    expect(resultOf(await process.call(payload))).toMatchObject({ message: `Hello, ${payload.name}!` });
  });
});
