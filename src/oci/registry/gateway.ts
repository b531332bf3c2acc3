/**
 * Lets buildah pull an image without a network: for each pull a server on loopback, which fetches from the real registry through the
 * guard of outgoing requests, or reads files of this machine, and checks what comes.
 *
 * G1. buildah is given one manifest by its digest. What a tag names, and which image of an index, is decided here, once. It is a
 *     manifest of uncompressed layers, unless the signature policy asks more of an image than to be there.
 * G2. Credentials stay here. buildah has a configuration of its own that redirects the one repository to the server.
 * G3. Whoever pulls proves by it that the registry serves him each layer: those that the store had already are read as well, unless
 *     he has them from an earlier pull. A digest or a diff_id in an image of his own gives nobody another tenant's layer.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { each } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Outgoing } from "../../base/outgoing-requests.ts";
import type { LayerChecker } from "../layers/contract.ts";
import type { Platform } from "../platform.ts";
import { type ImageReference, refuseReserved } from "../reference.ts";
import type { Credentials, RegistryLimits } from "./authorization.ts";
import { RegistryClient } from "./client.ts";
import { RegistryHosts, type RegistryHostsOptions } from "./hosts.ts";
import { type ImageContent, type LayerDescriptor, resolveImage } from "./manifests.ts";
import { type PullProgress, PullServer } from "./pull-server.ts";
import { ownImage, plainImage, type ServedImage } from "./served-image.ts";
import { acceptsEverything } from "./signature-policy.ts";
import type { ImageSource } from "./source.ts";
import { RegistryUploads } from "./uploads.ts";

export type { Credentials } from "./authorization.ts";
export type { PullProgress } from "./pull-server.ts";

/** Hexadecimal digits of the path that buildah alone knows. */
const SECRET_LENGTH = 32;

export interface RegistryGatewayOptions extends RegistryHostsOptions {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly outgoing: Outgoing;
  readonly checker: LayerChecker;
  /** For configurations of pulls. The gateway's own: it is emptied first. */
  readonly directory: string;
  /** Directories on the disks that images are written to. */
  readonly disks: readonly string[];
  readonly limits?: RegistryLimits;
}

/** Registry, credentials and caller of a transfer. */
export interface RegistryRequest {
  readonly reference: ImageReference;
  readonly credentials: Credentials | null;
  /** True with the operator's own key. */
  readonly isOperator: boolean;
  readonly signal: AbortSignal;
}

interface ServeRequest {
  readonly reference: ImageReference;
  /** Of all layers together, uncompressed. Above it the pull fails with QUOTA_EXCEEDED. */
  readonly unpacked_bytes_max: number;
  /** Called before bytes of layers are given to buildah, with those of all layers. Rejects if there may not be as many. */
  onUnpacked(bytes: number): Promise<void>;
  onProgress(progress: PullProgress): void;
  readonly signal: AbortSignal;
}

export interface PullRequest extends ServeRequest, RegistryRequest {
  readonly platform: Platform;
  /** Path of the signature policy of buildah; null: its own. */
  readonly policy_file: string | null;
}

export interface LocalRequest extends ServeRequest {
  readonly content: ImageContent;
  readonly source: ImageSource;
}

interface Served extends Pick<LocalRequest, "content" | "source"> {
  readonly served: ServedImage;
  /** True: layers that the store had are not read. */
  readonly isTrusted: boolean;
  /** Ends all requests to the source. */
  readonly over: AbortController;
}

/** An image that buildah can pull, until `close`. */
export interface PullSource {
  /** Reference that buildah pulls, without a transport: a manifest by its digest. */
  readonly pull_reference: string;
  /** Path of buildah's configuration. Beside it are `registries.conf.d`, which is empty, and `auth.json`, without credentials. */
  readonly registries_conf: string;
  /** Path of a signature policy that accepts everything. */
  readonly accepting_policy: string;
  /** Digest that the reference names: of an index, or of the manifest. */
  readonly digest: string;
  readonly manifest_digest: string;
  /** Id that the image has in the store: the hexadecimal digest of its configuration. */
  readonly image_id: string;
  /** The image as its source has it. */
  readonly content: ImageContent;
  /** Layers that buildah gets uncompressed. */
  readonly diff_ids: readonly string[];
  /** The first failure of this pull; more precise than what buildah prints. */
  readonly failure: AppError | null;
  /** Aborts with `failure` as its reason. */
  readonly failed: AbortSignal;
  /** Devices of the layers that passed, which must not stay in the store. All are known when `finish` has resolved. */
  readonly skipped_devices: number;
  /** Counts buildah's requests from zero: it begins anew. */
  restart(): void;
  /**
   * Resolves once the source has proven every layer that is not in `known_layers`, by `layerKey` those that the tenant has (G3). To be
   * called after buildah succeeded.
   */
  finish(known_layers: ReadonlySet<string>): Promise<void>;
  close(): Promise<void>;
}

export class RegistryGateway {
  readonly #options: RegistryGatewayOptions;
  readonly #hosts: RegistryHosts;
  readonly #limits: RegistryLimits;

  constructor(options: RegistryGatewayOptions) {
    this.#options = options;
    this.#hosts = new RegistryHosts(options);
    this.#limits = options.limits ?? LIMITS;
    rmSync(options.directory, { recursive: true, force: true });
    mkdirSync(options.directory, { recursive: true, mode: 0o700 });
  }

  /** Returns what uploads to the repository of a reference. A push goes to the registry itself, without buildah. */
  uploads({ reference, credentials, isOperator, signal }: RegistryRequest): RegistryUploads {
    const { clock, outgoing } = this.#options;
    refuseReserved(reference.registry);
    const host = this.#hosts.withoutMirror(reference.registry, isOperator);
    const { repository } = reference;
    const common = { clock, outgoing, limits: this.#limits, hosts: this.#hosts };
    return new RegistryUploads({ ...common, host, repository, credentials, signal });
  }

  /**
   * Finds the image and serves it to buildah. Rejects with an AppError that names the registry: REGISTRY_FAILED, FORBIDDEN, NOT_FOUND,
   * RATE_LIMITED, TIMEOUT, IMAGE_INVALID, and INVALID_ARGUMENT for a host that the guard refuses.
   */
  async open(request: PullRequest): Promise<PullSource> {
    const { clock, outgoing } = this.#options;
    const { reference, credentials } = request;
    refuseReserved(reference.registry);
    const over = new AbortController();
    const signal = AbortSignal.any([request.signal, over.signal]);
    const host = this.#hosts.of(reference.registry, request.isOperator);
    const { repository } = reference;
    const common = { clock, outgoing, limits: this.#limits };
    const source = new RegistryClient({ ...common, hosts: this.#hosts, host, repository, credentials, signal });
    const content = await resolveImage({ ...common, source, reference, platform: request.platform }).catch((error) => {
      throw request.signal.aborted ? request.signal.reason : error;
    });
    const isPlain = await acceptsEverything(request.policy_file, `${reference.registry}/${repository}`);
    const served = isPlain ? plainImage(content) : ownImage(content);
    // The operator's digests name what he gets; diff_ids are the author's.
    return this.#serve(request, { content, source, served, isTrusted: request.isOperator && !isPlain, over });
  }

  /** Serves an image whose parts are files of this machine. Rejects with QUOTA_EXCEEDED. */
  openLocal(request: LocalRequest): Promise<PullSource> {
    const { content, source } = request;
    const over = new AbortController();
    return this.#serve(request, { content, source, served: plainImage(content), isTrusted: false, over });
  }

  async #serve(request: ServeRequest, { content, source, served, isTrusted, over }: Served): Promise<PullSource> {
    const { clock, ids, checker, directory, disks } = this.#options;
    const { reference, onProgress, onUnpacked, unpacked_bytes_max } = request;
    checkRoom(content.layers, unpacked_bytes_max);
    const secret = ids.hex(SECRET_LENGTH);
    const server = new PullServer({
      ...{
        clock,
        limits: this.#limits,
        source,
        content,
        served,
        checker,
        disks,
        unpacked_bytes_max,
        secret,
        onProgress,
        onUnpacked,
      },
      signal: AbortSignal.any([request.signal, over.signal]),
    });
    server.failed.addEventListener("abort", () => over.abort(server.failure), { once: true });
    const name = `${reference.registry}/${reference.repository}`;
    // Not the secret: command lines of buildah name the directory, and anybody on the machine reads those.
    const own = join(directory, ids.hex(SECRET_LENGTH));
    const close = async () => {
      over.abort();
      await server.close();
      await rm(own, { recursive: true, force: true });
    };
    try {
      writeConfiguration(own, name, await server.listen());
    } catch (error) {
      await close();
      throw error;
    }
    return {
      pull_reference: `${name}@${served.manifest.digest}`,
      registries_conf: join(own, "registries.conf"),
      accepting_policy: join(own, "policy.json"),
      digest: content.digest,
      manifest_digest: content.manifest.digest,
      image_id: content.config_digest.replace(/^sha256:/, ""),
      content,
      diff_ids: served.isPlain ? content.layers.map(({ diff_id }) => diff_id) : [],
      get failure() {
        return server.failure;
      },
      failed: server.failed,
      get skipped_devices() {
        return server.skipped_devices;
      },
      restart: () => server.restart(),
      finish: async (known_layers) => {
        if (server.failure !== null) throw server.failure;
        const unproven = isTrusted ? [] : server.untouched().filter((layer) => !known_layers.has(layerKey(layer)));
        await each(unproven, this.#limits.registry_proofs_max, (layer) => server.prove(layer));
      },
      close,
    };
  }
}

/** Key of a layer: digest and diff_id together, because either alone may be false. */
export function layerKey({ digest, diff_id }: Pick<LayerDescriptor, "digest" | "diff_id">): string {
  return `${digest} ${diff_id}`;
}

/**
 * Throws QUOTA_EXCEEDED for layers that are larger than they may be unpacked. buildah has them on the disk as they came: parts of a
 * compressed layer may unpack to nothing.
 */
function checkRoom(layers: readonly LayerDescriptor[], unpacked_bytes_max: number): void {
  const sizes = new Map(layers.map(({ digest, size }) => [digest, size]));
  const bytes = sizes.values().reduce((sum, size) => sum + size, 0);
  // Compression adds this to bytes that it cannot compress.
  if (bytes <= unpacked_bytes_max * 1.01 + LIMITS.registry_progress_bytes) return;
  throw new AppError(
    "QUOTA_EXCEEDED",
    `image too large: ${bytes} bytes of layers (limit ${unpacked_bytes_max} bytes unpacked)`,
  );
}

/** Writes what buildah reads instead of the machine's own configuration (G2). */
function writeConfiguration(directory: string, name: string, location: string): void {
  mkdirSync(join(directory, "registries.conf.d"), { recursive: true, mode: 0o700 });
  writeFileSync(join(directory, "auth.json"), "{}\n", { mode: 0o600 });
  const accepting = { default: [{ type: "insecureAcceptAnything" }] };
  writeFileSync(join(directory, "policy.json"), JSON.stringify(accepting), { mode: 0o600 });
  // R3 of reference.ts: neither text has a character that TOML would escape.
  const text = [
    "unqualified-search-registries = []",
    "[[registry]]",
    `prefix = "${name}"`,
    `location = "${location}"`,
    "insecure = true",
  ];
  writeFileSync(join(directory, "registries.conf"), `${text.join("\n")}\n`, { mode: 0o600 });
}
