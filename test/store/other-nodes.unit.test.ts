/** A node asked for what another node on the store holds: it refuses, and changes neither the store nor its own machine. */
import { beforeEach, describe, expect, it } from "vitest";
import type { Pool } from "../../pool/index.ts";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import { Jobs } from "../../src/containers/exec/jobs.ts";
import { ContainerRows } from "../../src/containers/rows.ts";
import { Containers } from "../../src/containers/service.ts";
import type { Engine } from "../../src/engine/ports.ts";
import { Events } from "../../src/events/service.ts";
import type { Call } from "../../src/functions/calls/calling.ts";
import { LocalConcurrency } from "../../src/functions/calls/concurrency.ts";
import { type CallingRequest, Invoker } from "../../src/functions/calls/invoke.ts";
import type { Outcome } from "../../src/functions/calls/outcome.ts";
import { NumberBlocks } from "../../src/functions/records/invocation-numbers.ts";
import { Invocations } from "../../src/functions/records/invocations.ts";
import { FunctionRows } from "../../src/functions/rows.ts";
import { createFunction, type InvokeFunction } from "../../src/functions/schema.ts";
import { Functions } from "../../src/functions/service.ts";
import { prepare } from "../../src/functions/target.ts";
import type { Store, StoredNode } from "../../src/store/store.ts";
import { VolumeRows } from "../../src/volumes/rows.ts";
import { Volumes } from "../../src/volumes/service.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { called } from "../telemetry/called.ts";
import { quietLog, scratchStores } from "./scratch.ts";
import { container, ONE, openForTwo, TWO } from "./two-nodes.ts";

const elsewhere = (what: string) =>
  expect.objectContaining({ code: "WRONG_STATE", message: `${what} is held by another node` });

/** A part that nothing may be asked of, but that it tells of ends. */
function untouched<Part extends object>(members: object = {}): Part {
  const listens = { onEnded: () => {}, onForget: () => {}, onRemoval: () => {} };
  const known: Readonly<Record<string, unknown>> = { ...listens, ...members };
  const get = (_: object, name: string | symbol): unknown => {
    const member = known[String(name)];
    if (member === undefined) throw new Error(`asked for ${String(name)}`);
    return member;
  };
  return new Proxy({}, { get }) as Part;
}

describe("a node of two", () => {
  const scratch = scratchStores();
  let store: Store;
  beforeEach(async () => {
    store = await openForTwo(scratch());
  });

  const shared = () => ({
    store,
    node: TWO,
    events: new Events({ store, clock: systemClock, log: quietLog }),
    clock: systemClock,
    ids: randomIds(),
    log: quietLog,
    quotas: nodeQuotas(),
  });
  const volumesOf = (storage = {}) => new Volumes({ ...shared(), storage: () => untouched(storage) });
  const containersOf = () =>
    new Containers({
      ...shared(),
      engine: untouched<Engine>({ containers: untouched(), images: { find: async () => ({ id: "x" }) } }),
      containers_max: 10,
      ports: untouched(),
      addresses: untouched(),
      tasks: untouched(),
      resolveImage: async () => ({ reference: "x", release: null, image_id: null, use: null }),
      contracts: { holds: async () => true },
      volumes: volumesOf(),
      desktops: { isReachable: async () => false, wasReachable: () => false, untilReachable: async () => {} },
    });
  const volume = (id: string, node: StoredNode) =>
    new VolumeRows(store, node).insert("a", id, { name: id, labels: {}, quota_mb: null }, 1);
  const rowsOf = (table: string) => store.read(`SELECT * FROM ${table} ORDER BY seq`);

  it("refuses the verbs of another's container", async () => {
    await store.write([container("ctr_1", ONE), container("ctr_2", ONE, "exited")]);
    const before = await rowsOf("containers");
    const containers = containersOf();
    const verbs: readonly (() => Promise<unknown>)[] = [
      () => containers.start("a", "ctr_1"),
      () => containers.stop("a", "ctr_1", 0),
      () => containers.kill("a", "ctr_1"),
      () => containers.delete("a", "ctr_1"),
      () => containers.openFiles("a", "ctr_1"),
      () => containers.setEnvironment("a", "ctr_1", () => ({})),
    ];
    for (const verb of verbs) await expect(verb()).rejects.toEqual(elsewhere("container 'ctr_1'"));
    await expect(containers.start("a", "ctr_2")).rejects.toEqual(elsewhere("container 'ctr_2'"));
    expect(await rowsOf("containers")).toEqual(before);
    expect((await containers.row("a", "ctr_1")).state).toBe("running");
  });

  it("leaves another's containers of a deleted tenant to that node", async () => {
    await store.write([container("ctr_1", ONE)]);
    await expect(containersOf().eraseAll("a")).rejects.toEqual(elsewhere("container 'ctr_1'"));
    const [left, ...others] = await new ContainerRows(store, ONE).removing();
    expect([left?.id, others]).toEqual(["ctr_1", []]);
  });

  it("refuses what needs the files of another's volume, and mounts none", async () => {
    await store.write([...volume("vol_1", ONE), ...volume("vol_2", TWO)]);
    const volumes = volumesOf();
    const refused = elsewhere("volume 'vol_1'");
    await expect(volumes.inspect("a", "vol_1")).rejects.toEqual(refused);
    await expect(volumes.root("a", "vol_1")).rejects.toEqual(refused);
    await expect(volumes.checkDelete("a", "vol_1")).rejects.toEqual(refused);
    await expect(volumes.delete("vol_1")).rejects.toEqual(refused);
    await expect(volumes.held("a", "vol_1")).rejects.toEqual(refused);
    expect(await volumes.get("a", "vol_1")).not.toHaveProperty("node_seq");
    await store.write([container("ctr_1", TWO)]);
    const rows = new ContainerRows(store, TWO);
    const mount = async (id: string) => (await store.write([rows.mount("a", "ctr_1", id, "/v")])).conflict;
    expect([await mount("vol_1"), await mount("vol_2")]).toEqual([0, null]);
  });

  it("deletes its own volumes of a deleted tenant, and leaves another's to that node", async () => {
    await store.write([...volume("vol_1", ONE), ...volume("vol_2", TWO)]);
    const removed: string[] = [];
    const volumes = volumesOf({ remove: async (_: string, id: string) => removed.push(id) });
    await expect(volumes.eraseAll("a")).rejects.toEqual(elsewhere("volume 'vol_1'"));
    expect([removed, (await rowsOf("volumes")).map(({ id }) => id)]).toEqual([["vol_2"], ["vol_1"]]);
  });

  it("limits its own disks alone", async () => {
    await store.write([...volume("vol_1", ONE), ...volume("vol_2", TWO)]);
    await store.write([container("ctr_1", ONE), container("ctr_2", TWO)]);
    const held = [{ id: "vol_2", tenant_id: "a" }];
    expect(await new VolumeRows(store, TWO).withoutQuota(null)).toEqual(held);
    expect(await new VolumeRows(store, TWO).withoutQuota("a")).toEqual(held);
    expect(await new ContainerRows(store, TWO).withoutDiskLimit("a")).toEqual([{ id: "ctr_2", tenant_id: "a" }]);
  });

  it("ends the jobs that its own last process left, and no other's", async () => {
    await store.write([container("ctr_1", ONE), container("ctr_2", TWO)]);
    const { events } = shared();
    const begin = { command: ["true"], pid: 1, started_at_ms: 0, tenant_id: "a", omitted_count: 0 };
    for (const [node, n] of [[ONE, 1] as const, [TWO, 2] as const]) {
      await new Jobs(store, node, events).begin({ ...begin, job_id: `job_${n}`, container_id: `ctr_${n}` });
    }
    await new Jobs(store, TWO, events).boot(1);
    const jobs = await store.read("SELECT id, status FROM exec_jobs ORDER BY id");
    expect(jobs).toEqual([
      { id: "job_1", status: "running" },
      { id: "job_2", status: "failed" },
    ]);
  });

  describe("beside another's function", () => {
    const input = createFunction.parse({ name: "f", handler: "cat" });
    beforeEach(async () => {
      const made = {
        id: "fn_1",
        version_id: "fv_1",
        image: "x",
        settings: null,
        api_scopes: [],
        now: 1,
        by: "k",
        note: null,
      };
      await store.write(new FunctionRows(store, ONE).insert("a", made, input));
    });

    it("refuses to change it", async () => {
      const before = await rowsOf("functions");
      const functions = new Functions({
        ...shared(),
        pool: untouched<Pool<Call, Outcome>>(),
        launcher: untouched(),
        engine: untouched(),
        classes: untouched(),
        bindings: untouched(),
        images: untouched(),
        profiles: untouched(),
        code: untouched(),
        secrets: untouched(),
        traces: untouched(),
        queue_max: 1,
        observer: untouched(),
      });
      const author = { tenant_id: "a", key_id: "k", scopes: [] };
      const verbs: readonly (() => Promise<unknown>)[] = [
        () => functions.deploy("a", "fn_1"),
        () => functions.pause("a", "fn_1"),
        () => functions.delete("a", "fn_1"),
        () => functions.erase("a", "fn_1"),
        () => functions.versions.update(author, "fn_1", { description: "new" }, untouched()),
        () =>
          functions.deployments.apply(author, [{ ...input, description: "new" }], { is_dry_run: false }, untouched()),
        () => functions.versions.rollback("a", "fn_1", 1),
      ];
      for (const verb of verbs) await expect(verb()).rejects.toEqual(elsewhere("function 'fn_1'"));
      await store.write([{ sql: "UPDATE functions SET state = 'deleting'" }]);
      await expect(functions.erase("a", "fn_1")).rejects.toEqual(elsewhere("function 'fn_1'"));
      expect(await rowsOf("functions")).toEqual(before.map((row) => ({ ...row, state: "deleting" })));
    });

    /** A node's invoker, whose pool answers as `submit` does. */
    async function invokerOf(submit: () => Promise<unknown>) {
      await store.write([{ sql: "UPDATE functions SET state = 'active'" }]);
      const { record, function_seq } = await new FunctionRows(store, TWO).found("a", "fn_1");
      const invocations = new Invocations({ ...shared(), numbers: new NumberBlocks(store) });
      await invocations.boot();
      const invoker = new Invoker({
        pool: untouched<Pool<Call, Outcome>>({ submit }),
        invocations,
        clock: systemClock,
        concurrency: new LocalConcurrency(),
        tenant_limit: null,
        observer: untouched({ invoked: () => {} }),
      });
      const call = { environment: {}, payload: null } as unknown as InvokeFunction;
      const request = {
        caller: { tenant_id: "a", scopes: ["invoke"], invocation: null },
        note: () => {},
      } as unknown as CallingRequest;
      const invoke = () => invoker.invoke(() => ({ ...prepare(record), function_seq }), call, request);
      return { invoke, invocations, key: { function_seq, id: record.id, name: record.name } };
    }

    it("says why it cannot call it", async () => {
      const { invoke } = await invokerOf(() => Promise.reject(new AppError("NOT_FOUND", "group unknown")));
      await expect(invoke()).rejects.toEqual(elsewhere("function 'f'"));
    });

    it("names itself in the answer to a call that it ran, as in the record", async () => {
      const { function_id: _, ...outcome } = called("f");
      const { invoke, invocations, key } = await invokerOf(async () => outcome);
      const answer = await invoke();
      expect(answer.execution_node_id).toBe(TWO.id);
      expect((await invocations.get(key, answer.invocation_id)).execution_node_id).toBe(TWO.id);
    });
  });
});
