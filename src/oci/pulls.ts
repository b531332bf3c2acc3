/**
 * Pulls: operations that bring an image into the store and give the tenant a row for it. The gateway speaks with registries
 * and checks each byte; the engine runs buildah, which reaches nothing but the gateway.
 *
 * P1. Every pull asks the registry in the tenant's name, also where the store has the image. Only a reference with a digest
 *     that the tenant has already is taken as it is, unless `force`. If the registry does not know the reference, or says so by a
 *     denial as Docker Hub does, the image that the tenant has under it stays and is the answer, unless `force`: it was built, loaded
 *     or tagged here.
 * P2. A second pull of the same by the same tenant joins the operation of the first.
 * P3. Credentials of a request live in this process only, as long as the operation is open; a restart fails an operation that
 *     has some. Stored ones are read when the pull runs, so it resumes.
 * P4. The local store is the operator's: only its own key names an image there.
 * P5. A profile is taken from this node, and no registry is asked. Its host is reserved, with every port and name below it.
 */
import { createHash } from "node:crypto";
import type { Caller } from "../base/caller.ts";
import type { Clock } from "../base/clock.ts";
import { KeyedMutex } from "../base/concurrency.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { PROFILE_REGISTRY } from "../base/profile-registry.ts";
import type { Images } from "../engine/ports.ts";
import type { Events } from "../events/service.ts";
import { hasEnded, type OperationRecord } from "../operations/schema.ts";
import type { OperationContext, OperationResult, Operations } from "../operations/service.ts";
import type { ImageArrivals } from "./arrivals.ts";
import type { RegistryCredentials } from "./credentials/service.ts";
import { machinePlatform, type Platform, parsePlatform, platformText } from "./platform.ts";
import { progressTeller } from "./progress.ts";
import { DEFAULT_REGISTRY, type ImageReference, parseReference, referenceText, refuseReserved } from "./reference.ts";
import type { Credentials, RegistryGateway } from "./registry/gateway.ts";
import type { PullImage } from "./schema.ts";
import type { TenantImages } from "./service.ts";

const LOCAL = "containers-storage:";

/** Part of a request that its operation keeps. */
interface Asked {
  readonly reference: string;
  readonly is_local: boolean;
  /** P5. */
  readonly is_profile?: boolean;
  readonly force: boolean;
  readonly platform: string;
  readonly is_operator: boolean;
}

/** Profiles of this node as images. */
export interface ProfileImages {
  /** Names of all profiles. */
  names(): readonly string[];
  /** Returns the id of the image, built if need be. Throws NOT_FOUND, INVALID_ARGUMENT for another platform than the node's. */
  imageId(
    tenant_id: string,
    reference: ImageReference,
    options: {
      readonly platform: string;
      readonly signal: AbortSignal;
      readonly onProgress: (pct: number, message: string) => void;
    },
  ): Promise<string>;
}

export interface PullsOptions {
  readonly tenant_images: TenantImages;
  /** There when the engine has booted. */
  readonly images: () => Images;
  readonly arrivals: ImageArrivals;
  readonly profiles: ProfileImages;
  readonly gateway: RegistryGateway;
  readonly registry_credentials: RegistryCredentials;
  /** Path of the signature policy; null: buildah's own. */
  readonly policy_file: string | null;
  readonly operations: Operations;
  readonly events: Events;
  readonly clock: Clock;
  readonly log: Log;
}

export class Pulls {
  readonly #options: PullsOptions;
  /** Open operations by what they pull (P2). */
  readonly #open = new Map<string, string>();
  readonly #turns = new KeyedMutex();

  constructor(options: PullsOptions) {
    this.#options = options;
    options.operations.register<Asked>("oci.pull", {
      resumable: true,
      cancellable: true,
      timeout_ms: LIMITS.image_pull_ms,
      running_max: LIMITS.image_pulls_max,
      running_per_tenant_max: LIMITS.image_pulls_per_tenant_max,
      run: (context) => this.#run(context),
    });
  }

  /** Accepts a pull, or joins an open one of the same (P2). Throws INVALID_ARGUMENT, FORBIDDEN, QUOTA_EXCEEDED. */
  async accept(
    { tenant_id, is_operator }: Pick<Caller, "tenant_id" | "is_operator">,
    body: PullImage,
  ): Promise<OperationRecord> {
    const { operations, tenant_images } = this.#options;
    const asked = askedOf(body, is_operator);
    const { registry_username: username, registry_password: password } = body;
    const credentials = username == null || password == null ? undefined : { username, password };
    const key = createHash("sha256")
      .update(JSON.stringify([tenant_id, asked, credentials ?? null]))
      .digest("hex");
    return this.#turns.run(key, async () => {
      const found = this.#open.get(key);
      const joined = found === undefined ? null : await operations.get(tenant_id, found).catch(() => null);
      if (joined !== null && !hasEnded(joined.status)) return joined;
      await tenant_images.room(tenant_id, asked.reference);
      const target = { type: "image", id: asked.reference };
      const made = await operations.accept(tenant_id, {
        type: "oci.pull",
        target,
        input: asked,
        ...(credentials === undefined ? {} : { attachment: credentials }),
      });
      this.#remember(key, tenant_id, made.operation_id);
      return made;
    });
  }

  /** Until the operation has ended. */
  #remember(key: string, tenant_id: string, operation_id: string): void {
    this.#open.set(key, operation_id);
    const forget = (): void => {
      if (this.#open.get(key) === operation_id) this.#open.delete(key);
    };
    const { operations } = this.#options;
    operations.wait(tenant_id, operation_id, { timeout_ms: LIMITS.image_pull_ms }).then(forget, forget);
  }

  async #run(context: OperationContext<Asked>): Promise<OperationResult> {
    const { tenant_images } = this.#options;
    const { tenant_id, input } = context;
    const { reference } = input;
    const isPinned = parseReference(reference).digest !== null;
    if (isPinned && !input.force && !input.is_local && (await tenant_images.has(tenant_id, reference))) {
      return resultOf(reference, "image is present");
    }
    let skipped = 0;
    try {
      if (input.is_profile === true) await this.#takeProfile(context);
      else if (input.is_local) await this.#take(context, input.reference);
      else skipped = await this.#pull(context);
    } catch (error) {
      const isAnswer = !input.force && isUnknown(error, context.attachment !== undefined);
      if (!isAnswer || !(await this.#hasFor(context))) throw this.#withProfile(error, context);
      return resultOf(reference, "image is present; the registry does not know it");
    } finally {
      // The reference may have named another image before, and a refused image has no row.
      void tenant_images.free();
    }
    return resultOf(reference, skipped === 0 ? "image pulled" : `image pulled without ${skipped} nodes of its /dev`);
  }

  /** True if the tenant has an image, its own or a shared one, under the reference and for the platform. */
  async #hasFor({ tenant_id, input }: OperationContext<Asked>): Promise<boolean> {
    const found = await this.#options.tenant_images.get(tenant_id, input.reference).catch(() => null);
    const { os, architecture } = parsePlatform(input.platform);
    return found !== null && found.os === os && found.architecture === architecture;
  }

  /** `prod` is a repository of docker.io, and the name of a profile: says how the profile is named, which was probably meant. */
  #withProfile(error: unknown, { input, signal }: OperationContext<Asked>): unknown {
    if (!(error instanceof AppError) || error.code === "INTERNAL" || signal.aborted || input.is_local) return error;
    const { registry, repository } = parseReference(input.reference);
    const name = registry === DEFAULT_REGISTRY ? repository.replace(/^library\//, "") : "";
    if (!this.#options.profiles.names().includes(name)) return error;
    const { code, message, details, hint, retry_after, retryable, reason_code } = error;
    const expected = `for the profile '${name}': ${PROFILE_REGISTRY}/${name}:latest`;
    return new AppError(code, `${message} (${expected})`, {
      ...{ retryable, reason_code, cause: error },
      ...(details === null ? {} : { details }),
      ...(hint === null ? {} : { hint }),
      ...(retry_after === null ? {} : { retry_after }),
    });
  }

  /** P5. */
  async #takeProfile(context: OperationContext<Asked>): Promise<void> {
    const { tenant_id, input, signal } = context;
    const onProgress = (pct: number, message: string): void => context.progress(pct, message);
    const options = { platform: input.platform, signal, onProgress };
    const reference = parseReference(input.reference);
    await this.#take(context, await context.aside(() => this.#options.profiles.imageId(tenant_id, reference, options)));
  }

  /** Takes an image of the store, by its name (P4) or id. */
  async #take(context: OperationContext<Asked>, stored: string): Promise<void> {
    const { input, signal } = context;
    const pulled = await this.#options.images().pull({
      reference: stored,
      transport: "containers-storage",
      platform: parsePlatform(input.platform),
      registries_conf: null,
      policy_file: null,
      diff_ids: [],
      timeout_ms: LIMITS.image_pull_ms,
      signal,
    });
    await this.#options.arrivals.keep(destinationOf(context), pulled);
  }

  /** Resolves to the number of device nodes that were left out. */
  async #pull(context: OperationContext<Asked>): Promise<number> {
    const { tenant_images, gateway, arrivals, registry_credentials, policy_file } = this.#options;
    const { tenant_id, input, signal, attachment } = context;
    const platform = parsePlatform(input.platform);
    const reference = parseReference(input.reference);
    const isOperator = input.is_operator;
    const given = attachment as Credentials | undefined;
    const intake = await tenant_images.intake(tenant_id, input.reference);
    try {
      const source = await gateway.open({
        reference,
        platform,
        credentials: given ?? (await registry_credentials.find(tenant_id, reference, isOperator)),
        isOperator,
        policy_file,
        unpacked_bytes_max: intake.bytes_max,
        onUnpacked: (bytes) => intake.layers(bytes),
        onProgress: progressTeller(context, input.reference, this.#options),
        signal,
      });
      const known_layers = new Set<string>();
      const destination = destinationOf(context);
      return await arrivals.take({ ...destination, source, platform, policy_file, known_layers, intake, signal });
    } finally {
      intake.release();
    }
  }
}

/**
 * P1. True if a registry does not have a reference, for any platform, or does not tell whether it has. Credentials of the request
 * that are denied are wrong.
 */
function isUnknown(error: unknown, hasCredentials: boolean): boolean {
  if (!(error instanceof AppError)) return false;
  return (
    (error.code === "FORBIDDEN" && !hasCredentials) ||
    (error.code === "NOT_FOUND" && error.reason_code !== "PLATFORM_NOT_FOUND")
  );
}

/** Throws INVALID_ARGUMENT, and FORBIDDEN for an image of the local store unless the operator's key asks. */
function askedOf({ reference: text, force, platform }: PullImage, is_operator: boolean): Asked {
  const is_local = text.startsWith(LOCAL);
  if (is_local && !is_operator) {
    throw new AppError("FORBIDDEN", `reference: ${LOCAL} needs the operator's key`, {
      hint: "send the reference of an image in a registry",
    });
  }
  const reference: ImageReference = parseReference(is_local ? text.slice(LOCAL.length) : text);
  const is_profile = !is_local && reference.registry === PROFILE_REGISTRY;
  if (!is_profile) refuseReserved(reference.registry);
  const asked = { is_local, force, platform: platformOf(platform), is_operator };
  return { reference: referenceText(reference), ...asked, ...(is_profile ? { is_profile } : {}) };
}

function destinationOf({ tenant_id, input: { reference } }: OperationContext<Asked>) {
  return { tenant_id, reference, event_type: "pulled" as const };
}

function platformOf(text: string | null | undefined): string {
  const platform: Platform = text == null ? machinePlatform() : parsePlatform(text);
  if (platform.os === "linux") return platformText(platform);
  throw new AppError("INVALID_ARGUMENT", `platform: unsupported operating system: '${platform.os}' (expected linux)`, {
    details: { expected: ["linux"], received: platform.os },
  });
}

function resultOf(reference: string, message: string): OperationResult {
  return { result: { reference }, message };
}
