/**
 * Series of what containers share on this node. They are read when the metrics are asked for, each source once for all
 * readers at that time. A source that fails has no samples, and the other series stay.
 */
import { Counter, Gauge, type Registry } from "prom-client";

export interface MachineSources {
  /** API containers by state. */
  readonly containers: () => Promise<ReadonlyMap<string, number>>;
  /** Size and usage of the storage pool. */
  readonly storage: () => Promise<{ readonly size_mb: number; readonly used_mb: number; readonly free_mb: number }>;
  /** References of all tenants, and unpacked bytes of their images, each image once. */
  readonly images: () => Promise<{ readonly count: number; readonly size_bytes: number }>;
  /** Size and usage of the disk of the image store. */
  readonly image_disk: () => { readonly size_bytes: number; readonly used_bytes: number };
  readonly connections: () => { readonly used_count: number; readonly count_max: number };
  /** GPUs of this machine, and those that containers and instances hold. */
  readonly gpus: () => Promise<{ readonly count: number; readonly held_count: number }>;
  /** Packets that were dropped because of the bounds of tracked connections. */
  readonly flows_refused: () => Promise<number>;
}

const MEGABYTE = 1024 * 1024;

export function addMachineSeries(registry: Registry, sources: MachineSources): void {
  const registers = [registry];
  const gauge = (name: string, help: string, read: () => Promise<number>) => {
    const series: Gauge = new Gauge({
      name,
      help,
      registers,
      async collect() {
        series.remove();
        const value = await read().catch(() => null);
        if (value !== null) series.set(value);
      },
    });
  };
  const containers = new Gauge({
    name: "hearth_containers",
    help: "API containers of all tenants, by state.",
    labelNames: ["state"],
    registers,
    async collect() {
      const counts = await sources.containers().catch(() => new Map<string, number>());
      containers.reset();
      for (const [state, count] of counts) containers.set({ state }, count);
    },
  });
  const storage = shared(sources.storage);
  gauge("hearth_storage_size_bytes", "Size of the storage pool.", async () => (await storage()).size_mb * MEGABYTE);
  const written = "Bytes used by containers, volumes and code in the storage pool.";
  gauge("hearth_storage_used_bytes", written, async () => (await storage()).used_mb * MEGABYTE);
  const left = "Free bytes for containers, volumes and code in the storage pool.";
  gauge("hearth_storage_free_bytes", left, async () => (await storage()).free_mb * MEGABYTE);
  const images = shared(sources.images);
  gauge("hearth_images", "References to images of all tenants.", async () => (await images()).count);
  const unpacked = "Unpacked bytes of the images of all tenants, each image once.";
  gauge("hearth_images_size_bytes", unpacked, async () => (await images()).size_bytes);
  const image_disk = shared(async () => sources.image_disk());
  const disk = "Size of the disk of the image store.";
  gauge("hearth_image_disk_size_bytes", disk, async () => (await image_disk()).size_bytes);
  const filled = "Used bytes of the disk of the image store; HEARTH_IMAGE_DISK_PERCENT evicts images above a share.";
  gauge("hearth_image_disk_used_bytes", filled, async () => (await image_disk()).used_bytes);
  const tracked = "Tracked connections of this machine.";
  gauge("hearth_tracked_connections", tracked, async () => sources.connections().used_count);
  const bound = "The kernel's limit of tracked connections.";
  gauge("hearth_tracked_connections_max", bound, async () => sources.connections().count_max);
  const gpus = shared(sources.gpus);
  gauge("hearth_gpus", "GPUs that the CDI files of this node describe.", async () => (await gpus()).count);
  const held = "GPUs that containers and instances hold.";
  gauge("hearth_gpus_held", held, async () => (await gpus()).held_count);
  const refused = new Counter({
    name: "hearth_connection_packets_refused_total",
    help: "Packets dropped above the connection limits, since the rules were installed.",
    registers,
    async collect() {
      const count = await sources.flows_refused().catch(() => null);
      refused.remove();
      if (count !== null) refused.inc(count);
    },
  });
}

/** Returns a reader whose callers share a read under way. */
export function shared<Result>(read: () => Promise<Result>): () => Promise<Result> {
  const state: { reading: Promise<Result> | null } = { reading: null };
  return () => {
    state.reading ??= read().finally(() => {
      state.reading = null;
    });
    return state.reading;
  };
}
