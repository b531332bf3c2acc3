/** Topics through the API, with real containers. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const ids: string[] = [];
const post = (path: string, body: unknown = {}) => daemon.call("POST", path, body);
const get = (path: string) => daemon.call("GET", path);
const subscribe = (topic: string, who: string) => daemon.call("PUT", `/api/icc/topics/${topic}/subscribers/${who}`);
const send = (to: string, n: number) => post("/api/icc/messages", { to, type: "price.changed", payload: { n } });
const payloads = async (inbox: string) => {
  const { body } = await post(`/api/icc/inbox/${inbox}/receive`, { max: 100, lease_ms: 100 });
  return body.messages.map((one: { message: { payload: { n: number } } }) => one.message.payload.n);
};

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  for (const name of ["sub-a", "sub-b", "sub-c"]) {
    ids.push((await post("/api/containers", { name })).body.container_id);
  }
});
afterAll(() => daemon.dispose());

describe("a topic", () => {
  it("copies each message to containers and queues that subscribe, and to none after", async () => {
    const [a = "", b = ""] = ids;
    expect((await subscribe("prices", "sub-a")).body).toEqual({
      ...{ topic: "topic:prices", container_id: a, subscribed: true },
    });
    expect((await subscribe("prices", a)).status).toBe(200);
    expect((await subscribe("prices", "queue:work")).status).toBe(200);
    await subscribe("prices", b);
    expect((await get("/api/icc/topics")).body.topics).toEqual([{ topic: "topic:prices", subscribers: 3 }]);
    const { body } = await get("/api/icc/topics/prices/subscribers?limit=2");
    expect(body.subscribers).toHaveLength(2);
    const rest = await get(`/api/icc/topics/prices/subscribers?after=${body.next_after}`);
    expect(rest.body.subscribers).toMatchObject([{ container_id: "queue:work" }]);

    expect((await send("topic:prices", 1)).body).toMatchObject({ container_id: "topic:prices", stream_seq: 1 });
    for (const inbox of [a, b, "queue:work"]) expect(await payloads(inbox)).toEqual([1]);
    // The topic itself keeps a record that nobody receives.
    expect(await payloads("topic:prices")).toEqual([]);
    const ended = await daemon.call("DELETE", "/api/icc/topics/prices/subscribers/sub-b");
    expect(ended.body).toEqual({ topic: "topic:prices", container_id: b, subscribed: false });
    await send("topic:prices", 2);
    expect((await get(`/api/icc/inbox/${b}`)).body.messages).toHaveLength(1);
    expect((await get(`/api/icc/inbox/${a}`)).body.messages).toHaveLength(2);
    expect((await get(`/api/icc/inbox/${ids[2]}`)).body.messages).toEqual([]);
  });

  it("takes a container that subscribes itself by its socket", async () => {
    const inside = async (method: string) => {
      const command = [
        "curl",
        "-sS",
        "-X",
        method,
        "--unix-socket",
        "/run/hearth/icc.sock",
        "http://x/v1/topics/inner",
      ];
      const { body } = await post("/api/containers/sub-b/exec", { command });
      return JSON.parse(body.stdout);
    };
    expect(await inside("PUT")).toMatchObject({ topic: "topic:inner", container_id: ids[1], subscribed: true });
    await send("topic:inner", 5);
    expect(await payloads("sub-b")).toContain(5);
    expect(await inside("DELETE")).toMatchObject({ subscribed: false });
    expect((await get("/api/icc/topics")).body.topics).not.toContainEqual({ topic: "topic:inner", subscribers: 1 });
  });

  it("refuses what cannot subscribe", async () => {
    for (const [topic, who, status] of [
      ["prices", "nothing-here", 404],
      ["prices", "topic:other", 400],
      ["Bad%20Name", "sub-a", 400],
      ["prices", "queue:Bad%20Name", 400],
    ] as const) {
      expect([topic, who, (await subscribe(topic, who)).status]).toEqual([topic, who, status]);
    }
    const { body } = await post("/api/tenants", { name: "stranger" });
    const { key } = (await post(`/api/tenants/${body.tenant_id}/api-keys`, { name: "k" })).body;
    const strange = (method: string, path: string, sent?: unknown) =>
      daemon.call(method, path, sent, { "x-api-key": key });
    expect((await strange("PUT", `/api/icc/topics/prices/subscribers/${ids[0]}`)).status).toBe(404);
    expect((await strange("GET", "/api/icc/topics")).body.topics).toEqual([]);
    await strange("PUT", "/api/icc/topics/prices/subscribers/queue:own");
    await strange("POST", "/api/icc/messages", { to: "topic:prices", type: "t", payload: { n: 99 } });
    expect((await get("/api/icc/inbox/queue:own")).status).toBe(404);
    expect((await get("/api/icc/inbox/topic:prices")).body.messages).toHaveLength(2);
  });

  it("has its subscribers after a kill, and loses those that are removed", async () => {
    const [a = "", , c = ""] = ids;
    await subscribe("jobs", "sub-c");
    await subscribe("jobs", "sub-a");
    await daemon.stop("SIGKILL");
    await daemon.start({ HEARTH_CELLS: "0" });
    await send("topic:jobs", 7);
    expect(await payloads(c)).toEqual([7]);
    await daemon.call("DELETE", `/api/containers/${c}`);
    const topic = async () =>
      (await get("/api/icc/topics")).body.topics.find((one: { topic: string }) => one.topic === "topic:jobs");
    await eventually("the subscription ends", async () => (await topic())?.subscribers === 1);
    expect((await send("topic:jobs", 8)).status).toBe(200);
    const streams = (await get("/api/icc/streams")).body.streams.map(
      (one: { container_id: string }) => one.container_id,
    );
    expect(streams).not.toContain(c);
    expect(await payloads(a)).toContain(8);
  });
});
