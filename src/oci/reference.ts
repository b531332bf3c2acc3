/**
 * References of images: `[<registry>/]<repository>[:<tag>][@<digest>]`.
 *
 * R1. Without a registry it is docker.io, where a repository of one name lies in `library/`. The first part names a registry if it
 *     has a `.` or a `:`, or is `localhost`. index.docker.io and registry-1.docker.io mean docker.io.
 * R2. Without tag and digest the tag is `latest`. A digest decides alone: a tag beside it is dropped.
 * R3. A reference that passed holds no character that has a meaning to a URL, a shell or a configuration in TOML.
 */
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { isReservedRegistry, PROFILE_REGISTRY } from "../base/profile-registry.ts";

export interface ImageReference {
  /** Host, with its port if the reference has one. */
  readonly registry: string;
  readonly repository: string;
  /** Null if the digest is set. */
  readonly tag: string | null;
  readonly digest: string | null;
}

export const DEFAULT_REGISTRY = "docker.io";
export const DEFAULT_REGISTRY_ALIASES: readonly string[] = ["index.docker.io", "registry-1.docker.io"];
const DEFAULT_TAG = "latest";
const EXAMPLE = "docker.io/library/alpine:3.20";

const HOST = /^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::(\d{1,5}))?$/;
const REPOSITORY = /^[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*$/;
const TAG = /^\w[\w.-]{0,127}$/;
export const DIGEST = /^sha256:[0-9a-f]{64}$/;
/** Transports that other tools write in front of a reference. `docker:dind` is none: it has no slashes. */
const TRANSPORT = /^(?:[a-z][a-z+.-]*:\/\/|(?:containers-storage|docker-archive|docker-daemon|oci-archive):)/i;
const ID = /^[0-9a-f]{64}$/;

function refuse(text: string, problem: string, hint?: string): never {
  const shown = text.length > LIMITS.image_name_length_max ? `${text.slice(0, LIMITS.image_name_length_max)}…` : text;
  throw new AppError("INVALID_ARGUMENT", `invalid image reference: ${problem}: '${shown}'`, {
    details: { expected: ["[<registry>/]<repository>[:<tag>][@sha256:<digest>]"], received: shown, example: EXAMPLE },
    ...(hint === undefined ? {} : { hint }),
  });
}

/** Splits off what follows the last `separator`, if `isEnd` accepts it. */
function splitLast(text: string, separator: string, isEnd: (end: string) => boolean): readonly [string, string | null] {
  const at = text.lastIndexOf(separator);
  const end = text.slice(at + 1);
  return at < 0 || !isEnd(end) ? [text, null] : [text.slice(0, at), end];
}

/** Parses a reference. Throws INVALID_ARGUMENT with what is wrong. */
export function parseReference(text: string): ImageReference {
  if (text === "") refuse(text, "it is empty");
  if (text.length > LIMITS.image_reference_length_max) {
    refuse(text, `it is longer than ${LIMITS.image_reference_length_max} characters`);
  }
  const [transport] = TRANSPORT.exec(text) ?? [];
  if (transport !== undefined) {
    refuse(text, `it begins with ${transport}`, "give the reference without a transport or a scheme");
  }
  const [rest, digest] = splitLast(text, "@", () => true);
  if (digest !== null && !DIGEST.test(digest)) refuse(text, "its digest is not sha256: and 64 lower-case hex digits");
  const [path, tag] = splitLast(rest, ":", (end) => !end.includes("/"));
  if (tag !== null && !TAG.test(tag)) refuse(text, "its tag is not 1 to 128 letters, digits, '_', '.' or '-'");
  const { registry, repository } = parsePath(text, path);
  return { registry, repository, tag: digest === null ? (tag ?? DEFAULT_TAG) : null, digest };
}

const namesRegistry = (first: string): boolean => /[.:]/.test(first) || first === "localhost";
const known = (host: string): string => (DEFAULT_REGISTRY_ALIASES.includes(host) ? DEFAULT_REGISTRY : host);

/** Returns what is wrong with a host and its port, null if nothing is. */
function hostProblem(host: string): string | null {
  const match = HOST.exec(host);
  if (match === null) return "is not a host";
  const [, port = "1"] = match;
  return Number(port) < 1 || Number(port) > 65_535 ? "has no valid port" : null;
}

/** Parses the name of a registry: a host, with its port if it has its own. Throws INVALID_ARGUMENT. */
export function parseRegistry(text: string): string {
  const registry = known(text.toLowerCase());
  const isLong = registry.length > LIMITS.image_name_length_max;
  const problem = isLong ? "is too long" : namesRegistry(registry) ? hostProblem(registry) : "has no '.' and no port";
  if (problem === null) return registry;
  const received = text.slice(0, LIMITS.image_name_length_max);
  throw new AppError("INVALID_ARGUMENT", `invalid registry: it ${problem}: '${received}'`, {
    details: { expected: ["<host>", "<host>:<port>"], received, example: "registry.example.com" },
    hint: "give the registry as references name it, without a scheme or a path",
  });
}

function parsePath(text: string, path: string): Pick<ImageReference, "registry" | "repository"> {
  const slash = path.indexOf("/");
  const first = path.slice(0, Math.max(slash, 0)).toLowerCase();
  const isRegistry = namesRegistry(first);
  const registry = isRegistry ? known(first) : DEFAULT_REGISTRY;
  const problem = hostProblem(registry);
  if (problem !== null) refuse(text, `its registry ${problem}: '${first}'`);
  const name = isRegistry ? path.slice(slash + 1) : path;
  if (name === "") refuse(text, "its repository is missing");
  if (name !== name.toLowerCase()) refuse(text, "its repository has upper-case letters");
  if (!REPOSITORY.test(name))
    refuse(text, "its repository is not lower-case letters and digits, joined by '.', '_', '-', '/'");
  if (!isRegistry && ID.test(name)) refuse(text, "it is the id of an image", "give the name of the image");
  const repository = registry === DEFAULT_REGISTRY && !name.includes("/") ? `library/${name}` : name;
  if (`${registry}/${repository}`.length > LIMITS.image_name_length_max) {
    refuse(text, `its name is longer than ${LIMITS.image_name_length_max} characters`);
  }
  return { registry, repository };
}

/** Returns the reference in full: with its registry, and its tag or its digest. */
export function referenceText({ registry, repository, tag, digest }: ImageReference): string {
  return digest === null ? `${registry}/${repository}:${tag ?? DEFAULT_TAG}` : `${registry}/${repository}@${digest}`;
}

/** Parses the reference that an image gets. Throws INVALID_ARGUMENT for a host that is reserved for profiles. */
export function parseOwnReference(text: string): ImageReference {
  const parsed = parseReference(text);
  refuseReserved(parsed.registry);
  return parsed;
}

/** Throws INVALID_ARGUMENT for a host that is reserved for profiles. */
export function refuseReserved(registry: string): void {
  if (!isReservedRegistry(registry)) return;
  throw new AppError("INVALID_ARGUMENT", `registry reserved for profiles of this node: '${registry}'`, {
    hint: `only pulls of ${PROFILE_REGISTRY}/<profile> name it; choose another registry`,
  });
}
