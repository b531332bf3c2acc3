/** Archives of images as `docker save` of Docker up to 24 writes them. */
import { directory, entry, tar } from "./layer-bytes.ts";
import { jsonBytes, type MadeImage, sha256 } from "./registry.ts";

/** An entry of manifest.json. */
export interface DockerImage {
  readonly Config: string;
  readonly RepoTags: readonly string[] | null;
  readonly Layers: readonly string[];
}

type Parts = Pick<MadeImage, "config" | "layers">;

const hexOf = (bytes: Buffer): string => sha256(bytes).slice("sha256:".length);

/** An image whose parts are in each archive that has its `own`. */
export const imageOf = (RepoTags: readonly string[] | null, own: Parts): DockerImage => ({
  Config: `${hexOf(own.config)}.json`,
  RepoTags,
  Layers: own.layers.map((layer) => `${hexOf(layer)}/layer.tar`),
});

/** The list of images comes last. `more`: entries before it. */
export function dockerArchiveOf(
  list: readonly DockerImage[],
  more: readonly Buffer[],
  images: readonly Parts[],
): Buffer {
  const entries = images.flatMap(({ config, layers }) => [
    entry({ name: `${hexOf(config)}.json`, content: config }),
    ...layers.flatMap((layer) => [
      directory(hexOf(layer)),
      entry({ name: `${hexOf(layer)}/VERSION`, content: "1.0" }),
      entry({ name: `${hexOf(layer)}/json`, content: "{}" }),
      entry({ name: `${hexOf(layer)}/layer.tar`, content: layer }),
    ]),
  ]);
  const own = new Map(entries.map((one) => [one.toString("latin1", 0, 100), one]));
  const documents = [["repositories", "{}"] as const, ["manifest.json", jsonBytes(list)] as const];
  return tar(...own.values(), ...more, ...documents.map(([name, content]) => entry({ name, content })));
}
