/** Recipes of profiles that a test adds, layered on prod without packages: their builds take a second. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildahCommand, imageStore, readDirectories } from "../../src/installation/paths.js";

interface Traces {
  /** Layers of working containers of builds. */
  readonly layers: readonly string[];
  readonly mounts_count: number;
  readonly temporary: readonly string[];
}

export class Recipes {
  readonly directory = mkdtempSync("/var/tmp/hearth-recipes-");
  readonly #names: string[] = [];

  /** Adds a recipe under a name that no other test has. Returns the name. */
  add(label: string, more: object = {}): string {
    const name = `t${label}-${process.pid}`;
    const lists = { packages: [], directories: [], path_exclude: [], path_include: [], tools: ["sh"], verify: [] };
    const maps = { npm_files: {}, scripts: {}, links: {}, environment: {} };
    const about = { name, title: "A test", description: "A test.", revision: 1, from: "prod" };
    this.#names.push(name);
    mkdirSync(join(this.directory, name), { recursive: true });
    writeFileSync(join(this.directory, name, "profile.json"), JSON.stringify({ ...about, ...lists, ...maps, ...more }));
    return name;
  }

  /** Changes a recipe, for the next start of a daemon. */
  change(name: string, more: object): void {
    const path = join(this.directory, name, "profile.json");
    writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), ...more }));
  }

  /** Changes the record of a release. */
  changeRelease(name: string, version: string, more: object): void {
    const path = join(readDirectories(process.env, []).image_dir, "profiles", name, `${version}.json`);
    writeFileSync(`${path}.tmp`, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), ...more }));
    renameSync(`${path}.tmp`, path);
  }

  /** Removes the recipes with all that was built of them. */
  remove(): void {
    const { image_dir } = readDirectories(process.env, []);
    const [buildah = "", ...flags] = buildahCommand(image_dir);
    const images = JSON.parse(readFileSync(imageStore(image_dir).images_file, "utf8")) as {
      readonly names?: readonly string[];
    }[];
    for (const name of this.#names) {
      const own = images.flatMap(({ names = [] }) =>
        names.filter((one) => one.startsWith(`localhost/hearth/${name}:`)),
      );
      if (own.length > 0) execFileSync(buildah, [...flags, "rmi", "--force", ...own], { stdio: "ignore" });
      rmSync(join(image_dir, "profiles", name), { recursive: true, force: true });
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** True if the store, which other daemons change too, has a layer. */
export function hasLayer(id: string): boolean {
  const { root } = imageStore(readDirectories(process.env, []).image_dir);
  return readFileSync(join(root, "overlay-layers/layers.json"), "utf8").includes(`"id":"${id}"`);
}

/** Returns the leftovers of builds of a daemon with this data directory. */
export function buildTraces(data_dir: string): Traces {
  const { image_dir } = readDirectories(process.env, []);
  const { root } = imageStore(image_dir);
  const containers = JSON.parse(readFileSync(join(root, "overlay-containers/containers.json"), "utf8")) as {
    readonly names?: readonly string[];
    readonly layer: string;
  }[];
  const temporary = join(data_dir, "tmp/setup");
  const entries = (() => {
    try {
      return readdirSync(temporary);
    } catch {
      return [];
    }
  })();
  return {
    layers: containers.filter(({ names = [] }) => names.includes("hearth-setup")).map(({ layer }) => layer),
    mounts_count: readFileSync("/proc/self/mountinfo", "utf8")
      .split("\n")
      .filter((line) => line.includes("/merged")).length,
    temporary: entries,
  };
}
