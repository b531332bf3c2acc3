/**
 * Values of secrets, decrypted for the daemon's own use. This is the only way out of the store for a value; routes do not
 * have it.
 */
import { AppError } from "../base/errors.ts";
import { isListed } from "../base/sql-dialect.ts";
import type { Row, Store } from "../store/store.ts";
import { unseal } from "./cipher.ts";
import type { SecretsKeys } from "./keys.ts";
import { secretsNotFound } from "./schema.ts";

export class SecretValues {
  readonly #store: Store;
  readonly #keys: SecretsKeys;
  readonly #kind: string;

  /** `kind`: the namespace whose values it reads. */
  constructor(store: Store, keys: SecretsKeys, kind: string) {
    this.#store = store;
    this.#keys = keys;
    this.#kind = kind;
  }

  /**
   * Returns the values by name as they are now, at most `secret_bytes_max` each. The caller bounds the number of names, owns
   * the bytes and overwrites them after use. Throws NOT_FOUND with the missing names, INTERNAL if a row does not decrypt.
   */
  async values(tenant_id: string, names: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>> {
    const found = await this.found(tenant_id, names);
    const missing = [...new Set(names)].filter((name) => !found.has(name));
    if (missing.length === 0) return found;
    for (const value of found.values()) value.fill(0);
    throw secretsNotFound(missing);
  }

  /** The same without names of which the tenant has no secret. Throws INTERNAL if a row does not decrypt. */
  async found(tenant_id: string, names: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>> {
    if (names.length === 0) return new Map();
    const sql = `SELECT name, key_id, value FROM secrets WHERE tenant_id = ? AND kind = ? AND ${isListed("name")}`;
    const args = [tenant_id, this.#kind, JSON.stringify(names)];
    let rows = await this.#store.read(sql, args);
    // A rotation may have removed the key between the read and now: the row has the next key since.
    const isKnown = ({ key_id }: Row) => this.#keys.byId(String(key_id)) !== null;
    if (!rows.every(isKnown)) rows = await this.#store.read(sql, args);
    return this.#unsealed(tenant_id, new Map(rows.map((row) => [String(row.name), row])));
  }

  #unsealed(tenant_id: string, rows: ReadonlyMap<string, Row>): ReadonlyMap<string, Uint8Array> {
    const values = new Map<string, Uint8Array>();
    for (const [name, { key_id, value }] of rows) {
      const key = this.#keys.byId(String(key_id));
      const place = { tenant_id, kind: this.#kind, name };
      const plain = key === null ? null : unseal(key, place, value as Uint8Array);
      if (plain === null) {
        for (const other of values.values()) other.fill(0);
        throw new AppError("INTERNAL", `the stored value of secret '${name}' does not decrypt`, {
          hint: "set the secret again",
        });
      }
      values.set(name, plain);
    }
    return values;
  }
}
