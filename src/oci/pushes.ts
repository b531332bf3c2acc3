/**
 * Pushes: operations that export an image of the tenant, or one that the operator shares, and upload it to a registry. buildah
 * writes files and reaches no network; registry/uploads.ts alone speaks with the registry.
 *
 * U1. Credentials of a request live in this process only, as those of a pull. Stored ones are read when the push runs.
 * U2. A push that a restart ended begins again: what the registry has by then is not sent again.
 * U3. The manifest is sent last, so a tag never names an image whose layers the registry lacks.
 */
import { createReadStream } from "node:fs";
import type { Caller } from "../base/caller.ts";
import type { Clock } from "../base/clock.ts";
import { each } from "../base/concurrency.ts";
import { AppError, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { ExportedImage, Images } from "../engine/ports.ts";
import type { Events } from "../events/service.ts";
import type { OperationRecord } from "../operations/schema.ts";
import type { OperationContext, OperationResult, Operations } from "../operations/service.ts";
import type { RegistryCredentials } from "./credentials/service.ts";
import { MANIFEST_TYPE, manifestOf } from "./exported-image.ts";
import { progressTeller } from "./progress.ts";
import { type ImageReference, parseOwnReference, parseReference, referenceText } from "./reference.ts";
import { digestOf } from "./registry/client.ts";
import type { Credentials, RegistryGateway } from "./registry/gateway.ts";
import type { Blob, RegistryUploads } from "./registry/uploads.ts";
import type { PushImage } from "./schema.ts";
import type { TenantImages } from "./service.ts";

/** Part of a request that its operation keeps. */
interface Asked {
  /** Complete. */
  readonly reference: string;
  readonly target: string;
  readonly is_operator: boolean;
}

export interface PushesOptions {
  readonly tenant_images: TenantImages;
  /** There when the engine has booted. */
  readonly images: () => Images;
  readonly gateway: RegistryGateway;
  readonly registry_credentials: RegistryCredentials;
  readonly operations: Operations;
  readonly events: Events;
  readonly clock: Clock;
  readonly log: Log;
}

export class Pushes {
  readonly #options: PushesOptions;

  constructor(options: PushesOptions) {
    this.#options = options;
    options.operations.register<Asked>("oci.push", {
      resumable: true,
      cancellable: true,
      timeout_ms: LIMITS.image_push_ms,
      running_max: LIMITS.image_pushes_max,
      running_per_tenant_max: LIMITS.image_pushes_per_tenant_max,
      run: (context) => this.#run(context),
    });
  }

  /** Accepts a push. Throws NOT_FOUND, INVALID_ARGUMENT. */
  async accept({ tenant_id, is_operator }: Caller, body: PushImage): Promise<OperationRecord> {
    const { reference } = await this.#options.tenant_images.exportable(tenant_id, body.reference);
    const target = targetOf(body.target ?? reference);
    const { registry_username: username, registry_password: password } = body;
    const credentials = username == null || password == null ? undefined : { username, password };
    const asked: Asked = { reference, target: referenceText(target), is_operator };
    return this.#options.operations.accept(tenant_id, {
      type: "oci.push",
      target: { type: "image", id: reference },
      input: asked,
      ...(credentials === undefined ? {} : { attachment: credentials }),
    });
  }

  async #run(context: OperationContext<Asked>): Promise<OperationResult> {
    const { tenant_images, images, events, log } = this.#options;
    const { tenant_id, operation_id, input, signal } = context;
    const { image_id: id, size_bytes } = await tenant_images.exportable(tenant_id, input.reference);
    const over = new AbortController();
    const uploads = await this.#uploads(context, over.signal);
    // A registry that is not there, or refuses, costs no export.
    await uploads.check();
    context.progress(null, "compressing layers");
    const reserved = await tenant_images.reserveExport(tenant_id, size_bytes);
    const exporting = images().export({ id, size_bytes, timeout_ms: LIMITS.image_push_ms, signal });
    const exported = await exporting.catch((error) => {
      reserved.release();
      throw error;
    });
    try {
      failpoint("oci.push.exported");
      const manifest_digest = await this.#upload(context, exported, uploads, over);
      const { reference, target } = input;
      const data = { reference, target, image_id: `sha256:${id}`, manifest_digest };
      await events
        .emit(tenant_id, { name: "image_update", event_type: "pushed", operation_id, data })
        .catch((error) => log.warn("push not emitted", { error: errorText(error) }));
      return { result: { reference, target, manifest_digest }, message: "image pushed" };
    } finally {
      await exported.release();
      reserved.release();
    }
  }

  async #uploads({ tenant_id, input, signal, attachment }: OperationContext<Asked>, over: AbortSignal) {
    const { gateway, registry_credentials } = this.#options;
    const { is_operator: isOperator } = input;
    const reference = parseReference(input.target);
    const given = attachment as Credentials | undefined;
    return gateway.uploads({
      reference,
      credentials: given ?? (await registry_credentials.find(tenant_id, reference, isOperator)),
      isOperator,
      signal: AbortSignal.any([signal, over]),
    });
  }

  /** Returns the digest of the manifest. */
  async #upload(
    context: OperationContext<Asked>,
    exported: ExportedImage,
    uploads: RegistryUploads,
    over: AbortController,
  ): Promise<string> {
    try {
      await this.#uploadBlobs(context, exported, uploads, over);
      failpoint("oci.push.uploaded");
      return await uploads.manifest(
        parseReference(context.input.target).tag ?? "",
        manifestOf(exported),
        MANIFEST_TYPE,
      );
    } finally {
      over.abort();
    }
  }

  /** The first failure ends the uploads beside it. */
  async #uploadBlobs(
    context: OperationContext<Asked>,
    { config, layers }: ExportedImage,
    uploads: RegistryUploads,
    over: AbortController,
  ): Promise<void> {
    const onProgress = progressTeller(context, context.input.reference, this.#options);
    const files = new Map(layers.map((layer) => [layer.digest, layer]));
    const done = new Map<string, number>();
    const total_bytes = files.values().reduce((sum, { size_bytes }) => sum + size_bytes, 0);
    const state = { layers_done: 0 };
    const report = () => {
      const done_bytes = done.values().reduce((sum, bytes) => sum + bytes, 0);
      onProgress({ done_bytes, total_bytes, layers_done: state.layers_done, layers_total: files.size });
    };
    const send = async (blob: Blob, subject: string) => {
      over.signal.throwIfAborted();
      await uploads.blob(blob, subject, (bytes) => {
        done.set(blob.digest, bytes);
        report();
      });
    };
    await each([...files.values()], LIMITS.registry_uploads_max, async ({ digest, size_bytes, path }) => {
      try {
        await send({ digest, size_bytes, open: () => createReadStream(path) }, `layer ${digest}`);
      } catch (error) {
        if (!over.signal.aborted) over.abort(error);
        throw over.signal.reason;
      }
      state.layers_done++;
      done.set(digest, size_bytes);
      report();
    });
    const blob = { digest: digestOf(config), size_bytes: config.length, open: () => pieceOf(config) };
    await uploads.blob(blob, "the configuration", () => {});
  }
}

async function* pieceOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Throws INVALID_ARGUMENT for a reference by a digest: that of a pushed manifest is known at its end. */
function targetOf(text: string): ImageReference {
  const target = parseOwnReference(text);
  if (target.digest === null) return target;
  throw new AppError("INVALID_ARGUMENT", `target: must not have a digest: '${text}'`, {
    hint: "send a target with a tag",
  });
}
