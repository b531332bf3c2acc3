/** Idempotency-Keys through a real server and a real store, with a handler that the test ends by hand. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { Answer } from "../../src/base/answer.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Idempotency, type Keyed } from "../../src/http/idempotency.ts";
import { route } from "../../src/http/route.ts";
import type { Once } from "../../src/store/store.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";
import { KEY, serving } from "./test-server.ts";

/** Two routes that count their runs; `hold` keeps them waiting. */
function counted() {
  const state = { runs: 0, hold: Promise.resolve(), refusal: null as AppError | null };
  const make = (path: string, operation: string) =>
    route({
      method: "POST",
      path,
      auth: "tenant",
      scope: "write",
      operation,
      summary: "Counts.",
      query: z.object({ loud: z.string().optional() }),
      headers: ["Idempotency-Key"],
      body: z.object({ name: z.string().optional(), idempotency_key: z.string().optional() }),
      status: 201,
      response: z.object({ run: z.int() }),
      handler: async () => {
        state.runs += 1;
        const run = state.runs;
        await state.hold;
        if (state.refusal !== null) throw state.refusal;
        return run === 3 ? new Answer(202, { run }, { "x-run": "3" }) : { run };
      },
    });
  return { state, routes: [make("/api/things", "makeThing"), make("/api/other/:id", "makeOther")] };
}

describe("a request with an Idempotency-Key", () => {
  const serve = serving();

  const setUp = async () => {
    const { state, routes } = counted();
    const served = await serve(routes);
    const send = async (key: string | null, { path = "/api/things", body = "{}", credential = KEY } = {}) => {
      const headers = { "x-api-key": credential, ...(key === null ? {} : { "idempotency-key": key }) };
      const answer = await served.fetch(path, { method: "POST", headers, body });
      return {
        status: answer.status,
        replayed: answer.headers.get("idempotent-replayed"),
        retry_after: answer.headers.get("retry-after"),
        body: (await answer.json()) as Record<string, unknown>,
      };
    };
    return { state, send, served };
  };

  it("gets the first status and body again, and runs once", async () => {
    const { send, state } = await setUp();
    expect(await send("a")).toMatchObject({ status: 201, replayed: null, body: { run: 1 } });
    for (let i = 0; i < 2; i++)
      expect(await send("a")).toMatchObject({ status: 201, replayed: "true", body: { run: 1 } });
    expect(await send("b")).toMatchObject({ status: 201, replayed: null, body: { run: 2 } });
    expect(await send("c")).toMatchObject({ status: 202, replayed: null, body: { run: 3 } });
    expect(await send("c")).toMatchObject({ status: 202, replayed: "true", body: { run: 3 } });
    expect(await send(null)).toMatchObject({ status: 201, replayed: null, body: { run: 4 } });
    expect(state.runs).toBe(4);
  });

  it("is refused with 409 for another body, query or path", async () => {
    const { send, state } = await setUp();
    await send("a");
    await send("o", { path: "/api/other/1" });
    for (const other of [{ body: '{"name":"x"}' }, { path: "/api/things?loud=1" }, { body: "{ }" }]) {
      expect(await send("a", other)).toMatchObject({ status: 409, body: { error_code: "IDEMPOTENCY_CONFLICT" } });
    }
    const elsewhere = await send("o", { path: "/api/other/2" });
    expect(elsewhere).toMatchObject({ status: 409, retry_after: null, body: { error_code: "IDEMPOTENCY_CONFLICT" } });
    expect(state.runs).toBe(2);
  });

  it("is refused with 409 and retry_after while the first one runs, and then gets its answer", async () => {
    const { send, state } = await setUp();
    const { promise, resolve } = Promise.withResolvers<void>();
    state.hold = promise;
    const first = send("a");
    await eventually("it runs", () => state.runs === 1);
    expect(await send("a")).toMatchObject({
      status: 409,
      retry_after: "1",
      body: { error_code: "IDEMPOTENCY_IN_PROGRESS", retry_after: 1 },
    });
    expect(await send("a", { body: '{"name":"x"}' })).toMatchObject({ body: { error_code: "IDEMPOTENCY_CONFLICT" } });
    resolve();
    const answer = await first;
    expect(answer).toMatchObject({ status: 201, replayed: null });
    expect(await send("a")).toEqual({ ...answer, replayed: "true" });
    expect(state.runs).toBe(1);
  });

  it("belongs to one tenant and one route", async () => {
    const { send, served, state } = await setUp();
    await served.store.write([{ sql: "INSERT INTO tenants (id, name, created_at) VALUES ('b', 'b', 0)" }]);
    const by = { tenant_id: "b", scopes: ["write" as const] };
    const made = await served.keys.create("b", { name: "k", scopes: ["write"] }, { ...CALLER, ...by });
    await send("a");
    expect(await send("a", { credential: made.key })).toMatchObject({ status: 201, replayed: null, body: { run: 2 } });
    expect(await send("a", { path: "/api/other/1" })).toMatchObject({ replayed: null, body: { run: 3 } });
    expect(await send("a", { credential: made.key })).toMatchObject({ replayed: "true", body: { run: 2 } });
    expect(state.runs).toBe(3);
    // Without its scope the answer is not replayed either.
    const reader = await served.keys.create("b", { name: "r", scopes: ["read"] }, { ...CALLER, tenant_id: "b" });
    expect(await send("a", { credential: reader.key })).toMatchObject({ status: 403, replayed: null });
  });

  it("runs again after a refusal or a fault", async () => {
    const { send, state } = await setUp();
    state.refusal = new AppError("CAPACITY_FULL", "full");
    for (let i = 0; i < 2; i++) expect(await send("a")).toMatchObject({ status: 503, replayed: null });
    expect(await send("a", { body: '{"name":1}' })).toMatchObject({ status: 422 });
    state.refusal = null;
    expect(await send("a", { body: '{"name":"y"}' })).toMatchObject({ status: 202, body: { run: 3 } });
  });

  it("takes its key from the body; the header has precedence", async () => {
    const { send } = await setUp();
    const body = '{"idempotency_key":"inside"}';
    expect(await send(null, { body })).toMatchObject({ status: 201, replayed: null });
    expect(await send(null, { body })).toMatchObject({ status: 201, replayed: "true" });
    expect(await send("inside", { body })).toMatchObject({ status: 201, replayed: "true" });
    expect(await send("outside", { body })).toMatchObject({ status: 201, replayed: null });
    for (const [key, sent] of [
      ["k".repeat(LIMITS.idempotency_key_length_max + 1), "{}"],
      ["", "{}"],
      [null, '{"idempotency_key":""}'],
    ] as const) {
      expect(await send(key, { body: sent })).toMatchObject({
        status: 400,
        body: { error_code: "INVALID_ARGUMENT", details: { expected: [">= 1 characters", "<= 255 characters"] } },
      });
    }
    expect(await send("k".repeat(LIMITS.idempotency_key_length_max))).toMatchObject({
      replayed: null,
      body: { run: 3 },
    });
  });
});

describe("a route whose body is not read whole", () => {
  it("cannot declare the header: the hash of a request would not cover its content", () => {
    const declare = () =>
      route({
        method: "POST",
        path: "/api/things",
        auth: "tenant",
        scope: "write",
        operation: "makeThing",
        summary: "Makes a thing.",
        headers: ["Idempotency-Key"],
        body: z.object({ content: z.string() }),
        base64_field: "content",
        response: z.object({}),
        handler: () => ({}),
      });
    expect(declare).toThrow("makeThing");
  });
});

const CALLER = {
  tenant_id: "default",
  kind: "key",
  key_id: "key_x",
  scopes: ["read", "invoke", "write", "admin"],
  is_operator: true,
  invocation: null,
} as const;

describe("records of Idempotency-Keys", () => {
  const scratch = scratchStores();
  const keyed = (key: string, fields: Partial<Keyed> = {}): Keyed => ({
    ...{ tenant_id: "a", route: "makeThing", status: 201, key, request_sha256: "x" },
    ...fields,
  });

  const setUp = async () => {
    const store = scratch().open();
    for (const id of ["a", "b"]) {
      await store.write([{ sql: "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 0)", args: [id, id] }]);
    }
    const clock = new HandClock();
    clock.now_ms = 1_700_000_000_000;
    const idempotency = new Idempotency({ store, clock, log: quietLog });
    const rows = async () => Number((await store.readOne("SELECT count(*) AS n FROM idempotency_keys"))?.n);
    const state = { runs: 0 };
    const run = () => ({ run: ++state.runs });
    return { store, clock, idempotency, rows, state, run };
  };

  it("end after a day: the request runs again, and prune deletes them", async () => {
    const { clock, idempotency, rows, state, run } = await setUp();
    await idempotency.once(keyed("k"), run);
    clock.now_ms += (LIMITS.idempotency_kept_seconds - 1) * 1_000;
    await idempotency.once(keyed("k"), run);
    expect(state.runs).toBe(1);
    clock.now_ms += 1_000;
    expect(await idempotency.once(keyed("k", { request_sha256: "y" }), run)).toEqual({ run: 2 });
    await idempotency.once(keyed("l"), run);
    expect(await rows()).toBe(2);
    clock.now_ms += LIMITS.idempotency_kept_seconds * 1_000;
    await idempotency.prune();
    expect(await rows()).toBe(0);
  });

  it("are bounded for each tenant in number and bytes; the newest are kept", async () => {
    const { store, idempotency, rows, run } = await setUp();
    const body = (tenant_id: string, from: number, count: number, bytes: number) =>
      store.write([
        {
          sql: `WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO idempotency_keys (tenant_id, route, key, request_sha256, status, body, created_at)
            SELECT ?, 'r', 'k' || i, '', 200, printf('%.*c', ?, 'x'), 1700000000 FROM n`,
          args: [from, from + count - 1, tenant_id, bytes],
        },
      ]);
    await body("a", 1, LIMITS.idempotency_keys_per_tenant_max + 700, 10);
    await body("b", 1, 10, 10);
    await idempotency.once(keyed("new"), run);
    await idempotency.prune();
    expect(await rows()).toBe(LIMITS.idempotency_keys_per_tenant_max + 10);
    expect(await idempotency.once(keyed("new"), run)).toBeInstanceOf(Answer);
    const mib = 1024 * 1024;
    await body("b", 11, 40, mib);
    await idempotency.once(keyed("new", { tenant_id: "b" }), run);
    await idempotency.prune();
    const held = "SELECT sum(octet_length(body)) AS bytes FROM idempotency_keys WHERE tenant_id = 'b'";
    const bytes = Number((await store.readOne(held))?.bytes);
    expect([bytes <= LIMITS.idempotency_bytes_per_tenant_max, bytes > 14 * mib]).toEqual([true, true]);
  });

  it("are counted again while a tenant makes many", async () => {
    const { idempotency, rows, run } = await setUp();
    const large = "x".repeat(LIMITS.idempotency_body_bytes_max / 2);
    for (let i = 0; i < 12; i++) await idempotency.once(keyed(`k${i}`), () => ({ ...run(), large }));
    await eventually("the oldest are gone", async () => (await rows()) < 12);
  });

  it("are not made of answers that are too large, which the client still gets", async () => {
    const { idempotency, rows } = await setUp();
    const large = "x".repeat(LIMITS.idempotency_body_bytes_max);
    expect(await idempotency.once(keyed("k"), () => large)).toBe(large);
    expect(await rows()).toBe(0);
  });

  it("that were committed with the work are forgotten when that is refused, and kept when it fails", async () => {
    const { store, idempotency, rows } = await setUp();
    const begin = (error: Error) => async (once: Once) => {
      await store.write([once.record(202, { operation_id: "op_1" })]);
      throw error;
    };
    const refused = idempotency.once(keyed("k"), begin(new AppError("NAME_TAKEN", "taken")));
    await expect(refused).rejects.toMatchObject({ code: "NAME_TAKEN" });
    expect(await rows()).toBe(0);
    await expect(idempotency.once(keyed("k"), begin(new Error("broken")))).rejects.toThrow("broken");
    const again = await idempotency.once(keyed("k"), begin(new Error("it ran again")));
    expect(again).toMatchObject({ status: 202, body: { operation_id: "op_1" } });
  });

  it("are not made for a tenant that is being deleted, and go with it", async () => {
    const { store, idempotency, rows, run } = await setUp();
    await idempotency.once(keyed("k"), run);
    await idempotency.once(keyed("k", { tenant_id: "b" }), run);
    await store.write([{ sql: "UPDATE tenants SET state = 'deleting' WHERE id = 'a'" }]);
    await idempotency.once(keyed("l"), run);
    expect(await rows()).toBe(2);
    await idempotency.erase("a");
    expect(await rows()).toBe(1);
  });
});
