/**
 * Files that ADD takes from URLs, and trees of git repositories: fetched for the build, through the guard of outgoing requests, each
 * into a subvolume that ends with the build.
 *
 * D1. What is fetched is part of the key of its step, so a build fetches it before anything runs. With a checksum that is the key, and
 *     a step whose result is kept fetches nothing.
 *     Of git that is the commit: its host is asked for that of a ref, and for files only by a step that is not kept.
 * D2. A file has owner and mode of the reference: root, 0600, and the time that the host tells, or none. Files
 *     of git have 0644 or 0755, and the time of the commit.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Outgoing } from "../../base/outgoing-requests.ts";
import type { Reservation } from "../../base/reservations.ts";
import type { FileSession } from "../../engine/ports.ts";
import type { BuildCache, HeldMount } from "./cache.ts";
import { type FoundCommit, GitHost } from "./git/protocol.ts";
import { COMMIT, type GitSource, gitSource, isGit } from "./git/source.ts";
import type { GitTrees } from "./git/trees.ts";

export interface RemoteFile {
  readonly url: string;
  /** The last part of its path. */
  readonly name: string;
  /** 64 hexadecimal digits of SHA-256, of git the first digits of a commit; null: any content. */
  readonly checksum: string | null;
  /** Of a repository, whose files are in a directory of that name. */
  readonly git?: GitSource;
}

export interface DownloadsOptions {
  readonly outgoing: Outgoing;
  readonly cache: BuildCache;
  readonly tenant_id: string;
  readonly size_mb: number;
  /** False: the request allows no traffic to any host. */
  readonly is_open: boolean;
  readonly signal: AbortSignal;
  readonly trees: GitTrees;
  /** Where packs lie meanwhile: a path that is not there, of this build alone. */
  readonly directory: string;
  /** Reserves temporary files of the tenant, of no bytes at first. */
  readonly reserve: () => Promise<Reservation>;
  /** For the log of the build. */
  readonly tell: (text: string) => void;
  /** Opens a session on a subvolume. */
  readonly within: <Result>(root: string, work: (session: FileSession) => Promise<Result>) => Promise<Result>;
}

interface Fetched {
  readonly root: string;
  readonly held: HeldMount;
  /** Of git: the commit. */
  readonly digest: string;
}

interface Repository {
  readonly host: GitHost;
  readonly found: FoundCommit;
}

const HTTP = /^https?:\/\//i;
const OK = 200;
const MIB = 1024 * 1024;
/** The directory with the files of a repository. */
const TREE = "tree";

export const isUrl = (source: string): boolean => HTTP.test(source) || isGit(source);

/** Reads a URL of ADD. Throws what `refuse` returns. */
export function remoteFile(source: string, checksum: string | null, refuse: (why: string) => AppError): RemoteFile {
  if (isGit(source)) return { url: source, name: TREE, checksum, git: gitSource(source, refuse) };
  const shown = source.slice(0, 200);
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
  readonly #repositories = new Map<string, Promise<Repository>>();
  #places_count = 0;

  constructor(options: DownloadsOptions) {
    this.#options = options;
  }

  /** Returns what the content of a file is known by (D1). Throws BUILD_FAILED, and what the guard throws. */
  async key(file: RemoteFile): Promise<string> {
    const { git, checksum } = file;
    if (git === undefined) return checksum ?? (await this.#get(file)).digest;
    const known = [checksum, git.ref].find((one) => COMMIT.test(one ?? ""));
    return known ?? (await this.#repository(file, git)).found.commit;
  }

  /** Opens a session on a directory that holds the file, or the directory, under its name. Throws as `key` does. */
  async with<Result>(file: RemoteFile, work: (session: FileSession) => Promise<Result>): Promise<Result> {
    if (file.git !== undefined) await this.#checkCommit(file, file.git);
    const { root, digest } = await this.#get(file);
    if (file.git === undefined && file.checksum !== null && file.checksum !== digest) {
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
    this.#checkCount(this.#fetched);
    const fetched = this.#described(file, () => this.#fetch(file));
    this.#fetched.set(key, fetched);
    return fetched;
  }

  #checkCount(known: ReadonlyMap<string, unknown>): void {
    if (known.size < LIMITS.build_downloads_max) return;
    throw new AppError("INVALID_ARGUMENT", `too many URLs in a build (limit ${LIMITS.build_downloads_max})`);
  }

  /** Names the URL in a failure that does not. */
  #described<Result>(file: RemoteFile, work: () => Promise<Result>): Promise<Result> {
    return work().catch((error: unknown) => {
      this.#options.signal.throwIfAborted();
      throw error instanceof AppError && error.code !== "INTERNAL" ? error : failed(file, errorText(error));
    });
  }

  async #fetch(file: RemoteFile): Promise<Fetched> {
    if (file.git !== undefined) return this.#fetchGit(file, file.git);
    const { outgoing, cache, tenant_id, within } = this.#options;
    const mb_max = this.#mbMax;
    const answer = await outgoing.open(file.url, { ...this.#opening(file), bytes_max: mb_max * MIB });
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

  get #mbMax(): number {
    return Math.min(this.#options.size_mb, LIMITS.build_download_mb_max);
  }

  /** Throws INVALID_ARGUMENT: the build has no traffic. */
  #opening({ url }: RemoteFile) {
    if (!this.#options.is_open) {
      throw new AppError("INVALID_ARGUMENT", `ADD of a URL needs the egress "on": '${shownUrl(url)}'`, {
        hint: "send the egress on, or copy the file into the context",
      });
    }
    return {
      ...{ timeout_ms: LIMITS.build_download_ms, signal: this.#options.signal },
      ...{ silence_ms: LIMITS.registry_silence_ms, silence_bytes_min: LIMITS.registry_silence_bytes_min },
    };
  }

  #repository(file: RemoteFile, { repository, ref }: GitSource): Promise<Repository> {
    const known = this.#repositories.get(file.url);
    if (known !== undefined) return known;
    this.#checkCount(this.#repositories);
    const asked = this.#described(file, async () => {
      const refuse = (why: string) => failed(file, why);
      const opening = this.#opening(file);
      const host = await GitHost.open(repository, { outgoing: this.#options.outgoing, opening, refuse });
      const found = ref !== null && COMMIT.test(ref) ? { commit: ref, tag: null } : await host.find(ref);
      return { host, found };
    });
    this.#repositories.set(file.url, asked);
    return asked;
  }

  async #checkCommit(file: RemoteFile, git: GitSource): Promise<void> {
    const { commit, tag } = (await this.#repository(file, git)).found;
    const expected = file.checksum ?? "";
    if (commit.startsWith(expected) || tag?.startsWith(expected) === true) return;
    throw failed(file, `its commit is ${commit} (expected ${expected})`);
  }

  async #fetchGit(file: RemoteFile, git: GitSource): Promise<Fetched> {
    const { cache, tenant_id, within, trees, directory, reserve, signal, tell } = this.#options;
    const { host, found } = await this.#repository(file, git);
    const { commit } = found;
    const place = join(directory, String(this.#places_count++));
    const request = {
      ...{ host, commit, directory: git.directory, place, signal },
      refuse: (w: string) => failed(file, w),
    };
    let root = "";
    const reservation = await reserve();
    try {
      const held = await cache.copy(tenant_id, this.#mbMax, (made) => {
        root = made;
        return trees.with({ ...request, reservation }, async (tar, { submodules, submodules_count }) => {
          await within(made, async (session) => {
            await session.mkdir(TREE, { mode: 0o755 });
            await session.extract(tar, { path: TREE });
          });
          if (submodules_count > 0) {
            tell(`submodules left out, which stay empty directories: ${submodules_count} (${submodules.join(", ")})\n`);
          }
        });
      });
      return { root, held, digest: commit };
    } finally {
      reservation.release();
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
  return new AppError("BUILD_FAILED", `ADD ${shownUrl(url)}: ${why}`);
}

/** Without a user and a password. */
const shownUrl = (url: string): string => url.replace(/^(https?:\/\/)[^/@]*@/i, "$1").slice(0, 200);
