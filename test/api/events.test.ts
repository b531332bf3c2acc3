/** The stream of events, through the real API of a real daemon. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Commands } from "../support/command.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { EventReader, EventSource } from "../support/event-stream.ts";
import { plantEvents } from "../support/planted.ts";

const daemon = new Daemon();
const readers: EventReader[] = [];

async function open(query = "", headers?: Record<string, string>): Promise<EventReader> {
  const reader = await EventReader.open(daemon.url, query, headers);
  readers.push(reader);
  return reader;
}

beforeAll(() => daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "debug" }));
afterEach(() => {
  for (const reader of readers.splice(0)) reader.close();
});
afterAll(() => daemon.dispose());

describe("GET /api/events", () => {
  it("is ready before anything happens, as a stream that nobody keeps or gathers", async () => {
    const reader = await open();
    await eventually("it is ready", () => reader.events.length > 0);
    expect(reader.events[0]?.name).toBe("ready");
    expect(reader.response.statusCode).toBe(200);
    expect(reader.response.headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
  });

  it("tells the life of a function, each change once and in order, and nothing of its calls", async () => {
    const reader = await open("?name=function_update");
    const { body: made } = await daemon.call("POST", "/api/functions", { name: "told", handler: "cat" });
    const call = (method: string, path: string, body?: unknown) =>
      daemon.call(method, `/api/functions/${made.id}${path}`, body);
    await call("POST", "/deploy");
    await call("POST", "/invoke", { payload: "x" });
    await call("PUT", "", { handler: "echo good day" });
    await call("POST", "/rollback", { version: 1 });
    await call("POST", "/pause");
    await call("POST", "/resume");
    expect((await call("POST", "/rollback", { version: 9 })).status).toBe(404);
    expect((await daemon.call("POST", "/api/functions", { name: "told", handler: "cat" })).status).toBe(409);
    await call("DELETE", "");
    await eventually("its end is told", () => reader.types("function_update").includes("deleted"));
    const told = reader.events.slice(1).map(({ data }) => [data.event_type, data.state, data.version]);
    expect(told).toEqual([
      ["created", "pending", 1],
      ["deploy_started", "deploying", 1],
      ["activated", "active", 1],
      ["updated", "active", 2],
      ["rolled_back", "active", 1],
      ["paused", "paused", 1],
      ["deploy_started", "deploying", 1],
      ["activated", "active", 1],
      ["delete_started", "deleting", 1],
      ["deleted", "deleting", 1],
    ]);
    expect(reader.events[1]?.data).toMatchObject({ function_id: made.id, function_name: "told" });
    expect(reader.events.slice(1).map(({ id, data }) => id === data.event_id)).not.toContain(false);
  });

  it("tells of keys to their tenant, and to no other", async () => {
    const { body: tenant } = await daemon.call("POST", "/api/tenants", { name: "listener" });
    const keys = `/api/tenants/${tenant.tenant_id}/api-keys`;
    const { body: first } = await daemon.call("POST", keys, { name: "first" });
    const own = await open("?last_event_id=0", { "x-api-key": first.key });
    const other = await open();
    const { body: second } = await daemon.call("POST", keys, { name: "second" });
    await daemon.call("DELETE", `${keys}/${second.id}`);
    await daemon.call("PATCH", `/api/tenants/${tenant.tenant_id}`, { limits: { functions_max: 1 } });
    await eventually("all is told", () => own.types("tenant_update").length === 2);
    expect(own.events.slice(1).map(({ name, data }) => [name, data.event_type])).toEqual([
      ["tenant_update", "created"],
      ["api_key_update", "created"],
      ["api_key_update", "created"],
      ["api_key_update", "revoked"],
      ["tenant_update", "updated"],
    ]);
    expect(JSON.stringify(own.events)).not.toContain(first.key);
    // One's own event comes after all that others could have let slip.
    await daemon.call("POST", "/api/functions", { name: "marker", handler: "cat" });
    await eventually("the marker is told", () => other.events.length > 1);
    expect(other.events.slice(1).map(({ data }) => data.function_name)).toEqual(["marker"]);
    await daemon.call("DELETE", `/api/tenants/${tenant.tenant_id}?force=true`);
    await eventually("the stream of a tenant that is gone ends", () => own.isOver);
  });

  it("takes a key or a token in its query, which reaches no log", async () => {
    const token = (await daemon.call("POST", "/api/auth/token", {})).body.access_token;
    for (const credential of [KEY, token]) {
      const reader = await open(`?token=${encodeURIComponent(credential)}`, {});
      await eventually("it is ready", () => reader.events.length > 0);
    }
    const refusals = [
      await fetch(`${daemon.url}/api/events?token=wrong-key`),
      await fetch(`${daemon.url}/api/events?token=${KEY}`, { headers: { "x-api-key": KEY } }),
      await fetch(`${daemon.url}/api/events?token=`),
      await fetch(`${daemon.url}/api/functions?token=${KEY}`),
    ];
    expect(refusals.map(({ status }) => status)).toEqual([401, 400, 401, 401]);
    await eventually("the requests are in the log", () => daemon.output.split("/api/events").length > 5);
    expect(daemon.output).not.toContain(KEY);
    expect(daemon.output).not.toContain(token);
    expect(daemon.output).not.toContain("wrong-key");
  });

  it("refuses a bad id and an unknown filter's value, and a key that may not read", async () => {
    for (const query of ["?last_event_id=-1", "?last_event_id=x", "?name=a&name=b"]) {
      expect((await daemon.call("GET", `/api/events${query}`)).body ?? {}, query).toMatchObject({
        error_code: "INVALID_ARGUMENT",
      });
    }
    const { body: key } = await daemon.call("POST", "/api/api-keys", { name: "w", scopes: ["write"] });
    const answer = await daemon.call("GET", "/api/events", undefined, { "x-api-key": key.key });
    expect(answer.body.error_code).toBe("FORBIDDEN");
  });

  it("holds up nobody for a reader that takes nothing, which has all when it takes again", async () => {
    const slow = await open();
    const quick = await open();
    const from = Number((await eventually("it is ready", () => slow.last_id)) ?? 0);
    slow.pause();
    // Far more than sockets hold; the next change tells of all of them.
    plantEvents(daemon, 4_000, 3_500);
    await daemon.call("POST", "/api/functions", { name: "last", handler: "cat" });
    await eventually("the quick one has all", () => quick.types("function_update").length === 1);
    expect(slow.types("function_update")).toEqual([]);
    slow.resume();
    await eventually("the slow one has all", () => slow.types("function_update").length === 1);
    for (const { events } of [slow, quick]) {
      const ids = events.slice(1).filter(({ name }) => name !== "heartbeat");
      expect(ids.map(({ id }) => Number(id))).toEqual(Array.from({ length: 4_001 }, (_, i) => from + 1 + i));
    }
  });

  it("is 'hearth events': those that are kept, and those that happen, across a restart of the daemon", async () => {
    const commands = new Commands({ HEARTH_URL: daemon.url, HEARTH_KEY: KEY });
    try {
      const kept = await commands.run(["events", "--type", "created", "--json"]);
      const names = kept.out
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Record<string, unknown>);
      expect([kept.code, kept.err]).toEqual([0, ""]);
      expect(new Set(names.map(({ event_type }) => event_type))).toEqual(new Set(["created"]));
      expect(names.map(({ function_name }) => function_name)).toEqual(expect.arrayContaining(["told", "last"]));
      const follow = commands.start("hearth", ["events", "--follow", "--name", "function_update"]);
      const make = async (name: string) => {
        const { body } = await daemon.call("POST", "/api/functions", { name, handler: "cat" });
        return body.id;
      };
      // Until it listens.
      await eventually("it follows", async () => {
        await daemon.call("DELETE", `/api/functions/${await make("followed-0")}`);
        return follow.out.includes("followed-0");
      });
      const id = await make("followed-1");
      await follow.shows(
        new RegExp(`function_update {2}created {2}function_id=${id} function_name=followed-1 state=pending`),
      );
      await daemon.stop("SIGKILL");
      await daemon.start({ HEARTH_CELLS: "1" });
      await make("followed-2");
      await follow.shows(/function_name=followed-2/);
      follow.child.kill("SIGINT");
      expect(await follow.ended).toMatchObject({ code: 0, err: "" });
    } finally {
      commands.dispose();
    }
  });

  it("goes on behind the last id across a kill of the daemon, and ends with it in order", async () => {
    const first = await open();
    await daemon.call("POST", "/api/functions", { name: "before-1", handler: "cat" });
    await daemon.call("POST", "/api/functions", { name: "before-2", handler: "cat" });
    await eventually("both are told", () => first.types("function_update").length === 2);
    const seen = first.events[1]?.id ?? "";
    await daemon.stop("SIGKILL");
    await eventually("the stream is broken", () => first.isOver);
    await daemon.start({ HEARTH_CELLS: "1" });
    await daemon.call("POST", "/api/functions", { name: "after", handler: "cat" });
    const header = await open("", { "x-api-key": KEY, "last-event-id": seen });
    // The header goes before the query, as a browser sends both when it comes back.
    const both = await open("?last_event_id=0", { "x-api-key": KEY, "last-event-id": seen });
    for (const reader of [header, both]) {
      await eventually("the rest is told", () => reader.events.length >= 3);
      expect(reader.events.slice(1).map(({ data }) => data.function_name)).toEqual(["before-2", "after"]);
    }
    const begun = performance.now();
    expect(await daemon.stop()).toBe(0);
    expect([header.isOver, both.isOver]).toEqual([true, true]);
    // Far from the time that running calls are given.
    expect(performance.now() - begun).toBeLessThan(15_000);
    await daemon.start({ HEARTH_CELLS: "1" });
  });

  it("is resumed by a browser's client across a graceful restart of the daemon", async () => {
    const source = new EventSource(daemon.url);
    try {
      await eventually("it is open", () => source.state === "open");
      await daemon.call("POST", "/api/functions", { name: "before-restart", handler: "cat" });
      await eventually("it is told", () => source.datas.length === 1);
      expect(await daemon.stop()).toBe(0);
      await daemon.start({ HEARTH_CELLS: "1" });
      await daemon.call("POST", "/api/functions", { name: "after-restart", handler: "cat" });
      await eventually("it is told of the rest", () => source.datas.length === 2 || source.state === "failed");
      expect(source.datas.map((data) => JSON.parse(data).function_name)).toEqual(["before-restart", "after-restart"]);
      expect(new Set(source.ids).size).toBe(2);
    } finally {
      source.close();
    }
  });

  it("ends when its key is revoked", async () => {
    const { body: key } = await daemon.call("POST", "/api/api-keys", { name: "brief", scopes: ["read"] });
    const reader = await open("", { "x-api-key": key.key });
    await eventually("it is ready", () => reader.events.length > 0);
    await daemon.call("DELETE", `/api/api-keys/${key.id}`);
    // The revocation is itself an event, at which the key is looked at.
    await eventually("it has ended", () => reader.isOver);
    expect(reader.types("api_key_update")).toEqual([]);
  });
});
