/**
 * Files that ADD takes from URLs: fetched for the build, through the guard of outgoing requests, each into a subvolume that ends with
 * the build.
 *
 * D1. What is fetched is part of the key of its step, so a build fetches it before anything runs. With a checksum that is the key, and
 *     a step whose result is kept fetches nothing.
 * D2. A file has owner and mode of the reference: root, 0600, and the time that the host tells, or none.
 */
import { createHash } from "node:crypto";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Outgoing } from "../../base/outgoing-requests.ts";
import type { FileSession } from "../../engine/ports.ts";
import type { BuildCache, HeldMount } from "./cache.ts";

export interface RemoteFile {
  readonly url: string;
  /** The last part of its path. */
  readonly name: string;
  /** 64 hexadecimal digits of SHA-256; null: any content. */
  readonly checksum: string | null;
}

export interface DownloadsOptions {
  readonly outgoing: Outgoing;
  readonly cache: BuildCache;
  readonly tenant_id: string;
  readonly size_mb: number;
  /** False: the request allows no traffic to any host. */
  readonly is_open: boolean;
  readonly signal: AbortSignal;
  /** Opens a session on a subvolume. */
  readonly within: <Result>(root: string, work: (session: FileSession) => Promise<Result>) => Promise<Result>;
}

interface Fetched {
  readonly root: string;
  readonly held: HeldMount;
  readonly digest: string;
}

const GIT = /^(?:git|ssh):\/\/|^git@|^https?:\/\/[^#?]*\.git(?:[#?].*)?$/i;
const HTTP = /^https?:\/\//i;
const OK = 200;
const MIB = 1024 * 1024;

export const isUrl = (source: string): boolean => HTTP.test(source) || GIT.test(source);

/** Reads a URL of ADD. Throws what `refuse` returns. */
export function remoteFile(source: string, checksum: string | null, refuse: (why: string) => AppError): RemoteFile {
  const shown = source.slice(0, 200);
  if (GIT.test(source)) {
    throw refuse(
      `ADD of a git repository is not supported: '${shown}' (clone it with RUN, or copy it into the context)`,
    );
  }
  if (!URL.canParse(source)) throw refuse(`malformed URL: '${shown}'`);
  const { pathname } = new URL(source);
  const name = decoded(pathname).split("/").at(-1) ?? "";
  if (name === "" || name === "." || name === ".." || name.includes("\0") || Buffer.byteLength(name) > NAME_BYTES_MAX) {
    throw refuse(`the path of a URL must end with a file name: '${shown}'`);
  }
  return { url: source, name, checksum };
}

/** As Linux has it. */
const NAME_BYTES_MAX = 255;

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

export class Downloads {
  readonly #options: DownloadsOptions;
  readonly #fetched = new Map<string, Promise<Fetched>>();

  constructor(options: DownloadsOptions) {
    this.#options = options;
  }

  /** Returns what the content of a file is known by (D1). Throws BUILD_FAILED, and what the guard throws. */
  async key(file: RemoteFile): Promise<string> {
    return file.checksum ?? (await this.#get(file)).digest;
  }

  /** Opens a session on a directory that holds the file under its name. Throws as `key` does. */
  async with<Result>(file: RemoteFile, work: (session: FileSession) => Promise<Result>): Promise<Result> {
    const { root, digest } = await this.#get(file);
    if (file.checksum !== null && file.checksum !== digest) {
      throw failed(file, `its checksum is sha256:${digest} (expected sha256:${file.checksum})`);
    }
    return this.#options.within(root, work);
  }

  /** Removes what was fetched. */
  async close(): Promise<void> {
    for (const one of this.#fetched.values()) await one.then(({ held }) => held.release()).catch(() => {});
  }

  #get(file: RemoteFile): Promise<Fetched> {
    const key = `${file.name}\0${file.url}`;
    const known = this.#fetched.get(key);
    if (known !== undefined) return known;
    if (this.#fetched.size >= LIMITS.build_downloads_max) {
      throw new AppError("INVALID_ARGUMENT", `too many URLs in a build (limit ${LIMITS.build_downloads_max})`);
    }
    const fetched = this.#fetch(file).catch((error: unknown) => {
      this.#options.signal.throwIfAborted();
      throw error instanceof AppError && error.code !== "INTERNAL" ? error : failed(file, errorText(error));
    });
    this.#fetched.set(key, fetched);
    return fetched;
  }

  async #fetch(file: RemoteFile): Promise<Fetched> {
    const { outgoing, cache, tenant_id, size_mb, is_open, signal, within } = this.#options;
    if (!is_open) {
      throw new AppError("INVALID_ARGUMENT", `ADD of a URL needs the egress "on": '${file.url.slice(0, 200)}'`, {
        hint: "send the egress on, or copy the file into the context",
      });
    }
    const mb_max = Math.min(size_mb, LIMITS.build_download_mb_max);
    const answer = await outgoing.open(file.url, {
      ...{ timeout_ms: LIMITS.build_download_ms, bytes_max: mb_max * MIB, signal },
      ...{ silence_ms: LIMITS.registry_silence_ms, silence_bytes_min: LIMITS.registry_silence_bytes_min },
    });
    try {
      if (answer.status !== OK) throw failed(file, `the host answered ${answer.status} (expected ${OK})`);
      const hash = createHash("sha256");
      const time = Date.parse(answer.headers["last-modified"] ?? "");
      let root = "";
      const held = await cache.copy(tenant_id, mb_max, (made) => {
        root = made;
        const attributes = { mode: 0o600, mtime_ms: Number.isNaN(time) ? 0 : time };
        return within(made, (session) => session.write(file.name, hashed(answer.body, hash), attributes));
      });
      return { root, held, digest: hash.digest("hex") };
    } finally {
      answer.close();
    }
  }
}

async function* hashed(
  body: AsyncIterable<Uint8Array>,
  hash: { readonly update: (piece: Uint8Array) => unknown },
): AsyncGenerator<Uint8Array> {
  for await (const piece of body) {
    hash.update(piece);
    yield piece;
  }
}

function failed({ url }: RemoteFile, why: string): AppError {
  return new AppError("BUILD_FAILED", `ADD ${url.slice(0, 200)}: ${why}`);
}
