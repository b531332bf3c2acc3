/** An exported image as an OCI archive: a tar of the OCI image layout, with the reference as an annotation of its index. */
import { createReadStream } from "node:fs";
import type { ExportedImage } from "../engine/ports.ts";
import { descriptorOf, INDEX_TYPE, MANIFEST_TYPE, manifestOf } from "./exported-image.ts";
import { digestOf } from "./registry/client.ts";
import type { ExportableImage } from "./service.ts";

const BLOCK = 512;
/** The largest number of twelve octal digits but one; larger ones are binary (tar of GNU). */
const OCTAL_SIZE_MAX = 0o77_777_777_777;

/** Yields the archive. Layers are read when they are due. */
export async function* archiveOf(
  image: ExportableImage,
  { config, layers }: Pick<ExportedImage, "config" | "layers">,
): AsyncGenerator<Uint8Array> {
  const manifest = manifestOf({ config, layers });
  yield* file("oci-layout", Buffer.from(JSON.stringify({ imageLayoutVersion: "1.0.0" })));
  yield* file("index.json", indexOf(image, manifest));
  for (const bytes of [manifest, config]) yield* file(pathOf(digestOf(bytes)), bytes);
  const files = new Map(layers.map((layer) => [layer.digest, layer]));
  for (const { digest, size_bytes, path } of files.values()) {
    yield header(pathOf(digest), size_bytes);
    yield* createReadStream(path, { highWaterMark: 256 * 1024 }) as AsyncIterable<Buffer>;
    yield padding(size_bytes);
  }
  yield Buffer.alloc(2 * BLOCK);
}

const pathOf = (digest: string): string => `blobs/${digest.replace(":", "/")}`;

function indexOf({ reference, os, architecture }: ExportableImage, manifest: Buffer): Buffer {
  const annotations = { "org.opencontainers.image.ref.name": reference, "io.containerd.image.name": reference };
  const entry = { ...descriptorOf(MANIFEST_TYPE, manifest), platform: { os, architecture }, annotations };
  return Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: INDEX_TYPE, manifests: [entry] }));
}

function* file(name: string, bytes: Buffer): Generator<Uint8Array> {
  yield header(name, bytes.length);
  yield bytes;
  yield padding(bytes.length);
}

const padding = (size: number): Buffer => Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);

/** A header of ustar for a file of mode 0644 of root, at the epoch. */
function header(name: string, size: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write(name, 0);
  block.write("0000644\0", 100);
  block.write("0000000\0", 108);
  block.write("0000000\0", 116);
  if (size <= OCTAL_SIZE_MAX) block.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  else {
    block[124] = 0x80;
    block.writeBigUInt64BE(BigInt(size), 128);
  }
  block.write("00000000000\0", 136);
  block.write("0", 156);
  block.write("ustar\x0000", 257, "latin1");
  block.write("        ", 148);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}
