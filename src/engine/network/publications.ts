/**
 * Ports of this machine that hearth daemons lead into containers, read from the kernel. A rule outranks whatever process
 * listens on the port, and no process sees it: binding the port succeeds.
 */
import type { LauncherClient } from "../launcher/launcher.ts";
import type { Publication } from "../ports/containers.ts";

const COMMAND_TIMEOUT_MS = 10_000;
/** The maps of rules.ts that lead into containers. */
const MAPS = ["on_loopback", "on_all"];

interface Listing {
  readonly nftables: readonly {
    readonly map?: { readonly name: string; readonly table: string; readonly elem?: readonly (readonly Concat[])[] };
  }[];
}
interface Concat {
  readonly concat?: readonly (string | number)[];
}

/** Reads the publications of all daemons on this machine, this one included. */
export async function readPublications(client: Pick<LauncherClient, "run">): Promise<readonly Publication[]> {
  const text = await client.run(["nft", "-j", "list", "maps", "inet"], COMMAND_TIMEOUT_MS);
  const { nftables } = JSON.parse(text) as Listing;
  return nftables.flatMap(({ map }) => {
    if (map === undefined || !map.table.startsWith("hearth_") || !MAPS.includes(map.name)) return [];
    return (map.elem ?? []).map(([from, to]) => ({
      table: map.table,
      protocol: String(from?.concat?.[0]),
      host_port: Number(from?.concat?.[1]),
      target: (to?.concat ?? []).join(":"),
    }));
  });
}
