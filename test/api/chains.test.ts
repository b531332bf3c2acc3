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
