/** Images that a test makes in the store: the one of the profile `prod`, with one file more. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { buildahCommand, readDirectories } from "../../src/installation/paths.js";
import { profileImage } from "../../src/installation/profiles.js";
import type { Daemon, Leftovers } from "./daemon.ts";

/** A removal by any daemon, at the same time, fails a listing. */
const LIST_ATTEMPTS_MAX = 5;

/** Runs buildah on the store. Returns what it prints. */
export function build(...args: string[]): string {
  const [buildah = "", ...flags] = buildahCommand(readDirectories(process.env, []).image_dir);
  for (let attempt = 1; ; attempt++) {
    try {
      return execFileSync(buildah, [...flags, ...args], { stdio: ["ignore", "pipe", "pipe"] })
        .toString()
        .trim();
    } catch (error) {
      if (args[0] !== "images" || attempt >= LIST_ATTEMPTS_MAX) throw error;
    }
  }
}

/** Gives the operator's tenant an image that somebody made in the store. Returns its record. */
// biome-ignore lint/suspicious/noExplicitAny: the record as it came.
export async function pullLocal(daemon: Daemon, reference: string): Promise<any> {
  const body = { reference: `containers-storage:${reference}` };
  const answer = await daemon.call("POST", "/api/oci/images/pull", body);
  if (answer.status !== 200) throw new Error(`pull answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  return answer.body.image;
}

/** Lists the containers of buildah that keep an image mounted. */
export function mountsOf({ image_containers }: Leftovers, id: string): string[] {
  return image_containers.filter((name) => name.endsWith(id.slice(0, 32)));
}

export interface Recipe {
  readonly base?: "scratch" | "prod";
  /** Gets the path of the image's root on this machine. */
  readonly edit?: (root: string) => void;
  /** Flags of one call of `buildah config` each: arguments have bounds. */
  readonly config?: readonly (readonly string[])[];
  /** Only Docker's format has health checks. */
  readonly format?: "oci" | "docker";
}

export class MadeImages {
  readonly #name: string;
  readonly #ids: string[] = [];

  constructor(name: string) {
    this.#name = name;
  }

  /** Makes an image whose /version holds `text`, and gives it the name. Returns its id. */
  make(text: string): string {
    const container = build("from", "--pull-never", "--", profileImage("prod").reference);
    build("config", "--label", `version=${text}`, "--env", `VERSION=${text}`, container);
    const directory = mkdtempSync("/var/tmp/hearth-image-");
    writeFileSync(`${directory}/version`, `${text}\n`);
    build("copy", container, `${directory}/version`, "/version");
    const id = build("commit", "--quiet", container, this.#name);
    build("rm", container);
    rmSync(directory, { recursive: true, force: true });
    this.#ids.push(id);
    return id;
  }

  /** Makes an image of another base, whose root `edit` changes and whose settings are flags of `buildah config`. */
  makeOf({ base = "scratch", edit = () => {}, config = [], format = "oci" }: Recipe): string {
    const container = build("from", "--pull-never", "--", base === "prod" ? profileImage("prod").reference : base);
    try {
      edit(build("mount", container));
      for (const flags of config) build("config", ...flags, container);
      build("umount", container);
      const id = build("commit", "--quiet", "--format", format, container, this.#name);
      this.#ids.push(id);
      return id;
    } finally {
      build("rm", container);
    }
  }

  /** Removes them, once no daemon uses them. */
  remove(): void {
    const stored = build("images", "--quiet", "--no-trunc");
    // A daemon removes a nameless one itself once it does not keep it any more.
    for (const id of this.#ids) if (stored.includes(id)) build("rmi", "--force", id);
  }
}
