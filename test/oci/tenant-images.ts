/** Tenants' images on a store of a test, over an image store that only remembers what it keeps. */
import { systemClock } from "../../src/base/clock.ts";
import { temporaryFiles } from "../../src/base/reservations.ts";
import type { Images } from "../../src/engine/ports.ts";
import { Events } from "../../src/events/service.ts";
import { detailsOf } from "../../src/oci/image-config.ts";
import { machinePlatform } from "../../src/oci/platform.ts";
import type { ImageContent } from "../../src/oci/rows.ts";
import { TenantImages } from "../../src/oci/service.ts";
import type { Disk } from "../../src/oci/unused-images.ts";
import type { Store } from "../../src/store/store.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { quietLog } from "../store/scratch.ts";

export const MEGABYTE = 1024 * 1024;
export const TENANTS = ["default", "a", "b"];

/** 64 digits that begin with `mark`. */
export const idOf = (mark: string): string => mark.padEnd(64, "0");

export interface Made {
  readonly mark: string;
  readonly size_mb?: number;
  readonly architecture?: string;
}

/** What an image consists of; `mark` are hexadecimal digits. */
export function content({ mark, size_mb = 5, architecture = machinePlatform().architecture }: Made): ImageContent {
  const config_json = JSON.stringify({
    architecture,
    os: "linux",
    created: "2026-01-02T03:04:05Z",
    config: { Cmd: ["/bin/sh"], Env: ["A=1"], ExposedPorts: { "80/tcp": {} } },
    history: [{ created_by: "COPY a" }, { created_by: "ENV A=1", empty_layer: true }],
  });
  const layer = { size_bytes: 1_000, uncompressed_size: size_mb * MEGABYTE, media_type: "application/x" };
  return {
    image_id: idOf(mark),
    manifest_digest: `sha256:${idOf(`f${mark}`)}`,
    size_bytes: size_mb * MEGABYTE,
    details: detailsOf(config_json),
    layers: [{ digest: `sha256:${idOf(`e${mark}`)}`, ...layer }],
    manifest_json: '{"schemaVersion":2}',
    config_json,
  };
}

/** `images`: another image store. */
export async function makeImages(
  store: Store,
  own?: Images,
  {
    disk = null,
    disk_free_bytes_min = 1,
  }: { readonly disk?: (() => Disk) | null; readonly disk_free_bytes_min?: number } = {},
) {
  const insert = "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 0)";
  await store.write(TENANTS.map((id) => ({ sql: insert, args: [id, id] })));
  const state = {
    ...{ kept: [] as string[][], used: [] as string[], failure: null as Error | null },
    /** Percent of the disk that is in use, and what an image that goes frees. */
    ...{ disk_percent: 0, percent_each: 0, clock_ms: systemClock.epochMs() },
  };
  const port = {
    pinned: { id: "pinned" },
    isRelease: async () => true,
    onIdle: () => {},
    keep: async (read: () => Promise<ReadonlySet<string>>) => {
      if (state.failure !== null) throw state.failure;
      const ids = await read();
      const before = state.kept.at(-1)?.length ?? ids.size;
      state.disk_percent -= state.percent_each * Math.max(0, before - ids.size);
      state.kept.push([...ids].sort());
    },
  };
  const quotas = nodeQuotas();
  const images = new TenantImages({
    store,
    events: new Events({ store, clock: systemClock, log: quietLog }),
    clock: { ...systemClock, epochMs: () => state.clock_ms } as typeof systemClock,
    log: quietLog,
    quotas,
    images: () => own ?? (port as unknown as Images),
    readDisk: disk ?? (() => ({ size_bytes: 100, used_bytes: state.disk_percent })),
    disk_percent_max: 90,
    disk_free_bytes_min,
    temporary: temporaryFiles(quotas, 100_000),
    used: async () => state.used,
  });
  return { store, images, quotas, state };
}

/** A row of a container, as far as images matter. */
export function container(id: string, tenant_id: string, image_id: string, release: string | null = null) {
  return {
    sql: `INSERT INTO containers (id, tenant_id, name, state, is_wanted, is_removing, make, memory_limit_mb, labels,
      environment, oom_killed, restart_count, created_at_ms, node_seq)
      VALUES (?, ?, ?, 'exited', 1, 0, ?, 1, '{}', '{}', 0, 0, 1, 1)`,
    args: [id, tenant_id, id, JSON.stringify({ image_id, release })],
  };
}
