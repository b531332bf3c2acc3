/**
 * The files of /etc that a container has of its own, in its subvolume beside its changes. Its disk limit bounds what it writes into
 * them: a full one cannot take the room of its log.
 */
import { chown, mkdir, readFile, truncate, unlink, writeFile } from "node:fs/promises";
import { together } from "../../base/concurrency.ts";
import { hostnameOf } from "../../base/container-environment.ts";
import { withoutRoom } from "../../base/errors.ts";
import { ETC_FILES, etcFiles } from "../bundles/etc-files.ts";
import type { EngineHost } from "../host/host.ts";
import type { NetworkSlot } from "../network/network.ts";
import type { ContainerSpec } from "../ports/containers.ts";
import type { Storage } from "../ports/storage.ts";
import { withRoom } from "./writable-root.ts";

/** Their directory, as the launcher sees it. */
export function etcOf(storage: Pick<Storage, "subvolume">, id: string): string {
  return `${storage.subvolume("containers", id)}/etc`;
}

/**
 * Writes them for the next run, for which the subvolume exists. What the container wrote into them or made of them in an earlier run
 * goes, its attributes and rights too. Rejects with CAPACITY_FULL.
 */
export async function writeEtc(host: EngineHost, spec: ContainerSpec, { address, user }: NetworkSlot): Promise<void> {
  const { id, name, network, dns } = spec;
  const { storage, resolv_conf, member_resolv_conf, launcherRoot } = host;
  const resolv = await readFile(network === null && !dns ? resolv_conf : member_resolv_conf, "utf8");
  const texts = etcFiles(hostnameOf(name), address, resolv);
  const directory = `${launcherRoot}${etcOf(storage, id)}`;
  const root = user?.first_id ?? 0;
  const write = async (file: (typeof ETC_FILES)[number]) => {
    const path = `${directory}/${file}`;
    await removeWithItsRoom(path);
    await writeFile(path, texts[file], { mode: 0o644 });
    if (root !== 0) await chown(path, root, root);
  };
  await withRoom(storage, id, async () => {
    try {
      await mkdir(directory, { recursive: true, mode: 0o755 });
      await together(...ETC_FILES.map(write));
    } catch (cause) {
      throw withoutRoom(cause);
    }
  });
}

/** Truncates first, which frees room. What the container made of a file may forbid that, as fs-verity does, and nothing forbids the removal. */
async function removeWithItsRoom(path: string): Promise<void> {
  await truncate(path).catch((error) => {
    if (withoutRoom(error) !== error) throw error;
  });
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  });
}
