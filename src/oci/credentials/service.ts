/**
 * Credentials for registries that a tenant stores, and those of the operator's file.
 *
 * R1. A tenant's credentials are secrets of a kind of their own: encrypted, rotated, counted and erased as all secrets, and invisible
 *     to functions and to the routes of secrets.
 * R2. The operator's file is for requests with the operator's own key alone. Otherwise any tenant could pull what only the
 *     operator may read.
 * R3. No answer, event, error or line of the log has a password.
 */
import { AppError, errorText } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Listed, Place } from "../../base/paging.ts";
import type { SecretRecord } from "../../secrets/schema.ts";
import type { Secrets } from "../../secrets/service.ts";
import { type ImageReference, parseRegistry } from "../reference.ts";
import { basicHeader, type Credentials } from "../registry/authorization.ts";
import { readAuthFile } from "./auth-file.ts";
import type { RegistryCredentialsRecord } from "./schema.ts";

/** Kind of the secrets that hold credentials of registries. */
export const REGISTRY_KIND = "registry";

/** Decrypts stored values; the caller overwrites them. */
interface StoredValues {
  found(tenant_id: string, names: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>>;
}

export interface RegistryCredentialsOptions {
  /** Both of `REGISTRY_KIND`. */
  readonly secrets: Secrets;
  readonly values: StoredValues;
  /** Path of the operator's file; null: none. */
  readonly auth_file: string | null;
  readonly log: Log;
}

export class RegistryCredentials {
  readonly #options: RegistryCredentialsOptions;

  constructor(options: RegistryCredentialsOptions) {
    this.#options = options;
  }

  /** Creates or replaces the credentials for a registry. Throws INVALID_ARGUMENT, QUOTA_EXCEEDED. */
  async set(tenant_id: string, text: string, { username, password }: Credentials) {
    const registry = parseRegistry(text);
    basicHeader({ username, password });
    const value = Buffer.from(JSON.stringify({ username, password }));
    try {
      const { record, is_new } = await this.#options.secrets.set(tenant_id, registry, value);
      return { record: recordOf(record, username), is_new };
    } finally {
      value.fill(0);
    }
  }

  /** Throws NOT_FOUND. */
  async get(tenant_id: string, text: string): Promise<RegistryCredentialsRecord> {
    const registry = nameOf(text);
    const record = await this.#options.secrets.get(tenant_id, registry).catch((error) => {
      throw missing(error, registry);
    });
    return this.#record(tenant_id, record);
  }

  async list(tenant_id: string, place: Place): Promise<Listed<RegistryCredentialsRecord>> {
    const { items, last } = await this.#options.secrets.list(tenant_id, place);
    return { items: await Promise.all(items.map((record) => this.#record(tenant_id, record))), last };
  }

  /** Throws NOT_FOUND. */
  async remove(tenant_id: string, text: string): Promise<void> {
    const registry = nameOf(text);
    await this.#options.secrets.remove(tenant_id, registry).catch((error) => {
      throw missing(error, registry);
    });
  }

  /** Returns the credentials for a request to a registry: the tenant's own, else those of the operator (R2), else null. */
  async find(tenant_id: string, of: ImageReference, is_operator: boolean): Promise<Credentials | null> {
    const own = await this.#stored(tenant_id, of.registry);
    const { auth_file } = this.#options;
    if (own !== null || auth_file === null || !is_operator) return own;
    return readAuthFile(auth_file, of.registry, of.repository);
  }

  async #stored(tenant_id: string, registry: string): Promise<Credentials | null> {
    const value = (await this.#options.values.found(tenant_id, [registry])).get(registry);
    if (value === undefined) return null;
    try {
      return JSON.parse(Buffer.from(value).toString()) as Credentials;
    } finally {
      value.fill(0);
    }
  }

  async #record(tenant_id: string, record: SecretRecord): Promise<RegistryCredentialsRecord> {
    try {
      return recordOf(record, (await this.#stored(tenant_id, record.name))?.username ?? null);
    } catch (error) {
      this.#options.log.warn("registry credentials not readable", { tenant_id, error: errorText(error) });
      return recordOf(record, null);
    }
  }
}

/** A name that no registry can have is one that has no credentials. */
function nameOf(text: string): string {
  try {
    return parseRegistry(text);
  } catch (error) {
    throw notFound(text.slice(0, 64), error);
  }
}

function missing(error: unknown, registry: string): unknown {
  return error instanceof AppError && error.code === "NOT_FOUND" ? notFound(registry, error) : error;
}

function notFound(registry: string, cause: unknown): AppError {
  return new AppError("NOT_FOUND", `credentials for registry '${registry}' not found`, { cause });
}

function recordOf({ name, created_at, updated_at }: SecretRecord, username: string | null): RegistryCredentialsRecord {
  return { registry: name, username, created_at, updated_at };
}
