/** Functions with code of their own: upload, versions, runtimes, smoke calls, deployments, secrets, egress. */
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { PROJECT_DIR } from "../../src/installation/paths.js";
import { archive, CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { zip } from "../support/zip.ts";

const daemon = new Daemon();
const user = new CodeUser(daemon);

beforeAll(() => daemon.start());
afterAll(() => daemon.dispose());

const echo = { "index.mjs": "export const handler = (payload) => ({ payload });\n" };

describe("code of a function", () => {
  it("makes a version with PUT, and none if it is the same", async () => {
    const { body: made } = await daemon.call("POST", "/api/functions", { name: "put", ...NODEJS });
    const refused = await daemon.call("POST", `/api/functions/${made.id}/deploy`);
    expect(refused).toMatchObject({ status: 400, body: { error_code: "INVALID_ARGUMENT", hint: /hearth deploy/ } });
    const path = `/api/functions/${made.id}/code`;
    const first = await user.send("PUT", `${path}?note=first`, archive(echo));
    expect(first).toMatchObject({
      status: 200,
      body: { version: 2, state: "pending", code_size_bytes: Buffer.byteLength(echo["index.mjs"]) },
    });
    expect(await daemon.call("POST", `/api/functions/${made.id}/deploy`)).toMatchObject({ status: 200 });
    expect(await daemon.invoke("put", { payload: { a: [1, "é"] } })).toMatchObject({
      status: "success",
      result: { payload: { a: [1, "é"] } },
      exit_code: 0,
      cold_start: false,
    });
    expect((await user.send("PUT", path, archive(echo))).body.version).toBe(2);
    const changed = { ...echo, "lib/more.mjs": "export {};\n" };
    expect((await user.send("PUT", path, archive(changed))).body).toMatchObject({ version: 3, state: "active" });
    const versions = await daemon.call("GET", `/api/functions/${made.id}/versions`);
    expect(versions.body.versions).toMatchObject([
      { version: 3, made_by: "bootstrap", note: null, code_size_bytes: Buffer.byteLength(echo["index.mjs"]) + 11 },
      { version: 2, made_by: "bootstrap", note: "first", code_sha256: first.body.code_sha256 },
      { version: 1, code_sha256: null, code_size_bytes: null },
    ]);
    const diff = await daemon.call("GET", `/api/functions/${made.id}/versions/2/diff/3`);
    expect(diff.body).toMatchObject({
      changes: [{ field: "code_sha256" }],
      files: [{ path: "lib/more.mjs", change: "added" }],
      is_truncated: false,
    });
  });

  it("finds the program of python3 compiled by the image's own interpreter, where it cannot write", async () => {
    const code = `
import glob, os
from importlib.machinery import SourceFileLoader
class Compiled(SourceFileLoader):
    def source_to_code(self, *arguments, **options): raise RuntimeError("compiles")
def handler(payload, context):
    for path in glob.glob("/opt/hearth/__pycache__/*"):
        try: os.close(os.open(path, os.O_WRONLY))
        except OSError: pass
        else: raise RuntimeError("writes")
    return sorted(Compiled("it", path).get_code("it").co_filename for path in glob.glob("/opt/hearth/*.py"))
`;
    await user.deploy("compiled", { "main.py": code }, PYTHON3);
    const names = readdirSync(join(PROJECT_DIR, "runtimes/python3/inside")).filter((name) => name.endsWith(".py"));
    expect(await daemon.invoke("compiled", {})).toMatchObject({
      status: "success",
      result: names.sort().map((name) => `/opt/hearth/${name}`),
    });
  });

  it("in TypeScript is compiled in the first instance of a version, and not again in the next", async () => {
    const code = `
import { getCompileCacheDir } from "node:module";
import { readdirSync } from "node:fs";
const directory = getCompileCacheDir();
const found = directory === undefined ? [] : readdirSync(directory);
export const handler = (): boolean => found.length > 0;
`;
    await user.deploy("typescript", { "index.ts": code }, { ...NODEJS, handler: "index.ts", instance_calls_max: 1 });
    const found = [await user.invoke("typescript"), await user.invoke("typescript")].map(({ result }) => result);
    expect(found).toEqual([false, true]);
  });

  it("comes back as it was sent", async () => {
    const function_id = await user.deploy("back", { ...echo, "bin/run.sh": "#!/bin/sh\n" }, NODEJS);
    const response = await fetch(`${daemon.url}/api/functions/${function_id}/versions/1/code`, {
      headers: { "x-api-key": KEY },
    });
    const listed = execFileSync("tar", ["-tvzf", "-"], { input: Buffer.from(await response.arrayBuffer()) }).toString();
    expect(listed).toMatch(/-rwxr-xr-x .* bin\/run\.sh/);
    expect(listed).toMatch(/-rw-r--r-- .* index\.mjs/);
    const none = await daemon.call("GET", `/api/functions/${function_id}/versions/2/code`);
    expect(none.status).toBe(404);
  });

  it("is one tenant's alone: a digest of another's is unknown", async () => {
    const code_sha256 = await user.upload(echo);
    const stranger = await CodeUser.ofTenant(daemon, "stranger");
    expect(await stranger.deployments([{ name: "thief", code_sha256, ...NODEJS }])).toMatchObject({
      status: 400,
      body: { error: "function 'thief': code_sha256: no code of this digest has been uploaded" },
    });
    const own = await stranger.call("POST", "/api/functions", { name: "thief", code_sha256, ...NODEJS });
    expect(own).toMatchObject({ status: 400, body: { error_code: "INVALID_ARGUMENT" } });
  });
});

describe("the runtimes", () => {
  it("run an async function of Python", async () => {
    await user.deploy(
      "py",
      {
        "main.py":
          "import sys, helper\nasync def handler(payload, context):\n    print('out', payload)\n    print('err', file=sys.stderr)\n    return {'sum': sum(payload['n']), 'twice': helper.twice(2), 'version': context.version}\n",
        "helper.py": "def twice(n):\n    return 2 * n\n",
      },
      PYTHON3,
    );
    expect(await daemon.invoke("py", { payload: { n: [1, 2, 3] } })).toMatchObject({
      status: "success",
      result: { sum: 6, twice: 4, version: 1 },
      stdout: "out {'n': [1, 2, 3]}\n",
      stderr: "err\n",
    });
  });

  it("run a program that listens on $PORT", async () => {
    const server = `import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps({"got": json.loads(body), "id": self.headers["x-hearth-invocation-id"]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`;
    await user.deploy("web", { "server.py": server }, { runtime: "custom", handler: "python3 server.py" });
    const record = await daemon.invoke("web", { payload: { a: 1 } });
    expect(record).toMatchObject({ status: "success", result: { got: { a: 1 }, id: record.invocation_id } });
  });

  it("run the documented bootstrap of AWS Lambda", async () => {
    const bootstrap = `#!/bin/sh
set -eu
while true; do
  HEADERS="$(mktemp)"
  EVENT_DATA=$(curl -sS -LD "$HEADERS" "http://\${AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/next")
  REQUEST_ID=$(grep -Fi Lambda-Runtime-Aws-Request-Id "$HEADERS" | tr -d '[:space:]' | cut -d: -f2)
  curl -sS "http://\${AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/$REQUEST_ID/response" -d "{\\"echo\\":$EVENT_DATA}" >/dev/null
done
`;
    const fields = { runtime: "custom", handler: "./bootstrap.sh", protocol: "lambda" };
    await user.deploy("lambda", { "bootstrap.sh": bootstrap }, fields);
    for (const payload of [{ n: 1 }, { n: 2 }]) {
      expect(await daemon.invoke("lambda", { payload })).toMatchObject({
        status: "success",
        result: { echo: payload },
      });
    }
  });

  it("run a shell command with the code as its directory", async () => {
    const files = { "hello.sh": "#!/bin/bash\necho hello $(cat) from $PWD\n", "data.txt": "kept\n" };
    await user.deploy("sh", files, { runtime: "shell", handler: "./hello.sh" });
    expect(await daemon.invoke("sh", { payload: "you" })).toMatchObject({ stdout: "hello you from /function\n" });
    await user.deploy("path", files, { runtime: "shell", handler: "hello.sh" });
    expect(await daemon.invoke("path", { payload: "me" })).toMatchObject({ stdout: "hello me from /function\n" });
    await user.deploy("write", files, { runtime: "shell", handler: "echo x > data.txt" });
    expect(await daemon.invoke("write")).toMatchObject({ status: "failed", stderr: /Read-only file system/ });
  });

  it("run a file that begins with #! from a zip without modes", async () => {
    const script = "#!/usr/bin/env python3\nimport sys\nprint('python', sys.stdin.read())\n";
    const packed = zip({ name: "say.py", content: script, system: 0, mode: 0 });
    const { status, body } = await user.send("POST", "/api/functions/code", new Uint8Array(packed));
    expect(status).toBe(201);
    const fields = { code_sha256: body.code_sha256, runtime: "shell", handler: "./say.py" };
    expect((await user.deployments([{ name: "script", ...fields }])).status).toBe(200);
    expect(await daemon.invoke("script", { payload: "hi" })).toMatchObject({ stdout: "python hi\n" });
  });

  it("serve several calls in one instance at the same time, each with its own output", async () => {
    const code = `let running = 0, most = 0;
export async function handler(n) {
  most = Math.max(most, ++running);
  console.log("begin", n);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  console.log("end", n);
  running--;
  return most;
}
`;
    await user.deploy("many", { "index.mjs": code }, { ...NODEJS, instance_concurrency: 10, max_instances: 1 });
    const records = await Promise.all(Array.from({ length: 10 }, (_, n) => daemon.invoke("many", { payload: n })));
    expect(records.map(({ stdout }) => stdout)).toEqual(records.map((_, n) => `begin ${n}\nend ${n}\n`));
    expect(new Set(records.map(({ instance_nonce }) => instance_nonce)).size).toBe(1);
    expect(Math.max(...records.map(({ result }) => result))).toBeGreaterThan(1);
  });

  it("replace an instance after instance_calls_max", async () => {
    const code = "let n = 0;\nexport const handler = () => ++n;\n";
    await user.deploy("few", { "index.mjs": code }, { ...NODEJS, instance_calls_max: 2, max_instances: 1 });
    const results: number[] = [];
    for (let n = 0; n < 4; n++) results.push((await daemon.invoke("few")).result);
    expect(results).toEqual([1, 2, 1, 2]);
  });
});

describe("a version that does not work", () => {
  it("is not activated: its handler does not load, or is not there", async () => {
    const function_id = await user.deploy("steady", echo, NODEJS);
    const broken = await user.upload({
      "index.mjs": "console.error('about to fail');\nthrow new TypeError('bad start');\n",
    });
    expect(await user.deployments([{ name: "steady", code_sha256: broken, ...NODEJS }])).toMatchObject({
      status: 400,
      body: {
        error_code: "HANDLER_FAILED",
        error: expect.stringContaining("TypeError: bad start"),
        details: { output: expect.stringContaining("about to fail") },
      },
    });
    const line = await eventually("the log names the function", () =>
      daemon.output.split("\n").find((line) => line.includes("version not activated")),
    );
    expect(JSON.parse(line)).toMatchObject({ function_id, version: 2, error_code: "HANDLER_FAILED" });
    expect(line).not.toContain("bad start");
    const other = await user.upload({ "other.mjs": "" });
    expect(await user.deployments([{ name: "steady", code_sha256: other, ...NODEJS }])).toMatchObject({
      status: 400,
      body: { error: "function 'steady': handler: the code has no file 'index.mjs'" },
    });
    const nothing = await user.upload({ "index.mjs": "export const other = 1;\n" });
    expect(await user.deployments([{ name: "steady", code_sha256: nothing, ...NODEJS }])).toMatchObject({
      status: 400,
      body: { error_code: "HANDLER_FAILED", error: expect.stringContaining("handler") },
    });
    const record = await daemon.invoke("steady", { payload: 1 });
    expect(record).toMatchObject({ version: 1, status: "success", cold_start: false });
  });

  it("is not activated if its smoke call has another status than expected", async () => {
    const function_id = await user.deploy("smoky", echo, NODEJS);
    const failing = {
      "index.mjs": "export const handler = (n) => { if (n > 1) throw new Error('too many: ' + n); };\n",
    };
    const code_sha256 = await user.upload(failing);
    const path = `/api/functions/${function_id}`;
    const refused = await daemon.call("PUT", path, { code_sha256, smoke: { payload: 2 } });
    expect(refused).toMatchObject({
      status: 400,
      body: { error_code: "HANDLER_FAILED", error: "smoke call: expected success, got failed: too many: 2" },
    });
    expect((await daemon.call("GET", path)).body.version).toBe(1);
    const passed = await daemon.call("PUT", path, { code_sha256, smoke: { payload: 2, expect_status: "failed" } });
    expect(passed).toMatchObject({ status: 200, body: { version: 2 } });
    const listed = await daemon.call("GET", `${path}/invocations`);
    expect(listed.body.invocations).toEqual([]);
  });

  it("leaves nothing to the next version, which has its number", async () => {
    const files = { ...echo, "bad.mjs": "throw new Error('no');\n", "main.py": "def handler(p, c): return 'python'\n" };
    const function_id = await user.deploy("again", files, NODEJS);
    const put = (fields: object) => daemon.call("PUT", `/api/functions/${function_id}`, fields);
    for (let version = 2; version < 6; version++) {
      const broken = await put({ ...NODEJS, handler: "bad.mjs#handler" });
      // At once: instances of the failed attempt may still end.
      const good = await put(version % 2 === 0 ? { ...PYTHON3, min_instances: 1 } : { ...NODEJS, min_instances: 0 });
      expect([broken.body.error_code, good.status, good.body.error]).toEqual(["HANDLER_FAILED", 200, undefined]);
      expect(await daemon.invoke("again", { payload: 1 })).toMatchObject({
        version,
        status: "success",
        result: version % 2 === 0 ? "python" : { payload: 1 },
      });
    }
  });

  it("answers calls with the reason where only they can tell", async () => {
    const code =
      "if (Math.floor(Date.now() / 1000) > Number(process.env.UNTIL)) throw new Error('too late');\nexport const handler = () => 1;\n";
    const fields = { ...NODEJS, environment: { UNTIL: "9999999999" }, instance_calls_max: 1 };
    const function_id = await user.deploy("late", { "index.mjs": code }, fields);
    expect(await daemon.invoke("late")).toMatchObject({ status: "success" });
    const updated = await daemon.call("PUT", `/api/functions/${function_id}`, { environment: { UNTIL: "0" } });
    expect(updated).toMatchObject({ status: 400, body: { error_code: "HANDLER_FAILED" } });
    expect(await daemon.invoke("late")).toMatchObject({ status: "success" });
  });
});

describe("a deployment", () => {
  it("changes several functions or none", async () => {
    const good = await user.upload(echo);
    const bad = await user.upload({ "index.mjs": "throw new Error('no');\n" });
    const pair = (second: string) => [
      { name: "one", code_sha256: good, ...NODEJS },
      { name: "two", code_sha256: second, ...NODEJS },
    ];
    expect((await user.deployments(pair(bad))).body).toMatchObject({
      error_code: "HANDLER_FAILED",
      error: expect.stringContaining("function 'two': "),
    });
    for (const name of ["one", "two"]) {
      expect((await daemon.call("GET", `/api/functions/by-name/${name}`)).status).toBe(404);
    }
    expect((await user.deployments(pair(good), { dry_run: true })).body.functions).toMatchObject([
      { name: "one", action: "created" },
      { name: "two", action: "created" },
    ]);
    expect((await daemon.call("GET", "/api/functions/by-name/one")).status).toBe(404);
    expect((await user.deployments(pair(good))).body.functions).toMatchObject([
      { action: "created" },
      { action: "created" },
    ]);
    for (const name of ["one", "two"]) expect(await daemon.invoke(name)).toMatchObject({ status: "success" });
    expect((await user.deployments(pair(good))).body.functions).toMatchObject([
      { action: "unchanged", version: 1, changes: [] },
      { action: "unchanged", version: 1 },
    ]);
    const { function_id } = (await user.deployments(pair(good))).body.functions[0];
    await daemon.call("POST", `/api/functions/${function_id}/pause`);
    const [one, two] = pair(good);
    expect((await user.deployments([{ ...one, memory_limit_mb: 300 }, { ...two }])).body.functions).toMatchObject([
      { action: "updated", version: 2, changes: [{ field: "memory_limit_mb", from: 256, to: 300 }] },
      { action: "unchanged" },
    ]);
    expect(await daemon.invoke("one")).toMatchObject({ version: 2, status: "success" });
    await daemon.call("POST", `/api/functions/${function_id}/pause`);
    expect((await user.deployments([{ ...one, memory_limit_mb: 300 }])).body.functions).toMatchObject([
      { action: "activated", version: 2 },
    ]);
  });
});

describe("changes at the same time", () => {
  it("of deployments with the same functions in any order end, each as a whole", async () => {
    const code_sha256 = await user.upload(echo);
    const all = (memory_limit_mb: number) =>
      ["left", "right"].map((name) => ({ name, code_sha256, memory_limit_mb, ...NODEJS }));
    expect((await user.deployments(all(256))).status).toBe(200);
    const limits = [300, 310, 320, 330];
    const answers = await Promise.all(
      limits.map((mb, i) => user.deployments(i % 2 === 0 ? all(mb) : all(mb).toReversed())),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    const found = await Promise.all(
      ["left", "right"].map(async (name) => (await daemon.call("GET", `/api/functions/by-name/${name}`)).body),
    );
    expect(found.map(({ version }) => version)).toEqual([5, 5]);
    expect(new Set(found.map(({ memory_limit_mb }) => memory_limit_mb)).size).toBe(1);
  });

  it("of deployments that make the same function: one makes it, the others change nothing or another version", async () => {
    const code_sha256 = await user.upload(echo);
    const answers = await Promise.all(
      [300, 310, 320].map((memory_limit_mb) =>
        user.deployments([{ name: "raced", code_sha256, memory_limit_mb, ...NODEJS }]),
      ),
    );
    const good = answers.filter(({ status }) => status === 200);
    expect(good.length).toBeGreaterThan(0);
    for (const { status, body } of answers) if (status !== 200) expect(body.error_code).toBe("WRONG_STATE");
    const { body } = await daemon.call("GET", "/api/functions/by-name/raced");
    expect(body.version).toBe(good.length);
    expect(await daemon.invoke("raced", { payload: 1 })).toMatchObject({ status: "success", version: good.length });
  });

  it.each(["pause", "delete"])("a %s ends a deployment under way, and nothing of it is left", async (verb) => {
    const name = `${verb}d-meanwhile`;
    const function_id = await user.deploy(name, echo, NODEJS);
    const code_sha256 = await user.upload({ "index.mjs": "await new Promise((r) => setTimeout(r, 60_000));\n" });
    const update = user.deployments([{ name, code_sha256, ...NODEJS, memory_limit_mb: 333 }]);
    await eventually("it loads", async () => {
      const { body } = await daemon.call("GET", `/api/functions/${function_id}/pool`);
      return body.superseded_count > 0;
    });
    const path = `/api/functions/${function_id}`;
    const ended = await daemon.call(verb === "pause" ? "POST" : "DELETE", verb === "pause" ? `${path}/pause` : path);
    expect(ended.status).toBe(200);
    expect(await update).toMatchObject({ status: 409, body: { error_code: "WRONG_STATE" } });
    await eventually("no instance is left", async () => {
      const { body } = await daemon.call("GET", "/api/functions/pools");
      return !JSON.stringify(body).includes(function_id);
    });
    const after = await daemon.call("GET", path);
    expect([after.status, after.body.version]).toEqual(verb === "pause" ? [200, 1] : [404, undefined]);
  });
});

describe("what an instance is given", () => {
  it("has secrets in its environment and as files, and no record has them", async () => {
    const value = "s3cret-value-of-the-test";
    expect((await daemon.call("PUT", "/api/secrets/TOKEN", { value })).status).toBe(201);
    const code =
      "import { readFileSync } from 'node:fs';\nexport const handler = () => [process.env.T.length, readFileSync('/run/secrets/TOKEN', 'utf8').length];\n";
    const fields = { ...NODEJS, environment: { T: { secret: "TOKEN" }, PLAIN: "x" }, secrets: ["TOKEN"] };
    const function_id = await user.deploy("secretive", { "index.mjs": code }, fields);
    expect(await daemon.invoke("secretive")).toMatchObject({ result: [value.length, value.length] });
    const record = await daemon.call("GET", `/api/functions/${function_id}`);
    expect(record.body).toMatchObject({ environment: { T: { secret: "TOKEN" } }, secrets: ["TOKEN"] });
    expect(JSON.stringify(record.body)).not.toContain(value);
    await daemon.deploy({
      name: "sh-secret",
      handler: 'printf %s "$T" | wc -c; wc -c < /run/secrets/TOKEN',
      environment: { T: { secret: "TOKEN" } },
      secrets: ["TOKEN"],
    });
    expect(await daemon.invoke("sh-secret")).toMatchObject({ stdout: `${value.length}\n${value.length}\n` });
  });

  it("fails its calls, naming a secret that does not exist", async () => {
    await daemon.deploy({ name: "lacking", handler: "true", environment: { T: { secret: "MISSING" } } });
    expect(await daemon.invoke("lacking")).toMatchObject({
      status: "failed",
      error_message: expect.stringContaining("MISSING"),
    });
    await daemon.call("PUT", "/api/secrets/MISSING", { value: "x" });
    expect(await daemon.invoke("lacking")).toMatchObject({ status: "success" });
  });

  it("fails its calls while the secrets that are files are too large together", async () => {
    const names = Array.from({ length: 5 }, (_, i) => `LARGE_${i}`);
    const set = (name: string, length: number) =>
      daemon.call("PUT", `/api/secrets/${name}`, { value: "x".repeat(length) });
    for (const name of names) expect((await set(name, LIMITS.secret_bytes_max)).status).toBe(201);
    await daemon.deploy({ name: "laden", handler: "cat /run/secrets/LARGE_* | wc -c", secrets: names });
    expect(await daemon.invoke("laden")).toMatchObject({
      status: "failed",
      error_message: `the secrets that are files have ${5 * LIMITS.secret_bytes_max} bytes together (limit 256 KiB)`,
    });
    expect((await set("LARGE_4", 1)).status).toBe(200);
    expect((await set("LARGE_3", LIMITS.secret_bytes_max - 1)).status).toBe(200);
    expect(await daemon.invoke("laden")).toMatchObject({ stdout: `${4 * LIMITS.secret_bytes_max}\n` });
    for (const name of names) await daemon.call("DELETE", `/api/secrets/${name}`);
  });

  it("refuses a version that is tried before a secret of it exists, with the command that sets the secret", async () => {
    const lacking = { environment: { T: { secret: "TOKEN_OF_NOBODY" } } };
    const tried = [
      await user.tryDeploy("untold", echo, { ...NODEJS, ...lacking }),
      await user.deployments([{ name: "untold-sh", handler: "true", smoke: {}, ...lacking }]),
    ];
    for (const { status, body } of tried) {
      expect([status, body.error_code, body.error]).toEqual([
        400,
        "HANDLER_FAILED",
        expect.stringContaining("secret 'TOKEN_OF_NOBODY' not found"),
      ]);
      expect(body.hint).toContain("hearth secrets set TOKEN_OF_NOBODY");
    }
  });

  it("reaches nothing with egress off", async () => {
    // The gateway of the daemon itself answers pings of others.
    const probe = "bash -c 'exec 3<>/dev/tcp/198.51.100.1/80' 2>&1; echo $?";
    await daemon.deploy({ name: "closed", handler: probe, egress: "off", timeout_seconds: 20 });
    const { stdout } = await daemon.invoke("closed");
    expect(stdout).toMatch(/\n1\n$/);
  });
});
