/** Functions that call functions, through the API that they find inside, and the limits on calls in flight. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start({ HEARTH_CELLS: "4", HEARTH_LOG_LEVEL: "warn", HEARTH_TENANT_CONCURRENCY: "60" }));
afterAll(async () => {
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

/** A shell line that calls a function by name and prints the record. */
const calling = (name: string, payload = "$(cat)") =>
  `curl -s -m 20 -H "X-Api-Key: $HEARTH_KEY" $HEARTH_URL/api/functions/invoke/${name} -d "{\\"payload\\": \\"${payload}\\"}"`;

const inFlight = async () => {
  const { body } = await daemon.call("GET", "/api/functions/pool/stats");
  return body.busy_count + body.queued;
};

describe("a function with api_access", () => {
  it("calls another that calls a third, each with one instance at most, and gets its record", async () => {
    await daemon.deploy({ name: "c", handler: "echo c:$(cat)", max_instances: 1 });
    await daemon.deploy({ name: "b", handler: calling("c"), max_instances: 1, api_access: true });
    await daemon.deploy({ name: "a", handler: calling("b"), max_instances: 1, api_access: true });
    const records = await Promise.all([1, 2, 3].map((n) => daemon.invoke("a", { payload: `x${n}` })));
    for (const [i, record] of records.entries()) {
      const b = JSON.parse(record.stdout);
      const c = JSON.parse(b.stdout);
      expect([record.status, b.status, c.status, c.stdout]).toEqual(["success", "success", "success", `c:x${i + 1}\n`]);
      expect([b.function_name, c.function_name]).toEqual(["b", "c"]);
    }
  });

  it("calls itself with one instance at most, and is told where a chain is too deep", async () => {
    const handler = `n=$(cat); if [ $n = 0 ]; then echo bottom; else ${calling("circle", "$((n-1))")}; fi`;
    await daemon.deploy({ name: "circle", handler, max_instances: 1, api_access: true });
    const innermost = (text: string): { stdout?: string; error_code?: string } => {
      const answer = JSON.parse(text);
      return typeof answer.stdout === "string" && answer.stdout.startsWith("{") ? innermost(answer.stdout) : answer;
    };
    const whole = await daemon.invoke("circle", { payload: String(LIMITS.chain_depth_max) });
    expect(innermost(whole.stdout)).toMatchObject({ stdout: "bottom\n" });
    const cut = await daemon.invoke("circle", { payload: String(LIMITS.chain_depth_max + 1) });
    expect(innermost(cut.stdout)).toMatchObject({ error_code: "CHAIN_TOO_DEEP" });
    const id = whole.function_id;
    const { body } = await daemon.call("GET", `/api/functions/${id}/pool`);
    await eventually("it is at its maximum again", async () => body.total_count <= LIMITS.chain_depth_max + 1);
    await eventually("what was beyond the maximum has gone", async () => {
      return (await daemon.call("GET", `/api/functions/${id}/pool`)).body.total_count === 1;
    });
  });

  it("does not wait for ever in two crossing circles that fill the node", async () => {
    const small = new Daemon();
    await small.start({ HEARTH_CELLS: "0", HEARTH_INSTANCES_MAX: "2", HEARTH_LOG_LEVEL: "warn" });
    try {
      const handler = (other: string) =>
        `n=$(cat); sleep 0.1; if [ $n = 0 ]; then echo end; else ${calling(other, "$((n-1))")}; fi`;
      await small.deploy({ name: "left", handler: handler("right"), max_instances: 1, api_access: true });
      await small.deploy({ name: "right", handler: handler("left"), max_instances: 1, api_access: true });
      const calls = ["left", "right", "left", "right"].map((name) => small.invoke(name, { payload: "2" }));
      for (const record of await Promise.all(calls)) {
        expect(record.stdout).toContain("end");
        expect(record.status).toBe("success");
      }
    } finally {
      await small.stop("SIGTERM");
      await small.dispose();
    }
  });

  it("has a token that is good inside only, for the time of the call, and the key is not good inside", async () => {
    await daemon.deploy({ name: "shows", handler: "echo $HEARTH_KEY; echo $HEARTH_URL", api_access: true });
    const [token = "", url = ""] = (await daemon.invoke("shows")).stdout.split("\n");
    expect(token).toMatch(/^hi_/);
    const outside = await fetch(`${daemon.url}/api/functions`, { headers: { "x-api-key": token } });
    expect(outside.status).toBe(401);
    const probe = `for k in ${token} ${KEY} $HEARTH_KEY; do
      curl -s -o /dev/null -w "%{http_code}\\n" -H "X-Api-Key: $k" $HEARTH_URL/api/functions; done`;
    await daemon.deploy({ name: "probes", handler: probe, api_access: true });
    expect(await daemon.invoke("probes")).toMatchObject({ stdout: "401\n401\n200\n" });
    // A function without api_access has no key, and its connections are closed.
    await daemon.deploy({
      name: "plain",
      handler: `env | grep -c HEARTH_KEY; curl -s -m 3 ${url}/health || echo closed`,
    });
    expect((await daemon.invoke("plain")).stdout).toBe("0\nclosed\n");
  });

  it("cannot outlast its own deadline by what it calls", async () => {
    await daemon.deploy({ name: "long", handler: "sleep 30" });
    // The call that it made ends a moment before it: it goes on.
    const handler = `${calling("long")}; sleep 30`;
    await daemon.deploy({ name: "short", handler, api_access: true, timeout_seconds: 1 });
    expect(await daemon.invoke("short")).toMatchObject({ status: "timeout" });
    await eventually("the nested call has ended too", async () => (await inFlight()) === 0);
  });

  it("gives what it calls no more time than it has left when that begins", async () => {
    const { id } = await daemon.deploy({ name: "queued", handler: "sleep 3.2", max_instances: 1 });
    // The third waits for one of the first two, and would end 0.4 s after the deadline of all.
    const handler = `for i in 1 2 3; do ${calling("queued")} & done; wait; sleep 30`;
    await daemon.deploy({ name: "eager", handler, api_access: true, timeout_seconds: 6 });
    expect(await daemon.invoke("eager")).toMatchObject({ status: "timeout" });
    const records = await eventually("all three have ended", async () => {
      const { invocations } = (await daemon.call("GET", `/api/functions/${id}/invocations`)).body;
      return invocations.length === 3 ? invocations : null;
    });
    expect(records.map(({ status }: { status: string }) => status).sort()).toEqual(["success", "success", "timeout"]);
  });
});

describe("a key with few scopes", () => {
  /** Calls the API as a new key with these scopes. */
  const as = async (scopes: readonly string[]) => {
    const made = (await daemon.call("POST", "/api/api-keys", { name: scopes.join(), scopes })).body;
    return async (method: string, path: string, body?: unknown) => {
      const { status, body: answer } = await daemon.call(method, path, body, { "x-api-key": made.key });
      return { ...answer, code: status };
    };
  };
  /** What the token of a call may do: read, invoke and write. */
  const handler = ["/api/functions", "/api/functions/invoke/target -d {}", "/api/functions -d {}"]
    .map((asked) => `curl -s -o /dev/null -w "%{http_code} " -H "X-Api-Key: $HEARTH_KEY" $HEARTH_URL${asked}`)
    .join("; ");
  const ALL = "200 200 422 ";
  const WRITE = "403 403 422 ";
  const refused = (scope: string) => ({ code: 403, error: expect.stringContaining(`lacks the scope '${scope}'`) });
  let write: Awaited<ReturnType<typeof as>>;
  beforeAll(async () => {
    write = await as(["write"]);
    await daemon.deploy({ name: "target", handler: "cat" });
  });

  it("gets no more by a function that it makes, in whichever way", async () => {
    const { id, api_scopes } = await write("POST", "/api/functions", { name: "made", handler, api_access: true });
    expect(api_scopes).toEqual(["write"]);
    expect((await write("POST", `/api/functions/${id}/deploy`, {})).code).toBe(200);
    expect((await daemon.invoke("made")).stdout).toBe(WRITE);
    // Its deployment, activation and call by a key with all scopes give it none.
    await daemon.call("POST", `/api/functions/${id}/pause`);
    await daemon.call("POST", `/api/functions/${id}/resume`, {});
    expect((await daemon.invoke("made")).stdout).toBe(WRITE);
    const functions = [{ name: "deployed", handler, api_access: true }];
    expect((await write("POST", "/api/functions/deployments", { functions })).code).toBe(200);
    expect((await daemon.invoke("deployed")).stdout).toBe(WRITE);
    // What such a call makes has no more than the call.
    const maker = `curl -s -X POST -H "X-Api-Key: $HEARTH_KEY" -H "Content-Type: application/json" $HEARTH_URL/api/functions -d @-`;
    await write("POST", "/api/functions/deployments", {
      functions: [{ name: "maker", handler: maker, api_access: true }],
    });
    const nested = await daemon.invoke("maker", { payload: { name: "nested", handler, api_access: true } });
    expect(JSON.parse(nested.stdout)).toMatchObject({ name: "nested", api_scopes: ["write"] });
  });

  it("gets no more by a version of another's function, and leaves that version its scopes", async () => {
    const { id } = await daemon.deploy({ name: "theirs", handler, api_access: true });
    const path = `/api/functions/${id}`;
    expect((await daemon.invoke("theirs")).stdout).toBe(ALL);
    expect(await write("PUT", path, { timeout_seconds: 20 })).toMatchObject({ version: 2, api_scopes: ["write"] });
    expect((await daemon.invoke("theirs")).stdout).toBe(WRITE);
    expect(await write("POST", `${path}/rollback`, { version: 1 })).toMatchObject({
      version: 1,
      api_scopes: ["read", "invoke", "write"],
    });
    expect((await daemon.invoke("theirs")).stdout).toBe(ALL);
    const { versions } = (await daemon.call("GET", `${path}/versions`)).body;
    expect(versions.map((one: { api_scopes: string[] }) => one.api_scopes.length)).toEqual([1, 3]);
    // The same deployment makes no version, unless its key has scopes that the version lacks.
    const same = { functions: [{ name: "theirs", handler, api_access: true }] };
    expect(await write("POST", "/api/functions/deployments", same)).toMatchObject({
      functions: [{ action: "unchanged" }],
    });
    await write("PUT", path, { timeout_seconds: 30 });
    const { body } = await daemon.call("POST", "/api/functions/deployments", same);
    const changes = [{ field: "api_scopes", from: ["write"], to: ["read", "invoke", "write"] }];
    expect(body.functions).toMatchObject([{ action: "updated", version: 4, changes }]);
    expect((await daemon.invoke("theirs")).stdout).toBe(ALL);
  });

  it("gives no scopes to a version that was made without api_access", async () => {
    const { id } = await daemon.deploy({ name: "harmless", handler });
    await write("PUT", `/api/functions/${id}`, { api_access: true });
    const back = await write("POST", `/api/functions/${id}/rollback`, { version: 1 });
    expect(back).toMatchObject({ version: 1, api_access: true, api_scopes: [] });
    expect((await daemon.invoke("harmless")).stdout).toBe("403 403 403 ");
  });

  it("changes no call that may do more than the key", async () => {
    await daemon.deploy({ name: "reader", handler, api_access: true });
    const asked = { environment: { BASH_ENV: "/dev/null" } };
    const both = await as(["invoke", "write"]);
    expect(await both("POST", "/api/functions/invoke/reader", asked)).toMatchObject(refused("read"));
    expect(await both("POST", "/api/functions/invoke/reader", {})).toMatchObject({ code: 200, stdout: ALL });
    const all = await as(["read", "invoke", "write"]);
    expect(await all("POST", "/api/functions/invoke/reader", asked)).toMatchObject({ code: 200 });
  });

  it("makes no calls by a smoke call without the scope invoke", async () => {
    const { id } = await daemon.deploy({ name: "smoked", handler: "cat" });
    const smoke = { payload: "x" };
    for (const [method, path, body] of [
      ["POST", `/api/functions/${id}/deploy`, { smoke }],
      ["POST", `/api/functions/${id}/resume`, { smoke }],
      ["PUT", `/api/functions/${id}`, { smoke }],
      ["POST", "/api/functions/deployments", { functions: [{ name: "smoked", handler: "cat", smoke }] }],
      ["POST", `/api/functions/${id}/versions`, { snapshot_id: "snap_0", smoke }],
    ] as const) {
      expect(await write(method, path, body), path).toMatchObject(refused("invoke"));
    }
    const both = await as(["invoke", "write"]);
    expect((await both("POST", `/api/functions/${id}/deploy`, { smoke })).code).toBe(200);
  });
});

describe("calls in flight", () => {
  it("beyond a function's concurrency_limit are refused at once, others are not", async () => {
    const handler = 'sleep "$(cat)"';
    const { id } = await daemon.deploy({ name: "limited", handler, concurrency_limit: 2, max_instances: 1 });
    const running = ["3", "0"].map((payload) => daemon.invoke("limited", { payload }));
    await eventually("one runs and one waits", async () => (await inFlight()) === 2);
    const refused = await daemon.call("POST", "/api/functions/invoke/limited", { payload: "0" });
    expect([refused.status, refused.body.error_code, refused.body.retry_after]).toEqual([429, "CONCURRENCY_LIMIT", 1]);
    expect(refused.headers.get("retry-after")).toBe("1");
    expect(refused.body.error).toMatch(/too many concurrent calls of function .* \(limit 2\)/);
    await Promise.all(running);
    expect(await daemon.invoke("limited", { payload: "0" })).toMatchObject({ status: "success" });
    await daemon.call("PUT", `/api/functions/${id}`, { concurrency_limit: null });
    const many = await Promise.all(
      ["0.1", "0.1", "0.1"].map((payload) => daemon.call("POST", "/api/functions/invoke/limited", { payload })),
    );
    expect(many.map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it("of one tenant beyond the setting are refused at once", async () => {
    await daemon.deploy({ name: "tenant", handler: "sleep 10", max_instances: 1 });
    const answers = await Promise.all(
      Array.from({ length: 61 }, () => daemon.call("POST", "/api/functions/invoke/tenant", { timeout_seconds: 4 })),
    );
    const codes = answers.map(({ body }) => body.error_code).filter((code) => code === "CONCURRENCY_LIMIT");
    expect(codes).toHaveLength(1);
  });
});
