/**
 * The operator's file of credentials, as docker and podman write it (containers-auth.json(5)): `auths` by the name of a registry,
 * or by a registry and the beginning of a repository's path, which counts before the registry alone. Credential helpers are not run.
 */
import { readFile } from "node:fs/promises";
import { z } from "zod";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { DEFAULT_REGISTRY, DEFAULT_REGISTRY_ALIASES } from "../reference.ts";
import type { Credentials } from "../registry/authorization.ts";

const AuthFile = z.object({ auths: z.record(z.string(), z.object({ auth: z.string().optional() })).optional() });

/**
 * Returns the credentials of the file for a repository, null if it has none. Reads the file each time: `docker login` may have
 * changed it. Throws INTERNAL, without any text of the file, if it is missing, too large or malformed.
 */
export async function readAuthFile(file: string, registry: string, repository: string): Promise<Credentials | null> {
  const bytes = await readFile(file).catch((cause: NodeJS.ErrnoException) => {
    throw unusable(file, cause.code ?? "not readable");
  });
  if (bytes.length > LIMITS.registry_auth_file_bytes_max) {
    throw unusable(file, `${bytes.length} bytes (limit ${LIMITS.registry_auth_file_bytes_max} bytes)`);
  }
  const { auths = {} } = parsed(bytes.toString()) ?? refuse(file);
  const entries = new Map(Object.entries(auths).map(([name, { auth }]) => [nameOf(name), auth ?? ""]));
  for (const name of namesOf(registry, repository)) {
    const found = credentialsOf(entries.get(name) ?? "");
    if (found !== null) return found;
  }
  return null;
}

function refuse(file: string): never {
  throw unusable(file, "no JSON with auths");
}

function unusable(file: string, problem: string): AppError {
  return new AppError("INTERNAL", `file of registry credentials not usable: ${file}: ${problem}`, {
    hint: "check HEARTH_REGISTRY_AUTH_FILE",
  });
}

function parsed(text: string): z.output<typeof AuthFile> | null {
  try {
    return AuthFile.parse(JSON.parse(text));
  } catch {
    // The error would show a part of the text.
    return null;
  }
}

/** docker writes `https://index.docker.io/v1/` for docker.io. */
function nameOf(name: string): string {
  const [host = "", ...path] = name.replace(/^https?:\/\//, "").split("/");
  if (!DEFAULT_REGISTRY_ALIASES.includes(host)) return [host, ...path].join("/").replace(/\/+$/, "");
  return /^v[12]$/.test(path[0] ?? "") || path.length === 0 ? DEFAULT_REGISTRY : [DEFAULT_REGISTRY, ...path].join("/");
}

/** `host/a/b`, `host/a`, `host`. */
function namesOf(registry: string, repository: string): readonly string[] {
  const parts = [registry, ...repository.split("/")];
  return parts.map((_, i) => parts.slice(0, parts.length - i).join("/"));
}

function credentialsOf(auth: string): Credentials | null {
  const text = Buffer.from(auth, "base64").toString();
  const at = text.indexOf(":");
  if (at < 1) return null;
  // docker pads with zeros.
  return { username: text.slice(0, at), password: text.slice(at + 1).replace(/\0+$/, "") };
}
