/** Limits of a tenant through the real API: A uses all that it may, B does not notice. */
import { totalmem } from "node:os";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { LIMIT_NAMES } from "../../src/base/tenant-limits.ts";
import { type Answer, Daemon, eventually } from "../support/daemon.ts";
import { plant } from "../support/planted.ts";

const HELD = ["storage_mb_max", "containers_max", "volumes_max", "disk_mb_max", "container_memory_mb_max"] as const;
const COUNTED = ["execs_max", "streams_max", "terminals_max"] as const;
const POOLED = ["functions_max", "instances_max", "memory_mb_max"] as const;
/** Limit of the node; a tenant has half of it by default. */
const INSTANCES_MAX = 6;
/** Room for three containers of the greatest size and no fourth. */
const NODE_MB = 3.5 * LIMITS.memory_limit_mb_max;
const SETTINGS = {
  HEARTH_CELLS: "0",
  HEARTH_INSTANCES_MAX: String(INSTANCES_MAX),
  HEARTH_MEMORY_OVERCOMMIT: (NODE_MB / (totalmem() / 2 ** 20)).toFixed(3),
  HEARTH_DISK_LIMIT_MB: "64",
};
const SLEEP = ["sleep", "100000"];

const daemon = new Daemon();
type Json = Answer["body"];

interface Tenant {
  readonly tenant_id: string;
  readonly call: (method: string, path: string, body?: unknown) => Promise<Answer>;
  readonly key: string;
  /** Its usage. */
  readonly usage: () => Promise<Json>;
  /** A container that runs. */
  readonly box: (name: string, more?: object) => Promise<Json>;
}

const asKey = (key: string) => (method: string, path: string, body?: unknown) =>
  daemon.call(method, path, body, { "x-api-key": key });

async function makeTenant(name: string, limits: object = {}): Promise<Tenant> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name, limits })).body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body;
  const call = asKey(key);
  const box = async (box_name: string, more: object = {}) => {
    const { status, body } = await call("POST", "/api/containers", { name: box_name, memory_limit_mb: 256, ...more });
    expect(status, JSON.stringify(body)).toBe(201);
    return body;
  };
  return { tenant_id, key, call, box, usage: async () => (await call("GET", "/api/tenant")).body.usage };
}

const refusal = ({ status, body }: Answer) => [status, body.error_code];
const times = <T>(count: number, work: (i: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, i) => work(i)));
const refused = (answers: readonly Answer[]) => answers.filter(({ status }) => status >= 400);

/** Reads a stream until its first bytes are there; it stays open until what is returned is called. */
async function openStream(url: string, key: string, init: RequestInit = {}): Promise<() => void> {
  const stop = new AbortController();
  const headers = { "x-api-key": key, "content-type": "application/json" };
  const response = await fetch(daemon.url + url, { ...init, headers, signal: stop.signal });
  expect(response.status).toBe(200);
  await response.body?.getReader().read();
  return () => stop.abort();
}
const openExec = (id: string, key: string) =>
  openStream(`/api/containers/${id}/stream`, key, {
    method: "POST",
    body: JSON.stringify({ command: SLEEP, timeout_ms: 600_000 }),
  });

beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

describe("the limits of a tenant", () => {
  it("have finite defaults, but for the operator's own tenant, and the tenant sees them beside their use", async () => {
    const { call, tenant_id } = await makeTenant("plain");
    const { body } = await call("GET", "/api/tenant");
    expect(Object.keys(body.limits)).toEqual(LIMIT_NAMES);
    for (const name of [...HELD, ...COUNTED, ...POOLED])
      expect([name, body.limits[name]]).toEqual([name, expect.any(Number)]);
    expect(body.limits.containers_max).toBe(LIMITS.containers_max / 10);
    expect(body).toEqual((await daemon.call("GET", `/api/tenants/${tenant_id}`)).body);
    const own = (await daemon.call("GET", "/api/tenant")).body;
    expect(own.tenant_id).toBe("default");
    for (const name of [...HELD, ...COUNTED, ...POOLED]) expect([name, own.limits[name]]).toEqual([name, null]);
    const changed = await daemon.call("PATCH", `/api/tenants/${tenant_id}`, { limits: { volumes_max: null } });
    expect(changed.body.limits).toMatchObject({ volumes_max: null, containers_max: body.limits.containers_max });
  });

  it("are the node's again when set to default, as those of a tenant for which none were set", async () => {
    const { call, tenant_id } = await makeTenant("back", { instances_max: "default", volumes_max: 1 });
    const plain = (await daemon.call("GET", "/api/tenants")).body.tenants.find(({ name }: Json) => name === "plain");
    const { instances_max, volumes_max } = (await call("GET", "/api/tenant")).body.limits;
    expect([instances_max, volumes_max]).toEqual([INSTANCES_MAX / 2, 1]);
    const change = (limits: object) => daemon.call("PATCH", `/api/tenants/${tenant_id}`, { limits });
    await change(Object.fromEntries(LIMIT_NAMES.map((name) => [name, null])));
    expect(Object.values((await call("GET", "/api/tenant")).body.limits)).toEqual(LIMIT_NAMES.map(() => null));
    await call("POST", "/api/volumes", { name: "one", quota_mb: 16 });
    const { body } = await change({
      ...Object.fromEntries(LIMIT_NAMES.map((name) => [name, "default"])),
      volumes_max: 1,
    });
    expect(body.limits).toEqual({ ...plain.limits, volumes_max: 1 });
    expect(refusal(await call("POST", "/api/volumes", { name: "two" }))).toEqual([403, "QUOTA_EXCEEDED"]);
    await change({ volumes_max: "default" });
    expect((await call("POST", "/api/volumes", { name: "two" })).status).toBe(201);
    const wrong = [await change({ volumes_max: "defaults" }), await change({ volumes_max: -1 })];
    expect(wrong.map(({ status, body }) => [status, body.error])).toEqual([
      [400, 'limits.volumes_max: expected number or default, received "defaults"'],
      [400, "limits.volumes_max: expected at least 0, received -1"],
    ]);
    expect((await call("GET", "/api/tenant")).body.limits.volumes_max).toBe(LIMITS.tenant_volumes_default);
  });

  it("leave instances for the functions of others by default, and count those that live", async () => {
    const [a, b] = [await makeTenant("calls-a"), await makeTenant("calls-b")];
    for (const { call } of [a, b]) {
      const handler = 'read -r wait; [ "$wait" != long ] || sleep 3';
      const { body } = await call("POST", "/api/functions", { name: "f", handler });
      await call("POST", `/api/functions/${body.id}/deploy`);
    }
    const invoke = ({ call }: Tenant, payload: string) => call("POST", "/api/functions/invoke/f", { payload });
    const all = times(INSTANCES_MAX, () => invoke(a, "long\n"));
    await eventually("A has all that it may", async () => (await a.usage()).instances === INSTANCES_MAX / 2);
    expect((await invoke(b, "short\n")).body.status).toBe("success");
    expect(await a.usage()).toMatchObject({ functions: 1, instances: INSTANCES_MAX / 2, memory_mb: 768 });
    expect(await b.usage()).toMatchObject({ functions: 1, instances: 1, memory_mb: 256 });
    expect((await all).map(({ body }) => body.status)).toEqual(Array(INSTANCES_MAX).fill("success"));
    expect((await a.usage()).instances).toBeLessThanOrEqual(INSTANCES_MAX / 2);
  });

  it("on containers hold for requests at the same time, and for nobody else", async () => {
    const [a, b] = [await makeTenant("many-a", { containers_max: 2 }), await makeTenant("many-b")];
    const made = await times(5, (i) => a.call("POST", "/api/containers", { name: `c${i}`, memory_limit_mb: 256 }));
    expect(refused(made).map(refusal)).toEqual(Array(3).fill([403, "QUOTA_EXCEEDED"]));
    expect(refused(made)[0]?.body.error).toContain("containers_max (limit 2)");
    expect(await a.usage()).toMatchObject({ containers: 2, container_memory_mb: 512, disk_mb: 128 });
    await b.box("mine");
    const [first] = made.filter(({ status }) => status === 201);
    await a.call("DELETE", `/api/containers/${first?.body.container_id}?execution=sync`);
    await a.box("more");
  });

  it("on volumes and disk count what is promised, and no volume is without a quota", async () => {
    const [a, b] = [await makeTenant("disk-a", { disk_mb_max: 100 }), await makeTenant("disk-b", { volumes_max: 2 })];
    const made = await times(4, (i) => a.call("POST", "/api/volumes", { name: `v${i}`, quota_mb: 40 }));
    expect(refused(made).map(refusal)).toEqual(Array(2).fill([403, "QUOTA_EXCEEDED"]));
    expect(refused(made)[0]?.body.error).toContain("disk_mb_max (limit 100, 40 more requested)");
    const box = await a.call("POST", "/api/containers", { name: "box", disk_limit_mb: 40 });
    expect(refusal(box)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect(await a.usage()).toMatchObject({ volumes: 2, disk_mb: 80, containers: 0 });
    for (const [name, quota] of Object.entries({ absent: {}, nothing: { quota_mb: null } })) {
      expect((await b.call("POST", "/api/volumes", { name, ...quota })).body).toMatchObject({ quota_mb: 64 });
    }
    const third = await b.call("POST", "/api/volumes", { name: "third" });
    expect([...refusal(third), third.body.error]).toEqual([
      403,
      "QUOTA_EXCEEDED",
      "the tenant would exceed volumes_max (limit 2)",
    ]);
    const { container_id, disk_limit_mb } = await b.box("full", { volumes: ["absent:/data"] });
    expect(disk_limit_mb).toBe(64);
    for (const path of ["/data/x", "/root/x"]) {
      const command = ["sh", "-c", `head -c 100M /dev/zero > ${path}; stat -c %s ${path}`];
      const { body } = await b.call("POST", `/api/containers/${container_id}/exec`, { command });
      expect(Number(body.stdout)).toBeLessThan(64 * 2 ** 20);
    }
    expect((await daemon.call("POST", "/api/volumes", { name: "operators" })).body.quota_mb).toBeNull();
  });

  it("on disk hold at once for what was made without one, also in a container that runs", async () => {
    const a = await makeTenant("late-disk", { disk_mb_max: null });
    await a.call("POST", "/api/volumes", { name: "data" });
    const { container_id, disk_limit_mb } = await a.box("box", { volumes: ["data:/data"] });
    expect([disk_limit_mb, (await a.usage()).disk_mb]).toEqual([null, 0]);
    await daemon.call("PATCH", `/api/tenants/${a.tenant_id}`, { limits: { disk_mb_max: 200 } });
    const written = async (path: string) => {
      const command = ["sh", "-c", `head -c 60M /dev/zero > ${path}; stat -c %s ${path}`];
      const { body } = await a.call("POST", `/api/containers/${container_id}/exec`, { command });
      return Number(body.stdout);
    };
    for (const path of ["/data/x", "/root/x"]) expect(await written(path)).toBeLessThan(25 * 2 ** 20);
    expect((await a.call("GET", "/api/volumes/data")).body.quota_mb).toBe(25);
    expect((await a.call("GET", `/api/containers/${container_id}`)).body.disk_limit_mb).toBe(25);
    expect(await a.usage()).toMatchObject({ disk_mb: 50 });
    await a.call("POST", `/api/containers/${container_id}/stop`, {});
    await a.call("POST", `/api/containers/${container_id}/start?execution=sync`);
    expect(await written("/root/y")).toBeLessThan(25 * 2 ** 20);
  });

  it("on memory count containers that run, also those that are started again", async () => {
    const [a, b] = [await makeTenant("memory-a", { container_memory_mb_max: 512 }), await makeTenant("memory-b")];
    const made = await times(4, (i) => a.call("POST", "/api/containers", { name: `c${i}`, memory_limit_mb: 256 }));
    expect(refused(made).map(refusal)).toEqual(Array(2).fill([403, "QUOTA_EXCEEDED"]));
    expect(refused(made)[0]?.body.error).toContain("container_memory_mb_max (limit 512, 256 more requested)");
    const [one, two] = made.filter(({ status }) => status === 201).map(({ body }) => body.container_id);
    await a.call("POST", `/api/containers/${one}/stop`, {});
    const third = await a.box("third");
    expect(refusal(await a.call("POST", `/api/containers/${one}/start?execution=sync`))).toEqual([
      403,
      "QUOTA_EXCEEDED",
    ]);
    const handle = (await a.call("POST", `/api/containers/${one}/start`)).body.operation_id;
    const operation = (await a.call("GET", `/api/operations/${handle}?wait_seconds=20`)).body;
    expect([operation.status, operation.error]).toEqual(["failed", expect.stringContaining("container_memory_mb_max")]);
    const batch = { items: [{ name: "batched", memory_limit_mb: 256 }] };
    const batched = (await a.call("POST", "/api/containers/batch", batch)).body.operation_id;
    const items = (await a.call("GET", `/api/operations/${batched}?wait_seconds=20`)).body.items;
    expect(items).toMatchObject([{ status: "failed" }]);
    await a.call("POST", `/api/containers/${third.container_id}/stop`, {});
    expect((await a.call("POST", `/api/containers/${one}/start?execution=sync`)).status).toBe(200);
    expect(await a.usage()).toMatchObject({ containers: 3, container_memory_mb: 512 });
    await b.box("mine");
    await Promise.all([one, two].map((id) => a.call("DELETE", `/api/containers/${id}?execution=sync`)));
  });

  it("on memory keep a restart policy waiting until there is room", async () => {
    const a = await makeTenant("restart-a", { container_memory_mb_max: 256 });
    const again = await a.box("again", { command: ["sh", "-c", "read x < /root/wait; exit 1"], restart: "always" });
    const id = again.container_id;
    const state = async () => (await a.call("GET", `/api/containers/${id}`)).body;
    await eventually(
      "it ended once",
      async () => (await state()).restart_count > 0 || (await state()).state === "exited",
    );
    const taken = await eventually("another has the room", async () => {
      const { status } = await a.call("POST", "/api/containers", { name: "taker", memory_limit_mb: 256 });
      return status === 201;
    });
    expect(taken).toBe(true);
    const { restart_count } = await state();
    await eventually("the policy was refused", () => daemon.output.includes("cannot restart a container"));
    expect(await state()).toMatchObject({ state: "exited", restart_count });
    const taker = (await a.call("GET", "/api/containers/by-name/taker")).body.container_id;
    await a.call("DELETE", `/api/containers/${taker}?execution=sync`);
    await eventually("it is started again", async () => (await state()).restart_count > restart_count);
    await a.call("DELETE", `/api/containers/${id}?execution=sync`);
  });

  it("on processes stand beside what the kernel counts, of all containers that run, and 0 where none does", async () => {
    const [a, b] = [await makeTenant("processes-a"), await makeTenant("processes-b")];
    const command = ["sh", "-c", "for i in $(seq 20); do sleep 100000 & done; wait"];
    const boxes = [await a.box("one", { command }), await a.box("two", { command })];
    await eventually("all are counted", async () => (await a.usage()).processes >= 2 * 21);
    const { usage, limits } = (await daemon.call("GET", `/api/tenants/${a.tenant_id}`)).body;
    expect(usage.processes).toBeLessThan(limits.processes_max);
    expect((await b.usage()).processes).toBe(0);
    for (const { container_id } of boxes) await a.call("POST", `/api/containers/${container_id}/stop`, {});
    await eventually("none is left", async () => (await a.usage()).processes === 0);
  });

  it("on commands count all of its containers together", async () => {
    const [a, b] = [await makeTenant("exec-a", { execs_max: 3 }), await makeTenant("exec-b")];
    const boxes = [await a.box("one"), await a.box("two")].map(({ container_id }) => container_id);
    const { container_id: other } = await b.box("other");
    const stops = await times(3, (i) => openExec(boxes[i % 2], a.key));
    expect(await a.usage()).toMatchObject({ execs: 3, streams: 3 });
    const command = ["true"];
    const over = await a.call("POST", `/api/containers/${boxes[1]}/exec`, { command });
    expect([...refusal(over), over.body.error]).toEqual([
      429,
      "CONCURRENCY_LIMIT",
      "too many execs of the tenant: 3 (limit execs_max 3)",
    ]);
    expect((await b.call("POST", `/api/containers/${other}/exec`, { command })).body.exit_code).toBe(0);
    stops[0]?.();
    await eventually("a place is free", async () => {
      const { status } = await a.call("POST", `/api/containers/${boxes[0]}/exec`, { command });
      return status === 200;
    });
    for (const stop of stops) stop();
    await eventually("nothing is in use", async () => (await a.usage()).execs + (await a.usage()).streams === 0);
  });

  it("on streams count those of commands and of logs", async () => {
    const [a, b] = [await makeTenant("stream-a", { streams_max: 2 }), await makeTenant("stream-b")];
    const command = ["sh", "-c", "echo begun; sleep 100000"];
    const [mine, other] = [await a.box("mine", { command }), await b.box("other", { command })];
    const follow = (id: string) => `/api/containers/${id}/logs?follow=true`;
    const stops = [await openExec(mine.container_id, a.key), await openStream(follow(mine.container_id), a.key)];
    const over = await a.call("GET", follow(mine.container_id));
    expect([...refusal(over), over.body.error]).toEqual([
      429,
      "CONCURRENCY_LIMIT",
      "too many streams of the tenant: 2 (limit streams_max 2)",
    ]);
    expect(refusal(await a.call("POST", `/api/containers/${mine.container_id}/stream`, { command: ["true"] }))).toEqual(
      [429, "CONCURRENCY_LIMIT"],
    );
    (await openStream(follow(other.container_id), b.key))();
    for (const stop of stops) stop();
    await eventually("nothing is in use", async () => (await a.usage()).streams === 0);
  });

  it("on terminals hold for requests at the same time", async () => {
    const [a, b] = [await makeTenant("shell-a", { terminals_max: 2 }), await makeTenant("shell-b")];
    const [mine, other] = [await a.box("mine"), await b.box("other")];
    const open = (tenant: Tenant, { container_id }: Json) =>
      tenant.call("POST", "/api/terminal/sessions", { container_id, shell: "/bin/sh" });
    const made = await times(5, () => open(a, mine));
    expect(refused(made).map(refusal)).toEqual(Array(3).fill([429, "CONCURRENCY_LIMIT"]));
    expect(refused(made)[0]?.body.error).toContain("limit terminals_max 2");
    expect(await a.usage()).toMatchObject({ terminals: 2, execs: 2 });
    expect((await open(b, other)).status).toBe(201);
  });
});

describe("the memory of this node", () => {
  it("admits containers up to the machine's times the factor, however many are asked for at once", async () => {
    for (const { container_id } of (await daemon.call("GET", "/api/containers")).body.containers) {
      await daemon.call("DELETE", `/api/containers/${container_id}?execution=sync`);
    }
    const taken_mb = await tenantsMemoryMb();
    const made = await times(10, (i) =>
      daemon.call("POST", "/api/containers", { name: `huge-${i}`, memory_limit_mb: LIMITS.memory_limit_mb_max }),
    );
    const fitting = Math.floor((NODE_MB - taken_mb) / LIMITS.memory_limit_mb_max);
    expect(made.filter(({ status }) => status === 201)).toHaveLength(fitting);
    expect(refused(made).map(refusal)).toEqual(Array(10 - fitting).fill([503, "CAPACITY_FULL"]));
    expect(refused(made)[0]?.body.error).toMatch(
      /not enough memory for containers on this node: 16384 MiB requested \(limit \d+ MiB in all\)/,
    );
  });
});

/** Of containers that run, over all tenants but the operator's. */
async function tenantsMemoryMb(): Promise<number> {
  const { tenants } = (await daemon.call("GET", "/api/tenants")).body;
  const details = await Promise.all(
    tenants.map(({ tenant_id }: Json) => daemon.call("GET", `/api/tenants/${tenant_id}`)),
  );
  return details.reduce((sum, { body }) => sum + body.usage.container_memory_mb, 0);
}

describe("containers and volumes of an earlier version, without a limit of their disk", () => {
  it("get the default when the daemon starts, but for the operator's", async () => {
    const a = await makeTenant("earlier");
    const { container_id } = await a.box("old");
    await a.call("POST", "/api/volumes", { name: "old" });
    await daemon.stop();
    plant(
      daemon,
      { sql: "UPDATE volumes SET quota_mb = NULL" },
      { sql: "UPDATE containers SET make = json_remove(make, '$.disk_limit_mb')" },
    );
    await daemon.start(SETTINGS);
    expect((await a.call("GET", "/api/volumes/old")).body.quota_mb).toBe(64);
    expect((await a.call("GET", `/api/containers/${container_id}`)).body.disk_limit_mb).toBe(64);
    expect((await daemon.call("GET", "/api/volumes/operators")).body.quota_mb).toBeNull();
  });
});

describe("tenants above their limits", () => {
  it("are named in the log when the daemon starts, once for each limit, with what they use", async () => {
    const [a, b] = [await makeTenant("above"), await makeTenant("below", { volumes_max: 2 })];
    for (const name of ["one", "two"]) {
      await a.call("POST", "/api/volumes", { name });
      await b.call("POST", "/api/volumes", { name });
    }
    await daemon.stop();
    const limits = JSON.stringify({ volumes_max: 1, disk_mb_max: 100, containers_max: 0 });
    plant(daemon, { sql: `UPDATE tenants SET limits = '${limits}' WHERE id = '${a.tenant_id}'` });
    await daemon.start(SETTINGS);
    const tenants = [a.tenant_id, b.tenant_id];
    const lines = await eventually("both are logged", () => {
      const text = daemon.output.split("\n").filter((line) => line.includes('"tenant exceeds a limit"'));
      const found = text.map((line) => JSON.parse(line)).filter(({ tenant_id }) => tenants.includes(tenant_id));
      return found.length >= 2 ? found : null;
    });
    const named = lines.map(({ time: _, ...rest }) => rest);
    const line = { level: "warn", message: "tenant exceeds a limit", tenant_id: a.tenant_id };
    expect(named).toEqual([
      { ...line, limit: "volumes_max", max: 1, used: 2 },
      { ...line, limit: "disk_mb_max", max: 100, used: 128 },
    ]);
    expect(await a.usage()).toMatchObject({ volumes: 2, disk_mb: 128 });
  });
});
