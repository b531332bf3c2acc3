/**
 * Snapshots and containers as images and archives. Each reads a working copy of the files and removes it at the end.
 */
import type { Streamed } from "../base/answer.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { type ContainerRow, type ContainerSettings, settingsOf } from "../containers/service.ts";
import type { OpenFiles, SubvolumeName } from "../engine/ports.ts";
import { downloadArchive } from "../files/service.ts";
import type { OperationRecord } from "../operations/schema.ts";
import type { OperationContext, OperationResult, Operations } from "../operations/service.ts";
import type { Once } from "../store/store.ts";
import type { SnapshotRow } from "./rows.ts";
import { MOMENT, SNAPSHOT_KIND, type Snapshots, unfinished } from "./service.ts";
import type { Settling } from "./settling.ts";
import { WorkingCopies, type WorkingCopiesOptions } from "./working-copies.ts";

/** Makes an image of the files of a container that does not run: src/oci/commits.ts. */
export interface ImageMaker {
  check(tenant_id: string, reference: string): Promise<string>;
  make(
    request: {
      readonly tenant_id: string;
      readonly id: string;
      readonly reference: string;
      readonly signal: AbortSignal;
    } & Pick<ContainerSettings, "image_id" | "command" | "working_directory" | "user">,
  ): Promise<{ readonly reference: string; readonly image_id: string }>;
}

export interface ExportsOptions extends WorkingCopiesOptions {
  readonly snapshots: Snapshots;
  readonly settling: Settling;
  readonly operations: Operations;
  readonly images: ImageMaker;
}

interface Input {
  /** Null: the container as it is when the operation runs. */
  readonly snapshot_id: string | null;
  readonly container_id: string | null;
  readonly settings: ContainerSettings;
  readonly reference: string;
}

export class Exports {
  readonly #options: ExportsOptions;
  readonly #copies: WorkingCopies;

  constructor(options: ExportsOptions) {
    this.#options = options;
    this.#copies = new WorkingCopies(options);
    options.operations.register<Input>("snapshot.export", {
      resumable: true,
      cancellable: true,
      timeout_ms: LIMITS.build_ms,
      running_max: LIMITS.snapshot_operations_at_once,
      running_per_tenant_max: LIMITS.builds_per_tenant_max,
      run: (context) => this.#run(context),
    });
  }

  /** Makes an image of a snapshot. Throws INVALID_ARGUMENT, QUOTA_EXCEEDED, WRONG_STATE. */
  acceptSnapshot(tenant_id: string, row: SnapshotRow, reference: string, once: Once | null): Promise<OperationRecord> {
    const settings = containerSettings(row);
    const source = { snapshot_id: row.id, container_id: null, settings };
    return this.#accept(tenant_id, source, { type: "snapshot", id: row.id }, reference, once);
  }

  /** Makes an image of a container as it is. Throws INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  acceptContainer(
    tenant_id: string,
    row: ContainerRow,
    reference: string,
    once: Once | null,
  ): Promise<OperationRecord> {
    const source = { snapshot_id: null, container_id: row.id, settings: settingsOf(row) };
    return this.#accept(tenant_id, source, { type: "container", id: row.id }, reference, once);
  }

  /** Checks a request. `row`: null for a container. Throws INVALID_ARGUMENT, QUOTA_EXCEEDED, WRONG_STATE. */
  async check(tenant_id: string, row: SnapshotRow | null, reference: string): Promise<void> {
    if (row !== null) containerSettings(row);
    await this.#options.images.check(tenant_id, reference);
  }

  /** The files of a snapshot as tar, as a container or volume has them. Throws WRONG_STATE. */
  async archive(tenant_id: string, row: SnapshotRow): Promise<Streamed> {
    const { snapshots } = this.#options;
    if (row.volume_id !== null) return this.#volumeArchive(tenant_id, row);
    const { image_id } = containerSettings(row);
    const from: SubvolumeName = { kind: SNAPSHOT_KIND, id: row.id };
    const open = () => snapshots.using(tenant_id, row.id, () => this.#copies.open(tenant_id, from, image_id));
    return downloadArchive(open, "/", "tar");
  }

  /** Of a copy, too: the snapshot may be deleted while a client reads. */
  async #volumeArchive(tenant_id: string, { id: snapshot_id }: SnapshotRow): Promise<Streamed> {
    const { snapshots, engine, ids } = this.#options;
    const copy: SubvolumeName = { kind: SNAPSHOT_KIND, id: ids.next(MOMENT) };
    const remove = () => void snapshots.discardParts([copy.id]);
    await snapshots.using(tenant_id, snapshot_id, () =>
      engine.storage.snapshot({ kind: SNAPSHOT_KIND, id: snapshot_id }, copy, true, null, tenant_id),
    );
    try {
      const root = engine.storage.subvolume(copy.kind, copy.id);
      const { session, close } = await engine.files.open(tenant_id, root, 0);
      const open = async (): Promise<OpenFiles> => ({
        session,
        close: () => {
          close();
          remove();
        },
      });
      return await downloadArchive(open, "/", "tar");
    } catch (error) {
      remove();
      throw error;
    }
  }

  /** Throws INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  async #accept(
    tenant_id: string,
    source: Omit<Input, "reference">,
    target: { readonly type: string; readonly id: string },
    text: string,
    once: Once | null,
  ): Promise<OperationRecord> {
    const reference = await this.#options.images.check(tenant_id, text);
    const input: Input = { ...source, reference };
    return this.#options.operations.accept(tenant_id, { type: "snapshot.export", target, input, once });
  }

  /** Waits for a snapshot that is being taken, unless the client goes. Throws NOT_FOUND, INVALID_ARGUMENT, QUOTA_EXCEEDED, WRONG_STATE. */
  async checkImage(tenant_id: string, snapshot_id: string, reference: string, signal: AbortSignal): Promise<void> {
    await this.check(tenant_id, await this.#options.settling.row(tenant_id, snapshot_id, signal), reference);
  }

  /** Makes an image of a snapshot. Throws as the import of an image does. */
  async makeImage(tenant_id: string, snapshot_id: string, reference: string, signal: AbortSignal) {
    const settings = containerSettings(await this.#options.snapshots.held(tenant_id, snapshot_id));
    return this.#make(tenant_id, { snapshot_id, container_id: null, settings, reference }, signal);
  }

  async #run({ tenant_id, input, signal }: OperationContext<Input>): Promise<OperationResult> {
    return { result: await this.#make(tenant_id, input, signal), message: "image made" };
  }

  async #make(
    tenant_id: string,
    { snapshot_id, container_id, settings, reference }: Input,
    signal: AbortSignal,
  ): Promise<{ readonly reference: string; readonly image_id: string }> {
    const { snapshots, images } = this.#options;
    const id =
      snapshot_id === null
        ? await this.#copies.make(tenant_id, { kind: "containers", id: container_id ?? "" })
        : await snapshots.using(tenant_id, snapshot_id, () =>
            this.#copies.make(tenant_id, { kind: SNAPSHOT_KIND, id: snapshot_id }),
          );
    try {
      const { image_id, command, working_directory, user } = settings;
      return await images.make({
        ...{ tenant_id, id, image_id, command, working_directory, user, reference, signal },
      });
    } finally {
      void this.#copies.remove(id);
    }
  }
}

/** Throws INVALID_ARGUMENT for a snapshot of a volume, WRONG_STATE while it is made. */
function containerSettings({ details, state }: SnapshotRow): ContainerSettings {
  if (details.settings === null) {
    throw new AppError("INVALID_ARGUMENT", "the snapshot is of a volume: it has no image", {
      hint: "export it as tar",
    });
  }
  if (state !== "ready") throw unfinished({ state });
  return details.settings;
}
