/** A store of images of a test's own, with the parts of the engine that fill it, and a registry. */
import { execFileSync } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";
import { MountedImages } from "../../src/engine/images/mounted-images.ts";
import type { ImagePull } from "../../src/engine/ports/images.ts";
import { imageParts, storeCommands } from "../support/image-parts.ts";
import { LayerRegistry } from "../support/layer-registry.ts";
import { Ground } from "../support/storage-ground.ts";

export class ImageGround {
  readonly ground: Ground;
  readonly registry = new LayerRegistry();
  readonly #commands: ReturnType<typeof storeCommands>;
  host = "";
  images: MountedImages;

  /** `root`: of another ground, to take its store over. */
  constructor(root?: string) {
    this.ground = root === undefined ? new Ground() : new Ground("d", root);
    this.#commands = storeCommands(this.ground.root);
    this.images = this.#make();
  }

  get conf(): string {
    return `${this.ground.root}/registries.conf`;
  }

  async start(port = 0): Promise<void> {
    await this.ground.start();
    this.host = await this.registry.listen(port);
    writeFileSync(this.conf, `[[registry]]\nlocation = "${this.host}"\ninsecure = true\n`);
  }

  /** As another process of the same daemon. */
  restart(): void {
    this.images = this.#make();
  }

  async stop(): Promise<void> {
    this.registry.close();
    await this.ground.stop();
  }

  /** A pull of `name` of the registry. */
  of(name: string, more: Partial<ImagePull> = {}): ImagePull {
    return {
      reference: `${this.host}/${name}`,
      transport: "docker",
      platform: { os: "linux", architecture: "amd64", variant: null },
      registries_conf: this.conf,
      policy_file: null,
      diff_ids: [],
      timeout_ms: 30_000,
      signal: new AbortController().signal,
      ...more,
    };
  }

  /** Runs buildah on the store, as an operator does. */
  build(...args: string[]): Promise<string> {
    return this.#run([...this.#commands.buildah, ...args]);
  }

  /** Pulls as an operator does. */
  buildPull(name: string): Promise<string> {
    return this.build("--registries-conf", this.conf, "pull", "--quiet", `docker://${this.host}/${name}`);
  }

  /** What the store holds: images with their names, layers, and directories of layers. */
  async stored(): Promise<{ images: Record<string, string[]>; layers: number; directories: number }> {
    const { root, storage } = this.#commands;
    const list = async (verb: string) => JSON.parse((await this.#run([...storage, verb, "--json"])) || "[]") ?? [];
    const rows = (await list("images")) as { id: string; names?: string[] }[];
    const images = Object.fromEntries(rows.map(({ id, names }) => [id, names ?? []]));
    const directories = readdirSync(`${root}/overlay`).filter((name) => /^[0-9a-f]{64}$/.test(name));
    return { images, layers: (await list("layers")).length, directories: directories.length };
  }

  /** Directories of pulls. */
  notes(): string[] {
    try {
      return readdirSync(`${this.ground.root}/pulls`);
    } catch {
      return [];
    }
  }

  /** Processes that have the ground in their command line. */
  processes(): string[] {
    const found = execFileSync("ps", ["-eo", "args"]).toString().split("\n");
    return found.filter((line) => line.includes(`${this.ground.root}/pulls/`) && !line.startsWith("ps "));
  }

  /** In the launcher's namespace, where the store's mounts end with the launcher. */
  async #run(argv: readonly string[]): Promise<string> {
    return (await this.ground.client.run(argv, 30_000)).trim();
  }

  #make(): MountedImages {
    return new MountedImages({ ...imageParts(this.ground.root, () => this.ground.client), references_max: 10 });
  }
}
