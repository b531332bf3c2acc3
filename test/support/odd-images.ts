/** Images of one static program (look.c) and whatever a test adds, in the formats of OCI and of Docker, each layer compressed in its own way. */
import { readFileSync } from "node:fs";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { machinePlatform } from "../../src/oci/platform.ts";
import type { ContainerUser } from "./containers.ts";
import { type Daemon, KEY } from "./daemon.ts";
import type { DockerRegistry } from "./docker-registry.ts";
import { directory, entry, tar } from "./layer-bytes.ts";
import { descriptorOf, jsonBytes, type MadeImage, OCI_CONFIG, OCI_MANIFEST, sha256 } from "./registry.ts";

export type Compression = "gzip" | "zstd" | "none";

const DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json";
const SUFFIXES = { gzip: "gzip", zstd: "zstd", none: "" } as const;

export interface OddImage {
  /** Uncompressed tars above the program's own layer, the lowest first. */
  readonly layers?: readonly Buffer[];
  /** Of each layer in turn, and again from the beginning. */
  readonly compressions?: readonly Compression[];
  readonly format?: "oci" | "docker";
  readonly config?: object;
  readonly architecture?: string;
  readonly program: string;
}

/** The layer of a program at /look, with the directories that a container has mounts in. */
export function programLayer(program: string): Buffer {
  const look = entry({ name: "look", mode: 0o755, content: readFileSync(program) });
  return tar(...["etc", "dev", "proc", "sys", "tmp"].map(directory), look);
}

function compressed(bytes: Buffer, compression: Compression): Buffer {
  if (compression === "gzip") return gzipSync(bytes, { level: 1 });
  return compression === "zstd" ? zstdCompressSync(bytes) : bytes;
}

function typeOf(format: "oci" | "docker", compression: Compression): string {
  const suffix = SUFFIXES[compression];
  if (format === "oci") return `application/vnd.oci.image.layer.v1.tar${suffix && `+${suffix}`}`;
  return `application/vnd.docker.image.rootfs.diff.tar${suffix && `.${suffix}`}`;
}

export function oddImage(image: OddImage): { readonly made: MadeImage; readonly media_type: string } {
  const { layers = [], compressions = ["gzip"], format = "oci", config = {}, program } = image;
  const { architecture = machinePlatform().architecture } = image;
  const tars = [programLayer(program), ...layers];
  const blobs = tars.map((bytes, i) => {
    const compression = compressions[i % compressions.length] ?? "gzip";
    const blob = compressed(bytes, compression);
    return { blob, descriptor: descriptorOf(typeOf(format, compression), blob) };
  });
  const configuration = jsonBytes({
    ...{ os: "linux", architecture, config: { Entrypoint: [], Cmd: [], ...config } },
    rootfs: { type: "layers", diff_ids: tars.map(sha256) },
  });
  const media_type = format === "oci" ? OCI_MANIFEST : DOCKER_MANIFEST;
  const manifest = jsonBytes({
    ...{ schemaVersion: 2, mediaType: media_type },
    config: descriptorOf(format === "oci" ? OCI_CONFIG : DOCKER_CONFIG, configuration),
    layers: blobs.map(({ descriptor }) => descriptor),
  });
  return { made: { manifest, config: configuration, layers: blobs.map(({ blob }) => blob) }, media_type };
}

/** Pushes images to a registry, pulls them with the operator's key, and runs their containers. */
export class OddImages {
  readonly #registry: DockerRegistry;
  readonly #daemon: Daemon;
  readonly #user: ContainerUser;
  readonly #program: string;
  #count = 0;

  constructor(registry: DockerRegistry, daemon: Daemon, user: ContainerUser, program: string) {
    this.#registry = registry;
    this.#daemon = daemon;
    this.#user = user;
    this.#program = program;
  }

  /** Returns the reference. */
  async push(image: Omit<OddImage, "program"> & { readonly program?: string }): Promise<string> {
    const { made, media_type } = oddImage({ program: this.#program, ...image });
    const name = `odd/i${++this.#count}`;
    await this.#registry.push(name, "1", made, media_type);
    return `${this.#registry.host}/${name}:1`;
  }

  async pull(reference: string, more: object = {}) {
    return this.#daemon.call("POST", "/api/oci/images/pull", { reference, ...more });
  }

  /** Pushes and pulls an image. Returns its reference. */
  async pulled(image: Omit<OddImage, "program"> & { readonly program?: string }): Promise<string> {
    const reference = await this.push(image);
    const { status, body } = await this.pull(reference);
    if (status !== 200 || !body.success) throw new Error(`pull answered ${status}: ${JSON.stringify(body)}`);
    return reference;
  }

  /** The record of an image of the operator. */
  async shown(reference: string) {
    const { images } = (await this.#daemon.call("GET", "/api/oci/images")).body;
    return images.find((image: { reference: string }) => image.reference === reference);
  }

  /** The archive of an image, or the refusal. */
  async save(reference: string): Promise<{ readonly status: number; readonly body: Buffer }> {
    const path = `/api/oci/images/save?reference=${encodeURIComponent(reference)}`;
    const answer = await fetch(`${this.#daemon.url}${path}`, { headers: { "x-api-key": KEY } });
    return { status: answer.status, body: Buffer.from(await answer.arrayBuffer()) };
  }

  async load(archive: Buffer, reference: string) {
    const path = `/api/oci/images/load?reference=${encodeURIComponent(reference)}`;
    const headers = { "x-api-key": KEY, "content-type": "application/x-tar" };
    const answer = await fetch(`${this.#daemon.url}${path}`, {
      method: "POST",
      headers,
      body: new Uint8Array(archive),
    });
    // biome-ignore lint/suspicious/noExplicitAny: a record or a refusal.
    return { status: answer.status, body: (await answer.json()) as any };
  }

  /** Creates a container of a pulled image. Returns its id. */
  async container(reference: string, fields: object = {}): Promise<string> {
    const named = { name: `odd-${++this.#count}`, image: reference, oci: true, ...fields };
    return (await this.#user.create(named)).container_id;
  }

  /** The lines that the program prints for these verbs in a container. Its exit code is the number of failures. */
  async look(id: string, ...verbs: readonly string[]): Promise<string[]> {
    return this.lookWith(id, "/look", ...verbs);
  }

  async lookWith(id: string, program: string, ...verbs: readonly string[]): Promise<string[]> {
    const { stdout, stderr } = await this.#user.exec(id, [program, ...verbs]);
    return (stdout + stderr)
      .trimEnd()
      .split("\n")
      .map((line: string) => line.trimEnd());
  }
}
