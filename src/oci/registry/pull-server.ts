/**
 * The HTTP server that buildah pulls one image from: a registry on loopback, under a random path, with one manifest.
 *
 * P1. It serves the manifest and the configuration that are in memory, and the layers of that manifest. All else is missing.
 * P2. A layer streams from its source through its check to buildah. Its last piece leaves after the check passed, so buildah
 *     never has a whole layer that failed.
 * P3. Bytes of layers are reserved before buildah gets them, those of all layers that stream at once together.
 * P4. The first failure is kept, and ends everything: each later request is denied.
 */
import { once } from "node:events";
import { statfs } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import type { LayerCheck, LayerChecker, TakePiece } from "../layers/contract.ts";
import type { RegistryLimits } from "./authorization.ts";
import { LayerBody } from "./layer-body.ts";
import type { ImageContent, LayerDescriptor } from "./manifests.ts";
import type { ServedImage } from "./served-image.ts";
import type { ImageSource } from "./source.ts";

/** Progress of a pull; bytes are compressed bytes of the source. */
export interface PullProgress {
  readonly done_bytes: number;
  /** Of all layers; those in the store already are never asked for. */
  readonly total_bytes: number;
  readonly layers_done: number;
  readonly layers_total: number;
}

export interface PullServerOptions {
  readonly clock: Clock;
  readonly source: ImageSource;
  readonly content: ImageContent;
  readonly served: ServedImage;
  readonly checker: LayerChecker;
  /** Directories on the disks that must not get full. */
  readonly disks: readonly string[];
  readonly limits: RegistryLimits;
  /** Of all layers together, uncompressed. */
  readonly unpacked_bytes_max: number;
  /** The part of the path that only buildah knows. */
  readonly secret: string;
  /** Ends the pull from outside, which is no failure of it. */
  readonly signal: AbortSignal;
  onProgress(progress: PullProgress): void;
  /** P3. */
  onUnpacked(bytes: number): Promise<void>;
}

const OCTETS = "application/octet-stream";

export class PullServer {
  readonly #options: PullServerOptions;
  readonly #server: Server;
  readonly #failing = new AbortController();
  /** Layers by digest; one may be in the image more than once. */
  readonly #layers: ReadonlyMap<string, LayerDescriptor>;
  /** By digest: bytes that came of each layer, requests for it, and the uncompressed bytes of those that passed. */
  readonly #done = new Map<string, number>();
  readonly #requests = new Map<string, number>();
  readonly #passed = new Map<string, number>();
  /** By digest: devices of the layers that passed, which must not stay in the store. */
  readonly #devices = new Map<string, number>();
  /** By digest: bytes that buildah may have of each layer (P3). */
  readonly #given = new Map<string, number>();
  /** Bytes since the last look at the disks. */
  #unchecked_bytes = 0;
  #reported_ms = Number.NEGATIVE_INFINITY;

  constructor(options: PullServerOptions) {
    this.#options = options;
    this.#layers = new Map(options.content.layers.map((layer) => [layer.digest, layer]));
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  /** Aborts with the first failure. */
  get failed(): AbortSignal {
    return this.#failing.signal;
  }

  get failure(): AppError | null {
    const { aborted, reason } = this.#failing.signal;
    return aborted ? (reason as AppError) : null;
  }

  /** Listens. Resolves with the place that buildah is given: host, port and path. */
  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}/${this.#options.secret}`;
  }

  get skipped_devices(): number {
    return this.#devices.values().reduce((sum, count) => sum + count, 0);
  }

  /** Counts requests from zero: buildah begins anew. */
  restart(): void {
    this.#requests.clear();
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  /** Reads a layer and checks it like one that buildah takes, and keeps nothing of it. Rejects with what is wrong. */
  async prove(layer: LayerDescriptor): Promise<void> {
    try {
      this.#given.set(layer.digest, 0);
      const check = this.#open(layer, null);
      await this.#checked(check, async () => {
        for await (const chunk of this.#read(layer)) await check.write(chunk);
        await this.#conclude(layer, check);
      });
    } catch (error) {
      throw this.#options.signal.aborted ? this.#options.signal.reason : this.fail(error);
    }
  }

  /** Returns the layers that buildah did not take from here: the store had them. */
  untouched(): readonly LayerDescriptor[] {
    return [...this.#layers.values()].filter(({ digest }) => !this.#passed.has(digest));
  }

  /** Keeps the first failure and ends the pull. Returns the first. */
  fail(error: unknown): AppError {
    const failure =
      error instanceof AppError ? error : new AppError("INTERNAL", "a layer could not be checked", { cause: error });
    if (!this.#failing.signal.aborted) this.#failing.abort(failure);
    return this.failure ?? failure;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { secret, content, served } = this.#options;
    const { config, config_digest } = content;
    const { manifest } = served;
    const [, kind, name = ""] = new RegExp(`^/v2/${secret}/(manifests|blobs)/([^/?]+)$`).exec(request.url ?? "") ?? [];
    const layer = kind === "blobs" ? served.layers.get(name) : undefined;
    if (request.method !== "GET") refuse(response, 405, "UNSUPPORTED");
    else if (request.url === "/v2/") send(response, Buffer.from("{}"), "application/json");
    else if (this.failure !== null) refuse(response, 403, "DENIED");
    else if (kind === "manifests" && name === manifest.digest) send(response, manifest.bytes, manifest.media_type);
    else if (kind === "blobs" && name === config_digest) send(response, config, OCTETS);
    else if (layer === undefined) refuse(response, 404, kind === "blobs" ? "BLOB_UNKNOWN" : "MANIFEST_UNKNOWN");
    else void this.#answerLayer(layer, response);
  }

  async #answerLayer(layer: LayerDescriptor, response: ServerResponse): Promise<void> {
    try {
      await this.#stream(layer, response);
    } catch (error) {
      if (!this.#options.signal.aborted) this.fail(error);
      if (response.headersSent) response.destroy();
      else refuse(response, 403, "DENIED");
    }
  }

  /** Streams a layer (P2). Rejects with what is wrong; ends without a word if buildah leaves. */
  async #stream(layer: LayerDescriptor, response: ServerResponse): Promise<void> {
    const { limits, served } = this.#options;
    const { digest, size } = layer;
    const count = (this.#requests.get(digest) ?? 0) + 1;
    this.#requests.set(digest, count);
    if (count > limits.registry_layer_requests_max) {
      throw new AppError("REGISTRY_FAILED", `layer ${digest} failed ${limits.registry_layer_requests_max} times`);
    }
    const body = new LayerBody(response, served.isPlain ? null : size);
    const giving = { last: Promise.resolve() };
    this.#given.set(digest, 0);
    const give: TakePiece = (bytes, onSent) => {
      giving.last = giving.last
        .then(() => this.#reserve(digest, bytes.length))
        .then(() => body.take(bytes, onSent))
        .catch((error) => {
          this.fail(error);
          check.abort();
        });
    };
    const check = this.#open(layer, served.isPlain ? give : null);
    const left = { isSo: false };
    const leave = () => {
      left.isSo = true;
      check.abort();
    };
    response.on("close", leave);
    try {
      await this.#checked(check, async () => {
        for await (const chunk of this.#read(layer)) {
          await check.write(chunk);
          if (!served.isPlain) await this.#reserve(digest, chunk.length);
          if (!served.isPlain) body.take(chunk);
          if (!served.isPlain) await body.room();
          if (left.isSo) return;
        }
        await this.#conclude(layer, check, async () => {
          await giving.last;
          if (this.failure !== null) throw this.failure;
        });
        response.off("close", leave);
        body.end();
        this.#report(true);
      });
    } catch (error) {
      if (!left.isSo) throw error;
    } finally {
      response.off("close", leave);
    }
  }

  /** Rejects with CAPACITY_FULL if a disk is nearly full: buildah would fill it up before it fails. */
  async #checkDisks(bytes: number): Promise<void> {
    const { disks, limits } = this.#options;
    this.#unchecked_bytes += bytes;
    if (this.#unchecked_bytes < limits.image_disk_check_bytes) return;
    this.#unchecked_bytes = 0;
    for (const { bavail, bsize } of await Promise.all(disks.map((path) => statfs(path)))) {
      if (bavail * bsize >= limits.image_disk_free_bytes_min) continue;
      throw new AppError(
        "CAPACITY_FULL",
        `no disk space for the image (${limits.image_disk_free_bytes_min} bytes stay free)`,
      );
    }
  }

  /** P3. */
  async #reserve(digest: string, bytes: number): Promise<void> {
    this.#given.set(digest, (this.#given.get(digest) ?? 0) + bytes);
    await this.#options.onUnpacked(this.#given.values().reduce((sum, one) => sum + one, 0));
  }

  #open(layer: LayerDescriptor, take: TakePiece | null): LayerCheck {
    const { digest, size: size_bytes, media_type } = layer;
    const unpacked_bytes_max = this.#unpackedLeft(layer);
    return this.#options.checker.open({ digest, size_bytes, media_type, unpacked_bytes_max, take });
  }

  /** Does the work with a check, and aborts the check unless it has ended by itself. */
  async #checked(check: LayerCheck, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } finally {
      check.abort();
    }
  }

  /** Yields the bytes of a layer as the source has it. */
  async *#read(layer: LayerDescriptor): AsyncGenerator<Buffer> {
    const { digest, size } = layer;
    this.#done.set(digest, 0);
    for await (const chunk of this.#options.source.stream({ digest, size }, `layer ${digest}`)) {
      yield chunk;
      this.#count(layer, chunk.length);
      await this.#checkDisks(chunk.length);
    }
  }

  async #conclude(
    { digest, diff_id }: LayerDescriptor,
    check: LayerCheck,
    given: () => Promise<void> = async () => {},
  ): Promise<void> {
    const found = await check.end();
    await given();
    if (found.diff_id !== diff_id) {
      throw new AppError("IMAGE_INVALID", `layer ${digest} differs from its diff_id in the configuration of the image`);
    }
    // The holes of sparse files, and layers that buildah unpacks, are more than what was given.
    await this.#reserve(digest, Math.max(0, found.unpacked_bytes - (this.#given.get(digest) ?? 0)));
    this.#passed.set(digest, found.unpacked_bytes);
    this.#devices.set(digest, found.skipped_devices);
    if (this.#unpackedLeft() < 0) {
      const { unpacked_bytes_max } = this.#options;
      throw new AppError("QUOTA_EXCEEDED", `image too large: its layers exceed ${unpacked_bytes_max} bytes unpacked`);
    }
  }

  /** Returns the uncompressed bytes that the image may still bring, with a layer that is checked again counted as missing. */
  #unpackedLeft(again?: LayerDescriptor): number {
    const { content, unpacked_bytes_max } = this.#options;
    const sizes = content.layers.map(({ digest }) => (digest === again?.digest ? 0 : (this.#passed.get(digest) ?? 0)));
    return unpacked_bytes_max - sizes.reduce((sum, size) => sum + size, 0);
  }

  #count({ digest }: LayerDescriptor, bytes: number): void {
    this.#done.set(digest, (this.#done.get(digest) ?? 0) + bytes);
    this.#report(false);
  }

  #report(isDue: boolean): void {
    const { clock, limits, onProgress } = this.#options;
    const now_ms = clock.monotonicMs();
    if (!isDue && now_ms - this.#reported_ms < limits.registry_progress_ms) return;
    this.#reported_ms = now_ms;
    const layers = [...this.#layers.values()];
    onProgress({
      done_bytes: layers.reduce((sum, { digest }) => sum + (this.#done.get(digest) ?? 0), 0),
      total_bytes: layers.reduce((sum, { size }) => sum + size, 0),
      layers_done: this.#passed.size,
      layers_total: layers.length,
    });
  }
}

function send(response: ServerResponse, bytes: Buffer, media_type: string): void {
  response.writeHead(200, { "content-type": media_type, "content-length": bytes.length }).end(bytes);
}

function refuse(response: ServerResponse, status: number, code: string): void {
  const body = JSON.stringify({ errors: [{ code, message: code.toLowerCase() }] });
  response.writeHead(status, { "content-type": "application/json" }).end(body);
}
