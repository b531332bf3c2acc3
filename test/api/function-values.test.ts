/**
 * What a function is given, through the API: numbers, scripts with a first line, variables that a process reads when it starts.
 * And what the record of a program has that ends abruptly.
 */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PROJECT_DIR } from "../../src/installation/paths.js";
import { CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { operatorOf } from "../support/command.ts";
import { Daemon } from "../support/daemon.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
let user: CodeUser;

beforeAll(async () => {
  await daemon.start();
  user = new CodeUser(daemon);
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

describe("numbers of any function", () => {
  const invoked = (name: string, body: string) => user.raw("POST", `/api/functions/invoke/${name}`, body);

  it("pass unchanged to a command and from one", async () => {
    await user.deployments([{ name: "cat", handler: "cat" }]);
    const numbers = "[9007199254740993,1.0,-0,1e2,0.10]";
    expect(JSON.parse(await invoked("cat", `{"payload":${numbers}}`)).stdout).toBe(numbers);
    expect(JSON.parse(await invoked("cat", '{"payload":1.0,"timeout_seconds":3.0}')).stdout).toBe("1.0");
    expect(JSON.parse(await invoked("cat", '{"payload":{"b": 1, "a": "\\u0041"}}')).stdout).toBe('{"b":1,"a":"A"}');
    const code = "export const handler = () => ({ id: JSON.rawJSON('9007199254740993'), price: JSON.rawJSON('1.0') });";
    await user.deploy("raw", { "index.mjs": code }, NODEJS);
    expect(await invoked("raw", "{}")).toContain('"result":{"id":9007199254740993,"price":1.0}');
    await user.deploy("float", { "main.py": "def handler(payload, context): return [payload, 1.0, 10**30]" }, PYTHON3);
    expect(await invoked("float", '{"payload":1.0}')).toContain(`"result":[1.0,1.0,${10n ** 30n}]`);
  });

  it("pass unchanged into the smoke call of a deployment", async () => {
    const code = await user.upload({ "main.py": "def handler(payload, context): assert payload == 2**53 + 1" });
    const body = `{"functions":[{"name":"smoked","code_sha256":"${code}","runtime":"python3","handler":"main.py:handler",
      "smoke":{"payload":9007199254740993}}]}`;
    expect(JSON.parse(await user.raw("POST", "/api/functions/deployments", body)).error ?? null).toBe(null);
  });

  it("are refused above the largest double", async () => {
    for (const body of ['{"payload":1e400}', '{"payload":[-1e309]}', `{"payload":1${"0".repeat(400)}}`]) {
      expect(JSON.parse(await invoked("cat", body))).toMatchObject({
        error_code: "INVALID_ARGUMENT",
        error: expect.stringMatching(/^the body has a number that is too large: /),
      });
    }
    const forged = "export const handler = () => JSON.rawJSON('1e400');";
    await user.deploy("forged", { "index.mjs": forged }, NODEJS);
    expect(JSON.parse(await invoked("forged", "{}"))).toMatchObject({
      status: "failed",
      result: null,
      error_message: expect.stringMatching(/^the result has a number that is too large: 1e400/),
    });
  });
});

describe("the first line of a script", () => {
  const CUSTOM = { runtime: "custom", handler: "run" };
  const SHELL = { runtime: "shell", handler: "./run" };
  const LAMBDA = { runtime: "custom", protocol: "lambda", handler: "app.handler" };

  it.each([
    ["custom", CUSTOM, "run", "#!/bin/sh\r\nexit\r\n", "ends with a carriage return: #!/bin/sh"],
    ["a shell command", SHELL, "run", "#!/bin/sh\r\nexit\r\n", "ends with a carriage return: #!/bin/sh"],
    ["a bootstrap", LAMBDA, "bootstrap", "#!/bin/sh\r\nexit\r\n", "ends with a carriage return: #!/bin/sh"],
    ["custom", CUSTOM, "run", "#!/usr/bin/nothing\n", "names an interpreter that does not exist: /usr/bin/nothing"],
    ["a shell command", SHELL, "run", "#!/usr/bin/env nothing\n", "names an interpreter that does not exist: nothing"],
    ["a bootstrap", LAMBDA, "bootstrap", "#!/etc/passwd\n", "names an interpreter that does not exist: /etc/passwd"],
    ["custom", CUSTOM, "run", "#!python3\n", "names no interpreter by absolute path: #!python3"],
    ["custom", CUSTOM, "run", "#!/usr/bin/env python3 -u\n", "names an interpreter that does not exist: python3 -u"],
  ])("of %s is refused at its deployment if wrong: %j", async (_name, fields, file, script, problem) => {
    const { status, body } = await user.tryDeploy("script", { [file]: script }, fields);
    expect([status, body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    expect(body.error).toBe(`function 'script': handler: the first line of '${file}' ${problem}`);
  });

  it("of a handler is refused if its interpreter does not exist", async () => {
    const answer = await user.deployments([{ name: "script", handler: "#!/usr/bin/env nothing\n1" }]);
    expect(answer.body.error).toBe(
      "function 'script': handler: the first line names an interpreter that does not exist: nothing",
    );
  });

  it.each([
    "#!/bin/sh\necho yes",
    "#! /usr/bin/env python3\nprint('yes')",
    "#!/usr/bin/env -S python3 -u\nprint('yes')",
    "#!/usr/bin/env A=1 true\n",
    "#!/bin/sh -e\n: \r\necho yes",
  ])("may be %j", async (script) => {
    await user.deploy("script", { run: script }, SHELL);
  });
});

describe("a variable that is read when a process starts", () => {
  it("has its effect in python3", async () => {
    const code = "import warnings\ndef handler(payload, context): warnings.warn(str(hash('a')))";
    const hashes = await Promise.all(
      ["one", "two"].map(async (name) => {
        const environment = { PYTHONHASHSEED: "7", PYTHONWARNINGS: "error" };
        await user.deploy(`hash-${name}`, { "main.py": code }, { ...PYTHON3, environment, min_instances: 1 });
        return (await user.invoke(`hash-${name}`)).error_message;
      }),
    );
    expect(hashes).toEqual([hashes[0], hashes[0]]);
    expect(hashes[0]).toMatch(/^UserWarning: -?\d+$/);
  });

  it.each([
    ["PYTHONMALLOC", "nothing", "the process of the instance exited with 1: Fatal Python error: .*unknown allocator"],
    ["PYTHONHASHSEED", "x", "the process of the instance exited with 1: Fatal Python error: .*PYTHONHASHSEED must be"],
    ["PYTHONHOME", "/nowhere", "the process of the instance exited with 1: [^]*No module named 'encodings'"],
    ["PYTHONIOENCODING", "latin-1", "VariableNotSupported: PYTHONIOENCODING has an encoding .*: latin-1 "],
  ])("refuses the deployment of python3 with its reason: %s=%s", async (name, value, reason) => {
    const fields = { ...PYTHON3, environment: { [name]: value } };
    const { status, body } = await user.tryDeploy("refused", { "main.py": "def handler(p, c): pass" }, fields);
    expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
    expect(body.error).toMatch(new RegExp(`^cannot load the handler: ${reason}`));
  });

  it("has its effect in nodejs, or its deployment is refused", async () => {
    const files = {
      "index.mjs": "export const handler = () => globalThis.early;",
      "early.mjs": "globalThis.early = 1;",
    };
    const fields = (NODE_OPTIONS: string) => ({ ...NODEJS, environment: { NODE_OPTIONS } });
    await user.deploy("options", files, fields("--import ./early.mjs"));
    expect(await user.invoke("options")).toMatchObject({ status: "success", result: 1 });
    const { status, body } = await user.tryDeploy("options", files, fields("--inspect"));
    expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
    expect(body.error).toContain("VariableNotSupported: NODE_OPTIONS has a flag that cannot be set: --inspect");
  });
});

describe("a variable with which a process has to start anew", () => {
  const code = `import { getHeapStatistics } from "node:v8"; import { readFileSync } from "node:fs";
const kept = [];
export const handler = (what) => {
  if (what === "grow") for (;;) kept.push(new Array(1e5).fill(kept.length));
  if (what === "kill") process.kill(process.pid, "SIGKILL");
  return [getHeapStatistics().heap_size_limit / 2 ** 20, /MALLOC_ARENA_MAX=1\\0/.test(readFileSync("/proc/self/environ"))];
};`;

  it("has its effect in nodejs, and the instance ends as any other", async () => {
    const environment = { NODE_OPTIONS: "--max-old-space-size=96 --max-semi-space-size=1", MALLOC_ARENA_MAX: "1" };
    await user.deploy("anew", { "index.mjs": code }, { ...NODEJS, environment });
    expect(await user.invoke("anew")).toMatchObject({ status: "success", result: [99, true] });
    const grown = await user.invoke("anew", "grow");
    expect(grown).toMatchObject({ status: "failed", stderr: expect.stringContaining("Reached heap limit") });
    expect(grown.error_message).toContain("the process of the instance was killed by signal 6");
    const killed = await user.invoke("anew", "kill");
    expect(killed).toMatchObject({ status: "failed", error_message: expect.stringContaining("killed by signal 9") });
    const late = await user.invoke("anew", "", { timeout_seconds: 2 });
    expect(late).toMatchObject({ status: "success", result: [99, true] });
  });

  it("that Node refuses at its start refuses the deployment with Node's words", async () => {
    const fields = { ...NODEJS, environment: { NODE_OPTIONS: "--dns-result-order=never" } };
    const { status, body } = await user.tryDeploy("anew", { "index.mjs": code }, fields);
    expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
    expect(body.error).toMatch(/exited with 1: .*--dns-result-order/s);
  });
});

describe("decorators of TypeScript", () => {
  const code = `
const twice = (method: (n: number) => number) => function (this: unknown, n: number) { return 2 * method.call(this, n); };
class Sum { @twice one(n: number): number { if (n < 0) throw new RangeError("negative"); return n + 1; } }
export const handler = (n: number): number => new Sum().one(n);
`;

  it("are compiled in the instance, in a second one too, and stacks show lines of the source", async () => {
    const fields = { runtime: "nodejs", handler: "index.ts", instance_calls_max: 1 };
    await user.deploy("decorated", { "index.ts": code }, fields);
    const first = await user.invoke("decorated", 1);
    const second = await user.invoke("decorated", 2);
    expect([first.result, second.result]).toEqual([4, 6]);
    expect(second.instance_nonce).not.toBe(first.instance_nonce);
    const failed = await user.invoke("decorated", -1);
    expect(failed.error_message).toBe("RangeError: negative");
    expect(failed.stderr).toMatch(/at Sum\.one \(.*\/function\/index\.ts:3:\d+\)/);
  });

  it("of a file that cannot be compiled refuse its deployment", async () => {
    const fields = { runtime: "nodejs", handler: "index.ts" };
    const { status, body } = await user.tryDeploy("decorated", { "index.ts": `${code}@twice ) 1` }, fields);
    expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
    expect(body.error).toMatch(/SyntaxError: .* \(index\.ts, line 5\)$/);
  });
});

describe("the request of a call", () => {
  const WEB = `
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
import os
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        names = {name.lower(): value for name, value in self.headers.items()}
        text = json.dumps({"method": self.command, "path": self.path, "headers": names, "body": body}).encode()
        self.send_response(404 if self.path.startswith("/missing") else 200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(text)
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer
HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
`;
  const SERVER = { runtime: "custom", handler: "python3 server.py" };
  const refusal = async (name: string, fields: object) => {
    const { status, body } = await user.call("POST", `/api/functions/invoke/${name}`, fields);
    return [status, body.error_code, body.error];
  };

  it("is POST / unless its path, method and headers say another", async () => {
    await user.deploy("web", { "server.py": WEB }, SERVER);
    const { result } = await user.invoke("web", { a: 1 });
    expect(result).toMatchObject({ method: "POST", path: "/", body: '{"a":1}', headers: { "content-length": "7" } });
    const headers = {
      Accept: "text/plain",
      Authorization: "Bearer abc",
      "Content-Type": "application/x-www-form-urlencoded",
    };
    const patch = await user.invoke("web", "a=1", { path: "/items/7?full=1", method: "PATCH", headers });
    expect(patch.result).toMatchObject({ method: "PATCH", path: "/items/7?full=1", body: "a=1" });
    expect(patch.result.headers).toMatchObject({
      ...{ accept: "text/plain", authorization: "Bearer abc", "content-type": "application/x-www-form-urlencoded" },
      "x-hearth-invocation-id": patch.invocation_id,
    });
    const missing = await user.invoke("web", null, { path: "/missing/../x?q=%0d%0a", method: "GET" });
    expect(missing.error_message).toMatch(
      /^HttpError: answered 404: \{"method": "GET", "path": "\/missing\/\.\.\/x\?q=%0d%0a"/,
    );
    expect(await user.invoke("web", "", { method: "HEAD", path: "/h" })).toMatchObject({
      status: "success",
      result: null,
    });
    expect(await user.invoke("web", "", { method: "HEAD", path: "/missing" })).toMatchObject({
      error_message: "HttpError: answered 404",
    });
    expect((await user.invoke("web", "next")).result).toMatchObject({ method: "POST", path: "/", body: "next" });
  });

  it.each([
    [{ path: "items" }, "path: must begin with '/'"],
    [{ path: "/a b" }, "path: must begin with '/'"],
    [{ path: "/a HTTP/1.1\r\nX: y" }, "path: must begin with '/'"],
    [{ path: "/é" }, "path: must begin with '/'"],
    [{ path: "/a#b" }, "path: must begin with '/'"],
    [{ path: `/${"a".repeat(4_096)}` }, "path: must not be larger than 4096 bytes"],
    [{ method: "TRACE" }, "method: "],
    [{ method: "get" }, "method: "],
    [{ method: "GET", payload: "text" }, "payload: must be empty for the method GET"],
    [{ headers: { Host: "a" } }, "headers: must not contain host: hearth sets it, or the connection has it"],
    [{ headers: { "transfer-encoding": "chunked" } }, "headers: must not contain transfer-encoding"],
    [{ headers: { "X-Hearth-Api-Token": "t" } }, "headers: must not contain x-hearth-api-token"],
    [{ headers: { A: "1", a: "2" } }, "headers: must not contain a twice"],
    [{ headers: { "A:B": "1" } }, "headers: names must be 1 to 128"],
    [{ headers: { "": "1" } }, "headers: names must be 1 to 128"],
    [{ headers: { A: "secret\r\nX: y" } }, "headers: the value of a must be printable ASCII"],
    [{ headers: { A: "x".repeat(8_192) } }, "headers: must not be larger than 8192 bytes"],
    [
      { headers: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`a${i}`, ""])) },
      "headers: must not have more than 64",
    ],
  ])("is refused with a precise error: %j", async (fields, message) => {
    const [status, , error] = await refusal("web", fields);
    expect([400, 422]).toContain(status);
    expect(error).toContain(message);
    expect(error).not.toContain("secret");
  });

  it("is refused by a function that takes none, without a record", async () => {
    await user.deploy("plain", { "index.mjs": "export const handler = () => 1;" }, NODEJS);
    await user.deployments([{ name: "line", handler: "cat" }]);
    await user.deploy("events", join(PROJECT_DIR, "runtimes/custom/example-lambda"), {
      ...{ runtime: "custom", protocol: "lambda", handler: "function.handler" },
    });
    expect(await refusal("plain", { path: "/" })).toEqual([
      ...[400, "INVALID_ARGUMENT"],
      "path is not supported for 'plain': runtime nodejs (expected custom with the protocol http)",
    ]);
    expect((await refusal("events", { method: "POST" }))[2]).toBe(
      "method is not supported for 'events': runtime custom with the protocol lambda (expected custom with the protocol http)",
    );
    expect((await refusal("line", { headers: {} }))[2]).toContain("headers is not supported for 'line': runtime shell");
    const { body } = await user.call("GET", "/api/functions/by-name/plain");
    expect(body.invocation_count).toBe(0);
  });

  it("comes from the command line", async () => {
    const run = (...args: string[]) => operator.hearth("invoke", "web", ...args);
    const flags = ["--path", "/a?b=c", "--method", "put", "--header", "X-One: 1", "--header", "x-two:a: b"];
    const { out } = await run("text", ...flags);
    const headers = { "x-one": "1", "x-two": "a: b" };
    expect(JSON.parse(out)).toMatchObject({ method: "PUT", path: "/a?b=c", body: "text", headers });
    expect(JSON.parse((await run("--method", "GET")).out)).toMatchObject({ method: "GET", path: "/", body: "" });
    expect((await run("text", "--header", "nothing")).code).toBe(2);
    expect((await run("text", "--header", "A: 1", "--header", "A: 2")).code).toBe(2);
  });
});

describe("a program that ends abruptly", () => {
  const END = `import os, sys
def end(what):
    print("printed", flush=True); sys.stderr.write("error\\n"); sys.stderr.flush()
    if what == "kill": os.kill(os.getpid(), 9)
    if what == "abort": os.abort()
    if what == "exit": os._exit(3)
    kept = []
    while what == "grow": kept.append(b"1" * (1 << 20))
    while what == "loop": pass
`;
  const PROGRAMS = {
    http: `#!/usr/bin/env python3
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ends import end
class Handler(BaseHTTPRequestHandler):
    def do_POST(self): end(self.rfile.read(int(self.headers["content-length"])).decode())
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`,
    lambda: `#!/usr/bin/env python3
import os
from http.client import HTTPConnection
from ends import end
while True:
    connection = HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    connection.request("GET", "/2018-06-01/runtime/invocation/next")
    end(connection.getresponse().read().decode().strip('"'))
`,
  } as const;
  const CUSTOM = { runtime: "custom", handler: "run" };

  it.each([
    ["http", 1],
    ["http", 4],
    ["lambda", 1],
    ["lambda", 4],
  ] as const)("by %s has its last output in the record, with %i at a time", async (protocol, instance_concurrency) => {
    const name = `ends-${protocol}-${instance_concurrency}`;
    const fields = { ...CUSTOM, protocol, instance_concurrency, timeout_seconds: 2 };
    await user.deploy(name, { run: PROGRAMS[protocol], "ends.py": END }, fields);
    // With several calls at a time nobody knows whose output it is.
    const isKnown = instance_concurrency === 1;
    const printed = isKnown ? { stdout: "printed\n", stderr: "error\n" } : { stdout: "", stderr: "printed\nerror\n" };
    const exited = (how: string) => `CommandExited: the command ${how}: ${isKnown ? "error" : "printed\nerror"}`;
    const ends = {
      kill: exited("was killed by signal 9"),
      abort: exited("was killed by signal 6"),
      exit: exited("exited with 3"),
      grow: "killed: out of memory (limit 256 MiB)",
    };
    for (const [what, error_message] of Object.entries(ends)) {
      expect(await user.invoke(name, what)).toMatchObject({ ...printed, status: "failed", error_message });
    }
    const late = await user.invoke(name, "loop");
    expect(late).toMatchObject({ status: "timeout", error_message: "timed out after 2 s" });
    if (isKnown) expect(late).toMatchObject(printed);
  });

  const LOADS = {
    "import nothing_such": [
      /^CommandNotReady: the command exited with 1 before .*No module named 'nothing_such'$/s,
      /Traceback/,
    ],
    "import os; os.kill(os.getpid(), 9)": [
      /^CommandNotReady: the command was killed by signal 9 before .*: begins$/,
      /^begins/,
    ],
    "kept = []\nwhile True: kept.append(b'1' * (1 << 20))": [/^killed: out of memory \(limit 256 MiB\)$/, /^begins/],
  } as const;

  it.each(["http", "lambda"])("while it is loaded by %s has it in the error", async (protocol) => {
    for (const [i, [line, [message, output]]] of Object.entries(LOADS).entries()) {
      const files = { run: `#!/usr/bin/env python3\nprint("begins", flush=True)\n${line}\n` };
      const { status, body } = await user.tryDeploy(`load-${protocol}-${i}`, files, { ...CUSTOM, protocol });
      expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
      expect(body.error.replace("cannot load the handler: ", "")).toMatch(message);
      expect(body.details.output).toMatch(/begins/);
      expect(body.details.output).toMatch(output);
    }
  });
});
