/** What a container's row says, as the engine wants to know it. */
import type { ContainerPlan } from "../engine/ports.ts";
import { egressOf } from "./network/schema.ts";
import type { ContainerRow } from "./rows.ts";

export function planOf(row: ContainerRow): ContainerPlan {
  const { make } = row;
  return {
    id: row.id,
    tenant_id: row.tenant_id,
    image: imageOf(row),
    hostname: hostnameOf(row.name),
    argv: make.command,
    environment: Object.entries(row.environment).map(([name, value]) => `${name}=${value}`),
    working_directory: make.working_directory,
    memory_limit_mb: row.memory_limit_mb,
    cpu_limit_percent: row.cpu_limit_percent,
    disk_limit_mb: make.disk_limit_mb,
    strict: make.strict,
    read_only_root: make.read_only_root,
    network: { egress: egressOf(make.egress), ports: make.ports },
    volumes: make.volumes,
  };
}

/** The image that a container's root lies on: it stays the same when its reference comes to stand for another. */
export function imageOf({ make }: ContainerRow): string {
  return make.image_id ?? make.image;
}

/** What of a name can be a host's: letters, digits and dashes, at most 63 (RFC 1123). */
export function hostnameOf(name: string): string {
  return (
    name
      .replace(/[^a-zA-Z0-9-]+/g, "-")
      .replace(/^-+/, "")
      .slice(0, 63)
      .replace(/-+$/, "") || "container"
  );
}
