/** The adapter of the runtime `custom` with the protocol `lambda`: programs of the AWS Lambda Runtime API, good and bad. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { adapters } from "../../test/support/adapter.ts";

const NODE = process.execPath;
const example = (name: string) => readFileSync(join(import.meta.dirname, "example-lambda", name), "utf8");

/** As Amazon's tutorial has it: for a /bin/sh that is bash, with `source` and `function`. */
const TUTORIAL = {
  bootstrap: `#!/bin/sh
set -euo pipefail
source $LAMBDA_TASK_ROOT/"$(echo $_HANDLER | cut -d. -f1).sh"
while true
do
  HEADERS="$(mktemp)"
  EVENT_DATA=$(curl -sS -LD "$HEADERS" "http://\${AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/next")
  REQUEST_ID=$(grep -Fi Lambda-Runtime-Aws-Request-Id "$HEADERS" | tr -d '[:space:]' | cut -d: -f2)
  RESPONSE=$($(echo "$_HANDLER" | cut -d. -f2) "$EVENT_DATA")
  curl "http://\${AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/$REQUEST_ID/response"  -d "$RESPONSE"
done
`,
  "function.sh": `function handler () {
  EVENT_DATA=$1
  echo "$EVENT_DATA" 1>&2;
  RESPONSE="Echoing request: '$EVENT_DATA'"
  echo $RESPONSE
}
`,
};

const PYTHON = `#!/usr/bin/env python3
import json, os, traceback, urllib.request
from concurrent.futures import ThreadPoolExecutor
API = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime"
def post(path, value, headers={}):
    request = urllib.request.Request(f"{API}/{path}", json.dumps(value).encode(), headers)
    return urllib.request.urlopen(request).status
def handler(event, id):
    if event == "fail": raise KeyError("no such thing")
    if event == "env": return {name: value for name, value in os.environ.items() if name.startswith("AWS_") or "LAMBDA" in name or name in ("_HANDLER", "TZ")}
    return {"event": event, "id": id}
def loop():
    while True:
        with urllib.request.urlopen(f"{API}/invocation/next") as response:
            event, id, headers = json.load(response), response.headers["Lambda-Runtime-Aws-Request-Id"], response.headers
        try:
            result = handler(event, id)
            if event == "headers": result = {name.lower(): value for name, value in headers.items()}
            post(f"invocation/{id}/response", result)
        except Exception as error:
            stack = traceback.format_exc().splitlines()
            post(f"invocation/{id}/error", {"errorType": type(error).__name__, "errorMessage": str(error), "stackTrace": stack},
                {"Lambda-Runtime-Function-Error-Type": "Function.Error"})
threads = int(os.environ.get("THREADS", "1"))
with ThreadPoolExecutor(threads) as pool:
    for _ in range(threads): pool.submit(loop)
`;

/**
 * A runtime interface client with the requests of Amazon's for Python: one connection that is kept, and for an error a header
 * with its stack for X-Ray, of up to 1 MiB.
 */
const CLIENT = `
import importlib, json, os, sys, traceback
from http.client import HTTPConnection
sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
connection, USER_AGENT = HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"]), "AWS_Lambda_Python/3.11"
def ask(method, path, expected, body=None, headers={}):
    connection.request(method, "/2018-06-01/runtime/" + path, body, {"User-Agent": USER_AGENT, **headers})
    response = connection.getresponse()
    content = response.read()
    if response.status != expected: raise SystemExit(f"{path} answered {response.status}: {content}")
    return response.headers, content
def told(error):
    frames = traceback.extract_tb(error.__traceback__)
    shown = {"errorMessage": str(error), "errorType": type(error).__name__, "requestId": "", "stackTrace": traceback.format_list(frames)}
    stack = [{"label": frame.name, "path": frame.filename, "line": frame.lineno} for frame in frames]
    cause = {"working_directory": os.getcwd(), "exceptions": [{"message": str(error), "type": type(error).__name__, "stack": stack}], "paths": [x["path"] for x in stack]}
    headers = {"Content-Type": "application/vnd.aws.lambda.error+json", "Lambda-Runtime-Function-XRay-Error-Cause": json.dumps(cause), "Lambda-Runtime-Function-Error-Type": type(error).__name__}
    return json.dumps(shown), headers
module, name = os.environ["_HANDLER"].rsplit(".", 1)
try: handler = getattr(importlib.import_module(module.replace("/", ".")), name)
except Exception as error:
    ask("POST", "init/error", 202, *told(error))
    sys.exit(1)
while True:
    headers, event = ask("GET", "invocation/next", 200)
    id = headers["Lambda-Runtime-Aws-Request-Id"]
    os.environ["_X_AMZN_TRACE_ID"] = headers["Lambda-Runtime-Trace-Id"]
    try: result = json.dumps(handler(json.loads(event), {"id": id, "arn": headers["Lambda-Runtime-Invoked-Function-Arn"]}))
    except Exception as error: ask("POST", f"invocation/{id}/error", 202, *told(error))
    else: ask("POST", f"invocation/{id}/response", 202, result, {"Content-Type": "application/json"})
`;

/**
 * A client whose payload is a script: it sends each step unchanged on a connection of its own. The answers are the
 * result. \`ID\` in a step is the id of the call.
 */
const SCRIPTED = `
import { connect } from "node:net";
const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");
const BASE = "/2018-06-01/runtime/";
async function ask(text, { wait = true, follow = "", many = 0, half = null } = {}) {
  const socket = connect(Number(port), host);
  socket.on("error", () => {});
  let got = "";
  socket.on("data", (bytes) => {
    got += bytes.toString("latin1");
    if (follow !== "") { socket.write(follow); follow = ""; }
  });
  socket.write(text.replace("{half}", half === null ? "" : "x".repeat(half)));
  for (let i = 0; i < many; i++) await new Promise((resolve) => socket.write("8000\\r\\n" + "x".repeat(0x8000) + "\\r\\n", resolve));
  if (!wait) return "";
  await new Promise((resolve) => socket.once("close", resolve));
  return got;
}
const request = (method, path, body = "", more = "") =>
  method + " " + BASE + path + " HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\nContent-Length: " + body.length + "\\r\\n" + more + "\\r\\n" + body;
const parse = (text) => { const [head, ...rest] = text.split("\\r\\n\\r\\n"); return { head, body: rest.join("\\r\\n\\r\\n") }; };
for (;;) {
  const { head, body } = parse(await ask(request("GET", "invocation/next")));
  const id = /request-id: (.*)/i.exec(head)?.[1].trim();
  const { steps, answer = true } = JSON.parse(body);
  const got = [];
  for (const step of steps) {
    const text = step.raw ?? request(step.method ?? "POST", step.path, step.body ?? "", step.more ?? "");
    got.push(await ask(text.replaceAll("ID", id), step));
  }
  const shown = got.map((text) => text.split("\\r\\n")[0] + " " + parse(text).body);
  if (answer) await ask(request("POST", "invocation/" + id + "/response", JSON.stringify(shown)));
}
`;

interface Step {
  readonly raw?: string;
  readonly method?: string;
  readonly path?: string;
  readonly body?: string;
  readonly more?: string;
  readonly wait?: boolean;
  readonly follow?: string;
  readonly many?: number;
  readonly half?: number;
}

const { start } = adapters();

async function scripted() {
  const adapter = await start({ "scripted.mjs": SCRIPTED });
  expect(await adapter.bind(`${NODE} scripted.mjs`, { protocol: "lambda" })).toMatchObject({ status: "returned" });
  return {
    adapter,
    run: (steps: readonly Step[], more: object = {}) => adapter.call(JSON.stringify({ steps, ...more })),
  };
}

const LAMBDA = { protocol: "lambda" } as const;
const INVALID_ID = expect.stringMatching(/^HTTP\/1\.1 400 Bad Request .*InvalidRequestID/);

describe("the Runtime API", () => {
  it.each([
    ["of the tutorial, bash and curl", TUTORIAL],
    ["of the example", { bootstrap: example("bootstrap"), "function.sh": example("function.sh") }],
  ])("serves the bootstrap %s", async (_name, files) => {
    const adapter = await start(files);
    expect(await adapter.bind("function.handler", LAMBDA)).toMatchObject({ status: "returned", content: null });
    for (const i of [1, 2, 3]) {
      const { status, content, stderr } = await adapter.call(`{"n":${i}}`);
      expect({ status, text: JSON.stringify(content) }).toMatchObject({
        status: "returned",
        text: expect.stringMatching(new RegExp(`"?n\\\\?":${i}`)),
      });
      expect(stderr).toContain(`{"n":${i}}\n`);
    }
  });

  it("serves a bootstrap in Python, with its errors and stacks", async () => {
    const adapter = await start({ bootstrap: PYTHON });
    await adapter.bind("main.handler", LAMBDA);
    const deadline_ms = Date.now() + 9_000;
    expect(await adapter.call("7", { invocation_id: "inv-a" })).toMatchObject({ content: { event: 7, id: "inv-a" } });
    expect(await adapter.call("some text")).toMatchObject({ content: { event: "some text" } });
    expect(await adapter.call("")).toMatchObject({ content: { event: {} } });
    const failed = await adapter.call('"fail"');
    expect(failed).toMatchObject({ status: "failed", content: { type: "KeyError", message: "'no such thing'" } });
    expect(failed.stderr).toMatch(/^Traceback .*\n(.*\n)+KeyError: 'no such thing'\n$/);
    expect((await adapter.call('"env"')).content).toMatchObject({
      _HANDLER: "main.handler",
      TZ: ":UTC",
      LAMBDA_TASK_ROOT: adapter.code,
      AWS_LAMBDA_FUNCTION_NAME: "hello",
      AWS_LAMBDA_FUNCTION_VERSION: "3",
      AWS_LAMBDA_FUNCTION_MEMORY_SIZE: "256",
      AWS_REGION: "local",
      AWS_DEFAULT_REGION: "local",
      AWS_EXECUTION_ENV: "AWS_Lambda_Image",
    });
    expect((await adapter.call('"headers"', { deadline_ms })).content).toMatchObject({
      "lambda-runtime-deadline-ms": String(deadline_ms),
      "lambda-runtime-invoked-function-arn": "arn:aws:lambda:local:000000000000:function:hello:3",
      "lambda-runtime-trace-id": "Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1",
      traceparent: expect.stringMatching(/^00-0af7/),
    });
  });

  it("serves a client as Amazon's for Python, with stacks of any depth", async () => {
    const handler = `import os
def handler(event, context):
    if isinstance(event, int): return handler(event - 1, context) if event else os.environ["_X_AMZN_TRACE_ID"]
    if event == "deep": return handler(event, context)
    if event == "long": raise ValueError("é" * 100_000)
    return [event, context]
`;
    const adapter = await start({ "src/app.py": handler, "client.py": CLIENT });
    expect(await adapter.bind("python3 client.py src/app.handler", LAMBDA)).toMatchObject({ status: "returned" });
    for (const event of [{ a: 1 }, "x".repeat(100_000)]) {
      const { content } = await adapter.call(JSON.stringify(event), { invocation_id: "inv-1" });
      expect(content).toEqual([event, { id: "inv-1", arn: expect.stringMatching(/^arn:aws:lambda:/) }]);
    }
    const deep = await adapter.call('"deep"');
    expect(deep).toMatchObject({ status: "failed", content: { type: "RecursionError" } });
    expect(deep.stderr).toContain("Previous line repeated");
    const long = await adapter.call('"long"');
    expect(long).toMatchObject({
      status: "failed",
      content: { type: "ValueError", message: expect.stringMatching(/^é+/u) },
    });
    expect(await adapter.call("3")).toMatchObject({ content: expect.stringMatching(/^Root=1-/) });
  });

  it("takes the init error of such a client", async () => {
    const adapter = await start({ "client.py": CLIENT });
    const { status, content } = await adapter.bind("python3 client.py src/app.handler", LAMBDA);
    expect([status, content]).toEqual([
      "not_loaded",
      { type: "ModuleNotFoundError", message: "No module named 'src'" },
    ]);
  });

  it.each([
    ["main.py app.handler", "app.handler"],
    ["python3 main.py  src/app.handler ", "src/app.handler"],
    ["./main.py", "./main.py"],
    [`cd . && exec python3 main.py "app.handler"`, "app.handler"],
    ["python3 main.py 'app.handler'", "app.handler"],
  ])("names the handler of the command line %j", async (line, handler) => {
    const adapter = await start({ "main.py": PYTHON });
    expect(await adapter.bind(line, LAMBDA)).toMatchObject({ status: "returned" });
    expect((await adapter.call('"env"')).content).toMatchObject({ _HANDLER: handler });
  });

  it("leaves variables to the version that sets them", async () => {
    const adapter = await start({ "main.py": PYTHON });
    const environment = { _HANDLER: "own.handler", AWS_REGION: "eu-central-1", AWS_EXECUTION_ENV: "" };
    await adapter.bind("main.py app.handler", { ...LAMBDA, environment });
    expect((await adapter.call('"env"')).content).toMatchObject(environment);
  });

  it("hands out calls to several clients at a time", async () => {
    const adapter = await start({ bootstrap: PYTHON });
    await adapter.bind("main.handler", { ...LAMBDA, concurrency: 8, environment: { THREADS: "8" } });
    const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => adapter.call(String(i))));
    expect(answers.map(({ content }) => (content as { event: number }).event)).toEqual(answers.map((_, i) => i));
  });

  it("takes an init error for a function that is not loaded", async () => {
    const body = '{"errorType": "Config", "errorMessage": "no table"}';
    const adapter = await start({
      bootstrap: `#!/bin/bash\ncurl -s -d '${body}' http://$AWS_LAMBDA_RUNTIME_API/2018-06-01/runtime/init/error\nexit 1\n`,
    });
    const content = { type: "Config", message: "no table" };
    expect(await adapter.bind("a.b", LAMBDA)).toMatchObject({ status: "not_loaded", content });
    expect(await adapter.call("1")).toMatchObject({ status: "not_loaded", content });
  });

  it("names a command that ends, or asks for nothing", async () => {
    const ended = await start();
    expect((await ended.bind("echo oops >&2; exit 4", LAMBDA)).content).toMatchObject({
      message: "the command exited with 4 before it asked for an event: oops",
    });
    const silent = await start();
    expect((await silent.bind("sleep 1000", LAMBDA, { kill_after_ms: 700 })).content).toMatchObject({
      message: "the command took more than 450 ms before it asked for an event",
    });
  });

  it("fails the calls in flight if the command is killed", async () => {
    const adapter = await start({
      bootstrap: "#!/bin/bash\ncurl -s http://$AWS_LAMBDA_RUNTIME_API/2018-06-01/runtime/invocation/next; kill -9 $$\n",
    });
    await adapter.bind("a.b", LAMBDA);
    expect(await adapter.call("1")).toMatchObject({
      status: "exiting",
      content: { type: "CommandExited", message: "the command was killed by signal 9" },
    });
    expect(await adapter.process.ended).toMatchObject({ code: 137, broken: null });
  });

  it("times out a call that is not answered, and refuses the answer that comes later", async () => {
    const { adapter, run } = await scripted();
    const late = await adapter.call('{"steps": [], "answer": false}', {
      deadline_ms: Date.now() + 150,
      invocation_id: "inv-late",
    });
    expect(late).toMatchObject({ status: "timed_out" });
    expect(await run([{ path: "invocation/inv-late/response", body: "1" }])).toMatchObject({ content: [INVALID_ID] });
  });
});

describe("the Runtime API refuses", () => {
  it("answers for another instance's call, one not handed out, and a second one", async () => {
    const { adapter, run } = await scripted();
    const waiting = adapter.call('{"steps": []}', { invocation_id: "inv-waiting" });
    expect(await waiting).toMatchObject({ content: [] });
    const [first, second] = await Promise.all([
      run([
        { path: "invocation/some-other-instance/response", body: "1" },
        { path: "invocation/inv-next/response", body: "1" },
        { path: "invocation/inv-next/error", body: "{}" },
      ]),
      adapter.call('{"steps": []}', { invocation_id: "inv-next" }),
    ]);
    expect(first.content).toEqual([INVALID_ID, INVALID_ID, INVALID_ID]);
    expect(second).toMatchObject({ status: "returned", content: [] });
    const twice = await run([
      { path: "invocation/ID/response", body: '"mine"' },
      { path: "invocation/ID/response", body: '"again"' },
      { path: "invocation/ID/error", body: "{}" },
    ]);
    expect(twice).toMatchObject({ status: "returned", content: "mine" });
    expect(await run([])).toMatchObject({ status: "returned", content: [] });
  });

  it("other operations, methods and messages", async () => {
    const { run } = await scripted();
    const answer = await run([
      { path: "invocation/next" },
      { method: "GET", path: "invocation/ID/response" },
      { method: "GET", path: "extension/register" },
      { path: "init/error", body: "{}" },
      { raw: "GET / HTTP/1.1\r\nConnection: close\r\n\r\n" },
      { raw: "BLA\r\n\r\n" },
      { raw: `GET ${"/x".repeat(300)} HTTP/1.1\r\nConnection: close\r\n\r\n` },
      { raw: `GET / HTTP/1.1\r\n${"A: b\r\n".repeat(4_000)}` },
      { raw: "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" },
      { raw: "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n" },
    ]);
    const codes = (answer.content as string[]).map((text) => text.slice(9, 12));
    expect(codes).toEqual(["405", "405", "404", "403", "404", "400", "404", "400", "400", "400"]);
  });

  it.each([
    ["by its length", { path: "invocation/ID/response", more: "", body: "x".repeat(1_048_577) }],
    [
      "in chunks without end",
      {
        raw: "POST /2018-06-01/runtime/invocation/ID/response HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        many: 600,
      },
    ],
  ])("results above 1 MiB %s", async (_name, step) => {
    const { run } = await scripted();
    const content = { type: "Function.ResponseSizeTooLarge", message: expect.stringContaining("1048576") };
    expect(await run([step], { answer: false })).toMatchObject({ status: "failed", content });
    expect(await run([])).toMatchObject({ status: "returned" });
  });

  it("no request that waits for 100 Continue, pipelines, or breaks off", async () => {
    const { run } = await scripted();
    const continued = await run([
      {
        raw: "POST /2018-06-01/runtime/invocation/ID/response HTTP/1.1\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n",
        follow: '"later"',
      },
    ]);
    expect(continued).toMatchObject({ status: "returned", content: "later" });
    const pipelined = await run([
      {
        raw:
          "POST /2018-06-01/runtime/invocation/other/response HTTP/1.1\r\nContent-Length: 1\r\n\r\n1" +
          "POST /2018-06-01/runtime/invocation/ID/response HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\n[2]",
      },
    ]);
    expect(pipelined).toMatchObject({ status: "returned", content: [2] });
    const broken = "POST /2018-06-01/runtime/invocation/ID/response HTTP/1.1\r\nContent-Length: 9999\r\n\r\n{half}";
    expect(await run([{ raw: broken, half: 5_000, wait: false }], { answer: false })).toMatchObject({
      status: "timed_out",
    });
  }, 60_000);

  it("nothing to the command among hundreds of idle connections", async () => {
    const adapter = await start({
      "flood.mjs": `
        import { connect } from "node:net";
        const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");
        const open = () => new Promise((resolve) => { const s = connect(Number(port), host, () => resolve(s)); s.on("error", () => resolve(s)); });
        const sockets = [];
        for (let i = 0; i < 600; i++) { const s = await open(); s.write("GET /half"); sockets.push(s); }
        const api = "http://" + process.env.AWS_LAMBDA_RUNTIME_API + "/2018-06-01/runtime/invocation/";
        for (;;) {
          const response = await fetch(api + "next");
          const id = response.headers.get("lambda-runtime-aws-request-id");
          await response.text();
          await (await fetch(api + id + "/response", { method: "POST", body: JSON.stringify(sockets.length) })).text();
        }`,
    });
    await adapter.bind(`${NODE} flood.mjs`, LAMBDA);
    for (let i = 0; i < 3; i++) expect(await adapter.call("1")).toMatchObject({ status: "returned", content: 600 });
  });

  it("nothing to others if an event is never read: its call times out", async () => {
    const adapter = await start({
      "deaf.mjs": `
        import { connect } from "node:net";
        const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");
        const socket = connect(Number(port), host, () => socket.write("GET /2018-06-01/runtime/invocation/next HTTP/1.1\\r\\n\\r\\n"));
        socket.pause();
        setInterval(() => {}, 1000);`,
    });
    await adapter.bind(`${NODE} deaf.mjs`, LAMBDA);
    const answer = await adapter.call("x".repeat(7_000_000), { deadline_ms: Date.now() + 500 });
    expect(answer).toMatchObject({ status: "timed_out" });
  });
});
