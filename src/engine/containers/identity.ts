/**
 * The machine id of a container: a copy gets one of its own. Only files that the container itself wrote are replaced; the
 * files of an image are the same in each of its containers.
 */
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import type { EngineHost } from "../host/host.ts";

/** machine-id(5): 32 hexadecimal digits and a newline. */
const machineId = (): Buffer => Buffer.from(`${randomBytes(16).toString("hex")}\n`);
/** As large as the kernel's pool, which is what systemd keeps. */
const SEED_BYTES = 512;

const OWN: readonly { readonly path: string; readonly mode: number; readonly content: () => Buffer }[] = [
  { path: "/etc/machine-id", mode: 0o444, content: machineId },
  { path: "/var/lib/dbus/machine-id", mode: 0o444, content: machineId },
  { path: "/var/lib/systemd/random-seed", mode: 0o600, content: () => randomBytes(SEED_BYTES) },
];

/** Renews the files of a container that does not run. */
export async function renewIdentity(host: EngineHost, tenant_id: string, id: string): Promise<void> {
  const upper = `${host.storage.subvolume("containers", id)}/upper`;
  const launcher = await host.launcher();
  const modes = await Promise.all(OWN.map(({ path }) => launcher.lstatInRoot(upper, path)));
  // An empty machine-id is filled at the first boot, by the container itself.
  const own = OWN.filter((_, i) => ((modes[i] ?? 0) & constants.S_IFMT) === constants.S_IFREG);
  if (own.length === 0) return;
  await host.files.with(tenant_id, upper, 0, async (session) => {
    for (const { path, mode, content } of own) await session.write(path, content(), { mode });
  });
}
