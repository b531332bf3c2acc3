/** The adapter of the runtime `custom` with the protocol `http`: calls, commands, and broken servers. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { checkShape } from "../../src/base/json-shape.ts";
import { adapters } from "../../test/support/adapter.ts";
import { eventually } from "../../test/support/native.ts";

const NODE = process.execPath;
const EXAMPLE = readFileSync(join(import.meta.dirname, "example/server.py"), "utf8");

/** A server that answers with its request. */
const ECHO = `
import { createServer } from "node:http";
createServer(async (request, response) => {
  const body = (await request.toArray()).join("");
  console.log("asked for " + body.length);
  response.end(JSON.stringify({ method: request.method, path: request.url, headers: request.headers, body }));
}).listen(process.env.PORT, process.env.HOST);
`;

/** Sends the payload as the response, byte for byte; \`early\` before the request is read. */
const RAW = `
import { createServer } from "node:net";
createServer((socket) => {
  let text = "";
  socket.on("error", () => {});
  socket.on("data", (bytes) => {
    text += bytes.toString("latin1");
    const length = /content-length: (\\d+)/i.exec(text)?.[1];
    const at = text.indexOf("\\r\\n\\r\\n") + 4;
    if (at < 4 || text.length - at < Number(length)) return;
    const { response, repeat = null, close = false, slow = false } = JSON.parse(text.slice(at, at + Number(length)));
    text = "";
    const send = (error) => {
      if (!error && repeat !== null) socket.write(repeat, "latin1", (error) => setImmediate(send, error));
    };
    if (slow) {
      const parts = [...response];
      const step = () => {
        if (parts.length > 0) socket.write(parts.shift(), "latin1", () => setTimeout(step, 2));
        else if (close) socket.end();
      };
      step();
      return;
    }
    socket.write(response, "latin1", send);
    if (close) socket.end();
  });
}).listen(process.env.PORT, process.env.HOST);
`;

const { start } = adapters();

async function rawServer() {
  const adapter = await start({ "raw.mjs": RAW });
  expect(await adapter.bind(`${NODE} raw.mjs`)).toMatchObject({ status: "returned", content: null });
  return {
    adapter,
    say: (response: string, options: object = {}, head: object = {}) =>
      adapter.call(JSON.stringify({ response, ...options }), head),
  };
}

const httpError = (message: string | RegExp) => ({
  status: "failed",
  content: { type: "HttpError", message: typeof message === "string" ? message : expect.stringMatching(message) },
});

describe("a call by HTTP", () => {
  it("is a POST with the payload as the body and ids in headers", async () => {
    const adapter = await start({ "echo.mjs": ECHO });
    await adapter.bind(`${NODE} echo.mjs`);
    const deadline_ms = Date.now() + 5_000;
    const head = { invocation_id: "inv-9", deadline_ms, environment: { NAME: "é\u007f😀" }, tracestate: "a=b" };
    const { content, stdout } = await adapter.call('{"a": 1}', { ...head, api: { url: "http://api", token: "t" } });
    expect(content).toMatchObject({
      method: "POST",
      path: "/",
      body: '{"a": 1}',
      headers: {
        host: "127.0.0.1:8080",
        "content-type": "application/json",
        "x-hearth-invocation-id": "inv-9",
        "x-hearth-deadline-ms": String(deadline_ms),
        "x-hearth-function-id": "fn_1",
        "x-hearth-function-name": "hello",
        "x-hearth-function-version": "3",
        traceparent: expect.stringMatching(/^00-0af7/),
        tracestate: "a=b",
        "x-hearth-environment": '{"NAME":"\\u00e9\\u007f\\ud83d\\ude00"}',
        "x-hearth-api-url": "http://api",
        "x-hearth-api-token": "t",
      },
    });
    expect(stdout).toBe("asked for 8\n");
    const text = await adapter.call("plain text");
    expect(text.content).toMatchObject({
      headers: { "content-type": "text/plain; charset=utf-8" },
      body: "plain text",
    });
    expect(text.content).not.toHaveProperty("headers.x-hearth-api-url");
    const large = "x".repeat(900_000);
    expect((await adapter.call(large)).content).toMatchObject({ body: large });
  });

  it("is the request that its head describes, on connections that later calls share", async () => {
    const adapter = await start({ "echo.mjs": ECHO });
    await adapter.bind(`${NODE} echo.mjs`);
    const asked = (method: string, path = "/", headers: object = {}) => ({
      http: { method, path, headers: { ...headers } },
    });
    const put = await adapter.call(
      "a=1",
      asked("PUT", "/a%20b?c=/d&e", { "content-TYPE": "text/csv", "X-A": '"é"\nX: y' }),
    );
    expect(put.content).toMatchObject({ method: "PUT", path: "/a%20b?c=/d&e", body: "a=1" });
    const { headers } = put.content as { headers: Record<string, string> };
    expect([headers["content-type"], headers["content-length"], headers.host]).toEqual([
      "text/csv",
      "3",
      "127.0.0.1:8080",
    ]);
    // A control character cannot end its line.
    expect(Buffer.from(headers["x-a"] ?? "", "latin1").toString()).toBe('"é" X: y');
    for (const method of ["GET", "DELETE", "OPTIONS"]) {
      const { content } = await adapter.call("", asked(method, "/items/1"));
      expect(content).toMatchObject({ method, path: "/items/1", body: "" });
      expect(content).not.toHaveProperty("headers.content-length");
      expect(content).not.toHaveProperty("headers.content-type");
    }
    const post = await adapter.call("", asked("POST"));
    expect(post.content).toMatchObject({ method: "POST", headers: { "content-length": "0" } });
    // Its response announces the length of the body that a GET would have.
    expect(await adapter.call("", asked("HEAD"))).toMatchObject({ status: "returned", content: null });
    expect(await adapter.call("after")).toMatchObject({ content: { method: "POST", path: "/", body: "after" } });
  });

  it("reaches the example, a file of the code without the x bit", async () => {
    const adapter = await start({ "server.py": EXAMPLE });
    expect(await adapter.bind("server.py")).toMatchObject({ status: "returned" });
    for (const name of ["Ada", "Grace"]) {
      const answer = await adapter.call(JSON.stringify({ name }));
      expect(answer).toMatchObject({ status: "returned", content: { message: `Hello, ${name}!` } });
      expect(answer.stdout).toMatch(new RegExp(`^greeting ${name} in invocation inv-`));
    }
  });

  it("runs beside others, as many as the concurrency", async () => {
    const adapter = await start({ "echo.mjs": ECHO });
    await adapter.bind(`${NODE} echo.mjs`, { concurrency: 10 });
    const bodies = Array.from({ length: 50 }, (_, i) => `call ${i}`);
    const answers = await Promise.all(bodies.map((body) => adapter.call(body)));
    expect(answers.map(({ content }) => (content as { body: string }).body)).toEqual(bodies);
    expect(answers.every(({ stdout }) => stdout === "")).toBe(true);
    expect(adapter.process.own.stdout).toContain("asked for 7\n");
  });

  it("may be sent before the bind is answered", async () => {
    const adapter = await start({ "echo.mjs": ECHO });
    const [bound, answer] = await Promise.all([adapter.bind(`${NODE} echo.mjs`), adapter.call("first")]);
    expect([bound.status, answer.status]).toEqual(["returned", "returned"]);
  });

  it.each([
    ["JSON", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n [1, 2]\n", [1, 2]],
    ["text", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nit's\n\"\xff", "it's\n\"\ufffd"],
    ["nothing", "HTTP/1.1 204 No Content\r\n\r\n", null],
    [
      "chunks",
      'HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\n"ab\r\nA\r\n0123456789\r\n1\r\n"\r\n0\r\nT: 1\r\n\r\n',
      "ab0123456789",
    ],
    ["lines without carriage returns", "HTTP/1.1 200\nContent-Length: 1\n\n7", 7],
    [
      "interim responses",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7",
      7,
    ],
    ["a repeated length", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n7", 7],
  ])("returns %s", async (_name, response, result) => {
    const { say } = await rawServer();
    expect(await say(response)).toMatchObject({ status: "returned", content: result });
    expect(await say(response, { slow: true })).toMatchObject({ status: "returned", content: result });
  });

  it("returns a body without a length, up to the end of the connection", async () => {
    const { say } = await rawServer();
    expect(await say("HTTP/1.0 200 OK\r\n\r\n{}", { close: true })).toMatchObject({ status: "returned", content: {} });
    expect(await say("HTTP/1.1 200 OK\r\n\r\n[]", { close: true })).toMatchObject({ status: "returned", content: [] });
  });
});

describe("a call by HTTP fails", () => {
  it.each([
    ["of 128 levels", `${"[".repeat(128)}${"]".repeat(128)}`, true],
    ["of 129 levels", `${"[".repeat(129)}${"]".repeat(129)}`, false],
    ["of 512 levels of objects", `${'{"a\\"[":'.repeat(512)}1${"}".repeat(512)}`, false],
    ["of brackets in a string", JSON.stringify(`\\${"[{".repeat(200)}`), true],
    ["of 65,536 values", JSON.stringify(Array.from({ length: 65_534 }, () => 1)), true],
    ["of more values", JSON.stringify(Array.from({ length: 65_536 }, () => 1)), false],
  ])("returns JSON %s as JSON, or as text", async (_name, body, isJson) => {
    const { say } = await rawServer();
    const { status, content } = await say(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    expect([status, content]).toEqual(["returned", isJson ? JSON.parse(body) : body]);
    if (isJson) expect(() => checkShape(Buffer.from(body))).not.toThrow();
    else expect(() => checkShape(Buffer.from(body))).toThrow(/nested too deeply|too many values/);
  });

  it("with another status, by its number and the first 512 bytes of its body", async () => {
    const { say } = await rawServer();
    const body = "no ".repeat(1_000);
    expect(await say(`HTTP/1.1 500 Bad\r\nContent-Length: ${body.length}\r\n\r\n${body}`)).toMatchObject(
      httpError(`answered 500: ${body.slice(0, 512).trim()}`),
    );
    expect(await say("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n")).toMatchObject(httpError("answered 302"));
  });

  it.each([
    ["no HTTP", "SSH-2.0-OpenSSH\r\n", /broken HTTP response: a malformed first line/],
    ["a head without end", `HTTP/1.1 200 OK\r\n${"A: b\r\n".repeat(4_000)}`, /a head above 16 KiB/],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12", /malformed Content-Length/],
    ["length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1", /both/],
    ["a wrong chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", /a malformed chunk/],
    [
      "a huge chunk",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
      /a malformed chunk/,
    ],
    ["a coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", /unknown Transfer-Encoding/],
    ["a header that is none", "HTTP/1.1 200 OK\r\n folded\r\n\r\n", /a malformed header/],
    ["interim responses without end", "HTTP/1.1 100 Continue\r\n\r\n".repeat(20), /too many interim/],
  ])("with %s", async (_name, response, message) => {
    const { say } = await rawServer();
    expect(await say(response)).toMatchObject(httpError(message));
    expect(await say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7")).toMatchObject({
      status: "returned",
      content: 7,
    });
  });

  it("if the connection ends early", async () => {
    const { say } = await rawServer();
    expect(await say("", { close: true })).toMatchObject(httpError("closed the connection without an answer"));
    expect(await say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1", { close: true })).toMatchObject(
      httpError("closed the connection within its answer"),
    );
  });

  it.each([
    ["a huge length", "HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n", null],
    [
      "chunks without end",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
      `8000\r\n${"x".repeat(0x8000)}\r\n`,
    ],
    ["a body without end", "HTTP/1.1 200 OK\r\n\r\n", "x".repeat(4_096)],
    ["text that is larger as JSON", `HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n${'"'.repeat(600_000)}`, null],
  ])("with a result above 1 MiB: %s", async (_name, response, repeat) => {
    const { say } = await rawServer();
    const error = { type: "ResultTooLarge", message: "result too large: more than 1048576 bytes (limit)" };
    expect(await say(response, { repeat })).toMatchObject({ status: "failed", content: error });
    expect(await say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7")).toMatchObject({
      status: "returned",
      content: 7,
    });
  });

  it("but not with one of 1 MiB", async () => {
    const { say } = await rawServer();
    const body = JSON.stringify("x".repeat(1024 * 1024 - 2));
    const repeat = undefined;
    const answer = await say(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`, { repeat });
    expect(answer).toMatchObject({ status: "returned", content: JSON.parse(body) });
  });

  it("and discards bytes after an answer", async () => {
    const { say } = await rawServer();
    const one = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1";
    expect(await say(`${one}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2`)).toMatchObject({ content: 1 });
    expect(await say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3")).toMatchObject({ content: 3 });
  });

  it("but not because the server closes connections that it said it would keep", async () => {
    const { say } = await rawServer();
    const response = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7";
    for (let i = 0; i < 300; i++) expect([i, await say(response, { close: true })]).toMatchObject([i, { content: 7 }]);
  });

  it("at its deadline, with whatever trickles", async () => {
    const { say } = await rawServer();
    const late = () => ({ deadline_ms: Date.now() + 200 });
    expect(await say("HTTP/1.1 200 OK\r\n\r\n", { repeat: null }, late())).toMatchObject({ status: "timed_out" });
    expect(await say("HTTP/1.1 200 OK\r\nA: b".repeat(100), { slow: true }, late())).toMatchObject({
      status: "timed_out",
    });
    expect(await say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3")).toMatchObject({ content: 3 });
  });

  it("with an answer to a request that was not read, by that answer", async () => {
    const adapter = await start({
      "early.mjs": `
        import { createServer } from "node:net";
        createServer((socket) => {
          socket.on("error", () => {}).pause();
          socket.end("HTTP/1.1 413 Too Large\\r\\nContent-Length: 2\\r\\n\\r\\nno");
        }).listen(process.env.PORT);`,
    });
    await adapter.bind(`${NODE} early.mjs`);
    expect(await adapter.call("x".repeat(6_000_000))).toMatchObject(httpError("answered 413: no"));
  });
});

describe("a command", () => {
  it.each([
    ["exits", "exit 3", "the command exited with 3 before it listened on port 8080: gone\n".trim()],
    ["is killed", "kill -9 $$", "the command was killed by signal 9 before it listened on port 8080: gone"],
    [
      "is not found",
      "no-such-command --now",
      /^the command exited with 127 before it listened on port 8080: .*not found$/,
    ],
  ])("that %s is not loaded, nor are calls", async (_name, line, message) => {
    const adapter = await start();
    const handler = line.startsWith("no-") ? line : `echo gone >&2; ${line}`;
    const bound = adapter.bind(handler);
    const answers = await Promise.all([bound, adapter.call("1")]);
    const content = {
      type: "CommandNotReady",
      message: typeof message === "string" ? message : expect.stringMatching(message),
    };
    for (const answer of answers) expect(answer).toMatchObject({ status: "not_loaded", content });
    expect(await adapter.call("2")).toMatchObject({ status: "not_loaded", content });
  });

  it("that never listens is not loaded by the deadline of the bind, and ends", async () => {
    const adapter = await start();
    expect(await adapter.bind("sleep 1000", {}, { kill_after_ms: 700 })).toMatchObject({
      status: "not_loaded",
      content: { message: "the command took more than 450 ms before it listened on port 8080" },
    });
  });

  it("without the x bit and a #! line is not loaded", async () => {
    const adapter = await start({ server: "echo" });
    const { content } = await adapter.bind("server");
    expect(content).toMatchObject({
      message: expect.stringMatching(/server is not executable and its first line is no #!/),
    });
  });

  it("without its working directory is not loaded", async () => {
    const adapter = await start();
    const { content } = await adapter.bind("true", { working_directory: "/nowhere" });
    expect(content).toMatchObject({ message: "cannot change to the working directory: No such file or directory" });
  });

  it("may have the port of the version, and a line for the shell", async () => {
    const adapter = await start({ "echo.mjs": ECHO });
    const bound = await adapter.bind(`X=1 && exec ${NODE} "echo.mjs"`, {
      environment: { PORT: "3000", HOST: "0.0.0.0" },
    });
    expect(bound.status).toBe("returned");
    expect((await adapter.call("1")).content).toMatchObject({ headers: { host: "127.0.0.1:3000" } });
  });

  it("that exits fails its calls with its exit code, and the adapter ends", async () => {
    const adapter = await start({
      "exits.mjs": `
        import { createServer } from "node:http";
        createServer(() => { console.log("last words"); process.exit(3); }).listen(process.env.PORT);`,
    });
    await adapter.bind(`${NODE} exits.mjs`);
    expect(await adapter.call()).toEqual({
      status: "exiting",
      content: { type: "CommandExited", message: "the command exited with 3" },
      stdout: "last words\n",
      stderr: "",
    });
    expect(await adapter.process.ended).toMatchObject({ code: 3, broken: null });
  });

  it("that floods its output is answered, and so are the calls after it", async () => {
    const adapter = await start({
      "flood.mjs": `
        import { createServer } from "node:http";
        createServer((_, response) => {
          const line = "x".repeat(65536);
          for (let i = 0; i < 200; i++) process.stderr.write(line);
          process.stderr.write("", () => response.end("1"));
        }).listen(process.env.PORT);`,
    });
    await adapter.bind(`${NODE} flood.mjs`);
    for (let i = 0; i < 3; i++) {
      const { status, stderr } = await adapter.call();
      expect([status, stderr.length]).toEqual(["returned", 1024 * 1024]);
    }
    const flooding = await start({ "echo.mjs": ECHO });
    await flooding.bind(`yes >&2 & exec ${NODE} echo.mjs`, { concurrency: 2 });
    for (let i = 0; i < 20; i++) expect(await flooding.call("1")).toMatchObject({ status: "returned" });
  });

  it("that answers and exits has answered", async () => {
    const adapter = await start({
      "once.mjs": `
        import { createServer } from "node:http";
        createServer((_, response) => response.end("1", () => process.kill(process.pid, "SIGKILL"))).listen(process.env.PORT);`,
    });
    await adapter.bind(`${NODE} once.mjs`);
    expect(await adapter.call()).toMatchObject({ status: "returned", content: 1 });
  });

  it("that forks and exits is over", async () => {
    const adapter = await start({ "echo.mjs": ECHO });
    await adapter.bind(`${NODE} echo.mjs & while ! curl -so /dev/null 127.0.0.1:8080; do :; done`);
    expect(await adapter.process.ended).toMatchObject({ code: 0 });
  });

  it("whose listening child is gone fails its next call, and the adapter ends", async () => {
    const adapter = await start({
      "child.mjs": `
        import { createServer } from "node:http";
        const server = createServer((_, response) => {
          server.close();
          response.writeHead(200, { connection: "close" }).end("1");
        }).listen(process.env.PORT);`,
    });
    await adapter.bind(`${NODE} child.mjs & while :; do sleep 0.05; done`);
    expect(await adapter.call()).toMatchObject({ status: "returned", content: 1 });
    expect(await adapter.call()).toMatchObject({
      status: "exiting",
      content: { type: "CommandNotListening", message: "the command no longer listens on port 8080" },
    });
    expect(await adapter.process.ended).toMatchObject({ code: 1, broken: null });
  });

  it("cannot reach minit's socket, and orphans of a call end when no call is in flight", async () => {
    const adapter = await start({
      "orphans.mjs": `
        import { execSync } from "node:child_process";
        import { createServer } from "node:http";
        import { readdirSync, readlinkSync } from "node:fs";
        execSync("sleep 1001 >/dev/null 2>&1 & sleep 0");
        createServer(async (request, response) => {
          const line = (await request.toArray()).join("");
          if (line !== "") execSync(line);
          const sleeping = execSync("pgrep -a sleep || true").toString();
          const sockets = readdirSync("/proc/self/fd").filter((fd) => { try { return fd === "3" && readlinkSync("/proc/self/fd/3").startsWith("socket"); } catch { return false; } });
          response.end(JSON.stringify({ sleeping, sockets }));
        }).listen(process.env.PORT);`,
    });
    await adapter.bind(`${NODE} orphans.mjs`);
    const first = await adapter.call("sleep 1002 >/dev/null 2>&1 & sleep 0");
    expect(first.content).toMatchObject({ sockets: [], sleeping: expect.stringMatching(/sleep 1001\n.*sleep 1002\n/) });
    const { content } = await eventually("the orphan to end", async () => {
      const next = await adapter.call();
      // A killed process is listed as [sleep] until it is reaped.
      return /sleep 1002|\[sleep\]/.test(JSON.stringify(next.content)) ? null : next;
    });
    expect(content).toMatchObject({ sleeping: expect.stringMatching(/^\d+ sleep 1001\n$/) });
  });
});
