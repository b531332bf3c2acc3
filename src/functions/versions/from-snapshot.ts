/**
 * Versions whose files are those of a snapshot: what was tried by hand in a container becomes a function. The snapshot is
 * made an image of the tenant, so that instances of the version start from prepared cells like those of any other image.
 */
import type { Scope } from "../../base/caller.ts";
import { LIMITS } from "../../base/limits.ts";
import type { OperationRecord } from "../../operations/schema.ts";
import type { OperationContext, OperationResult, Operations } from "../../operations/service.ts";
import type { Once } from "../../store/store.ts";
import type { Author } from "../parts.ts";
import type { Functions } from "../service.ts";
import type { SnapshotVersion } from "./schema.ts";

/** The part of the concern of snapshots that versions use. */
export interface SnapshotImages {
  /** Throws NOT_FOUND, INVALID_ARGUMENT for a snapshot of a volume, WRONG_STATE while it is made, QUOTA_EXCEEDED. */
  checkImage(tenant_id: string, snapshot_id: string, reference: string, signal: AbortSignal): Promise<void>;
  /** Makes an image of a snapshot. Throws as an import of an image does. */
  makeImage(
    tenant_id: string,
    snapshot_id: string,
    reference: string,
    signal: AbortSignal,
  ): Promise<{ readonly reference: string; readonly image_id: string }>;
}

export interface SnapshotVersionsOptions {
  readonly functions: Functions;
  readonly operations: Operations;
  readonly snapshots: SnapshotImages;
}

interface Input {
  readonly function_id: string;
  readonly key_id: string;
  /** Absent: an earlier program accepted the request. */
  readonly scopes?: readonly Scope[];
  readonly reference: string;
  readonly version: SnapshotVersion;
}

export class SnapshotVersions {
  readonly #options: SnapshotVersionsOptions;

  constructor(options: SnapshotVersionsOptions) {
    this.#options = options;
    options.operations.register<Input>("function.version", {
      resumable: true,
      cancellable: true,
      timeout_ms: LIMITS.build_ms,
      running_max: LIMITS.snapshot_operations_at_once,
      running_per_tenant_max: LIMITS.builds_per_tenant_max,
      run: (context) => this.#run(context),
    });
  }

  /** Throws NOT_FOUND, INVALID_ARGUMENT, WRONG_STATE, QUOTA_EXCEEDED. */
  async accept(
    { tenant_id, key_id, scopes }: Author,
    function_id: string,
    version: SnapshotVersion,
    { once, signal }: { readonly once: Once | null; readonly signal: AbortSignal },
  ): Promise<OperationRecord> {
    const { functions, snapshots, operations } = this.#options;
    const { id } = await functions.get(tenant_id, function_id);
    // One reference for each snapshot of a function: the same request again makes the same image.
    const reference = `localhost/functions/${id.replaceAll("_", "-")}:${version.snapshot_id}`;
    await snapshots.checkImage(tenant_id, version.snapshot_id, reference, signal);
    const input: Input = { function_id: id, key_id, scopes, reference, version };
    const target = { type: "function", id };
    return operations.accept(tenant_id, { type: "function.version", target, input, once });
  }

  async #run(context: OperationContext<Input>): Promise<OperationResult> {
    const { functions, snapshots } = this.#options;
    const { tenant_id, input, signal } = context;
    const { function_id, key_id, scopes = [], reference, version } = input;
    const { snapshot_id, ...fields } = version;
    if (context.done("image") === undefined) {
      await snapshots.makeImage(tenant_id, snapshot_id, reference, signal);
      await context.finish("image");
    }
    const done = context.done("version") as { readonly version: number } | undefined;
    if (done !== undefined) return resultOf(function_id, done.version, reference);
    signal.throwIfAborted();
    const update = { ...fields, image: reference, oci: true };
    const made = await functions.versions.update({ tenant_id, key_id, scopes }, function_id, update, context);
    await context.finish("version", { version: made.current_version });
    return resultOf(function_id, made.current_version, reference);
  }
}

const resultOf = (function_id: string, version: number, image: string): OperationResult => ({
  result: { function_id, version, image },
  message: `version ${version} made`,
});
