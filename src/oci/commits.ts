/**
 * Images made from the files of a container: the layers of its image, and one with what the container changed. The result
 * goes through the same checked import as the result of a build.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Engine } from "../engine/ports.ts";
import { baseLayers, imageConfig } from "./builds/image.ts";
import type { BuildLayers } from "./builds/layers.ts";
import type { ImageImports } from "./imports.ts";
import { machinePlatform } from "./platform.ts";
import { parseOwnReference, referenceText } from "./reference.ts";
import type { TenantImages } from "./service.ts";

export interface CommitsOptions {
  readonly engine: Engine;
  readonly tenant_images: TenantImages;
  readonly imports: ImageImports;
  readonly layers: BuildLayers;
  /** For layers on their way into the store. */
  readonly directory: string;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** Files of a container that does not run, and the settings that the image gets. */
export interface CommitRequest {
  readonly tenant_id: string;
  /** Of the container. */
  readonly id: string;
  /** Image that its files lie on. */
  readonly image_id: string;
  readonly reference: string;
  /** Empty: that of the image below. */
  readonly command: readonly string[];
  readonly working_directory: string;
  readonly user: string | null;
  readonly signal: AbortSignal;
}

const Config = z.looseObject({ config: z.looseObject({}).nullish() });

export class Commits {
  readonly #options: CommitsOptions;

  constructor(options: CommitsOptions) {
    this.#options = options;
  }

  /** Removes what a crash left. */
  async boot(): Promise<void> {
    await rm(this.#options.directory, { recursive: true, force: true });
  }

  /** Returns the complete reference. Throws INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  async check(tenant_id: string, text: string): Promise<string> {
    const parsed = parseOwnReference(text);
    if (parsed.digest !== null) {
      throw new AppError("INVALID_ARGUMENT", "reference: must not have a digest", { hint: "send one with a tag" });
    }
    const reference = referenceText(parsed);
    await this.#options.tenant_images.room(tenant_id, reference);
    return reference;
  }

  /** Makes the image, and gives the tenant a row for it. Throws as the import of an image does. */
  async make(request: CommitRequest): Promise<{ readonly reference: string; readonly image_id: string }> {
    const { engine, imports, layers, clock, ids, tenant_images } = this.#options;
    const { tenant_id, id, image_id, reference, signal } = request;
    const directory = join(this.#options.directory, ids.next("cmt"));
    const intake = await tenant_images.intake(tenant_id, reference, image_id);
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const made = await layers.make(engine, id, { directory, intake, signal });
      const found = await engine.images.describe(image_id);
      const base = baseLayers(found.config_json);
      const own = made.has_entries ? [made] : [];
      const config = imageConfig({
        ...{ base, settings: { toJson: () => settingsOf(found.config_json, request) } },
        history: [{ created_by: "hearth commit", has_files: true }],
        ...{ diff_id: own[0]?.diff_id ?? null, platform: machinePlatform() },
        created: new Date(clock.epochMs()).toISOString(),
      });
      const imported = await imports.import({
        ...{ tenant_id, reference, event_type: "committed", intake, signal, hasBase: true },
        config_json: Buffer.from(config),
        layers: [
          ...base.diff_ids.map((diff_id, i) => {
            const size = found.layers[i]?.uncompressed_size ?? found.layers[i]?.size_bytes;
            return { diff_id, size_bytes: size ?? 0, path: null };
          }),
          ...own.map(({ diff_id, size_bytes, path }) => ({ diff_id, size_bytes, path })),
        ],
      });
      void tenant_images.free();
      return { reference, image_id: `sha256:${imported.image_id.replace(/^sha256:/, "")}` };
    } finally {
      await rm(directory, { recursive: true, force: true });
      intake.release();
    }
  }
}

/** The settings of the image below, with those of the container. Its environment may hold secrets, and stays out. */
function settingsOf(config_json: string, { command, working_directory, user }: CommitRequest): Record<string, unknown> {
  const base = Config.parse(JSON.parse(config_json)).config ?? {};
  const own = command.length === 0 ? {} : { Entrypoint: null, Cmd: [...command] };
  const directory = working_directory === "/" ? {} : { WorkingDir: working_directory };
  return { ...base, ...own, ...directory, ...(user === null ? {} : { User: user }) };
}
