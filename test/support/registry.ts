/**
 * A registry of images under the test's control, on loopback: it serves what it was given, and misbehaves where a test says so. Also
 * images to put into it, and a check of layers that does no more than a registry gateway needs.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createPlainServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { gunzipSync, gzipSync } from "node:zlib";
import { AppError } from "../../src/base/errors.ts";
import type { LayerChecker } from "../../src/oci/layers/contract.ts";

export const OCI_INDEX = "application/vnd.oci.image.index.v1+json";
export const OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json";
export const OCI_CONFIG = "application/vnd.oci.image.config.v1+json";
export const OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip";

export function sha256(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

export function descriptorOf(mediaType: string, bytes: Uint8Array): Descriptor {
  return { mediaType, digest: sha256(bytes), size: bytes.length };
}

const BLOCK = 512;

/** Makes a tar of one regular file. */
export function tarOf(name: string, content: Uint8Array): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0);
  header.write("0000644\x000000000\x000000000\0", 100);
  header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("00000000000\0        0", 136);
  header.write("ustar\x0000", 257);
  const sum = header.reduce((all, byte) => all + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc(((BLOCK - (content.length % BLOCK)) % BLOCK) + 2 * BLOCK);
  return Buffer.concat([header, content, padding]);
}

/** An image as a registry has it. */
export interface MadeImage {
  readonly manifest: Buffer;
  readonly config: Buffer;
  readonly layers: readonly Buffer[];
}

export interface ImageParts {
  /** Uncompressed tars. */
  readonly layers: readonly Buffer[];
  readonly architecture?: string;
  readonly variant?: string;
  /** What the manifest, its layers and the configuration have beside, or instead of, what is right. */
  readonly manifest?: object;
  readonly layer?: object;
  readonly config?: object;
}

export function makeImage({ layers, architecture = "amd64", variant, ...more }: ImageParts): MadeImage {
  const compressed = layers.map((layer) => gzipSync(layer, { level: 1 }));
  const config = jsonBytes({
    ...{ os: "linux", architecture, ...(variant === undefined ? {} : { variant }) },
    ...{ config: { Cmd: ["/bin/sh"] }, rootfs: { type: "layers", diff_ids: layers.map(sha256) }, ...more.config },
  });
  const manifest = jsonBytes({
    ...{ schemaVersion: 2, mediaType: OCI_MANIFEST, config: descriptorOf(OCI_CONFIG, config) },
    ...{ layers: compressed.map((layer) => ({ ...descriptorOf(OCI_LAYER, layer), ...more.layer })), ...more.manifest },
  });
  return { manifest, config, layers: compressed };
}

export function jsonBytes(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}

/** Makes an index of images, each with its platform. */
export function makeIndex(
  entries: readonly (readonly [bytes: Buffer, platform: object, mediaType?: string])[],
): Buffer {
  const manifests = entries.map(([bytes, platform, mediaType = OCI_MANIFEST]) => ({
    ...descriptorOf(mediaType, bytes),
    platform,
  }));
  return jsonBytes({ schemaVersion: 2, mediaType: OCI_INDEX, manifests });
}

/** Checks the digest and the diff_id of gzipped layers. */
export const digestChecker: LayerChecker = {
  open({ digest, unpacked_bytes_max, take }) {
    const chunks: Uint8Array[] = [];
    return {
      async write(chunk) {
        chunks.push(chunk);
      },
      async end() {
        const bytes = Buffer.concat(chunks);
        if (sha256(bytes) !== digest) throw new AppError("IMAGE_INVALID", `layer ${digest} differs from its digest`);
        const tar = bytes[0] === 0x1f ? gunzipSync(bytes) : bytes;
        if (tar.length > unpacked_bytes_max) throw new AppError("QUOTA_EXCEEDED", "layer too large");
        take?.(tar, () => {});
        return { diff_id: sha256(tar), unpacked_bytes: tar.length, skipped_devices: 0 };
      },
      abort() {},
    };
  },
};

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/** Makes a certificate for 127.0.0.1 and localhost, signed by itself. */
export function makeCertificate(): Certificate {
  const directory = mkdtempSync("/var/tmp/hearth-certificate-");
  try {
    const [key, cert] = [`${directory}/key.pem`, `${directory}/cert.pem`];
    execFileSync(
      "openssl",
      [
        ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
        ...[
          "-keyout",
          key,
          "-out",
          cert,
          "-subj",
          "/CN=registry",
          "-addext",
          "subjectAltName=IP:127.0.0.1,DNS:localhost",
        ],
      ],
      { stdio: "pipe" },
    );
    return { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Answers a request itself and returns true, or leaves it to the registry. */
export type Behaviour = (request: IncomingMessage, response: ServerResponse) => boolean;

export class TestRegistry {
  readonly requests: { readonly url: string; readonly headers: IncomingMessage["headers"] }[] = [];
  /** What a test makes of it; well-behaved unless set. */
  behaviour: Behaviour = () => false;
  /** Bytes of bodies that were handed to connections. */
  sent_bytes = 0;
  readonly #blobs = new Map<string, Buffer>();
  readonly #manifests = new Map<string, readonly [Buffer, string]>();
  readonly #server: Server;

  constructor(certificate?: Certificate) {
    const answer = (request: IncomingMessage, response: ServerResponse) => this.#answer(request, response);
    this.#server = certificate === undefined ? createPlainServer(answer) : createTlsServer(certificate, answer);
  }

  async start(address = "127.0.0.1"): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, address, resolve));
    return this;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Host and port, as references name the registry. */
  get host(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** Requests for paths that contain the text. */
  asked(text: string): number {
    return this.requests.filter(({ url }) => url.includes(text)).length;
  }

  /** Puts an image there, under its tag and its digest. */
  add(repository: string, tag: string, image: MadeImage): MadeImage {
    this.addManifest(repository, tag, image.manifest, OCI_MANIFEST);
    for (const blob of [image.config, ...image.layers]) this.#blobs.set(sha256(blob), blob);
    return image;
  }

  addManifest(repository: string, tag: string, bytes: Buffer, media_type: string): void {
    for (const name of [tag, sha256(bytes)])
      this.#manifests.set(`/v2/${repository}/manifests/${name}`, [bytes, media_type]);
  }

  /** Serves bytes under a digest, right or wrong. */
  addBlob(digest: string, bytes: Buffer): void {
    this.#blobs.set(digest, bytes);
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { url = "", headers } = request;
    this.requests.push({ url, headers });
    if (this.behaviour(request, response)) return;
    this.serve(request, response);
  }

  /** Serves as a registry does, ranges of blobs included. */
  serve({ url = "", headers }: IncomingMessage, response: ServerResponse): void {
    if (url === "/v2/") return void response.writeHead(200, { "content-type": "application/json" }).end("{}");
    const [manifest, type = ""] = this.#manifests.get(url) ?? [];
    if (manifest !== undefined) return void response.writeHead(200, { "content-type": type }).end(manifest);
    const blob = this.#blobs.get(/\/blobs\/(.*)$/.exec(url)?.[1] ?? "");
    if (blob === undefined) return void response.writeHead(404, { "content-type": "application/json" }).end("{}");
    const first = Number(/^bytes=(\d+)-$/.exec(headers.range ?? "")?.[1] ?? 0);
    const range = first === 0 ? {} : { "content-range": `bytes ${first}-${blob.length - 1}/${blob.length}` };
    response.writeHead(first === 0 ? 200 : 206, { ...range, "content-length": blob.length - first });
    this.sent_bytes += blob.length - first;
    response.end(blob.subarray(first));
  }
}
