/** The clients of prod for shell, Python and Node, in containers of their own, with messages in memory. */
import { mkdtempSync, rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import type { Engine } from "../../src/engine/ports.ts";
import { eventually } from "../support/daemon.ts";
import { containerSpec, engineConfig, engineOf } from "../support/engine.ts";
import { Memory, serveInside } from "../support/inside.ts";
import { bridgeOf, ownSubnet } from "../support/networks.ts";

const REQUEST = {
  environment: ["PATH=/usr/local/bin:/usr/bin:/bin"],
  working_directory: "/",
  timeout_ms: 60_000,
  grace_ms: 0,
  output_bytes_max: 1024 * 1024,
  is_stream: false,
};

describe("in a container", () => {
  const data_dir = mkdtempSync("/var/tmp/hearth-icc-client-");
  const inside = new Memory();
  let served = serveInside(inside);
  let engine: Engine;

  beforeAll(async () => {
    engine = engineOf(engineConfig(["--data-dir", data_dir, "--bridge", bridgeOf(data_dir), "--subnet", ownSubnet()]));
    await engine.boot();
    served.begin(engine.containers);
    for (const id of ["alice", "bob"]) {
      await engine.containers.create(id, 64);
      // A user of no rights: the socket is for all of them.
      await engine.containers.start(containerSpec(id, { has_socket: true, memory_limit_mb: 256, user: "nobody" }));
    }
  });
  afterAll(async () => {
    for (const id of engine.containers.ids) await engine.containers.kill(id);
    await served.close();
    await engine.shutdown();
    rmSync(data_dir, { recursive: true, force: true });
  });

  const run = async (id: string, argv: readonly string[], stdin = "") => {
    const exit = await engine.containers.run(id, { ...REQUEST, argv, stdin: Buffer.from(stdin) }).exited;
    return { exit_code: exit.exit_code, out: exit.stdout.toString(), err: exit.stderr.toString() };
  };
  const icc = (id: string, ...words: string[]) => run(id, ["hearth-icc", ...words]);
  const json = async (answer: Promise<{ readonly out: string; readonly err: string }>) => {
    const { out, err } = await answer;
    expect(err).toBe("");
    return out
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line));
  };

  it("hearth-icc sends, receives, settles and replies", async () => {
    expect(await json(icc("alice", "self"))).toEqual([{ tenant_id: "default", container_id: "alice" }]);
    expect(await json(icc("alice", "send", "bob", '{"n":1}', "--type", "job"))).toEqual([{ stream_seq: 1 }]);
    await icc("alice", "send", "bob", "no json", "--id", "mine", "--ttl=5", "--key", "k", "--correlation", "c");
    await icc("alice", "send", "bob", "12", "--text");
    await run("alice", ["hearth-icc", "send", "bob", "-"], '["ü\\n\\"", null]');
    const received = await json(icc("bob", "receive", "--max", "10", "--wait", "5", "--lease", "30", "--ordered"));
    expect(received.map(({ payload }) => payload)).toEqual([{ n: 1 }, "no json", "12", ['ü\n"', null]]);
    expect(received[0]).toMatchObject({
      from: "alice",
      type: "job",
      msg_id: expect.stringMatching(/^msg_[0-9a-f]{32}$/),
    });
    expect(received[1]).toMatchObject({ msg_id: "mine", ttl_ms: 5_000, idempotency_key: "k", correlation_id: "c" });
    expect(inside.calls.at(-1)).toMatchObject({ max: 10, wait_ms: 5_000, lease_ms: 30_000, ordered: true });
    expect(await icc("bob", "receive")).toEqual({ exit_code: 4, out: "", err: "" });
    await json(icc("bob", "ack", "mine", "--lease", "l2"));
    expect(inside.settled.at(-1)).toMatchObject({ msg_id: "mine", action: "ack", lease: "l2", inbox: null });
    await json(icc("bob", "nack", "mine", "--requeue", "--delay", "2", "--reason", "later", "--queue", "q"));
    const nacked = { action: "nack", requeue: true, delay_ms: 2_000, reason: "later", inbox: "queue:q" };
    expect(inside.settled.at(-1)).toMatchObject(nacked);
    const asking = json(icc("alice", "request", "bob", '"2+2?"', "--timeout", "20"));
    const [asked] = await json(icc("bob", "receive", "--wait", "20", "--ack"));
    expect([asked.type, inside.settled.at(-1)]).toMatchObject(["request", { action: "ack", lease: asked.lease }]);
    await json(icc("bob", "reply", asked.msg_id, "4"));
    expect(await asking).toMatchObject([{ payload: 4, from: "bob" }]);
    await json(icc("bob", "subscribe", "news"));
    await icc("alice", "send", "topic:news", "1");
    expect(await json(icc("bob", "receive"))).toMatchObject([{ to: "topic:news" }]);
    await json(icc("bob", "unsubscribe", "news"));
  });

  it("hearth-icc keeps a state, and says in its exit code what went wrong", async () => {
    expect(await json(icc("alice", "state", "put", "a.b", '{"on":true}'))).toMatchObject([{ version: 1 }]);
    expect(await icc("alice", "state", "put", "a.b", "1", "--if-version", "0")).toMatchObject({
      exit_code: 1,
      err: "hearth-icc: version is 1 (WRONG_STATE)\n",
    });
    expect(await json(icc("bob", "state", "get", "a.b"))).toMatchObject([{ value: { on: true } }]);
    expect(await json(icc("bob", "state", "list", "a."))).toHaveLength(1);
    expect(await json(run("bob", ["sh", "-c", "hearth-icc state watch a. | head -n 1"]))).toMatchObject([
      { key: "a.b" },
    ]);
    await json(icc("bob", "state", "delete", "a.b"));
    expect(await icc("bob", "state", "get", "a.b")).toMatchObject({ exit_code: 1 });
    for (const words of [[], ["nothing"], ["state"], ["send"], ["send", "a", "b", "c"], ["receive", "--max"]]) {
      expect([words, (await icc("bob", ...words)).exit_code]).toEqual([words, 2]);
    }
    expect((await icc("bob", "receive", "--max", "x")).err).toMatch(/^hearth-icc: --max is not a number: x/);
    expect(await icc("bob", "send", "--help")).toMatchObject({
      exit_code: 0,
      out: expect.stringMatching(/^usage: hearth-icc/),
      err: "",
    });
    expect((await icc("bob", "send", "a", "--force")).err).toMatch(/unknown option of send: --force/);
    expect((await icc("bob", "help")).out).toMatch(/^usage: hearth-icc COMMAND/);
    expect((await icc("bob", "stream", "--queue", "none")).err).toBe("hearth-icc: no such inbox (NOT_FOUND)\n");
  });

  it("the module of Python does the same, from several threads and after a fork", async () => {
    const script = `
import hearth_icc as icc, json, os, threading
threads = [threading.Thread(target=lambda n=n: [icc.send("alice", {"n": n, "i": i}) for i in range(20)]) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
pid = os.fork()
icc.send("alice", "child" if pid == 0 else "parent")
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
icc.send("alice", "end")
count = 0
for message in icc.stream(lease=10):
    icc.ack(message)
    count += 1
    if message["payload"] == "end": break
icc.send("alice", "x" * 700000)
large, = icc.receive(wait=5)
icc.nack(large, reason="large")
try:
    icc.state.get("none")
except icc.IccError as error:
    print(count, len(large["payload"]), error.code, error.status)
print(json.dumps(icc.whoami()))
`;
    const { out, err } = await run("alice", ["python3", "-c", script]);
    expect(err).toBe("");
    expect(out).toBe('163 700000 NOT_FOUND 404\n{"tenant_id": "default", "container_id": "alice"}\n');
  });

  it("the module of Node does the same, from any directory", async () => {
    const script = `
import * as icc from "/usr/local/lib/node_modules/hearth-icc/index.js";
await Promise.all(Array.from({ length: 100 }, (_, i) => icc.send("bob", { i }, { type: "job" })));
const stop = new AbortController();
let count = 0;
for await (const message of icc.stream({ signal: stop.signal })) {
  await icc.ack(message);
  if (++count === 100) stop.abort();
}
await icc.send("bob", "x".repeat(700_000));
const [large] = await icc.receive({ wait_ms: 5_000 });
const asking = icc.request("bob", "2+2?", { timeout_ms: 5_000 });
const [asked] = await icc.receive({ wait_ms: 5_000 });
await icc.reply(asked, 4);
const { payload } = await asking;
await icc.state.put("k", 1);
for await (const { value } of icc.state.watch("k")) {
  console.log(count, large.payload.length, payload, value);
  break;
}
const error = await icc.state.get("none").catch((one) => one);
console.log(error instanceof icc.IccError, error.code);
`;
    const line = "mkdir -p /tmp/app && cd /tmp/app && cat > main.mjs && exec node main.mjs";
    const { out, err } = await run("bob", ["sh", "-c", line], script);
    expect(err).toBe("");
    expect(out).toBe("100 700000 4 1\ntrue NOT_FOUND\n");
  });

  it("survive a restart of what listens, and repeat nothing twice", async () => {
    const script = `
import hearth_icc as icc, time
icc.send("alice", 0)
print("ready", flush=True)
for i in range(1, 40):
    icc.send("alice", i)
    time.sleep(0.05)
`;
    const node = `
import * as icc from "/usr/local/lib/node_modules/hearth-icc/index.js";
for await (const { payload } of icc.stream()) if (payload === 39) break;
console.log("all");
`;
    const sending = run("bob", ["python3", "-c", script]);
    const streaming = run("alice", ["node", "--input-type=module", "-e", node]);
    await eventually("the stream", () => inside.waiting_count > 0 || inside.calls.length > 0);
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      await served.close();
      await new Promise((resolve) => setTimeout(resolve, 200));
      served = serveInside(inside);
      served.begin(engine.containers);
    }
    expect(await sending).toMatchObject({ exit_code: 0, err: "" });
    expect(await streaming).toMatchObject({ exit_code: 0, err: "", out: "all\n" });
  });

  it("end with 3 where nothing listens", async () => {
    await served.close();
    expect(await icc("bob", "self")).toMatchObject({
      exit_code: 3,
      err: expect.stringContaining("cannot reach the daemon"),
    });
    served = serveInside(inside);
    served.begin(engine.containers);
  });

  it("are bounded as the API is, whatever a container tries", async () => {
    const script = `
import socket, time, json
path = "/run/hearth/icc.sock"
held = []
def one():
    s = socket.socket(socket.AF_UNIX); s.settimeout(5)
    try: s.connect(path); held.append(s)
    except OSError: s.close()
for _ in range(1000): one()
time.sleep(0.5)
def dead(s):
    s.setblocking(False)
    try: return s.recv(10) in (b"", b"HTTP/1.1 4")
    except BlockingIOError: return False
    except OSError: return True
print("open", sum(not dead(s) for s in held))
for s in held: s.close()
time.sleep(1.2)
def ask(text, wait=3):
    s = socket.socket(socket.AF_UNIX); s.settimeout(wait)
    try:
        s.connect(path); s.sendall(text)
        return s.recv(4096).split(b"\\r\\n")[0].decode()
    except OSError as error: return type(error).__name__
    finally: s.close()
print(ask(b"GET /v1/self HTTP/1.1\\r\\nHost: x\\r\\nX: " + b"y" * 100000 + b"\\r\\n\\r\\n"))
print(ask(b"POST /v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 9999999999\\r\\n\\r\\n{"))
print(ask(b"POST /v1/messages HTTP/1.1\\r\\nHost: x\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n" + b"1\\r\\n{\\r\\n" * 20000))
print(ask(b"GET /api/containers HTTP/1.1\\r\\nHost: x\\r\\nX-Api-Key: k\\r\\n\\r\\n"))
print(ask(b"GET http://evil/v1/self HTTP/1.1\\r\\nHost: evil\\r\\n\\r\\n"))
print(ask(b"GET /v1/self HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"))
`;
    const { out, err } = await run("bob", ["python3", "-c", script]);
    expect(err).toBe("");
    const [open = "", ...lines] = out.trim().split("\n");
    expect(Number(open.split(" ")[1])).toBeLessThanOrEqual(LIMITS.icc_connections_per_container_max);
    expect(lines).toEqual([
      "HTTP/1.1 431 Request Header Fields Too Large",
      "HTTP/1.1 413 Payload Too Large",
      expect.stringMatching(/^(ConnectionResetError|BrokenPipeError|)$/),
      "HTTP/1.1 404 Not Found",
      "HTTP/1.1 404 Not Found",
      "HTTP/1.1 200 OK",
    ]);
    await eventually("nothing of it is left", () => served.listeners.counts.connections_count <= 2);
    expect(await json(icc("alice", "self"))).toMatchObject([{ container_id: "alice" }]);
  });
});
