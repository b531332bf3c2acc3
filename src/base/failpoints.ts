/**
 * Failpoints: named places at which a test ends the process, throws or waits, to see what a crash exactly there leaves
 * behind (`test/recovery`). `HEARTH_FAILPOINT=<name>[:<n>][=<action>]` arms one: at its n-th passage (1 unless given)
 * the action happens, once. With `HEARTH_FAILPOINT=@<path>` the process arms none at first. At each SIGUSR2 it reads such a setting
 * from that file, arms it and deletes the file. Unarmed a failpoint costs one property check.
 *
 * F1. Passages are counted over all threads of the process together.
 * F2. Every name stands at one place in the source, and a test passes it.
 */
import { readFileSync, rmSync } from "node:fs";
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";
import { AppError } from "./errors.ts";

export const FAILPOINTS = [
  "app.stop.begun",
  "functions.boot.adopted",
  "functions.create.begun",
  "functions.create.stored",
  "functions.deploy.moved",
  "functions.deploy.warmed",
  "functions.version.warmed",
  "functions.version.moved",
  "functions.pause.moved",
  "functions.delete.moved",
  "functions.delete.closed",
  "functions.delete.erased",
  "tenants.key.stored",
  "tenants.operator.kept",
  "tenants.delete.moved",
  "tenants.delete.emptied",
  "functions.bind.attached",
  "functions.bind.begun",
  "functions.bind.marked",
  "functions.bind.limited",
  "functions.bind.loaded",
  "functions.invoke.assigned",
  "functions.invoke.ended",
  "containers.create.stored",
  "containers.create.made",
  "containers.start.slot",
  "containers.start.bundle",
  "containers.start.spawned",
  "containers.start.ready",
  "containers.start.live",
  "containers.stop.unwanted",
  "containers.end.cleared",
  "containers.delete.hidden",
  "containers.delete.removed",
  "code.put.unpacked",
  "code.put.renamed",
  "code.collect.deleted",
  "oci.pull.stored",
  "oci.pull.committed",
  "oci.delete.stored",
  "oci.context.unpacked",
  "oci.context.deleted",
  "oci.build.started",
  "oci.build.kept",
  "oci.build.layered",
  "oci.push.exported",
  "oci.push.uploaded",
  "oci.load.kept",
  "snapshots.create.taken",
  "snapshots.copy.filled",
  "snapshots.copy.volumes",
  "snapshots.copy.noted",
  "snapshots.fork.taken",
  "snapshots.restore.filled",
  "snapshots.restore.exchanged",
  "snapshots.delete.ended",
  "snapshots.delete.removed",
  "volumes.create.made",
  "volumes.delete.ended",
  "volumes.delete.removed",
  "services.create.stored",
  "icc.publish.carried",
  "icc.ack.settled",
  "icc.action.applied",
  "icc.action.told",
  "secrets.rotate.kept",
  "secrets.rotate.moved",
  "secrets.rotate.emptied",
  "images.pull.noted",
  "images.pull.stored",
  "images.pull.named",
  "images.pull.unnamed",
  "images.export.made",
  "images.export.written",
  "engine.boot.adopted",
  "engine.start.slot",
  "engine.start.bundle",
  "engine.start.spawned",
  "engine.start.ready",
  "engine.attach.noted",
  "engine.attach.mounted",
  "engine.exec.sent",
  "engine.exec.idle",
  "engine.remove.asked",
  "engine.remove.deleted",
  "engine.remove.emptied",
  "engine.remove.released",
  "engine.network.cut",
  "engine.network.rules",
  "engine.stop.begun",
  "engine.stop.unlinked",
  "store.commit.begun",
  "store.commit.written",
  "store.commit.done",
  "store.checkpoint.begun",
  "store.checkpoint.done",
] as const;

export type Failpoint = (typeof FAILPOINTS)[number];

/** `kill`: SIGKILL to the own process, so that nothing can clean up. `exit-thread`: in the main thread, of the process. */
const ACTIONS = ["kill", "throw", "exit-thread", "delay"] as const;

interface Setting {
  readonly name: Failpoint;
  readonly at: number;
  readonly action: (typeof ACTIONS)[number];
  readonly delay_ms: number;
}

/** Places in the memory that all threads share (F1). `NAME` holds an index of FAILPOINTS, `ACTION` one of ACTIONS. */
const [NAME, AT, ACTION, DELAY_MS, PASSAGES] = [0, 1, 2, 3, 4];
const PLACES_COUNT = 5;
const NO_NAME = -1;

const KEY = "hearth failpoint";
/** Longest wait of `delay`. */
const DELAY_MS_MAX = 60_000;
const SETTING = /^([a-z.]+)(?::([1-9]\d{0,8}))?(?:=(kill|throw|exit-thread|delay:(\d{1,5})))?$/;

/** A thread is given what the main thread had armed before it was started. */
const state = { armed: (getEnvironmentData(KEY) ?? null) as Int32Array | null };

/** Ends, throws or waits here when a test has asked for that. */
export function failpoint(name: Failpoint): void {
  if (state.armed !== null) pass(state.armed, name);
}

/** Arms the failpoint of a setting, none if the setting is empty. Call before any thread is started. Throws INVALID_ARGUMENT. */
export function armFailpoint(setting: string): void {
  const armed =
    setting === "" ? null : new Int32Array(new SharedArrayBuffer(PLACES_COUNT * Int32Array.BYTES_PER_ELEMENT));
  if (armed !== null && setting.startsWith("@")) {
    armed[NAME] = NO_NAME;
    process.on("SIGUSR2", () => armFromFile(armed, setting.slice(1)));
  } else if (armed !== null) {
    arm(armed, parse(setting));
  }
  state.armed = armed;
  setEnvironmentData(KEY, armed ?? undefined);
}

function armFromFile(armed: Int32Array, file: string): void {
  arm(armed, parse(readFileSync(file, "utf8")));
  rmSync(file);
}

function arm(armed: Int32Array, { name, at, action, delay_ms }: Setting): void {
  Atomics.store(armed, NAME, NO_NAME);
  armed[AT] = at;
  armed[ACTION] = ACTIONS.indexOf(action);
  armed[DELAY_MS] = delay_ms;
  armed[PASSAGES] = 0;
  Atomics.store(armed, NAME, FAILPOINTS.indexOf(name));
}

function parse(setting: string): Setting {
  const [, known, at, action = "kill", delay] = SETTING.exec(setting) ?? [];
  const name = FAILPOINTS.find((one) => one === known);
  if (name === undefined || Number(delay ?? 0) > DELAY_MS_MAX) {
    throw new AppError(
      "INVALID_ARGUMENT",
      `HEARTH_FAILPOINT is '${setting}', expected <name>[:<n>][=kill|throw|exit-thread|delay:<ms>] with a name of ${FAILPOINTS.join(", ")}`,
    );
  }
  const kind = ACTIONS.find((one) => action.startsWith(one)) ?? "kill";
  return { name, at: Number(at ?? 1), action: kind, delay_ms: Number(delay ?? 0) };
}

function pass(armed: Int32Array, name: Failpoint): void {
  if (FAILPOINTS[Atomics.load(armed, NAME)] !== name) return;
  if (Atomics.add(armed, PASSAGES, 1) + 1 !== Atomics.load(armed, AT)) return;
  const action = ACTIONS[Atomics.load(armed, ACTION)];
  if (action === "kill") process.kill(process.pid, "SIGKILL");
  else if (action === "exit-thread") process.exit();
  else if (action === "throw") throw new AppError("INTERNAL", `failpoint ${name}`);
  else Atomics.wait(new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)), 0, 0, armed[DELAY_MS]);
}
