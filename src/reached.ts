/** The check that connections to this daemon's listeners arrive here, and in no container. */
import { AppError } from "./base/errors.ts";
import type { HostPorts } from "./containers/network/ports.ts";
import type { Reachable } from "./http/server.ts";

/**
 * Throws PORT_TAKEN where connections to a listener's address arrive elsewhere: at a container that has published the
 * port, which would receive the keys of clients. Names whose it is.
 */
export async function checkReached(
  listener: Reachable,
  ports: HostPorts,
  { host_tag, setting }: { readonly host_tag: string; readonly setting: "HEARTH_LISTEN" | "HEARTH_SERVICES_LISTEN" },
): Promise<void> {
  const unreached = await listener.unreached();
  if (unreached === null) return;
  const { port } = listener;
  const holder = (await ports.publications()).find((one) => one.protocol === "tcp" && one.host_port === port);
  const container_id = ports.ownerOf({ protocol: "tcp", host_port: port });
  const whose =
    holder === undefined
      ? "another process or a packet filter rule takes it"
      : holder.table === `hearth_${host_tag}`
        ? `container ${container_id ?? holder.target} of this daemon publishes it`
        : `the container at ${holder.target} of the hearth daemon ${holder.table} publishes it`;
  throw new AppError("PORT_TAKEN", `${unreached.address}:${port} does not reach this daemon: ${whose}`, {
    hint: `delete that container, or set another ${setting}`,
  });
}
