/** Metrics and events of messages from a real daemon with two tenants. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { scrape } from "../support/metrics.ts";

const daemon = new Daemon();
let other = "";

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  const tenant = await daemon.call("POST", "/api/tenants", { name: "other" });
  const key = await daemon.call("POST", `/api/tenants/${tenant.body.tenant_id}/api-keys`, { name: "first" });
  other = key.body.key;
});
afterAll(() => daemon.dispose());

const post = async (path: string, body: object = {}, key = KEY) => {
  const { status, body: answer } = await daemon.call("POST", path, body, { "x-api-key": key });
  return { status, answer };
};

/** Names of all series of messages with their labels, without their values. */
async function seriesOf(key: string): Promise<string[]> {
  const response = await fetch(`${daemon.url}/metrics`, { headers: { "x-api-key": key } });
  const lines = (await response.text()).split("\n").filter((line) => /^hearth_messages?_/.test(line));
  return lines.map((line) => line.replace(/ \S+$/, "")).sort();
}

describe("the metrics of messages", () => {
  it("move by exactly what was sent, delivered and settled", async () => {
    const before = await scrape(daemon);
    for (let i = 0; i < 4; i++) {
      expect((await post("/api/icc/messages", { to: "queue:counted", type: "t", msg_id: `m${i}` })).status).toBe(200);
    }
    await post("/api/icc/messages", { to: "queue:counted", type: "t", msg_id: "m0" });
    const receive = (max: number) => post("/api/icc/inbox/queue:counted/receive", { max, max_deliver: 2 });
    expect((await receive(3)).answer.messages).toHaveLength(3);
    await post("/api/icc/ack", { msg_id: "m0", action: "ack" });
    await post("/api/icc/ack", { msg_id: "m0", action: "ack" });
    await post("/api/icc/ack", { msg_id: "m1", action: "nack", reason: "no" });
    await post("/api/icc/ack", { msg_id: "m2", action: "nack", requeue: true });
    expect((await receive(1)).answer.messages).toMatchObject([{ msg_id: "m2", deliveries: 2 }]);
    const after = await scrape(daemon);
    const moved = (name: string, labels: Readonly<Record<string, string>> = {}) =>
      after.of(`hearth_${name}`, labels) - before.of(`hearth_${name}`, labels);
    expect(moved("messages_published_total", { inbox: "queue" })).toBe(4);
    expect(moved("messages_repeated_total")).toBe(1);
    expect(moved("messages_delivered_total", { inbox: "queue", attempt: "first" })).toBe(3);
    expect(moved("messages_delivered_total", { inbox: "queue", attempt: "again" })).toBe(1);
    for (const outcome of ["acked", "failed", "requeued"]) {
      expect([outcome, moved("messages_settled_total", { outcome })]).toEqual([outcome, 1]);
    }
    expect(moved("messages_dead_lettered_total", { cause: "nack" })).toBe(1);
    expect(moved("message_publish_duration_seconds_count")).toBe(5);
    expect(after.of("hearth_message_bus_ready", { backend: "embedded" })).toBe(1);
  });

  it("show receivers that wait, and the sockets of containers", async () => {
    const { container_id } = (await post("/api/containers", { name: "listener" })).answer;
    expect((await scrape(daemon)).of("hearth_message_sockets")).toBe(1);
    const waiting = post("/api/icc/inbox/queue:quiet/receive", { wait_ms: 30_000 });
    await eventually("it waits", async () => (await scrape(daemon)).of("hearth_message_waits") === 1);
    await post("/api/icc/messages", { to: "queue:quiet", type: "t" });
    expect((await waiting).answer.messages).toHaveLength(1);
    expect((await scrape(daemon)).of("hearth_message_waits")).toBe(0);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
    await eventually("it is gone", async () => (await scrape(daemon)).of("hearth_message_sockets") === 0);
  });

  it("have no more series, whatever a tenant names its queues, messages, types and reasons", async () => {
    await post("/api/icc/messages", { to: "no such container", type: "t" }, other);
    const before = await seriesOf(KEY);
    for (let i = 0; i < 20; i++) {
      const msg_id = `grown-${i}`;
      const message = { to: `queue:q${i}`, type: `type.${i}`, msg_id, trace_id: `trace ${i}`, payload: "{}\n" };
      expect((await post("/api/icc/messages", message, other)).status).toBe(200);
      await post(`/api/icc/inbox/queue:q${i}/receive`, {}, other);
      await post("/api/icc/ack", { msg_id, action: "nack", reason: `reason "${i}"\n` }, other);
    }
    expect(await seriesOf(KEY)).toEqual(before);
    expect(await seriesOf(other)).toEqual([]);
  });
});

describe("a change of a container's permission", () => {
  interface Activity {
    readonly event_type: string;
    readonly container_id: string | null;
    readonly data: Readonly<Record<string, unknown>>;
  }

  const changes = async (key: string): Promise<readonly Activity[]> => {
    const { body } = await daemon.call("GET", "/api/activity?limit=50", undefined, { "x-api-key": key });
    return body.activities.filter(({ event_type }: Activity) => event_type === "permission_changed").reverse();
  };

  it("emits one event for its tenant alone, and a repeated one or a refused one none", async () => {
    const { container_id } = (await post("/api/containers", { name: "granted" })).answer;
    const path = `/api/icc/containers/${container_id}/permission`;
    const put = async (permission_level: string, at = path, key = KEY) =>
      (await daemon.call("PUT", at, { permission_level }, { "x-api-key": key })).status;
    const levels = ["READ_ONLY", "EXECUTE", "EXECUTE", "ADMIN", "READ_ONLY"];
    for (const level of levels) expect(await put(level)).toBe(200);
    expect(await put("ADMIN", path, other)).toBe(404);
    expect(await put("ANYTHING")).toBe(400);
    expect(await put("ADMIN", "/api/icc/containers/queue:jobs/permission")).toBe(404);
    expect(await Promise.all(["FULL", "FULL", "FULL"].map((level) => put(level)))).toEqual([200, 200, 200]);
    const told = await changes(KEY);
    expect(told.map(({ data }) => data.permission_level)).toEqual(["EXECUTE", "ADMIN", "READ_ONLY", "FULL"]);
    expect(new Set(told.map((one) => one.container_id))).toEqual(new Set([container_id]));
    expect(await changes(other)).toEqual([]);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
    expect(await put("ADMIN")).toBe(404);
    expect(await changes(KEY)).toHaveLength(4);
  });
});

describe("the description of a daemon", () => {
  it("names the backend of messages, for each tenant", async () => {
    for (const key of [KEY, other]) {
      const { body } = await daemon.call("GET", "/api/system/info", undefined, { "x-api-key": key });
      expect(body.messages).toEqual({ backend: "embedded", is_ready: true });
      expect(body.features.messages).toContain("between containers");
    }
  });
});
