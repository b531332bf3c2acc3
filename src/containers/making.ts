/**
 * Notes new containers: the row of one that is requested or copied, with every check in the batch that inserts it. The same
 * checks tell before a profile is built whether a request would be refused.
 */
import { type Guard, ROLLBACK } from "../store/store.ts";
import { type Admission, insertChecks, type ResolvedImage, restingChecks } from "./admission.ts";
import { type ContainerChanges, eventOf } from "./events.ts";
import type { ImageLookups } from "./image-lookups.ts";
import { type ImageSettings, imageSettings } from "./image-settings.ts";
import { checkName } from "./network/schema.ts";
import type { ContainersOptions } from "./options.ts";
import { type ContainerCopy, type ContainerRow, NEVER_STARTED, optionalFields, STARTING } from "./rows.ts";
import { type CreateContainer, parseMount } from "./schema.ts";

export interface MakingOptions extends ContainersOptions {
  readonly admission: Admission;
  readonly changes: ContainerChanges;
  readonly images: ImageLookups;
  /** Begins to look at a container that was noted. */
  watch(row: ContainerRow): void;
}

type Image = Omit<ResolvedImage, "image_id"> & { readonly image_id: string; readonly settings: ImageSettings };

export class Making {
  readonly #options: MakingOptions;

  constructor(options: MakingOptions) {
    this.#options = options;
  }

  /**
   * Throws what `insert` would throw, and changes nothing: for a request whose image is to be built yet. Names, volumes,
   * ports and limits may be others' by the time of the insertion, which therefore checks them again.
   */
  async check(tenant_id: string, input: CreateContainer): Promise<void> {
    const { store, ids, ports } = this.#options;
    const id = ids.next("ctr");
    const image = { reference: input.image, release: null, image_id: "", use: null };
    const row = await this.#row(tenant_id, input, id, () =>
      Promise.resolve({ ...image, settings: imageSettings(input, null) }),
    );
    try {
      const checks = insertChecks(this.#options.admission, row, image);
      const { conflict } = await store.write([...checks.map(({ statement }) => statement), ROLLBACK]);
      const missed = conflict === null ? undefined : checks[conflict];
      if (missed !== undefined) throw missed.refusal();
    } finally {
      ports.release(id);
    }
  }

  /**
   * Notes a container in state `starting`. Nothing of it is there yet. Throws NAME_TAKEN, INVALID_ARGUMENT, NOT_FOUND (a
   * volume, an image), PORT_TAKEN, QUOTA_EXCEEDED, CAPACITY_FULL.
   */
  async insert(tenant_id: string, input: CreateContainer, id: string): Promise<ContainerRow> {
    let use: Guard | null = null;
    const row = await this.#row(tenant_id, input, id, async () => {
      const { resolved, image_id, settings } = await this.#options.images.of(tenant_id, input);
      use = resolved.use;
      return { ...resolved, image_id, settings };
    });
    await this.#insert(row, insertChecks(this.#options.admission, row, { use }));
    return row;
  }

  /**
   * Notes a copy of a container, whose files are there, in state `created`. Throws NAME_TAKEN, PORT_TAKEN, NOT_FOUND (a
   * volume), QUOTA_EXCEEDED, CAPACITY_FULL.
   */
  async insertCopy(tenant_id: string, { ports, ...copy }: ContainerCopy, id: string): Promise<void> {
    const { node, clock, quotas, admission } = this.#options;
    // Snapshots of earlier versions have neither.
    const { network = null, dns = false } = copy;
    checkName({ name: copy.name, network, dns });
    const row: ContainerRow = {
      ...copy,
      ...{ network, dns },
      id,
      tenant_id,
      node_seq: node.seq,
      disk_limit_mb: quotas.diskLimitMb(tenant_id, copy.disk_limit_mb),
      ports: await this.#options.ports.claim(tenant_id, id, ports),
      state: "created",
      is_wanted: false,
      ...NEVER_STARTED,
      created_at_ms: clock.epochMs(),
    };
    await this.#insert(row, restingChecks(admission, row));
  }

  /** The row of a container that is requested, with its ports claimed. */
  async #row(tenant_id: string, input: CreateContainer, id: string, find: () => Promise<Image>): Promise<ContainerRow> {
    const { node, clock, volumes, quotas, engine, ports } = this.#options;
    await engine.gpus.check(tenant_id, input);
    const { reference, release, image_id, settings } = await find();
    const mounts = input.volumes.map((text) => parseMount(text)).filter((one) => one !== null);
    const found = await Promise.all(mounts.map(({ volume }) => volumes.held(tenant_id, volume)));
    return {
      ...input,
      id,
      tenant_id,
      node_seq: node.seq,
      ...{ image: reference, image_id, release },
      ...settings,
      ...optionalFields(input),
      disk_limit_mb: quotas.diskLimitMb(tenant_id, input.disk_limit_mb),
      volumes: found.map(({ id }, i) => ({ id, target: mounts[i]?.target ?? "" })),
      ...STARTING,
      created_at_ms: clock.epochMs(),
      ports: await ports.claim(tenant_id, id, input.ports),
    };
  }

  async #insert(row: ContainerRow, checks: readonly Guard[]): Promise<void> {
    const { changes, ports, watch } = this.#options;
    await changes.writeAll(checks, eventOf(row, "created", row.state)).catch((error) => {
      ports.release(row.id);
      throw error;
    });
    watch(row);
  }
}
