/** The runtime python3 without a container: handlers, how they are loaded, payloads, results, context, failures. */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { PythonFunctions } from "../../test/support/python-function.ts";
import { TRACEPARENT } from "../../test/support/resident-requests.ts";
import { STATUS } from "../envelope.ts";
import { python3 } from "./index.ts";

const MIB = 1024 * 1024;
const functions = new PythonFunctions();
const { load, loaded } = functions;

afterEach(() => functions.end());

describe("a handler's name", () => {
  it.each(["main.py", "main.py:handler", "a/b/my-file.py:größe", "a.b.py:_x1"])("%s is accepted", (handler) => {
    expect(python3.complaint(handler)).toBe(null);
  });

  it.each([
    ["", "does not name a Python file"],
    ["main", "does not name a Python file"],
    ["main.py\0:x", "does not name a Python file"],
    ["main.handler", "does not name a Python file"],
    ["/etc/main.py", "absolute path"],
    ["../main.py", "must stay inside"],
    ["a/../../main.py:handler", "must stay inside"],
    ["main.py:", "does not name a function"],
    ["main.py:a.b", "does not name a function"],
    ["main.py:1x", "does not name a function"],
  ])("%j is refused", (handler, why) => {
    expect(python3.complaint(handler)).toContain(why);
  });
});

describe("the example", () => {
  it("answers its payload", async () => {
    const example = join(import.meta.dirname, "example");
    const function_ = await loaded(readFileSync(join(example, "main.py"), "utf8"));
    const answer = await function_.call(readFileSync(join(example, "payload.json")));
    expect(JSON.parse(answer.content.toString())).toEqual({ greeting: "Hello, Ada!", version: 3 });
    expect(answer.stdout).toBe("greeting Ada\n");
  });
});

describe("payloads and results", () => {
  it.each([
    ["", ["NoneType", "None"]],
    ['{"a": [1, 2.5, true, null]}', ["dict", "{'a': [1, 2.5, True, None]}"]],
    [" 12 \n", ["int", "12"]],
    ['"text"', ["str", "'text'"]],
    ["plain text", ["str", "'plain text'"]],
    ["[1] [2]", ["str", "'[1] [2]'"]],
    ["NaN", ["str", "'NaN'"]],
    ["[Infinity]", ["str", "'[Infinity]'"]],
    ["{", ["str", "'{'"]],
    [Buffer.from([0xff, 0x41]), ["str", "'\uFFFDA'"]],
  ])("a payload of %j arrives as %j", async (payload, seen) => {
    const function_ = await loaded("def handler(payload, context): return [type(payload).__name__, repr(payload)]");
    expect(await function_.value(payload)).toEqual(seen);
  });

  it("fails a payload that is nested too deeply, and serves the next one", async () => {
    const function_ = await loaded("def handler(payload, context): return payload");
    const answer = await function_.call("[".repeat(200_000));
    expect(answer.status).toBe(STATUS.failed);
    expect(answer.content.toString()).toContain("nested too deeply");
    expect(await function_.value("1")).toBe(1);
  });

  it.each([
    ["None", ""],
    ["0", "0"],
    ["{'b': [1, None], 2: 'ä'}", '{"b":[1,null],"2":"ä"}'],
    ["(1, 2)", "[1,2]"],
    ["'\\ud800'", '"\\ud800"'],
    ["10 ** 30", "1000000000000000000000000000000"],
  ])("a result of %s is answered as %s", async (result, content) => {
    const function_ = await loaded(`def handler(payload, context): return ${result}`);
    const answer = await function_.call();
    expect([answer.status, answer.content.toString()]).toEqual([STATUS.returned, content]);
  });

  it.each([
    ["{1, 2}", "a value of type set"],
    ["{'a': [b'x']}", "a value of type bytes"],
    ["float('nan')", "NaN or Infinity"],
    ["[float('-inf')]", "NaN or Infinity"],
    ["{float('inf'): 1}", "NaN or Infinity"],
    ["type('Own', (float,), {})('nan')", "NaN or Infinity"],
    ["__import__('decimal').Decimal('1.1')", "a value of type Decimal"],
    ["{(1, 2): 3}", "keys must be"],
    ["context", "a value of type Context"],
    ["(x for x in [1])", "a value of type generator"],
    ["10 ** 5000", "4300 digits"],
    ["loop()", "it contains itself"],
    ["deep()", "nested too deeply"],
  ])("a result of %s fails with a message that names it", async (result, why) => {
    const function_ = await loaded(`
def loop():
    made = []
    made.append(made)
    return made
def deep():
    made = []
    for _ in range(100000): made = [made]
    return made
def handler(payload, context): return ${result} if payload is None else payload
`);
    const answer = await function_.call();
    expect([answer.status, JSON.parse(answer.content.toString())]).toEqual([
      STATUS.failed,
      { type: "ResultNotJson", message: expect.stringContaining(why) },
    ]);
    expect(await function_.value("1")).toBe(1);
  });

  it.each([
    `1${"0".repeat(400)}.5`,
    `[-1${"0".repeat(309)}.0]`,
    `{"a":${"9".repeat(309)}.0}`,
    `[${"0.1,".repeat(100)}1${"0".repeat(250)}E99]`,
    "-1e309",
    "1".repeat(4301),
  ])("refuses the number of payload %#", async (payload) => {
    const function_ = await loaded("def handler(payload, context): return str(payload)[:9]");
    const { status, content } = await function_.call(payload);
    expect([status, JSON.parse(String(content)).type]).toEqual([STATUS.failed, "PayloadNumberTooLarge"]);
    expect(await function_.value(JSON.stringify(payload))).toBe(payload.slice(0, 9));
  });

  it("takes the largest numbers that Python has, and none for infinite", async () => {
    const function_ = await loaded(
      "import math\ndef handler(p, c): return [type(n).__name__ for n in p if math.isfinite(n if type(n) is float else 0)]",
    );
    const numbers = [`${"1".repeat(308)}.25`, "1.7976931348623157e308", "1e-999", "1".repeat(4300), "-0.0"];
    expect(await function_.value(`[${numbers}]`)).toEqual(["float", "float", "float", "int", "float"]);
  });

  it("answers a result of exactly 1 MiB in chunks, and names size and limit of a larger one", async () => {
    const function_ = await loaded("def handler(payload, context): return 'x' * payload");
    const largest = await function_.call(String(MIB - 2));
    expect([largest.status, largest.content.length, largest.is_truncated]).toEqual([STATUS.returned, MIB, false]);
    for (const size of [MIB - 1, 64 * MIB]) {
      expect(await function_.value(String(size))).toEqual({
        type: "ResultTooLarge",
        message: `the result has ${size + 2} bytes or more (limit ${MIB})`,
      });
    }
  });

  it("takes payloads of megabytes in chunks, and requests that arrive byte by byte", async () => {
    const function_ = await loaded("def handler(payload, context): return len(payload)");
    expect(await function_.value(Buffer.alloc(5 * MIB, "a"))).toBe(5 * MIB);
    const answer = await function_.call("a".repeat(300), {}, { chunk_bytes: 1 });
    expect(answer.content.toString()).toBe("300");
  });
});

describe("a start", () => {
  it("imports no module that costs milliseconds", () => {
    const code = `
import sys
package = sys.modules["_hearth"] = type(sys)("_hearth")
package.__path__ = [sys.argv[1]]
from _hearth import process, function, sequential
print(*sorted({"asyncio", "collections", "enum", "json", "re", "signal", "threading", "traceback"} & set(sys.modules)))
`;
    const { stdout, stderr } = spawnSync("/usr/bin/python3", ["-I", "-S", "-B", "-c", code, python3.directory ?? ""]);
    expect([String(stdout), String(stderr)]).toEqual(["\n", ""]);
  });
});

describe("loading", () => {
  const HANDLER = "def handler(payload, context): return ";

  it("gives the process the environment and directory of the bind alone", async () => {
    const function_ = await loaded(`import os\n${HANDLER}[dict(os.environ), os.getcwd()]`, {
      environment: { A: "1", TZ: "Asia/Tokyo" },
      working_directory: "/usr",
    });
    expect(await function_.value()).toEqual([{ A: "1", TZ: "Asia/Tokyo" }, "/usr"]);
  });

  it("applies TZ of the bind", async () => {
    const function_ = await loaded(`import time\n${HANDLER}time.strftime('%z', time.localtime(0))`, {
      environment: { TZ: "UTC-9" },
    });
    expect(await function_.value()).toBe("+0900");
  });

  it("imports the modules and packages of the code, those of pip install -t too", async () => {
    const function_ = await loaded({
      "main.py": `import mine, one, two, three, four\n${HANDLER}[m.NAME for m in (mine, one, two, three, four)]`,
      "mine.py": "NAME = 'mine'",
      "site-packages/one/__init__.py": "NAME = 'one'",
      "python/two.py": "NAME = 'two'",
      "python/more.pth": "hidden\n",
      "python/hidden/three.py": "NAME = 'three'",
      // The minor version is that of this machine's Python.
      ...Object.fromEntries(
        [11, 12, 13, 14].map((minor) => [`.venv/lib/python3.${minor}/site-packages/four.py`, "NAME = 'four'"]),
      ),
    });
    expect(await function_.value()).toEqual(["mine", "one", "two", "three", "four"]);
  });

  it("writes no bytecode into the code", async () => {
    const function_ = await loaded({ "main.py": `import mine\n${HANDLER}1`, "mine.py": "" });
    expect(readdirSync(function_.process.directory)).toEqual(["main.py", "mine.py"]);
  });

  it.each([
    ["json.py", { "json.py": `${HANDLER}'own'` }],
    ["_hearth.py", { "_hearth.py": `${HANDLER}'own'` }],
    ["my-handler.py", { "my-handler.py": `${HANDLER}'own'` }],
    ["a/b.py", { "a/b.py": `from beside import own\n${HANDLER}own`, "a/beside.py": "own = 'own'" }],
    [
      "a/b.py",
      { "a/__init__.py": "", "a/b.py": `from .beside import own\n${HANDLER}own`, "a/beside.py": "own = 'own'" },
    ],
  ])("finds the handler of %s", async (handler, code) => {
    const function_ = await loaded(code, { handler });
    expect(await function_.value()).toBe("own");
  });

  it.each([
    ["a class", "class Made:\n  def __init__(self, payload, context): raise ValueError('made')\nhandler = Made", 1],
    ["an object", "class Made:\n  def __call__(self, payload, context): return 1\nhandler = Made()", 0],
    [
      "an object with an async call",
      "class M:\n  async def __call__(self, payload, context): return 1\nhandler = M()",
      0,
    ],
    ["a partial", "import functools\nasync def f(a, payload, context): return a\nhandler = functools.partial(f, 1)", 0],
    [
      "a sync function that returns a coroutine",
      "async def f(): return 1\ndef handler(payload, context): return f()",
      0,
    ],
  ])("calls %s", async (_what, code, status) => {
    const function_ = await loaded(code);
    expect((await function_.call()).status).toBe(status);
  });

  it.each([
    ["a missing file", { "other.py": "" }, "HandlerFileMissing", "handler file does not exist in the code: main.py"],
    [
      "a missing function",
      "def run(payload, context): ...",
      "HandlerFunctionMissing",
      "main.py has no function handler (functions: run)",
    ],
    [
      "something else than a function",
      "handler = 3",
      "HandlerNotAFunction",
      "handler of main.py is not a function: int",
    ],
    ["a syntax error", "def handler(:", "SyntaxError", "invalid syntax (main.py, line 1)"],
    ["an exception", "raise KeyError('x')", "KeyError", "'x'"],
    [
      "a missing import",
      "import nowhere",
      "ModuleNotFoundError",
      "No module named 'nowhere': name it in requirements.txt and run hearth deploy --build, which installs dependencies",
    ],
    ["sys.exit", "import sys\nsys.exit(4)", "SystemExit", "the module called sys.exit(4)"],
    ["a directory that is missing", "", "FileNotFoundError", "[Errno 2] No such file or directory: '/nowhere'"],
  ])("answers NOT_LOADED for %s, to the bind and to calls", async (what, code, type, message) => {
    const head = what.startsWith("a directory") ? { working_directory: "/nowhere" } : {};
    const function_ = await load(code, head);
    expect(function_.bound.status).toBe(STATUS.not_loaded);
    expect(JSON.parse(function_.bound.content.toString())).toEqual({ type, message });
    expect(function_.bound.stderr).toContain(type.startsWith("Handler") ? "" : type);
    const answer = await function_.call();
    expect([answer.status, answer.content]).toEqual([STATUS.not_loaded, function_.bound.content]);
  });

  it("gives output and traceback of the module to the bind", async () => {
    const function_ = await load("print('begins')\ndef inner(): raise ValueError('why')\ninner()");
    expect(function_.bound.stdout).toBe("begins\n");
    expect(function_.bound.stderr).toMatch(
      /^Traceback[\s\S]*main\.py", line 3[\s\S]*in inner\n[\s\S]*\nValueError: why\n$/,
    );
    expect(function_.bound.stderr).not.toContain("inside/");
  });

  it("gives each process random state of its own", async () => {
    const code = `import random\n${HANDLER}[random.random(), hash('x')]`;
    const values = await Promise.all([1, 2, 3].map(async () => (await loaded(code)).value()));
    expect(new Set(values.flat() as number[]).size).toBe(6);
  });
});

describe("the context", () => {
  it("describes the call, its function and its deadline", async () => {
    const function_ = await loaded(`
def handler(payload, context):
    left = context.remaining_ms()
    return [context.invocation_id, context.function_id, context.function_name, context.version, context.deadline_ms,
            context.memory_limit_mb, context.trace, context.api, context.environment, 0 < left <= 20000]
`);
    const deadline_ms = Date.now() + 20_000;
    const api = { url: "http://10.0.0.1:1", token: "secret" };
    const head = { invocation_id: "inv_7", deadline_ms, tracestate: "a=b", api, environment: { B: "2" } };
    const trace = { traceparent: TRACEPARENT, tracestate: "a=b" };
    const environment = { PATH: "/usr/bin:/bin", STAGE: "test", B: "2" };
    const own = ["fn_1", "hello", 3, deadline_ms, 256];
    expect(await function_.value("", head)).toEqual(["inv_7", ...own, trace, api, environment, true]);
    const [, , , , , , plain, none] = (await function_.value()) as unknown[];
    expect([plain, none]).toEqual([{ traceparent: TRACEPARENT, tracestate: null }, null]);
  });

  it("sets variables of a call in os.environ for this call alone", async () => {
    for (const kind of ["def", "async def"]) {
      const names = "['STAGE', 'NEW']";
      const code = `import os\n${kind} handler(payload, context): return [os.environ.get(name) for name in ${names}]`;
      const function_ = await loaded(code);
      expect(await function_.value("", { environment: { STAGE: "call", NEW: "1" } })).toEqual(["call", "1"]);
      expect(await function_.value()).toEqual(["test", null]);
      const wrong = await function_.call("", { environment: { STAGE: "call", "A=B": "1" } });
      expect(wrong.status).toBe(STATUS.failed);
      expect(await function_.value()).toEqual(["test", null]);
    }
  });

  it("logs lines of JSON with the invocation's id", async () => {
    const function_ = await loaded(`
def handler(payload, context):
    context.log.info("served %s", "one", count=2, ratio=float("nan"), most=[float("-inf"), 10**30])
    try: 1 / 0
    except ZeroDivisionError: context.log.exception("no")
`);
    const { stderr } = await function_.call("", { invocation_id: "inv_9" });
    const lines = stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z$/);
    expect(lines).toEqual([
      {
        time,
        level: "info",
        invocation_id: "inv_9",
        message: "served one",
        count: 2,
        ratio: "NaN",
        most: ["-Infinity", 1e30],
      },
      { time, level: "error", invocation_id: "inv_9", message: "no", stack: expect.stringContaining("ZeroDivision") },
    ]);
  });

  it("keeps contextvars of a call out of the next one", async () => {
    const function_ = await loaded(`
import contextvars
seen = contextvars.ContextVar("seen", default=0)
def handler(payload, context):
    seen.set(seen.get() + 1)
    return seen.get()
`);
    expect([await function_.value(), await function_.value()]).toEqual([1, 1]);
  });
});

describe("failures", () => {
  it("names class and message, and prints the traceback without frames of the runtime", async () => {
    const function_ = await loaded(`
class Refused(Exception): ...
def handler(payload, context):
    try: {}["x"]
    except KeyError as error: raise Refused("not you") from error
`);
    const answer = await function_.call();
    expect([answer.status, JSON.parse(answer.content.toString())]).toEqual([
      STATUS.failed,
      { type: "Refused", message: "not you" },
    ]);
    expect(answer.stderr).toMatch(/^Traceback[\s\S]*KeyError: 'x'[\s\S]*direct cause[\s\S]*main\.Refused: not you\n$/);
    expect(answer.stderr).not.toContain("inside/");
  });

  it.each([
    ["sys.exit(3)", "SystemExit", "the handler called sys.exit(3)"],
    ["exit('bye')", "SystemExit", "the handler called sys.exit('bye')"],
    ["os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt", "KeyboardInterrupt"],
    ["recurse()", "RecursionError", "maximum recursion depth exceeded"],
    ["bytearray(1 << 60)", "MemoryError", "MemoryError"],
    ["fail(Evil())", "Evil", "str() of the exception failed"],
    ["fail(ValueError('x' * 100000))", "ValueError", `${"x".repeat(8192)}…`],
    ["fail(ExceptionGroup('two', [ValueError(1), TypeError(2)]))", "ExceptionGroup", "two (2 sub-exceptions)"],
    ["fail(GeneratorExit())", "GeneratorExit", "GeneratorExit"],
  ])("%s fails the call alone", async (line, type, message) => {
    const code = (kind: string) => `
import os, signal, sys
class Evil(Exception):
    def __str__(self): raise Exception
def fail(error): raise error
def recurse(): return recurse()
${kind} handler(payload, context):
    if payload: return payload
    ${line}
`;
    for (const [kind, concurrency] of [
      ["def", 1],
      ["def", 4],
      ["async def", 4],
    ] as const) {
      // A thread takes no signals.
      if (line.startsWith("os.kill") && concurrency > 1) continue;
      const function_ = await loaded(code(kind), { concurrency });
      const answer = await function_.call();
      expect(answer.status).toBe(STATUS.failed);
      const error = JSON.parse(answer.content.toString());
      expect([error.type, error.message.slice(0, message.length)]).toEqual([type, message]);
      expect(await function_.value("1")).toBe(1);
    }
  });

  it("survives a handler that breaks sys.stderr", async () => {
    const function_ = await loaded("import sys\ndef handler(p, c):\n  sys.stderr = p\n  raise ValueError('x')");
    for (const payload of ["", "1"]) {
      expect(await function_.value(payload)).toEqual({ type: "ValueError", message: "x" });
    }
  });
});
