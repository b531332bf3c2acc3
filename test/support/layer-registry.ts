/** A registry on loopback, over plain HTTP, with images that are made of layers' bytes. A test may let it stall or fail. */
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { sha256 } from "./layer-bytes.ts";

const MANIFEST = "application/vnd.oci.image.manifest.v1+json";
const CONFIG = "application/vnd.oci.image.config.v1+json";
const LAYER = "application/vnd.oci.image.layer.v1.tar";

export interface ServedImage {
  /** Of its configuration: as the store names it. */
  readonly id: string;
  readonly digest: string;
  readonly manifest: string;
  readonly config: string;
  /** Digests of the layers as they are sent. */
  readonly layers: readonly string[];
}

export interface ImageOptions {
  readonly isCompressed?: boolean;
  /** Makes an image of the same layers a different one. */
  readonly label?: string;
}

/** What the registry does in place of its answer to a blob. */
export type Misbehaviour = (digest: string, response: ServerResponse) => boolean;

export class LayerRegistry {
  readonly #server: Server;
  readonly #blobs = new Map<string, { readonly type: string; readonly bytes: Buffer }>();
  readonly #tags = new Map<string, string>();
  /** Digests of blobs that were asked for, in their order. */
  readonly asked: string[] = [];
  misbehave: Misbehaviour = () => false;

  constructor() {
    this.#server = createServer((request, response) => this.#answer(request.url ?? "", response));
  }

  /** Resolves to its `<host>:<port>`. `port`: 0 for any. */
  async listen(port = 0): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(port, "127.0.0.1", resolve));
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  /** Serves an image of these tars under a tag. */
  add(tag: string, tars: readonly Buffer[], { isCompressed = true, label = "" }: ImageOptions = {}): ServedImage {
    const layers = tars.map((bytes) => {
      return this.#put(isCompressed ? `${LAYER}+gzip` : LAYER, isCompressed ? gzipSync(bytes, { level: 1 }) : bytes);
    });
    const config = JSON.stringify({
      architecture: "amd64",
      os: "linux",
      config: { Cmd: ["/bin/sh"], Labels: { label } },
      rootfs: { type: "layers", diff_ids: tars.map(sha256) },
      history: tars.map(() => ({ created_by: "test" })),
    });
    const manifest = JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: this.#put(CONFIG, Buffer.from(config)),
      layers,
    });
    const { digest } = this.#put(MANIFEST, Buffer.from(manifest));
    this.#tags.set(tag, digest);
    const id = sha256(Buffer.from(config)).slice("sha256:".length);
    return { id, digest, manifest, config, layers: layers.map((layer) => layer.digest) };
  }

  #put(mediaType: string, bytes: Buffer) {
    const digest = sha256(bytes);
    this.#blobs.set(digest, { type: mediaType, bytes });
    return { mediaType, digest, size: bytes.length };
  }

  #answer(url: string, response: ServerResponse): void {
    const [, kind, name = ""] = /^\/v2\/.+\/(manifests|blobs)\/([^/]+)$/.exec(url) ?? [];
    if (kind === undefined) {
      response.writeHead(url === "/v2/" ? 200 : 404, { "docker-distribution-api-version": "registry/2.0" }).end();
      return;
    }
    const digest = this.#tags.get(name) ?? name;
    const blob = this.#blobs.get(digest);
    if (blob === undefined) {
      response.writeHead(404).end();
      return;
    }
    if (kind === "blobs") {
      this.asked.push(digest);
      if (this.misbehave(digest, response)) return;
    }
    const { type, bytes } = blob;
    response.writeHead(200, { "content-type": type, "docker-content-digest": digest, "content-length": bytes.length });
    response.end(bytes);
  }
}

/** Answers with the beginning of a blob, and nothing more. */
export function stall(response: ServerResponse): boolean {
  response.writeHead(200, { "content-length": 1_000_000 });
  response.write(Buffer.alloc(10));
  return true;
}
