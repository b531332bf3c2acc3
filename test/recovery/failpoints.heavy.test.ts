/**
 * The daemon killed at every failpoint: after the next start everything that was answered is there, nothing is half
 * done, active functions answer, and the machine holds as much as before.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FAILPOINTS, type Failpoint } from "../../src/base/failpoints.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { ContainerLedger } from "./container-ledger.ts";
import { dies, type Known, Ledger, startArmed } from "./ledger.ts";
import { type Counts, countAtRest, expectAtRest } from "./rest.ts";
import { TenantLedger } from "./tenant-ledger.ts";

const CELLS = 1;
/** Rounds of work in which a failpoint must be passed. */
const ROUNDS_MAX = 20;

/** At which passage the daemon is killed, and what it does then. */
interface Passing {
  readonly at: number;
  /**
   * It starts with nothing to take over, takes over, works with all verbs of functions, or of containers and volumes,
   * answers calls alone or large ones, stops.
   */
  readonly by: "start" | "adoption" | "work" | "boxes" | "calls" | "bulk" | "stop";
}
const start: Passing[] = [{ at: 1, by: "start" }];
const adoption: Passing[] = [{ at: 1, by: "adoption" }];
const work = (...at: number[]): Passing[] => at.map((one) => ({ at: one, by: "work" }));
const boxes = (...at: number[]): Passing[] => at.map((one) => ({ at: one, by: "boxes" }));
const calls = (at: number): Passing => ({ at, by: "calls" });
const bulk: Passing[] = [{ at: 1, by: "bulk" }];
const stop: Passing[] = [{ at: 1, by: "stop" }];

const PASSINGS: Record<Failpoint, readonly Passing[]> = {
  "app.stop.begun": stop,
  "functions.boot.adopted": [...start, ...adoption],
  "functions.create.begun": work(1),
  "functions.create.stored": work(2),
  "functions.deploy.moved": work(1),
  "functions.deploy.warmed": work(1, 2),
  "functions.version.warmed": work(1, 2),
  "functions.version.moved": work(1, 2),
  "functions.pause.moved": work(1),
  "functions.delete.moved": work(1),
  "functions.delete.closed": work(1),
  "functions.delete.erased": work(1),
  "tenants.key.stored": work(1, 2),
  // Passed by rotation.test.ts: here a setting gives the operator's key.
  "tenants.operator.kept": [],
  "tenants.delete.moved": work(1),
  "tenants.delete.emptied": work(1),
  // Passed by bus-crashes.unit.test.ts: here no daemon has a server of messages.
  "icc.publish.carried": [],
  "icc.ack.settled": [],
  // Passed by icc-actions.test.ts.
  "icc.action.applied": [],
  "icc.action.told": [],
  // Passed by code.heavy.test.ts: here no function has code.
  "functions.bind.attached": [],
  "functions.bind.loaded": [],
  "engine.attach.noted": [],
  "engine.attach.mounted": [],
  "functions.bind.begun": work(1, 2),
  "functions.bind.marked": work(1, 2),
  "functions.bind.limited": work(1, 2),
  "functions.invoke.assigned": work(1, 4),
  "functions.invoke.ended": work(1, 4),
  "containers.create.stored": boxes(1, 2),
  "containers.create.made": boxes(1, 2),
  // Made, started again by an operation, made by a batch.
  "containers.start.slot": boxes(1, 2, 4),
  "containers.start.bundle": boxes(1, 2, 4),
  "containers.start.spawned": boxes(1, 2, 4),
  "containers.start.ready": boxes(1, 2, 4),
  "containers.start.live": boxes(1, 2, 4),
  "containers.stop.unwanted": boxes(1),
  "containers.end.cleared": boxes(1, 2),
  "containers.delete.hidden": boxes(1, 2),
  "containers.delete.removed": boxes(1, 2),
  // Passed by code.heavy.test.ts, and by test/code/crashes.test.ts, which kills the owner of a pool there.
  "code.put.unpacked": [],
  "code.put.renamed": [],
  "code.collect.deleted": [],
  // Passed by test/engine/image-pulls.test.ts, which kills the owner of an engine there.
  "images.pull.noted": [],
  "images.pull.stored": [],
  "images.pull.named": [],
  "images.pull.unnamed": [],
  // Passed by oci.test.ts, which has images to pull.
  "oci.pull.stored": [],
  "oci.pull.committed": [],
  "oci.delete.stored": [],
  // Passed by build-contexts.test.ts.
  "oci.context.unpacked": [],
  "oci.context.deleted": [],
  // Passed by image-archives.test.ts.
  "oci.load.kept": [],
  // Passed by builds.heavy.test.ts.
  "oci.build.started": [],
  "oci.build.kept": [],
  "oci.build.layered": [],
  // Passed by registry-pushes.test.ts, which has a registry to push to.
  "oci.push.exported": [],
  "oci.push.uploaded": [],
  "images.export.made": [],
  "images.export.written": [],
  // Passed by snapshots.heavy.test.ts.
  "snapshots.create.taken": [],
  "snapshots.copy.filled": [],
  "snapshots.copy.volumes": [],
  "snapshots.copy.noted": [],
  "snapshots.fork.taken": [],
  "snapshots.restore.filled": [],
  "snapshots.restore.exchanged": [],
  "snapshots.delete.ended": [],
  "snapshots.delete.removed": [],
  "volumes.create.made": boxes(1),
  "volumes.delete.ended": boxes(1),
  "volumes.delete.removed": boxes(1),
  // No work of this suite publishes a service; service-recovery.test.ts restarts the daemon with one.
  "services.create.stored": [],
  // Passed by secrets.test.ts, which knows what each value is.
  "secrets.rotate.kept": [],
  "secrets.rotate.moved": [],
  "secrets.rotate.emptied": [],
  "engine.boot.adopted": [...start, ...adoption],
  "engine.start.slot": [...start, ...work(3)],
  "engine.start.bundle": [...start, ...work(3)],
  "engine.start.spawned": [...start, ...work(3)],
  "engine.start.ready": [...start, ...work(3)],
  "engine.exec.sent": work(1, 4),
  "engine.exec.idle": work(1, 4),
  "engine.remove.asked": [...start, ...work(2)],
  "engine.remove.deleted": [...start, ...work(4), ...boxes(2)],
  "engine.remove.emptied": [...start, ...work(4), ...boxes(2)],
  "engine.remove.released": [...start, ...work(2)],
  "engine.network.cut": [...start, ...work(2)],
  "engine.network.rules": start,
  "engine.stop.begun": stop,
  "engine.stop.unlinked": stop,
  "store.commit.begun": [...start, ...work(30), calls(30)],
  "store.commit.written": [...start, ...work(6), calls(5)],
  "store.commit.done": [...start, ...work(30), ...boxes(5, 9, 14, 20), calls(30)],
  "store.checkpoint.begun": bulk,
  "store.checkpoint.done": bulk,
};
const CASES = FAILPOINTS.flatMap((name) => PASSINGS[name].map((passing) => ({ name, ...passing })));

const daemon = new Daemon();
const SETTINGS = {
  HEARTH_CELLS: String(CELLS),
  HEARTH_LOG_LEVEL: "warn",
  HEARTH_FAILPOINT: `@${daemon.failpoint_file}`,
};
const ledger = new Ledger(daemon);
const tenants = new TenantLedger(daemon);
const containers = new ContainerLedger(daemon);
/** One container, with minit and its command. */
const LIVING = { containers: 1, processes: 2 };
const state: { before: Counts; steady: Known | null; round: number } = {
  before: {},
  steady: null,
  round: 0,
};

beforeAll(async () => {
  await daemon.start(SETTINGS);
  state.steady = await ledger.create("steady");
  await ledger.deploy(state.steady);
  await ledger.invoke(state.steady);
  await ledger.clear(state.steady);
  await containers.steady();
  state.before = await countAtRest(daemon, CELLS, LIVING);
});
afterAll(() => daemon.dispose());

/** A function that lives through all cases: paused between them, so that it has no instance at rest. */
async function callSteady(): Promise<void> {
  const { steady } = state;
  if (steady === null) return;
  if (!steady.states.has("active")) await ledger.deploy(steady, "resume");
  await ledger.invoke(steady);
}

/** Every verb there is, on a new function, with some calls at the same time, and on a new tenant. */
async function oneRound(payload_bytes: number): Promise<void> {
  await callSteady();
  const known = await ledger.create(`round-${state.round++}`, { min_instances: 1, max_instances: 2 });
  await ledger.deploy(known);
  const calls = await Promise.allSettled([1, 2, 3].map(() => ledger.invoke(known, payload_bytes)));
  for (const call of calls) if (call.status === "rejected") throw call.reason;
  await ledger.update(known);
  await ledger.invoke(known);
  await ledger.rollback(known, 1);
  await ledger.invoke(known);
  await ledger.pause(known);
  await ledger.deploy(known, "resume");
  await ledger.invoke(known, payload_bytes);
  await ledger.delete(known);
  await tenants.round();
}

/** Eight at a time, so that they are committed together. */
async function callsAlone(): Promise<void> {
  await callSteady();
  const calls = await Promise.allSettled(Array.from({ length: 8 }, callSteady));
  for (const call of calls) if (call.status === "rejected") throw call.reason;
}

/** Each resolves to true if the daemon was killed meanwhile. */
const WORK: Record<Exclude<Passing["by"], "start" | "adoption">, () => Promise<boolean>> = {
  work: () => dies(() => oneRound(0), ROUNDS_MAX),
  boxes: () => dies(() => containers.round(), ROUNDS_MAX),
  bulk: () => dies(() => oneRound(900_000), ROUNDS_MAX),
  // The failpoint needs several records in one transaction, which are rare on a fast disk.
  calls: () => dies(callsAlone, 10 * ROUNDS_MAX),
  stop: async () => {
    await callSteady();
    return (await daemon.stop("SIGTERM")) === null;
  },
};

describe("a daemon that is killed", () => {
  it.each(CASES)(
    "at $name, passage $at by $by, has lost nothing and left nothing after its next start",
    async (one) => {
      // A failed case may leave no daemon.
      if (!daemon.isAlive) await daemon.start(SETTINGS);
      const point = `${one.name}:${one.at}`;
      if (one.by === "start" || one.by === "adoption") {
        await daemon.stop(one.by === "start" ? "SIGTERM" : "SIGKILL");
        expect(await startArmed(daemon, SETTINGS, point)).toBe(false);
      } else {
        // This daemon has adopted the leftovers of the previous kill.
        await daemon.arm(point);
        expect(await WORK[one.by]()).toBe(true);
      }
      await daemon.start(SETTINGS);
      await ledger.check();
      await tenants.check();
      await containers.check();
      await ledger.clear(state.steady);
      await tenants.clear();
      await containers.clear();
      await expectAtRest(daemon, state.before, CELLS, LIVING);
    },
  );

  it("at each of these leaves nothing when it is stopped at last", async () => {
    await containers.clear(true);
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
