/** Platforms of images, `<os>/<architecture>[/<variant>]`, and which variants a machine of one can run. */
import { AppError } from "../base/errors.ts";

export interface Platform {
  readonly os: string;
  readonly architecture: string;
  /** Null: any that every machine of the architecture runs. */
  readonly variant: string | null;
}

const PART = /^[a-z0-9][a-z0-9._-]{0,31}$/;
/** Names of architectures that other tools print. */
const ALIASES: Readonly<Record<string, string>> = {
  x86_64: "amd64",
  "x86-64": "amd64",
  aarch64: "arm64",
  armhf: "arm",
};
/** Architectures as Node names them. */
const NODE_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };
/** Variants, the newest first: a machine runs its own and all older ones. */
const VARIANTS: Readonly<Record<string, readonly string[]>> = {
  amd64: ["v4", "v3", "v2", "v1"],
  arm64: ["v9", "v8"],
  arm: ["v8", "v7", "v6", "v5"],
};
/** The variant that every machine of the architecture has, or for 32-bit ARM nearly every one. */
const COMMON_VARIANTS: Readonly<Record<string, string>> = { amd64: "v1", arm64: "v8", arm: "v7" };

/** Parses `linux/arm64`. Throws INVALID_ARGUMENT. */
export function parsePlatform(text: string): Platform {
  const [os = "", given = "", variant = null, ...rest] = text.toLowerCase().split("/");
  const architecture = ALIASES[given] ?? given;
  const parts = variant === null ? [os, architecture] : [os, architecture, variant];
  if (rest.length > 0 || !parts.every((part) => PART.test(part))) {
    throw new AppError("INVALID_ARGUMENT", `invalid platform: '${text.slice(0, 64)}'`, {
      details: { expected: ["<os>/<architecture>", "<os>/<architecture>/<variant>"], example: "linux/amd64" },
    });
  }
  return { os, architecture, variant };
}

export function platformText({ os, architecture, variant }: Platform): string {
  return variant === null ? `${os}/${architecture}` : `${os}/${architecture}/${variant}`;
}

/** Returns the platform of this machine. */
export function machinePlatform(): Platform {
  return { os: "linux", architecture: NODE_ARCHITECTURES[process.arch] ?? process.arch, variant: null };
}

/** Returns the variants that fit the asked platform, the best first; an empty text stands for an image without one. */
function fittingVariants({ architecture, variant }: Platform): readonly string[] {
  const all = VARIANTS[architecture] ?? [];
  const own = variant ?? COMMON_VARIANTS[architecture];
  if (own === undefined) return [""];
  const first = all.indexOf(own);
  return [...(first < 0 ? [own] : all.slice(first)), ""];
}

/** Returns how well a platform fits the asked one: 0 is best; null if an image for it does not run there. */
export function fitOf(asked: Platform, found: Platform): number | null {
  const architecture = ALIASES[found.architecture] ?? found.architecture;
  if (found.os !== asked.os || architecture !== asked.architecture) return null;
  const place = fittingVariants(asked).indexOf(found.variant ?? "");
  return place < 0 ? null : place;
}
