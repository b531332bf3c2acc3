/**
 * Sorts the instances that an earlier process of the same data directory left on the host: those that are made as this
 * process would make them and are whole and idle live on. The reaper removes the others.
 *
 * A1 A container is adopted only when it is whole, idle and clean: nobody works on its start any more, its minit says
 *    that nothing runs in it, its control group holds that minit alone and counts no memory kill, its network is there.
 *    An instance that starts with a resident process has that process, open and without calls, and its children.
 * A2 The process that answers at a bundle's socket is the minit that was started for that bundle. The listening socket
 *    is handed to it at its start and to no other process (the launcher closes its copy, the OCI runtime ends, a command
 *    inside can neither inherit nor fetch it), and ends with it. That proves more than a pid with its start time would:
 *    those say which process lives, not which container it serves. No pid is kept or used later, so none can be mistaken.
 * A3 An instance with files or network rules of a function is adopted only with the function's mark: without it the binding
 *    was interrupted, and no other function may get the instance. The rules stay in force without a gap.
 * A4 The fingerprint on the host is that of every container there: it is removed before anything changes and written
 *    before the first container starts.
 */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, readlinkSync, renameSync, rmSync, writeFileSync } from "node:fs";
import type { Clock } from "../../base/clock.ts";
import { each } from "../../base/concurrency.ts";
import { errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { CLASS_ANNOTATION, IMAGE_ANNOTATION, RESIDENT_ANNOTATION } from "../bundles/instance.ts";
import { GPUS_ANNOTATION, type GpuNote } from "../gpu/edits.ts";
import { findProcesses } from "../kernel/command-lines.ts";
import { containerProcesses, listGroups, readOomKills } from "../kernel/control-groups.ts";
import { MinitClient } from "../minit/instance-client.ts";
import type { Network, NetworkSlot } from "../network/network.ts";
import type { NetworkPolicy } from "../network/rules.ts";
import type { OciRuntime } from "../oci/runtime.ts";
import type { CgroupMode } from "../ports/machine.ts";
import type { Resident } from "../ports/residents.ts";
import { type Remains, reap } from "./reaper.ts";

/** Directories and groups of containers on the host; the names in each are container ids. */
export interface Places {
  readonly bundles: string;
  /** The OCI runtime's state. */
  readonly runtime: string;
  /** Parent of the control groups, `/name`. */
  readonly cgroup: string;
}

/** Name of one run of a container on the machine: a late removal cannot hit another run. */
export const runName = (id: string, number: number): string => `${id}.${number}`;

/** The container's id in the name of a run, and the run's number: 0 where the name has none. */
export function parseRun(name: string): { readonly id: string; readonly number: number } {
  const [, id = name, number = "0"] = /^(.+)\.(\d{1,15})$/.exec(name) ?? [];
  return { id, number: Number(number) };
}

/** Returns the paths at which a container may have left something. */
export function remainsOf(places: Places, id: string, isStarting: boolean): Remains {
  return {
    id,
    bundle: `${places.bundles}/${id}`,
    cgroup: `${places.cgroup}/${id}`,
    runtime_root: places.runtime,
    isStarting,
  };
}

/** A container that lives on. */
export interface Survivor {
  readonly id: string;
  readonly slot: NetworkSlot;
  readonly minit: MinitClient;
  /** Taken over and open, if its class has one. */
  readonly resident: Resident | null;
  readonly nonce: string;
  /** Key of the instance's class, and id of its image. */
  readonly class: string;
  readonly image: string;
  readonly mark: string | null;
  readonly is_furnished: boolean;
  /** Null: none. */
  readonly gpus: GpuNote | null;
}

/** A container that is to be reaped; nobody may get its slot or its GPUs before that. */
export interface Doomed {
  readonly id: string;
  readonly slot: NetworkSlot;
  readonly gpus: GpuNote | null;
}

export interface Sorted {
  readonly survivors: readonly Survivor[];
  readonly doomed: readonly Doomed[];
  /** To be reaped before anything starts: it is not known what they hold, or their name is needed. */
  readonly unknown: readonly string[];
}

/** File with the policy of an instance that has an attachment, written before any part of the attachment exists. */
const ATTACHED = "attached";
/** Policy of an attachment whose file is incomplete. */
const CLOSED_POLICY: NetworkPolicy = { egress: "off", ports: [] };

/** A link whose target is the text: made by one system call, so that it is there whole or not at all. */
export const MARK = "mark";
/** Name of the link that `furnished` makes. */
export const FURNISHED = "furnished";

/** An instance of an earlier process, by the files of its bundle. */
interface Leftover {
  readonly id: string;
  readonly bundle: string;
  readonly slot: NetworkSlot;
  readonly hasResident: boolean;
  readonly isAttached: boolean;
}

export interface LeftoversOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly mode: CgroupMode;
  readonly places: Places;
  readonly network: Network;
  /** Names that are no instance's: what the engine starts for itself. */
  readonly reserved: readonly string[];
}

export class Leftovers {
  readonly #options: LeftoversOptions;

  constructor(options: LeftoversOptions) {
    this.#options = options;
  }

  /** Every container there is or was, in whatever state. */
  ids(): string[] {
    const { mode, places } = this.#options;
    const entries = (path: string) => (existsSync(path) ? readdirSync(path) : []);
    return [...new Set([...entries(places.runtime), ...entries(places.bundles), ...listGroups(mode, places.cgroup)])];
  }

  /** Removes containers, and waits for it. A failed removal is logged and left to the census. */
  async remove(ids: readonly string[], runtime: OciRuntime | null): Promise<void> {
    const { clock, log, mode, places } = this.#options;
    const reaper = { clock, mode, runtime };
    await each(ids, LIMITS.leftovers_at_once, async (id) => {
      const remains = remainsOf(places, id, true);
      await reap(reaper, remains).catch((error) =>
        log.error("container of a previous daemon not removed", { id, error: errorText(error) }),
      );
    });
    if (ids.length > 0) log.info("removed containers of a previous daemon", { containers: ids.length });
  }

  /** Looks at each container that is there. Nobody may be starting any meanwhile. */
  async sort(): Promise<Sorted> {
    const { places, network, reserved } = this.#options;
    const begin = `${places.bundles}/`;
    const starters = await findProcesses((args) => args.some((arg) => arg.startsWith(begin)));
    const starting = new Set(starters.flatMap(({ args }) => args));
    const survivors: Survivor[] = [];
    const doomed: Doomed[] = [];
    const unknown: string[] = [];
    await each(this.ids(), LIMITS.leftovers_at_once, async (id) => {
      const bundle = `${places.bundles}/${id}`;
      const { uid, hasResident, ...made } = configured(bundle);
      const slot = reserved.includes(parseRun(id).id) ? null : network.slotOfUid(uid);
      if (slot === null) {
        unknown.push(id);
        return;
      }
      // A doomed instance keeps its policy too: it runs until it is removed.
      const policy = attachedPolicy(bundle);
      if (policy !== null) network.keepPolicy(slot, policy);
      const found = { id, bundle, slot, hasResident, isAttached: policy !== null };
      // Cells have no GPUs: the call that it was started for has no caller any more.
      const isSpare = made.gpus !== null && textOf(bundle, MARK) === null;
      const survivor = starting.has(bundle) || isSpare ? null : await this.#survivor(found);
      if (survivor === null) doomed.push({ id, slot, gpus: made.gpus });
      else survivors.push({ ...survivor, ...made });
    });
    return { survivors, doomed, unknown };
  }

  /** A1 to A3. Null when the container is not to live on. */
  async #survivor(leftover: Leftover): Promise<Omit<Survivor, "class" | "image" | "gpus"> | null> {
    const { id, bundle, slot, hasResident, isAttached } = leftover;
    const { clock, mode, places, network } = this.#options;
    const group = `${places.cgroup}/${id}`;
    const mark = textOf(bundle, MARK);
    if (mark === null && isAttached) return null;
    if (!network.isConnected(slot) || readOomKills(mode, group) > 0) return null;
    try {
      const processes = containerProcesses(mode, group);
      if ((processes.length !== 1 && !hasResident) || processes.filter(isInit).length !== 1) return null;
      const socket = `${bundle}/s`;
      const { client, nonce, ...found } = await MinitClient.connect(socket, LIMITS.adopt_wait_ms, clock);
      if (found.isIdle && found.hasResident === hasResident) {
        const resident = hasResident ? await taken(client, clock) : null;
        if (resident !== null || !hasResident) {
          const is_furnished = textOf(bundle, FURNISHED) !== null;
          return { id, slot, minit: client, resident, nonce, mark, is_furnished };
        }
      }
      client.close();
    } catch {
      // It ends just now, or nobody listens there, or not well enough.
    }
    return null;
  }
}

/** Takes over the open resident process of an instance. Null: it does not answer in time, or has ended. */
async function taken(minit: MinitClient, clock: Clock): Promise<Resident | null> {
  const resident = minit.take();
  const late = Promise.withResolvers<null>();
  const cancel = clock.after(LIMITS.adopt_wait_ms, () => late.resolve(null));
  try {
    return await Promise.race([resident.opened.then(() => resident), late.promise]);
  } catch {
    return null;
  } finally {
    cancel();
  }
}

/** Returns a short text that differs if containers of two processes are made differently. */
export function fingerprintOf(parts: readonly unknown[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

/** Returns true if the containers on the host have this fingerprint. If not, it removes the file (A4). */
export function isFingerprint(file: string, fingerprint: string): boolean {
  if (existsSync(file) && readFileSync(file, "utf8") === fingerprint) return true;
  rmSync(file, { force: true });
  return false;
}

export function writeFingerprint(file: string, fingerprint: string): void {
  writeFileSync(`${file}.new`, fingerprint, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

interface Configured extends Pick<Survivor, "class" | "image" | "gpus"> {
  /** NaN if the configuration cannot be read. */
  readonly uid: number;
  readonly hasResident: boolean;
}

/** Reads what the start wrote into the configuration. */
function configured(bundle: string): Configured {
  try {
    const config = JSON.parse(readFileSync(`${bundle}/config.json`, "utf8")) as {
      process: { user: { uid: number } };
      annotations?: Record<string, string>;
    };
    const { [CLASS_ANNOTATION]: key = "", [IMAGE_ANNOTATION]: image = "" } = config.annotations ?? {};
    const hasResident = config.annotations?.[RESIDENT_ANNOTATION] !== undefined;
    const gpus: GpuNote | null = JSON.parse(config.annotations?.[GPUS_ANNOTATION] ?? "null");
    return { uid: config.process.user.uid, class: key, image, hasResident, gpus };
  } catch {
    return { uid: Number.NaN, class: "", image: "", hasResident: false, gpus: null };
  }
}

/** Notes an attachment and its policy for a later process. Synchronous. Throws if there is one already. */
export function noteAttachment(bundle: string, policy: NetworkPolicy): void {
  writeFileSync(`${bundle}/${ATTACHED}`, JSON.stringify(policy), { flag: "wx", mode: 0o600 });
}

/** Reads what `noteAttachment` wrote; null if nothing was attached. */
function attachedPolicy(bundle: string): NetworkPolicy | null {
  const path = `${bundle}/${ATTACHED}`;
  if (!existsSync(path)) return null;
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return CLOSED_POLICY;
  }
}

function textOf(bundle: string, link: string): string | null {
  try {
    return readlinkSync(`${bundle}/${link}`);
  } catch {
    return null;
  }
}

/** Returns true if a process is the first of a pid namespace below this one (`NSpid`, proc_pid_status(5)). */
function isInit(pid: number): boolean {
  try {
    return /^NSpid:\t\d+\t(?:\d+\t)*1$/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
