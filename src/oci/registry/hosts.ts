/**
 * Which host serves a registry, and what it may do: mirrors and plain HTTP are the operator's to allow.
 *
 * H1. A mirror stands for its registry alone, without a way back to the registry itself. It gets no credentials: those of a caller
 *     are for the registry that he named.
 * H2. Plain HTTP is for hosts that the operator lists as insecure, and for loopback addresses, which no other machine can answer for.
 * H3. The guard of outgoing requests lets a request reach a forbidden address only if the operator lists that very port, or
 *     spells the loopback address himself with his own key.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { addressBytes, contains, network } from "../../base/addresses.ts";
import { LIMITS } from "../../base/limits.ts";
import { DEFAULT_REGISTRY } from "../reference.ts";

/** Address of a registry. */
export interface RegistryHost {
  /** As references name it. */
  readonly registry: string;
  /** Host, and port if it is not that of the protocol. */
  readonly host: string;
  readonly isMirror: boolean;
  /** True if the host may speak plain HTTP. */
  readonly mayBePlain: boolean;
  /** Places that the guard lets requests of this pull reach, whatever their address. */
  readonly listed: readonly string[];
  /** Authorities in PEM, beside the known ones. */
  readonly authorities: readonly string[];
}

export interface RegistryHostsOptions {
  /** Registry → host that serves it. */
  readonly mirrors: ReadonlyMap<string, string>;
  /** `host` for all ports, or `host:port`. */
  readonly insecure: readonly string[];
  /** A folder for each host with its authorities, as podman and buildah have them. */
  readonly certificates_directory?: string;
}

const CERTIFICATES_DIRECTORY = "/etc/containers/certs.d";
/** docker.io is a name; its registry answers at another host. */
const DEFAULT_REGISTRY_HOST = "registry-1.docker.io";
const LOOPBACK = [network("127.0.0.0/8"), network("::1")];

/** Splits `host:port`; the host of an IPv6 address keeps its brackets. */
function partsOf(host: string): readonly [name: string, port: string | null] {
  const [, name = host, port] = /^(.*?)(?::(\d+))?$/.exec(host) ?? [];
  return [name, port ?? null];
}

function addressOf(host: string): string {
  return partsOf(host)[0].replace(/^\[(.*)\]$/, "$1");
}

function isLoopback(host: string): boolean {
  const bytes = addressBytes(addressOf(host));
  return addressOf(host) === "localhost" || (bytes !== null && LOOPBACK.some((one) => contains(one, bytes)));
}

/** Returns the places of a host as the guard writes them: with both ports of the protocols unless it has its own. */
function placesOf(host: string): readonly string[] {
  const [name, port] = partsOf(host);
  return port === null ? [`${name}:443`, `${name}:80`] : [`${name}:${port}`];
}

export class RegistryHosts {
  readonly #mirrors: ReadonlyMap<string, string>;
  readonly #insecure: ReadonlySet<string>;
  readonly #certificates_directory: string;

  constructor({ mirrors, insecure, certificates_directory = CERTIFICATES_DIRECTORY }: RegistryHostsOptions) {
    this.#mirrors = mirrors;
    this.#insecure = new Set(insecure);
    this.#certificates_directory = certificates_directory;
  }

  /** `isOperator`: with the operator's own key. */
  of(registry: string, isOperator: boolean): RegistryHost {
    return this.#of(registry, isOperator, this.#mirrors.get(registry));
  }

  /** The registry itself, for a push: a mirror has what others pushed. */
  withoutMirror(registry: string, isOperator: boolean): RegistryHost {
    return this.#of(registry, isOperator, undefined);
  }

  #of(registry: string, isOperator: boolean, mirror: string | undefined): RegistryHost {
    const own = registry === DEFAULT_REGISTRY ? DEFAULT_REGISTRY_HOST : registry;
    const host = mirror ?? own;
    // Another name is what its name server says, which may be somebody else's.
    const isListed = mirror !== undefined || this.#isInsecure(host) || (isOperator && isLoopback(host));
    return {
      registry,
      host,
      isMirror: mirror !== undefined,
      mayBePlain: this.mayBePlain(host),
      listed: isListed ? placesOf(host) : [],
      authorities: this.#authoritiesOf(host),
    };
  }

  /** True if a host may speak plain HTTP (H2). */
  mayBePlain(host: string): boolean {
    return this.#isInsecure(host) || isLoopback(host);
  }

  /** Returns what `listed` has to hold for a token realm: it may be anywhere, but at a forbidden address only if listed. */
  listedRealm(host: string): readonly string[] {
    return this.#isInsecure(host) ? placesOf(host) : [];
  }

  #isInsecure(host: string): boolean {
    return this.#insecure.has(host) || this.#insecure.has(partsOf(host)[0]);
  }

  #authoritiesOf(host: string): readonly string[] {
    const directory = join(this.#certificates_directory, host);
    try {
      const files = readdirSync(directory)
        .filter((name) => name.endsWith(".crt"))
        .map((name) => join(directory, name));
      const size = files.reduce((sum, file) => sum + statSync(file).size, 0);
      return size > LIMITS.registry_certificates_bytes_max ? [] : files.map((file) => readFileSync(file, "utf8"));
    } catch {
      return [];
    }
  }
}
