/**
 * Exports: buildah writes the layers of an image, compressed, into a directory of the data disk. Nothing of it reaches a network.
 *
 * E1. Each export has a directory, made before buildah starts and removed at its release. The next boot kills what works for one
 *     that an earlier process left, and removes it.
 * E2. An export reserves what its layers may take until it is released. Without room for that beside the reserve of the disk it
 *     is refused, so exports together never fill the disk.
 * E3. The configuration leaves as it is stored, so the image keeps its id. Compression may give a layer another digest than
 *     its registry had; the same image gives the same digests each time.
 */
import { mkdir, mkdtemp, readdir, readFile, rm, stat, statfs, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { ENVIRONMENT, type LauncherClient, type SpawnResult } from "../launcher/launcher.ts";
import type { ExportedImage, ExportedLayer, ImageExport } from "../ports/images.ts";
import { killCommands, runKillable } from "./killable-commands.ts";

const ID = /^[0-9a-f]{64}$/;
const DIGEST = /^sha256:([0-9a-f]{64})$/;
const GZIP = /[+.]gzip$/;
/** The image was accepted when it came into the store. */
const POLICY = '{"default":[{"type":"insecureAcceptAnything"}]}';
/** Growth of bytes that compression cannot compress, with files beside the layers. */
const GROWTH = 1.01;
const MARGIN_BYTES = 16 * 1024 * 1024;

interface ExportedManifest {
  readonly config?: { readonly digest?: string };
  readonly layers?: readonly { readonly digest: string; readonly mediaType?: string }[];
}

export interface ImageExportsOptions {
  /** buildah with its global flags. */
  readonly buildah: readonly string[];
  /** A directory of its own, on a disk. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly withLauncher: <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;
}

export class ImageExports {
  readonly #options: ImageExportsOptions;
  readonly #running = new Semaphore(LIMITS.image_exports_at_once, LIMITS.image_exports_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many exports of images", { retry_after: 10 });
  });
  /** E2. */
  #reserved_bytes = 0;
  #cleared: Promise<void> | null = null;

  constructor(options: ImageExportsOptions) {
    this.#options = options;
  }

  /** Clears up after exports of an earlier process, once. Never rejects: what is left is found at the next boot. */
  begin(): Promise<void> {
    this.#cleared ??= this.#clear().catch((error: unknown) => {
      this.#options.log.warn("exports of an earlier process not cleared up", { error: errorText(error) });
    });
    return this.#cleared;
  }

  /** Rejects like `Images.export`. */
  async export(of: ImageExport): Promise<ExportedImage> {
    await this.begin();
    if (!ID.test(of.id)) throw new AppError("NOT_FOUND", `image not in the store: ${of.id.slice(0, 64)}`);
    return this.#running.run(() => this.#export(of));
  }

  async #export(of: ImageExport): Promise<ExportedImage> {
    of.signal.throwIfAborted();
    const giveBack = await this.#reserve(of);
    const held: { directory: string | null } = { directory: null };
    const release = async () => {
      const { directory } = held;
      held.directory = null;
      if (directory !== null) await this.#remove(directory);
      giveBack();
    };
    try {
      held.directory = await this.#make();
      failpoint("images.export.made");
      await this.#run(of, held.directory);
      failpoint("images.export.written");
      return { ...(await this.#read(of, held.directory)), release };
    } catch (error) {
      await release();
      throw error;
    }
  }

  /** E2. */
  async #reserve({ id, size_bytes }: ImageExport): Promise<() => void> {
    const { directory } = this.#options;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(directory);
    const needed = Math.ceil(size_bytes * GROWTH) + MARGIN_BYTES;
    const free = bavail * bsize - this.#reserved_bytes - LIMITS.image_exports_reserve_bytes;
    if (needed > free) {
      throw new AppError(
        "CAPACITY_FULL",
        `no disk space for an export of image ${id}: ${needed} bytes (free ${free})`,
        {
          retry_after: 60,
        },
      );
    }
    this.#reserved_bytes += needed;
    let isHeld = true;
    return () => {
      if (isHeld) this.#reserved_bytes -= needed;
      isHeld = false;
    };
  }

  async #make(): Promise<string> {
    const directory = await mkdtemp(join(this.#options.directory, "export-"));
    await mkdir(join(directory, "tmp"));
    await writeFile(join(directory, "policy.json"), POLICY);
    return directory;
  }

  async #run(of: ImageExport, directory: string): Promise<void> {
    const { buildah, clock, withLauncher } = this.#options;
    const { id, timeout_ms, signal } = of;
    const policy = ["--signature-policy", join(directory, "policy.json")];
    const argv = [...buildah, "push", "--quiet", ...policy, "--", id, `dir:${join(directory, "image")}`];
    const environment = [...ENVIRONMENT, `TMPDIR=${join(directory, "tmp")}`];
    const result = await withLauncher(async (launcher) => {
      // Files of an attempt whose launcher died.
      await rm(join(directory, "image"), { recursive: true, force: true });
      return runKillable(launcher, { argv, timeout_ms, environment }, { clock, directory, signal });
    });
    signal.throwIfAborted();
    if (result.exit_code !== 0 || result.timed_out || result.spawn_failed) throw failureOf(of, result);
  }

  async #read({ id }: ImageExport, directory: string): Promise<Pick<ExportedImage, "config" | "layers">> {
    const own = (name: string) => join(directory, "image", name);
    const manifest = JSON.parse(await readFile(own("manifest.json"), "utf8")) as ExportedManifest;
    const layers = await Promise.all(
      (manifest.layers ?? []).map(async ({ digest, mediaType = "" }): Promise<ExportedLayer> => {
        const [, name = ""] = DIGEST.exec(digest) ?? [];
        if (name === "" || !GZIP.test(mediaType)) throw unusable(id);
        return { digest, size_bytes: (await stat(own(name))).size, path: own(name) };
      }),
    );
    // Docker's version 1 has no configuration.
    if (manifest.config?.digest !== `sha256:${id}`) throw unusable(id);
    return { config: await readFile(own(id)), layers };
  }

  /** Never rejects: the next boot finds what is left (E1). */
  async #remove(directory: string): Promise<void> {
    await rm(directory, { recursive: true, force: true }).catch((error: unknown) => {
      this.#options.log.warn("export of an image not removed", { directory, error: errorText(error) });
    });
  }

  /** E1. */
  async #clear(): Promise<void> {
    const { directory, clock } = this.#options;
    for (const name of await readdir(directory).catch(() => [])) {
      await killCommands(clock, join(directory, name));
      await rm(join(directory, name), { recursive: true, force: true });
    }
  }
}

function unusable(id: string): AppError {
  return new AppError("IMAGE_INVALID", `image ${id} cannot be exported: its manifest has an old format`);
}

function failureOf({ id, timeout_ms }: ImageExport, result: SpawnResult): AppError {
  const text = result.stderr.trim();
  if (result.timed_out) return new AppError("TIMEOUT", `export of image ${id} did not end within ${timeout_ms} ms`);
  if (/image not known|layer not known/.test(text)) return new AppError("NOT_FOUND", `image not in the store: ${id}`);
  if (/no space left on device|disk quota exceeded/i.test(text))
    return new AppError("CAPACITY_FULL", `no disk space for an export of image ${id}`, { retry_after: 60 });
  const last = text.split("\n").at(-1)?.slice(-1_000) ?? "";
  return new AppError("INTERNAL", `buildah could not export image ${id}: ${last}`);
}
