/**
 * The configuration of an image, as its builder wrote it (OCI image-spec, config.md; Docker's has the same names): the fields
 * of a record and the history of an image. Whoever built the image chose each byte, so every field is checked.
 */
import { z } from "zod";
import type { EpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { HistoryEntry, ImageRecord, Layer } from "./schema.ts";

/** Fields of a record that the configuration decides. */
export type ImageDetails = Pick<
  ImageRecord,
  | "architecture"
  | "os"
  | "entrypoint"
  | "default_cmd"
  | "env"
  | "working_dir"
  | "exposed_ports"
  | "volumes"
  | "labels"
  | "user_spec"
  | "created_at"
>;

/**
 * Field of a line of the history, beside those of the OCI image-spec: bytes that the step added. The steps of a build share one
 * layer, which does not tell them apart.
 */
export const OWN_BYTES = "hearth.size_bytes";

const texts = z.array(z.string()).nullish();
/** A set of names: an object whose values mean nothing. */
const names = z.record(z.string(), z.unknown()).nullish();

const imageConfig = z.object({
  architecture: z.string().max(LIMITS.image_platform_length_max),
  os: z.string().max(LIMITS.image_platform_length_max),
  created: z.string().nullish(),
  config: z
    .object({
      Entrypoint: texts,
      Cmd: texts,
      Env: texts,
      WorkingDir: z.string().nullish(),
      ExposedPorts: names,
      Volumes: names,
      Labels: z.record(z.string(), z.string()).nullish(),
      User: z.string().nullish(),
    })
    .nullish(),
  history: z
    .array(
      z.object({
        created: z.string().nullish(),
        created_by: z.string().nullish(),
        comment: z.string().nullish(),
        empty_layer: z.boolean().nullish(),
        // A claim of the builder's, as all of the history is; a wrong one is no reason to refuse the image.
        [OWN_BYTES]: z.int().min(0).nullish().catch(null),
      }),
    )
    .nullish(),
});

/** Throws IMAGE_INVALID that names the field. */
function parsed(config_json: string): z.output<typeof imageConfig> {
  const result = imageConfig.safeParse(readJson(config_json));
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const field = (issue?.path ?? []).join(".").slice(0, LIMITS.name_length_max);
  throw new AppError("IMAGE_INVALID", `invalid configuration of the image: ${field}: ${issue?.message}`);
}

function readJson(config_json: string): unknown {
  try {
    return JSON.parse(config_json);
  } catch (cause) {
    throw new AppError("IMAGE_INVALID", "invalid configuration of the image: not JSON", { cause });
  }
}

/** Reads the details of an image. Throws IMAGE_INVALID for a configuration that is invalid or too large for a record. */
export function detailsOf(config_json: string): ImageDetails {
  const { architecture, os, created, config } = parsed(config_json);
  const details: ImageDetails = {
    architecture,
    os,
    entrypoint: filled(config?.Entrypoint),
    default_cmd: filled(config?.Cmd),
    env: config?.Env ?? [],
    working_dir: config?.WorkingDir || null,
    exposed_ports: Object.keys(config?.ExposedPorts ?? {}).sort(),
    volumes: Object.keys(config?.Volumes ?? {}).sort(),
    labels: config?.Labels ?? {},
    user_spec: config?.User || null,
    created_at: secondsOf(created),
  };
  const bytes = Buffer.byteLength(JSON.stringify(details));
  const max = LIMITS.image_details_bytes_max;
  if (bytes <= max) return details;
  throw new AppError(
    "IMAGE_INVALID",
    `configuration of the image too large: environment, labels and commands have ${bytes} bytes (limit ${max})`,
    { details: { expected: [`<= ${max} bytes`], received: `${bytes} bytes` } },
  );
}

/**
 * Returns the build steps, each with the bytes that it added: those of its layer, unless its builder noted them because
 * several steps share a layer. An image without a history gets one step for each layer.
 */
export function historyOf(config_json: string, layers: readonly Layer[]): HistoryEntry[] {
  const { history } = parsed(config_json);
  const sizes = layers.map(({ uncompressed_size, size_bytes }) => uncompressed_size ?? size_bytes);
  if (history == null || history.length === 0) {
    return sizes.map((size_bytes) => ({
      created_at: null,
      created_by: "",
      comment: "",
      empty_layer: false,
      size_bytes,
    }));
  }
  const left = sizes.values();
  return history.map(({ created, created_by, comment, empty_layer, [OWN_BYTES]: own_bytes }) => {
    const layer_bytes = empty_layer === true ? 0 : (left.next().value ?? 0);
    return {
      created_at: secondsOf(created),
      created_by: created_by ?? "",
      comment: comment ?? "",
      empty_layer: empty_layer === true,
      size_bytes: own_bytes ?? layer_bytes,
    };
  });
}

/** An empty list in a configuration means the same as none. */
const filled = (list: string[] | null | undefined): string[] | null =>
  list == null || list.length === 0 ? null : list;

function secondsOf(time: string | null | undefined): EpochSeconds | null {
  const ms = Date.parse(time ?? "");
  return Number.isNaN(ms) ? null : Math.floor(ms / 1_000);
}
