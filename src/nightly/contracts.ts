/**
 * The contract of a profile's image: the label of its release, the shell, the user and the tools of the recipe, and minit of this
 * node. An image never changes, so each is checked once.
 */
import { constants } from "node:fs";
import { access, readFile, stat } from "node:fs/promises";
import { LRUCache } from "lru-cache";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Images } from "../engine/ports.ts";
import type { Catalog, Release } from "./catalog.ts";

const SHELL = "/bin/sh";
const EXECUTABLE = 0o111;

export interface ImageContractsOptions {
  readonly images: () => Pick<Images, "isRelease" | "fileIn">;
  readonly catalog: Catalog;
  /** Path of the program that is PID 1 of containers. */
  readonly minit: string;
  readonly log: Log;
}

export class ImageContracts {
  readonly #options: ImageContractsOptions;
  /** By the image's id: null, or the reason why it breaks the contract. */
  readonly #checked = new LRUCache<string, Promise<string | null>>({ max: LIMITS.image_configs_kept });

  constructor(options: ImageContractsOptions) {
    this.#options = options;
  }

  /** `release`: the one that the container was made with; null: an image of a tenant, which promises nothing. Rejects if the store does not answer. */
  async holds(image_id: string, release: string | null): Promise<boolean> {
    if (!(await this.#options.images().isRelease(image_id, release))) return false;
    if (release === null) return true;
    const known = this.#checked.get(image_id);
    const check = known ?? this.#check(image_id, release);
    if (known === undefined) {
      this.#checked.set(image_id, check);
      check.catch(() => this.#checked.delete(image_id));
    }
    return (await check) === null;
  }

  async #check(image_id: string, version: string): Promise<string | null> {
    const problem = await this.#problem(image_id, version);
    if (problem !== null)
      this.#options.log.warn("image breaks the contract of its profile", { image_id, version, problem });
    return problem;
  }

  async #problem(image_id: string, version: string): Promise<string | null> {
    const { catalog, minit } = this.#options;
    const isExecutable = await access(minit, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (!isExecutable) return `minit is not executable: ${minit}`;
    const release = releaseOf(catalog, version);
    if (release !== null && release.image_id !== image_id) return `release ${version} is image ${release.image_id}`;
    // A release of an earlier hearth has no record; its label and its shell count.
    const tools = Object.entries(release?.tools ?? {});
    for (const [tool, path] of [["sh", SHELL] as const, ...tools]) {
      const file = await this.#options.images().fileIn(image_id, path);
      const mode = file === null ? 0 : (await stat(file)).mode;
      if ((mode & EXECUTABLE) === 0) return `${tool} is missing or not executable: ${path}`;
    }
    const user = release === null ? undefined : catalog.recipe(release.profile).profile.user;
    if (user !== undefined && !(await this.#hasUser(image_id, user))) return `user ${user} is missing`;
    return null;
  }

  async #hasUser(image_id: string, user: string): Promise<boolean> {
    const path = await this.#options.images().fileIn(image_id, "/etc/passwd");
    const lines = path === null ? [] : (await readFile(path, "utf8")).split("\n");
    const [name = ""] = user.split(":");
    return lines.some((line) => line.split(":")[/^\d+$/.test(name) ? 2 : 0] === name) || /^\d+$/.test(name);
  }
}

function releaseOf(catalog: Catalog, version: string): Release | null {
  const all = catalog.names().flatMap((name) => catalog.releases(name));
  return all.find((release) => release.version === version) ?? null;
}
