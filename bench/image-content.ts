/**
 * The images that `images.ts` pulls, in a registry of Debian on loopback: files of this machine in layers of a given size, and
 * a stack of many layers. Each image has a shell in its lowest layer.
 */
import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { machinePlatform } from "../src/oci/platform.ts";
import { shellRoot } from "../test/support/alpine.ts";
import { DockerRegistry } from "../test/support/docker-registry.ts";
import { entry, tar } from "../test/support/layer-bytes.ts";
import { makeImage } from "../test/support/registry.ts";

/** Libraries and modules: many files of all sizes, which compress as those of most images do. */
const SOURCE = "/usr/lib";
/** One large file is no layer. */
const FILE_BYTES_MAX = 4_000_000;
/** The name field of a tar header holds no more. */
const NAME_BYTES_MAX = 100;

export interface BenchImages {
  readonly registry: DockerRegistry;
  /** References: of the plan's layers, of one layer, and of as many layers as the plan stacks. */
  readonly large: string;
  readonly single: string;
  readonly stacked: string;
  readonly layers_mb: number;
}

export interface ImagesShape {
  readonly layers_count: number;
  readonly layer_mb: number;
  readonly stacked_count: number;
}

/** Yields the paths of regular files below a directory, in an order that is the same each time. */
function* filesBelow(directory: string): Generator<string> {
  const entries = readdirSync(directory, { withFileTypes: true });
  for (const found of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(directory, found.name);
    if (found.isDirectory()) yield* filesBelow(path);
    else if (found.isFile()) yield path;
  }
}

/** Makes layers of some `layer_mb` each. `mark` makes them differ from those of all other runs, so that no store has them. */
function fileLayers({ layers_count, layer_mb }: ImagesShape, mark: string): Buffer[] {
  const layers: Buffer[] = [];
  const source = filesBelow(SOURCE);
  while (layers.length < layers_count) {
    const parts = [entry({ name: `layer-${layers.length}`, content: mark })];
    let bytes = 0;
    while (bytes < layer_mb * 1e6) {
      const next = source.next();
      if (next.done === true)
        throw new Error(`${SOURCE} has too few files for ${layers_count} layers of ${layer_mb} MB`);
      const name = next.value.slice(1);
      if (name.length > NAME_BYTES_MAX || statSync(next.value).size > FILE_BYTES_MAX) continue;
      const part = entry({ name, content: readFileSync(next.value) });
      parts.push(part);
      bytes += part.length;
    }
    layers.push(tar(...parts));
  }
  return layers;
}

/** Starts a registry with all images. The caller disposes of it. */
export async function serveImages(shape: ImagesShape): Promise<BenchImages> {
  const { architecture } = machinePlatform();
  const registry = await new DockerRegistry().start();
  try {
    const mark = randomUUID();
    const root = shellRoot();
    const files = fileLayers(shape, mark);
    const small = Array.from({ length: shape.stacked_count - 1 }, (_, i) =>
      tar(entry({ name: `stacked-${i}`, content: `${mark} ${i}` })),
    );
    const own = tar(entry({ name: "single", content: mark }));
    // The tar ends with two blocks of zeros, behind which no entry is read.
    const single = Buffer.concat([own.subarray(0, -1_024), root]);
    const push = (name: string, layers: readonly Buffer[]) =>
      registry.push(
        `bench/${name}`,
        "1",
        makeImage({ layers, architecture, config: { config: { Cmd: ["/bin/sh"] } } }),
      );
    // The lowest of the layers has the shell, beside its files.
    const [lowest = Buffer.alloc(0), ...above] = files;
    const large = [Buffer.concat([lowest.subarray(0, -1_024), root]), ...above];
    await push("large", large);
    await push("single", [single]);
    await push("stacked", [single, ...small]);
    const of = (name: string): string => `${registry.host}/bench/${name}:1`;
    const layers_mb = large.reduce((sum, { length }) => sum + length, 0) / 1e6;
    return { registry, large: of("large"), single: of("single"), stacked: of("stacked"), layers_mb };
  } catch (error) {
    await registry.dispose();
    throw error;
  }
}
