/**
 * Probes whether containers with user namespaces work on this machine: starts one as every other is started, writes files
 * into its root and its volume, and checks their owners on the disk. Removes everything afterwards.
 */
import { readFileSync } from "node:fs";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { bareSpec, writeContainerConfig } from "../bundles/container.ts";
import { remainsOf } from "../host/adoption.ts";
import type { EngineHost } from "../host/host.ts";
import type { MountedImage } from "../images/image-store.ts";
import { ControlConnection } from "../minit/container-client.ts";
import type { Filter } from "../oci/filters.ts";
import { OciRuntime } from "../oci/runtime.ts";
import { writeEtc } from "./own-etc.ts";
import type { RunFiles } from "./run-files.ts";
import type { ContainerStarter, StartParts } from "./starter.ts";

/** The container's id. */
export const PROBE = "user-namespace-probe";
/** Mount point of the container's own subvolume, in place of a volume's: one subvolume less to make. */
const VOLUME = "/volume";
const FILE = "/probe";

export interface ProbeParts {
  readonly host: EngineHost;
  readonly starter: ContainerStarter;
  readonly files: RunFiles;
}

/** Rejects with the reason why they do not work. `run`: the container's name on the machine. */
export async function probeUserNamespaces(
  parts: ProbeParts,
  run: string,
  image: MountedImage,
  filter: Filter,
): Promise<void> {
  const { host, starter, files } = parts;
  const { storage } = host;
  const slot = await host.acquire();
  try {
    // The slot's own was refused, and with it the question is answered.
    if (slot.user === null) throw new AppError("INTERNAL", host.users.info.reason ?? "no user namespace created");
    await storage.remove("containers", PROBE);
    await storage.create("containers", PROBE, null);
    await writeEtc(host, bareSpec(PROBE), slot);
    await files.prepare(PROBE);
    const { layers: lower, reference } = image;
    if (lower.length === 0) throw new AppError("START_FAILED", `unknown layers of ${reference}`);
    const rootfs = await starter.mount(await host.launcher(), PROBE, { lower, user: slot.user });
    await look(
      parts,
      await start(parts, run, { image, rootfs, slot, filter, gpus: null, socket: null }),
      slot.user.first_id,
    );
  } finally {
    await starter.unmount(PROBE);
    await host.within(
      LIMITS.removal_wait_ms,
      host.discard({ ...remainsOf(host.containers, run, true), cgroup: host.tenants.path(run) }, slot),
    );
    const failed = (error: unknown) => host.options.log.warn("cannot remove the probe", { error: errorText(error) });
    await storage.remove("containers", PROBE).catch(failed);
    await files.forget(PROBE).catch(failed);
  }
}

/** Resolves to the first process's pid. Not by way of a thread, where a test's failpoints are for containers. */
async function start({ host, starter }: ProbeParts, run: string, taken: StartParts): Promise<number> {
  const { spec, placement, bundle, handover } = starter.task(bareSpec(PROBE), run, taken);
  const { command, version } = host.runtime;
  const { clock } = host.options;
  const mounts = [{ source: host.storage.subvolume("containers", PROBE), target: VOLUME }];
  writeContainerConfig(bundle, spec, { ...placement, mounts });
  const runtime = new OciRuntime(() => host.launcher(), command, version, host.containers.runtime);
  await runtime.run(run, bundle, handover, LIMITS.start_timeout_ms);
  const control = await ControlConnection.connect(handover.listen_path, LIMITS.start_timeout_ms, clock);
  control.close();
  return Number(readFileSync(`${bundle}/pid`, "utf8"));
}

async function look({ host: { storage, files } }: ProbeParts, pid: number, first_id: number): Promise<void> {
  const map = readFileSync(`/proc/${pid}/uid_map`, "utf8").trim().split(/\s+/).map(Number);
  if (map.join() !== [0, first_id, LIMITS.user_namespace_ids].join()) {
    throw new AppError("INTERNAL", `the container's ids are mapped ${map.join(" ")}`);
  }
  const last_id = LIMITS.user_namespace_ids - 1;
  await files.with(PROBE, `/proc/${pid}/root`, first_id, async (session) => {
    for (const path of [FILE, `${VOLUME}${FILE}`]) {
      await session.write(path, Buffer.from(PROBE), { uid: last_id, gid: 0 });
      const { uid, gid } = await session.stat(path);
      if (uid !== last_id || gid !== 0) throw new AppError("INTERNAL", `${path} is ${uid}:${gid} inside`);
    }
  });
  await files.with(PROBE, storage.subvolume("containers", PROBE), 0, async (session) => {
    for (const path of [`/upper${FILE}`, FILE]) {
      const { uid, gid } = await session.stat(path);
      if (uid !== last_id || gid !== 0) throw new AppError("INTERNAL", `${path} is ${uid}:${gid} on the disk`);
    }
  });
}
