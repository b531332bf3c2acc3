/** `hearth status`: one screen of whether the daemon is well, what it is and what its pool does. */

import { span, stamp } from "../output/time.ts";
import type { Session } from "../session/session.ts";

export async function status(session: Session): Promise<void> {
  const client = session.client();
  const health = await client.request("GET /health");
  const [system, pool] = await Promise.all([
    client.request("GET /api/system/info"),
    client.request("GET /api/functions/pool/stats"),
  ]);
  const { target } = session;
  const { paint } = session.terminal;
  session.show({ health, system, pool }, () => {
    const { engine } = system;
    const head = `${paint("bold", `hearth ${system.version}`)} is ${paint("green", health.status)} at ${target.url}\n`;
    const instances = `${pool.total_count}: ${pool.busy_count} busy, ${pool.ready_count} ready, ${pool.warming_count} warming`;
    return (
      head +
      session.list([
        ["address", `from ${target.url_source}`],
        ["key", `from ${target.key_source}`],
        ["up", `${span(health.uptime_seconds)}, since ${stamp(system.start_time)}`],
        ["node", `${system.node_id}, ${system.runtime}, Node ${system.node_version}`],
        ["engine", `${engine.oci_runtime_version}, cgroup ${engine.cgroup_mode}`],
        ["image", engine.image],
        ["network", `${engine.subnet} on ${engine.bridge}`],
        ["instances", instances],
        ["queued", String(pool.queued)],
        ...(pool.cells === undefined
          ? []
          : ([
              ["cells", `${pool.cells} ready, ${pool.cells_starting} starting`],
              ["cold calls", `${pool.cell_hit_count} with a ready cell, ${pool.cell_miss_count} without`],
            ] as const)),
      ])
    );
  });
}
