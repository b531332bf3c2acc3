/**
 * Function bindings under attack: loops, floods of one tenant, other tenants, functions that go; and handlers of the runtimes, one of
 * which writes frames of its own.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
let user: CodeUser & { readonly tenant_id: string };
let other: CodeUser & { readonly tenant_id: string };
beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" });
  [user, other] = [await CodeUser.ofTenant(daemon, "one"), await CodeUser.ofTenant(daemon, "two")];
});
afterAll(() => daemon.dispose());

const deploy = async (of: CodeUser, fields: Record<string, unknown>): Promise<string> => {
  const { status, body } = await of.call("POST", "/api/functions", fields);
  if (status !== 201) throw new Error(JSON.stringify(body));
  expect((await of.call("POST", `/api/functions/${body.id}/deploy`)).status).toBe(200);
  return body.id;
};
const bind = async (of: CodeUser, fields: Record<string, unknown>): Promise<string> => {
  const { status, body } = await of.call("POST", "/api/icc/bindings", fields);
  if (status !== 201) throw new Error(JSON.stringify(body));
  return body.binding_id;
};
const send = async (of: CodeUser, to: string, payload: unknown, rest: object = {}) => {
  const { status, body } = await of.call("POST", "/api/icc/messages", { to, type: "t", payload, ...rest });
  if (status !== 200) throw new Error(JSON.stringify(body));
  return body;
};
const facts = async (of: CodeUser, inbox: string): Promise<{ readonly last_seq: number; readonly unread: number }> => {
  const { streams } = (await of.call("GET", "/api/icc/streams")).body;
  const found = streams.find((one: { container_id: string }) => one.container_id === inbox);
  return found ?? { last_seq: 0, unread: 0 };
};
const callsOf = async (of: CodeUser, function_id: string) =>
  (await of.call("GET", `/api/functions/${function_id}/invocations?limit=500`)).body.invocations;
const isHandled = (of: CodeUser, inbox: string) =>
  eventually(`${inbox} is handled`, async () => {
    const { last_seq, unread } = await facts(of, inbox);
    return last_seq > 0 && unread === 0;
  });

describe("output that a handler forges for other calls", () => {
  const FORGER = {
    "main.py": `import os, struct
def forge(id): os.write(3, struct.pack("<IBIB", 6 + 7, 0x65, id, 2) + b"forged\\n")
def handler(payload, context):
    if payload == "forge":
        for id in [*range(400), 2**31, 2**32 - 1]: forge(id)
    return payload
`,
  };
  const INNOCENT = { "main.py": "import sys\ndef handler(payload, context): print(payload, file=sys.stderr)" };

  it("reaches calls of its own instance alone: none of another function, tenant or instance, and no later one", async () => {
    const invoke = async (of: CodeUser, name: string, payload: unknown) =>
      (await of.call("POST", `/api/functions/invoke/${name}`, { payload })).body;
    const stderrs = async (of: CodeUser, id: string): Promise<string[]> =>
      (await callsOf(of, id)).map(({ stderr }: { stderr: string }) => stderr);
    const [forger, sibling] = [
      await user.deploy("forger", FORGER, { ...PYTHON3, max_instances: 1 }),
      await user.deploy("sibling", INNOCENT, { ...PYTHON3, max_instances: 1 }),
    ];
    const victim = await other.deploy("victim", INNOCENT, { ...PYTHON3, max_instances: 1 });
    const innocent = [
      [user, "sibling"],
      [other, "victim"],
    ] as const;
    for (let i = 0; i < 5; i++) for (const [of, name] of innocent) await invoke(of, name, "own");
    const before = await invoke(user, "forger", "before");
    const forging = invoke(user, "forger", "forge");
    // Calls of others are in flight meanwhile.
    await Promise.all(innocent.flatMap(([of, name]) => [1, 2, 3].map(() => invoke(of, name, "own"))));
    expect(await forging).toMatchObject({ status: "success", result: "forge", instance_nonce: before.instance_nonce });
    const path = `/api/functions/${forger}/invocations/${before.invocation_id}`;
    await eventually("it has reached its own earlier call", async () =>
      (await user.call("GET", path)).body.stderr.includes("forged"),
    );
    const after = await invoke(user, "forger", "after");
    expect([after.stderr, after.instance_nonce]).toEqual(["", before.instance_nonce]);
    for (const [of, name] of innocent) await invoke(of, name, "own");
    expect(await stderrs(user, sibling)).toEqual(Array.from({ length: 9 }, () => "own\n"));
    expect(await stderrs(other, victim)).toEqual(Array.from({ length: 9 }, () => "own\n"));
    expect((await stderrs(user, forger)).sort()).toEqual(["", "forged\n", "forged\n"]);
  });
});

describe("handlers of the runtimes", () => {
  const files = {
    nodejs: {
      "index.mjs": `export const handler = ({ message, delivery }) => {
        if (message.payload.fail) throw new Error("no");
        return { from: message.from, n: message.payload.n + 1, delivery };
      };`,
    },
    python3: {
      "main.py": `def handler(call, context):
    if call["message"]["payload"].get("fail"):
        raise ValueError("no")
    return {"from": call["message"]["from"], "n": call["message"]["payload"]["n"] + 1, "delivery": call["delivery"]}
`,
    },
  };
  it.each([
    ["nodejs", files.nodejs, NODEJS],
    ["python3", files.python3, PYTHON3],
  ] as const)("of %s get the message, reply with their result, and fail by an error", async (name, tree, fields) => {
    await user.deploy(name, tree, fields);
    await bind(user, { function: name, subject: `queue:${name}`, reply: true, max_deliver: 2, backoff_ms: 50 });
    const asked = { to: `queue:${name}`, type: "t", payload: { n: 41 }, timeout_ms: 40_000 };
    const { body } = await user.call("POST", "/api/icc/request", asked);
    expect(body.reply).toMatchObject({ type: "reply", payload: { from: "api", n: 42, delivery: 1 } });
    const { msg_id } = await send(user, `queue:${name}`, { fail: true });
    const dead = await eventually("the dead letter", async () => {
      const { messages } = (await user.call("GET", "/api/icc/dlq")).body;
      return messages.find((one: { msg_id: string }) => one.msg_id === msg_id);
    });
    expect(dead).toMatchObject({ deliveries: 2, reason: expect.stringMatching(/failed \(inv_\w+\): .*no/) });
  });
});

describe("a tenant", () => {
  it("with a flood holds up no binding of another", async () => {
    await deploy(user, { name: "slow", handler: "cat; sleep 0.3" });
    for (const n of [1, 2, 3]) await bind(user, { function: "slow", subject: `queue:flood${n}`, concurrency: 16 });
    await deploy(other, { name: "fast", handler: "cat" });
    await bind(other, { function: "fast", subject: "queue:fast" });
    for (let i = 0; i < 20; i++) {
      await Promise.all(Array.from({ length: 50 }, (_, n) => send(user, `queue:flood${(n % 3) + 1}`, n)));
    }
    const left = async () =>
      (await Promise.all([1, 2, 3].map((n) => facts(user, `queue:flood${n}`)))).reduce(
        (sum, one) => sum + one.unread,
        0,
      );
    expect(await left()).toBeGreaterThan(500);
    const took: number[] = [];
    for (let i = 0; i < 5; i++) {
      const begun_ms = performance.now();
      await send(other, "queue:fast", i);
      await isHandled(other, "queue:fast");
      took.push(Math.round(performance.now() - begun_ms));
    }
    expect(await left()).toBeGreaterThan(100);
    expect(Math.max(...took), `took ${took} ms`).toBeLessThan(10_000);
    const { bindings } = (await user.call("GET", "/api/icc/bindings")).body;
    const in_flight = bindings.reduce((sum: number, one: { in_flight: number }) => sum + one.in_flight, 0);
    expect(in_flight).toBeLessThanOrEqual(LIMITS.tenant_binding_calls_max);
    const flooding = bindings.filter((one: { subject: string }) => one.subject.startsWith("queue:flood"));
    for (const { binding_id } of flooding) await user.call("DELETE", `/api/icc/bindings/${binding_id}`);
  });

  it("with a loop has its bound of calls, until the binding is deleted", async () => {
    const publish = `curl -sS -m 10 -H "X-Api-Key: $HEARTH_KEY" "$HEARTH_URL/api/icc/messages" -d '{"to":"queue:loop","type":"t"}'`;
    // Each call publishes two messages to its own queue.
    const id = await deploy(user, { name: "loop", handler: `cat; ${publish}; ${publish}`, api_access: true });
    const binding_id = await bind(user, { function: id, subject: "queue:loop" });
    await send(user, "queue:loop", 1);
    await eventually("it loops", async () => (await facts(user, "queue:loop")).last_seq > 30);
    const binding = (await user.call("GET", `/api/icc/bindings/${binding_id}`)).body;
    expect(binding.in_flight).toBeLessThanOrEqual(LIMITS.binding_concurrency_default);
    const begun_ms = performance.now();
    await send(other, "queue:fast", "during");
    await isHandled(other, "queue:fast");
    expect(performance.now() - begun_ms).toBeLessThan(10_000);
    await user.call("DELETE", `/api/icc/bindings/${binding_id}`);
    const isQuiet = async () => {
      const [before] = [await facts(user, "queue:loop"), await new Promise((resolve) => setTimeout(resolve, 1_500))];
      return before.last_seq === (await facts(user, "queue:loop")).last_seq;
    };
    await eventually("the loop has ended", isQuiet);
  });

  it("gets one reply of each message, also where bindings reply to each other", async () => {
    await deploy(user, { name: "echo", handler: "cat" });
    for (const name of ["ping", "pong"]) await bind(user, { function: "echo", subject: `queue:${name}`, reply: true });
    await send(user, "queue:ping", 1, { from: "queue:pong" });
    await send(user, "queue:pong", 1, { from: "queue:pong" });
    await eventually("both have replies", async () => (await facts(user, "queue:pong")).last_seq === 3);
    await isHandled(user, "queue:pong");
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect([(await facts(user, "queue:ping")).last_seq, (await facts(user, "queue:pong")).last_seq]).toEqual([1, 3]);
  });

  it("binds no function of another, and shares no queue with it", async () => {
    const id = await deploy(user, { name: "mine", handler: "cat" });
    for (const name of [id, "mine"]) {
      const refused = await other.call("POST", "/api/icc/bindings", { function: name, subject: "queue:x" });
      expect([refused.status, refused.body.error_code]).toEqual([404, "NOT_FOUND"]);
    }
    const binding_id = await bind(user, { function: id, subject: "queue:shared" });
    await bind(user, { function: id, message_type: "*" });
    await send(other, "queue:shared", 1);
    for (const method of ["GET", "DELETE"]) {
      expect((await other.call(method, `/api/icc/bindings/${binding_id}`)).status).toBe(404);
    }
    expect(JSON.stringify((await other.call("GET", "/api/icc/bindings")).body)).not.toContain(id);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect([await callsOf(user, id), (await facts(other, "queue:shared")).unread]).toEqual([[], 1]);
    await user.call("DELETE", `/api/functions/${id}`);
  });

  it("binds functions by keys that may call them", async () => {
    await deploy(user, { name: "called", handler: "cat" });
    const path = "/api/icc/bindings";
    const keyWith = async (scopes: readonly string[]) => {
      const keys = `/api/tenants/${user.tenant_id}/api-keys`;
      const { body } = await daemon.call("POST", keys, { name: scopes.join(), scopes });
      return { "x-api-key": body.key };
    };
    const [write, both] = [await keyWith(["write"]), await keyWith(["invoke", "write"])];
    for (const fields of [{ subject: "queue:called" }, { message_type: "*" }]) {
      const refused = await daemon.call("POST", path, { function: "called", ...fields }, write);
      expect([refused.status, refused.body.details.expected]).toEqual([403, ["invoke"]]);
      const { status, body } = await daemon.call("POST", path, { function: "called", ...fields }, both);
      expect(status).toBe(201);
      expect((await daemon.call("DELETE", `${path}/${body.binding_id}`, undefined, write)).status).toBe(200);
    }
  });

  it("deletes a function with its bindings: another of its name is not called", async () => {
    const id = await deploy(user, { name: "gone", handler: "cat; sleep 1" });
    const queue = await bind(user, { function: id, subject: "queue:gone" });
    const topic = await bind(user, { function: id, subject: "topic:gone" });
    for (const n of [1, 2, 3, 4, 5, 6]) await send(user, "queue:gone", n);
    await send(user, "topic:gone", 1);
    await eventually("it is called", async () => (await facts(user, "queue:gone")).unread < 6);
    expect((await user.call("DELETE", `/api/functions/${id}?force=true`)).status).toBe(200);
    const next = await deploy(user, { name: "gone", handler: "cat" });
    for (const binding_id of [queue, topic]) {
      expect((await user.call("GET", `/api/icc/bindings/${binding_id}`)).status).toBe(404);
    }
    await send(user, "queue:gone", 7);
    await send(user, "topic:gone", 2);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(await callsOf(user, next)).toEqual([]);
    // A queue stays with its messages, and the inbox of the other binding is gone.
    expect((await facts(user, "queue:gone")).unread).toBeGreaterThan(0);
    expect((await facts(user, `binding:${topic}`)).last_seq).toBe(0);
  });

  it(`has at most ${LIMITS.tenant_bindings_max} bindings`, async () => {
    await deploy(other, { name: "many", handler: "cat" });
    const count = async () => (await other.call("GET", "/api/icc/bindings")).body.bindings.length;
    const have = await count();
    const ask = (n: number) => other.call("POST", "/api/icc/bindings", { function: "many", subject: `topic:t${n}` });
    const answers = await Promise.all(Array.from({ length: LIMITS.tenant_bindings_max - have + 5 }, (_, n) => ask(n)));
    const refused = answers.filter(({ status }) => status !== 201);
    expect(refused).toHaveLength(5);
    expect(refused[0]).toMatchObject({ status: 403, body: { error_code: "QUOTA_EXCEEDED" } });
    expect(refused[0]?.body.error).toContain(`${LIMITS.tenant_bindings_max} bindings`);
    expect(await count()).toBe(LIMITS.tenant_bindings_max);
    await deploy(user, { name: "room", handler: "cat" });
    // Other tenants have their own number, and a deleted binding makes room.
    await user.call("DELETE", `/api/icc/bindings/${await bind(user, { function: "room", subject: "topic:t" })}`);
    const made = answers.find(({ status }) => status === 201)?.body.binding_id;
    expect((await other.call("DELETE", `/api/icc/bindings/${made}`)).status).toBe(200);
    expect((await ask(1_000)).status).toBe(201);
  });
});
