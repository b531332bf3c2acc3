/** `hearth status`: one screen of whether the daemon is well, what it is and what its pool does. */
import { counted } from "../../base/plurals.ts";
import { visible } from "../output/text.ts";
import { span, stamp } from "../output/time.ts";
import type { Session } from "../session/session.ts";

interface System {
  readonly gpu_count: number;
  readonly gpu_free_count: number;
  readonly gpus: readonly { readonly gpu_id: string; readonly holder_id: string | null }[];
  readonly gpu_warnings: readonly string[];
}

/** The operator sees each GPU, a tenant those that it holds. */
function gpusOf({ gpu_count, gpu_free_count, gpus, gpu_warnings }: System): string {
  const named = gpus.map(({ gpu_id, holder_id }) =>
    holder_id === null ? `${gpu_id} free` : `${gpu_id} in ${holder_id}`,
  );
  const faults = gpu_warnings.length === 0 ? [] : [counted(gpu_warnings.length, "warning")];
  return [`${gpu_free_count} of ${gpu_count} free`, ...named, ...faults].join(", ");
}

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
        ...(system.gpu_count + system.gpu_warnings.length === 0 ? [] : ([["gpus", gpusOf(system)]] as const)),
        ...system.gpu_warnings.map((warning) => ["gpu warning", visible(warning)] as const),
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
