/** Gateways for tests, and a client of them that does what buildah does. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Outgoing } from "../../src/base/outgoing-requests.ts";
import { parsePlatform } from "../../src/oci/platform.ts";
import { parseReference } from "../../src/oci/reference.ts";
import {
  type PullRequest,
  type PullSource,
  RegistryGateway,
  type RegistryGatewayOptions,
} from "../../src/oci/registry/gateway.ts";
import { digestChecker, sha256, TestRegistry } from "./registry.ts";

/** Short enough to wait for, long enough for a busy machine to answer. */
const SHORT = {
  registry_silence_ms: 3_000,
  registry_silence_bytes_min: 1_024,
  registry_pause_ms: 5,
  registry_pause_ms_max: 2_000,
  registry_progress_ms: 0,
};

export interface GatewayOptions extends Partial<Omit<RegistryGatewayOptions, "limits">> {
  readonly limits?: Partial<RegistryGatewayOptions["limits"]>;
  /** Hosts that the operator lists. */
  readonly allowed?: readonly string[];
  /** Addresses of names. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
}

export interface PullOptions extends Partial<Omit<PullRequest, "reference" | "platform">> {
  readonly platform?: string;
}

/** Gateways, registries and pulls of one test, and their end. */
export class GatewayTest {
  readonly directory = mkdtempSync("/var/tmp/hearth-gateway-");
  readonly #registries: TestRegistry[] = [];
  readonly #sources: PullSource[] = [];

  async registry(...of: ConstructorParameters<typeof TestRegistry>): Promise<TestRegistry> {
    const registry = await new TestRegistry(...of).start();
    this.#registries.push(registry);
    return registry;
  }

  gateway({ allowed = [], resolve, limits, ...options }: GatewayOptions = {}): RegistryGateway {
    const resolving = resolve === undefined ? {} : { resolve };
    return new RegistryGateway({
      clock: systemClock,
      ids: randomIds(),
      outgoing: new Outgoing({ clock: systemClock, subnet: "10.42.0.0/16", allowed, ...resolving }),
      checker: digestChecker,
      directory: `${this.directory}/pulls`,
      disks: [this.directory],
      mirrors: new Map(),
      insecure: [],
      certificates_directory: `${this.directory}/certificates`,
      limits: { ...LIMITS, ...SHORT, ...limits },
      ...options,
    });
  }

  /** Opens a pull, with the operator's key unless `options` say otherwise. */
  async open(
    gateway: RegistryGateway,
    reference: string,
    { platform, ...options }: PullOptions = {},
  ): Promise<PullSource> {
    const source = await gateway.open({
      reference: parseReference(reference),
      platform: parsePlatform(platform ?? "linux/amd64"),
      credentials: null,
      isOperator: true,
      policy_file: null,
      unpacked_bytes_max: 1e12,
      onProgress: () => {},
      onUnpacked: async () => {},
      signal: new AbortController().signal,
      ...options,
    });
    this.#sources.push(source);
    return source;
  }

  async close(): Promise<void> {
    for (const source of this.#sources) await source.close();
    for (const registry of this.#registries) registry.close();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** The URL below which buildah finds the image of a pull. */
export function placeOf(source: PullSource): string {
  const [, place = ""] = /^location = "(.*)"$/m.exec(readFileSync(source.registries_conf, "utf8")) ?? [];
  return `http://${place.replace("/", "/v2/")}`;
}

/** Digests of what was pulled. */
export interface Pulled {
  readonly config: string;
  readonly layers: readonly string[];
}

async function bytesOf(url: string): Promise<Buffer> {
  const response = await fetch(url);
  if (response.status !== 200) throw new Error(`status ${response.status}: ${await response.text()}`);
  return Buffer.from(await response.arrayBuffer());
}

/** Pulls as buildah does: the manifest, then all else at once. Rejects if something is missing, cut or not as its digest says. */
export async function pullFrom(source: PullSource): Promise<Pulled> {
  const place = placeOf(source);
  const digest = source.pull_reference.split("@")[1] ?? "";
  const manifest = await bytesOf(`${place}/manifests/${digest}`);
  if (sha256(manifest) !== digest) throw new Error("manifest differs from its digest");
  const { config, layers } = JSON.parse(manifest.toString()) as Record<string, { digest: string }[]> & {
    config: { digest: string };
  };
  const blob = async ({ digest }: { digest: string }) => {
    const bytes = await bytesOf(`${place}/blobs/${digest}`);
    if (sha256(bytes) !== digest) throw new Error(`blob differs from its digest: ${digest}`);
    return digest;
  };
  const [first = "", ...rest] = await Promise.all([config, ...(layers ?? [])].map(blob));
  return { config: first, layers: rest };
}
