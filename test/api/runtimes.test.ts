/** The contract of functions in nodejs and python3, through the API: the same for both. And the examples of all runtimes. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PROJECT_DIR } from "../../src/installation/paths.js";
import { CodeUser, NODEJS, PYTHON3, type Tree } from "../support/code.ts";
import { CONTRACT_RUNTIMES, type ContractRuntime } from "../support/contract-functions.ts";
import { Daemon } from "../support/daemon.ts";
import { eventually } from "../support/native.ts";

const MIB = 1024 * 1024;
const daemon = new Daemon();
let user: CodeUser;

beforeAll(async () => {
  await daemon.start();
  user = new CodeUser(daemon);
});
afterAll(() => daemon.dispose());

const kit = ({ name }: ContractRuntime, what: string, more: object = {}, fields: object = {}) =>
  user.invoke(`kit-${name}`, { do: what, ...more }, fields);

/** Prints by its runtime and to the descriptors themselves, then does what its payload says. */
const ENDS: Readonly<Record<string, Tree>> = {
  nodejs: {
    "index.mjs": `import { writeSync } from "node:fs";
const kept = [];
export const handler = (what) => {
  console.log("log"); writeSync(1, "raw\\n"); console.log("log again"); process.stderr.write("error");
  if (what === "kill") process.kill(process.pid, "SIGKILL");
  if (what === "abort") process.abort();
  for (;;) if (what === "grow") kept.push(Buffer.alloc(1 << 20, 1));
};`,
  },
  python3: {
    "main.py": `import os, sys
def handler(what, context):
    print("log"); os.write(1, b"raw\\n"); print("log again"); sys.stderr.write("error")
    if what == "kill": os.kill(os.getpid(), 9)
    if what == "abort": os.abort()
    kept = []
    while True:
        if what == "grow": kept.append(b"1" * (1 << 20))
`,
  },
};

/** A call of "bad" leaves behind what fails during the next call, and waits for it. */
const STRAYS: Readonly<Record<string, Tree>> = {
  nodejs: {
    "index.mjs": `let go;
const wait = new Promise((resolve) => { go = resolve; });
export const handler = async (what) => {
  if (what === "bad") void wait.then(() => { throw new RangeError("stray"); });
  else { go(); await new Promise((resolve) => setTimeout(resolve, 50)); console.error("own"); }
};`,
  },
  python3: {
    "main.py": `import sys, threading
go = threading.Event()
threads = []
def stray():
    go.wait()
    for n in range(20): print("line", n)
    raise ValueError("stray")
def handler(what, context):
    if what == "bad": threads.append(threading.Thread(target=stray)); threads[0].start()
    else: go.set(); threads[0].join(); print("own", file=sys.stderr)
`,
  },
};

describe.each(CONTRACT_RUNTIMES)("a function of $name", (runtime) => {
  const { name, fields } = runtime;

  beforeAll(async () => {
    await user.deploy(`echo-${name}`, runtime.echo, fields);
    const more = { environment: { OF_FUNCTION: "f", OF_CALL: "f" }, timeout_seconds: 20 };
    await user.deploy(`kit-${name}`, runtime.kit, { ...fields, ...more });
  });

  it.each([
    [{ a: [1, "é", null] }, "object", { a: [1, "é", null] }],
    [[1, 2], "list", [1, 2]],
    [12.5, "number", 12.5],
    [true, "boolean", true],
    [null, "nothing", null],
    ["", "nothing", null],
    ["plain text", "string", "plain text"],
    ['{"a": 1', "string", '{"a": 1'],
    [' {"a": 1} ', "object", { a: 1 }],
    ['"quoted"', "string", "quoted"],
  ])("gets the payload %j as %s", async (payload, kind, value) => {
    expect(await user.invoke(`echo-${name}`, payload)).toMatchObject({ status: "success", result: { kind, value } });
  });

  it("keeps each number as it was sent, where its language can hold it", async () => {
    const number = { nodejs: "9007199254740991", python3: "12345678901234567890123" }[name] ?? "";
    const sent = `{ "payload" : {"n": [${number}, 2.5e-300, "1.0"]} }`;
    const answer = await user.raw("POST", `/api/functions/invoke/echo-${name}`, sent);
    expect(answer).toContain(`"value":{"n":[${number},2.5e-300,"1.0"]}`);
    const { function_id, invocation_id } = JSON.parse(answer);
    const path = `/api/functions/${function_id}/invocations`;
    for (const read of [`${path}/${invocation_id}`, `${path}?limit=1`]) {
      expect(await user.raw("GET", read)).toContain(`"value":{"n":[${number},2.5e-300,"1.0"]}`);
    }
    const zeros = "0".repeat(250);
    for (const number of ["-1e400", `1${zeros}${zeros}.5`, `-1${zeros}${zeros}.0`, `1${zeros}E+99`]) {
      const large = await user.invoke(`echo-${name}`, `{"n":${number}}`);
      expect(large).toMatchObject({ status: "failed", result: null });
      const [message, shown] = large.error_message.split(/(?<=above .*): /);
      expect(message).toMatch(/^PayloadNumberTooLarge: the payload has a number above /);
      expect(shown).toBe(number.slice(0, 64));
    }
    expect(await user.invoke(`echo-${name}`, `[${`1${zeros}.5,`.repeat(9)}1e-400]`)).toMatchObject({
      status: "success",
    });
    expect(await user.invoke(`echo-${name}`, '"1e400"')).toMatchObject({ result: { value: "1e400" } });
  });

  it("gets a payload above 64 KiB and returns a result up to 1 MiB", async () => {
    const text = "€".repeat(100_000);
    expect(await kit(runtime, "length", { text })).toMatchObject({ result: text.length });
    const whole = await kit(runtime, "text", { length: MIB - 2 });
    expect([whole.status, whole.result.length]).toEqual(["success", MIB - 2]);
    const larger = await kit(runtime, "text", { length: MIB - 1 });
    expect(larger).toMatchObject({ status: "failed", result: null });
    expect(larger.error_message).toMatch(/^ResultTooLarge: the result has \d+ bytes.* \(limit 1048576\)$/);
  });

  it("knows its call: ids, deadline, and the trace of the request", async () => {
    const trace_id = "0af7651916cd43dd8448eb211c80319c";
    const headers = { traceparent: `00-${trace_id}-b7ad6b7169203331-01`, tracestate: "a=b" };
    const { body } = await daemon.call(
      "POST",
      `/api/functions/invoke/kit-${name}`,
      { payload: { do: "context" } },
      headers,
    );
    const { invocation_id, function_id, result } = body;
    const known = {
      invocation_id,
      function_id,
      function_name: `kit-${name}`,
      version: 1,
      memory_limit_mb: 256,
      api: null,
    };
    expect(result).toMatchObject({ ...known, trace: { tracestate: "a=b" } });
    expect(result.trace.traceparent).toMatch(new RegExp(`^00-${trace_id}-(?!b7ad6b7169203331)[0-9a-f]{16}-01$`));
    for (const left_ms of [result.left_ms, result.remaining_ms]) {
      expect(left_ms).toBeGreaterThan(0);
      expect(left_ms).toBeLessThanOrEqual(20_000);
    }
  });

  it("sees variables of a call in that call alone", async () => {
    expect((await kit(runtime, "environment")).result).toEqual(["f", "f", "f"]);
    const environment = { OF_CALL: "c" };
    expect((await kit(runtime, "environment", {}, { environment })).result).toEqual(["f", "c", "c"]);
    expect((await kit(runtime, "environment")).result).toEqual(["f", "f", "f"]);
  });

  it("prints to the streams of its record, in order, with log lines", async () => {
    const { invocation_id, stdout, stderr, result } = await kit(runtime, "print");
    expect([stdout, result]).toEqual(["out 1\nout 2\nout 3\nno newline", null]);
    const lines = stderr.split("\n");
    expect(lines.slice(0, 3)).toEqual(["err 1", "err 2", "err 3"]);
    expect(JSON.parse(lines[3])).toEqual({
      count: 3,
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      level: "info",
      invocation_id,
      message: "stored",
    });
  });

  it("succeeds without a result if it returns nothing", async () => {
    expect(await kit(runtime, "nothing")).toMatchObject({ status: "success", result: null, exit_code: 0, stdout: "" });
  });

  it("keeps the state of its module between calls", async () => {
    const first = await kit(runtime, "count");
    const second = await kit(runtime, "count");
    expect([second.result - first.result, second.instance_nonce]).toEqual([1, first.instance_nonce]);
  });

  it("is loaded before its first call with min_instances", async () => {
    await user.deploy(`ready-${name}`, runtime.kit, { ...fields, min_instances: 1 });
    const before_ms = Date.now();
    const { result, cold_start } = await user.invoke(`ready-${name}`, { do: "loaded" });
    expect([result < before_ms, cold_start]).toEqual([true, false]);
  });

  it("begins in /function, or in its working_directory", async () => {
    expect((await kit(runtime, "directory")).result).toBe("/function");
    await user.deploy(`there-${name}`, runtime.kit, { ...fields, working_directory: "/var" });
    expect((await user.invoke(`there-${name}`, { do: "directory" })).result).toBe("/var");
  });

  it("calls the API with api_access", async () => {
    await user.deploy(`caller-${name}`, runtime.kit, { ...fields, api_access: true });
    const record = await user.invoke(`caller-${name}`, { do: "api" });
    expect([record.error_message, record.result]).toEqual([null, [200, `kit-${name}`]]);
  });

  it("keeps what its calls leave behind, or ends it with reset_between_calls", async () => {
    await user.deploy(`keeper-${name}`, runtime.kit, fields);
    const left = await user.invoke(`keeper-${name}`, { do: "leave" });
    const next = await user.invoke(`keeper-${name}`, { do: "left" });
    expect([next.result, next.instance_nonce]).toEqual([[1, true], left.instance_nonce]);
    await user.deploy(`reset-${name}`, runtime.kit, { ...fields, reset_between_calls: true });
    expect(await user.invoke(`reset-${name}`, { do: "leave" })).toMatchObject({ status: "success" });
    expect((await user.invoke(`reset-${name}`, { do: "left" })).result).toEqual([0, false]);
  });

  it("hears of its deadline, and its instance is replaced", async () => {
    const short = { ...fields, timeout_seconds: 1, max_instances: 1 };
    await user.deploy(`late-${name}`, runtime.kit, short);
    const timeout = { status: "timeout", result: null, error_message: "timed out after 1 s" };
    const nonces = new Set<string>();
    for (const what of ["wait", "spin"]) {
      expect((await user.invoke(`late-${name}`, { do: "count" })).result).toBe(1);
      const late = await user.invoke(`late-${name}`, { do: what });
      expect(late).toMatchObject(timeout);
      if (what === "wait") expect(late.stdout).toMatch(/^cancelled by (TimeoutError|CancelledError)\n$/);
      nonces.add(late.instance_nonce);
    }
    expect(nonces.size).toBe(2);
  });

  it("keeps what it printed before an abrupt end, and says how its process ended", async () => {
    await user.deploy(`ends-${name}`, ENDS[name] ?? {}, { ...fields, timeout_seconds: 1, max_instances: 1 });
    const printed = { stdout: "log\nraw\nlog again\n", stderr: "error" };
    const end = async (what: string) => user.invoke(`ends-${name}`, what);
    expect(await end("loop")).toMatchObject({ ...printed, status: "timeout", error_message: "timed out after 1 s" });
    expect(await end("kill")).toMatchObject({
      ...printed,
      error_message: "the process of the instance was killed by signal 9: error",
    });
    expect(await end("grow")).toMatchObject({
      ...printed,
      error_message: "killed: out of memory (limit 256 MiB)",
    });
    const abort = await end("abort");
    expect([abort.status, abort.stdout]).toEqual(["failed", printed.stdout]);
    expect(abort.error_message).toMatch(/^the process of the instance was killed by signal 6: /);
  });

  it("keeps what its module printed before it failed or ended the process", async () => {
    const words = name === "nodejs" ? "console.log('begins');" : "import os; print('begins');";
    const ends =
      name === "nodejs"
        ? { throw: "throw new Error('no')", end: "process.kill(process.pid, 'SIGKILL')" }
        : { throw: "raise ValueError('no')", end: "os.kill(os.getpid(), 9)" };
    for (const [what, end] of Object.entries(ends)) {
      const { status, body } = await user.tryDeploy(`${what}s-${name}`, runtime.file(`${words} ${end}`), fields);
      expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
      expect(body.details.output).toMatch(/^begins\n/);
      if (what === "end") {
        const why = "the process of the instance was killed by signal 9: begins";
        expect(body.error).toBe(`cannot load the handler: ${why}`);
      }
    }
  });

  it("has what a call leaves behind in the record of that call, not of the next one", async () => {
    await user.deploy(`stray-${name}`, STRAYS[name] ?? {}, { ...fields, max_instances: 1 });
    const { invocation_id, function_id, stderr } = await user.invoke(`stray-${name}`, "bad");
    const next = await user.invoke(`stray-${name}`, "next");
    expect([stderr, next.status, next.stdout, next.stderr]).toEqual(["", "success", "", "own\n"]);
    const path = `/api/functions/${function_id}/invocations/${invocation_id}`;
    const late = async () => (await daemon.call("GET", path)).body.stderr as string;
    await eventually("the record has it", async () => (await late()).includes("Error: stray"));
    const lines = Array.from({ length: 20 }, (_, n) => `line ${n}\n`).join("");
    expect(await late()).toContain(name === "python3" ? `${lines}Exception in thread` : invocation_id);
  });

  it("uses 60 percent of 1024 MB, and is told of the limit above", async () => {
    await user.deploy(`large-${name}`, runtime.kit, { ...fields, memory_limit_mb: 1024, timeout_seconds: 50 });
    expect(await user.invoke(`large-${name}`, { do: "fill", mb: 614 })).toMatchObject({
      status: "success",
      result: 614,
    });
    await user.deploy(`small-${name}`, runtime.kit, { ...fields, memory_limit_mb: 256, timeout_seconds: 50 });
    expect(await user.invoke(`small-${name}`, { do: "fill", mb: 4000 })).toMatchObject({
      status: "failed",
      error_message: "killed: out of memory (limit 256 MiB)",
    });
    expect(await user.invoke(`small-${name}`, { do: "count" })).toMatchObject({ status: "success", result: 1 });
  });
});

describe("the code of a function", () => {
  it.each<[string, Tree, string]>([
    ["TypeScript", { "main.ts": "const n: number = 7;\nexport const handler = (): number => n;\n" }, "main.ts#handler"],
    ["CommonJS", { "main.cjs": "exports.handler = () => 7;\n" }, "main.cjs#handler"],
    ["a default export", { "main.mjs": "export default () => 7;\n" }, "main.mjs"],
    [
      "CommonJS by its package.json",
      { "package.json": '{"type":"commonjs"}', "a/main.js": "module.exports = () => 7;\n" },
      "a/main.js",
    ],
    [
      "a module by its package.json",
      { "package.json": '{"type":"module"}', "main.js": "export const handler = () => 7;\n" },
      "main.js",
    ],
    [
      "top-level await",
      { "main.mjs": "const n = await Promise.resolve(7);\nexport const handler = () => n;\n" },
      "main.mjs",
    ],
    [
      "node_modules",
      {
        "main.mjs":
          'import { n } from "seven";\nimport { createRequire } from "node:module";\nexport const handler = () => (n === createRequire(import.meta.url)("seven/c.cjs") ? n : 0);\n',
        "node_modules/seven/package.json":
          '{"name":"seven","version":"1.0.0","exports":{".":"./i.mjs","./c.cjs":"./c.cjs"}}',
        "node_modules/seven/i.mjs": "export const n = 7;\n",
        "node_modules/seven/c.cjs": "module.exports = 7;\n",
      },
      "main.mjs#handler",
    ],
  ])("of nodejs may be %s", async (title, files, handler) => {
    const name = title.toLowerCase().replaceAll(/[^a-z]+/g, "-");
    await user.deploy(name, files, { ...NODEJS, handler });
    const { error_message, result } = await user.invoke(name);
    expect([error_message, result]).toEqual([null, 7]);
  });

  it.each<[string, Tree, string]>([
    [
      "an installed wheel",
      {
        "main.py":
          "from importlib.metadata import version\nfrom seven import n\ndef handler(p, c): return n if version('seven') == '1.0' else 0\n",
        "site-packages/seven/__init__.py": "n = 7\n",
        "site-packages/seven-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: seven\nVersion: 1.0\n",
      },
      "main.py",
    ],
    [
      "a package",
      { "app/__init__.py": "", "app/n.py": "n = 7\n", "app/main.py": "from .n import n\ndef run(p, c): return n\n" },
      "app/main.py:run",
    ],
    [
      "a file beside its handler",
      { "src/n.py": "n = 7\n", "src/main.py": "import n\ndef handler(p, c): return n.n\n" },
      "src/main.py:handler",
    ],
    [
      "a callable object",
      { "main.py": "class Seven:\n    async def __call__(self, p, c): return 7\nhandler = Seven()\n" },
      "main.py",
    ],
  ])("of python3 may be %s", async (title, files, handler) => {
    const name = title.replaceAll(" ", "-");
    await user.deploy(name, files, { ...PYTHON3, handler });
    const { error_message, result } = await user.invoke(name);
    expect([error_message, result]).toEqual([null, 7]);
  });
});

describe("a mistake in a handler", () => {
  const refusedBy = async (runtime: ContractRuntime, text: string) => {
    const { status, body } = await user.tryDeploy(`wrong-${runtime.name}`, runtime.file(text), runtime.fields);
    expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
    return body;
  };
  const [nodejs, python3] = CONTRACT_RUNTIMES as [ContractRuntime, ContractRuntime];

  it.each([
    [
      nodejs,
      "export const handlr = () => 1;\n",
      "index.mjs exports no handler (exports: handlr): did you mean handlr?",
    ],
    [python3, "def handlr(p, c): pass\n", "main.py has no function handler (functions: handlr): did you mean handlr?"],
    [nodejs, "export const handler = 1;\n", "export handler of index.mjs is not a function: number"],
    [python3, "handler = 1\n", "handler of main.py is not a function: int"],
  ])("of $name in the name of the function names those that exist", async (runtime, text, message) => {
    expect((await refusedBy(runtime, text)).error).toContain(message);
  });

  it.each([
    [
      nodejs,
      "const a = 1;\nexport const handler = () => {;\n  return a b;\n};\n",
      "SyntaxError: Unexpected identifier 'b' (index.mjs, line 3)",
      "return a b;",
    ],
    [
      python3,
      "a = 1\ndef handler(p, c):\n    return a b\n",
      "SyntaxError: invalid syntax (main.py, line 3)",
      "return a b",
    ],
  ])("of $name in the syntax names file and line, and shows the line", async (runtime, text, message, line) => {
    const { error, details } = await refusedBy(runtime, text);
    expect(error).toContain(message);
    expect(details.output).toContain(line);
  });

  it.each([
    [
      nodejs,
      'import "left-pad";\n',
      "Cannot find package 'left-pad' imported from /function/index.mjs: name it in package.json and run hearth deploy --build",
    ],
    [
      python3,
      "import requests_of_a_kind\n",
      "ModuleNotFoundError: No module named 'requests_of_a_kind': name it in requirements.txt and run hearth deploy --build",
    ],
  ])("of $name, a missing dependency, says how to install it", async (runtime, text, message) => {
    expect((await refusedBy(runtime, text)).error).toContain(message);
  });

  it.each([
    [nodejs, "export const handler = () => ({ a: 1n });\n", /^ResultNotJson: .*bigint/],
    [python3, "def handler(p, c): return {'a': {1}}\n", /^ResultNotJson: .*set/],
    [nodejs, "export const handler = () => { const a = []; a.push(a); return a; };\n", /^ResultNotJson: .*itself/],
    [python3, "def handler(p, c):\n  a = []\n  a.append(a)\n  return a\n", /^ResultNotJson: .*itself/],
  ])("of $name in the result is named", async (runtime, text, message) => {
    await user.deploy(`odd-${runtime.name}`, runtime.file(text), runtime.fields);
    const record = await user.invoke(`odd-${runtime.name}`);
    expect(record).toMatchObject({ status: "failed", result: null, error_message: expect.stringMatching(message) });
  });
});

describe("the example of a runtime", () => {
  it.each([
    ["nodejs/example", NODEJS, { message: "Hello, Ada!" }],
    ["python3/example", PYTHON3, { greeting: "Hello, Ada!" }],
    ["custom/example", { runtime: "custom", handler: "./server.py" }, { message: "Hello, Ada!" }],
    [
      "custom/example-lambda",
      { runtime: "custom", handler: "function.handler", protocol: "lambda" },
      { echo: { name: "Ada" } },
    ],
    ["shell/example", { runtime: "shell", handler: "./run.sh" }, null],
  ])("%s deploys and answers its payload", async (folder, fields, result) => {
    const directory = join(PROJECT_DIR, "runtimes", folder);
    const name = folder.replace("/", "-");
    await user.deploy(name, directory, fields);
    const record = await user.invoke(name, JSON.parse(readFileSync(join(directory, "payload.json"), "utf8")));
    expect([record.error_message, record.status]).toEqual([null, "success"]);
    if (result === null) expect(record.stdout).toBe("Hello, Ada!\n");
    else expect(record.result).toMatchObject(result);
  });

  it("is deployed for each runtime", () => {
    const folders = readdirSync(join(PROJECT_DIR, "runtimes"), { recursive: true, withFileTypes: true });
    const examples = folders.filter((entry) => entry.isDirectory() && entry.name.startsWith("example"));
    expect(examples.length).toBe(5);
  });
});
