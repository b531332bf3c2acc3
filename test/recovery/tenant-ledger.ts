/**
 * What a client knows of tenants and their keys from the answers that it got, held against the daemon after a crash.
 *
 * L1. A key that was answered works, one whose revocation was answered does not, whatever happened in between.
 * L2. A tenant whose deletion was answered, or had begun, is gone after the next start with all that it owned; one whose
 *     deletion had not begun is whole.
 */
import { expect } from "vitest";
import { type Answer, type Daemon, eventually } from "../support/daemon.ts";
import { StoreRows } from "../support/rows.ts";
import { ask } from "./ledger.ts";

interface KnownKey {
  readonly id: string;
  readonly text: string;
  /** What it may be: both while its revocation is under way. */
  states: Set<"good" | "revoked">;
}

interface KnownTenant {
  readonly name: string;
  /** Null until its creation was answered. */
  id: string | null;
  states: Set<"there" | "gone">;
  readonly keys: KnownKey[];
  /** Names of functions whose creation was answered. */
  readonly functions: string[];
}

export class TenantLedger {
  readonly #daemon: Daemon;
  readonly #known = new Set<KnownTenant>();
  #round_count = 0;
  /** Tenants that were seen through to their end. */
  deleted_count = 0;

  constructor(daemon: Daemon) {
    this.#daemon = daemon;
  }

  /** A tenant from its making to its end: keys made, used, revoked, a function deployed and called. */
  async round(): Promise<void> {
    const known: KnownTenant = {
      name: `tenant-${this.#round_count++}`,
      id: null,
      states: new Set(["gone", "there"]),
      keys: [],
      functions: [],
    };
    this.#known.add(known);
    known.id = (await this.#operator(201, "POST", "/api/tenants", { name: known.name })).body.tenant_id as string;
    known.states = new Set(["there"]);
    const [key, other] = [await this.#makeKey(known), await this.#makeKey(known)];
    await this.#as(other, 200, "GET", "/api/functions");
    await this.#deployOne(known, key);
    other.states.add("revoked");
    await this.#as(key, 200, "DELETE", `/api/api-keys/${other.id}`);
    other.states = new Set(["revoked"]);
    await this.#as(other, 401, "GET", "/api/functions");
    await this.#delete(known);
  }

  /** Holds what is known against a daemon that has started again, and learns how what was under way ended. */
  async check(): Promise<void> {
    const store = new StoreRows(this.#daemon);
    try {
      for (const known of this.#known) await this.#check(known, store);
    } finally {
      store.close();
    }
  }

  /** Deletes what is left. */
  async clear(): Promise<void> {
    for (const known of this.#known) await this.#delete(known);
  }

  async #check(known: KnownTenant, store: StoreRows): Promise<void> {
    const [state] = await eventually(`tenant ${known.name} settles`, () => {
      const rows = store.read("SELECT id, state FROM tenants WHERE name = ?", [known.name]);
      const row = rows[0] ?? { id: known.id, state: "gone" };
      if (row.state === "deleting") return null;
      known.id = row.id === null ? null : String(row.id);
      return [row.state === "gone" ? ("gone" as const) : ("there" as const)];
    });
    expect([known.name, ...known.states]).toContain(state);
    if (state === "gone") {
      await this.#expectGone(known, store);
      return;
    }
    known.states = new Set(["there"]);
    for (const key of known.keys) {
      const { status } = await this.#send(key, "GET", "/api/functions");
      expect([200, 401]).toContain(status);
      const found = status === 200 ? "good" : "revoked";
      expect([key.id, ...key.states]).toContain(found);
      key.states = new Set([found]);
    }
    const good = known.keys.find(({ states }) => states.has("good"));
    if (good === undefined) return;
    const { body } = await this.#as(good, 200, "GET", "/api/functions");
    expect(body.functions.map(({ name }: { name: string }) => name)).toEqual(expect.arrayContaining(known.functions));
  }

  async #expectGone(known: KnownTenant, store: StoreRows): Promise<void> {
    for (const key of known.keys) await this.#as(key, 401, "GET", "/api/functions");
    if (known.id !== null) {
      await this.#operator(404, "GET", `/api/tenants/${known.id}`);
      for (const table of ["functions", "api_keys"]) {
        expect(store.read(`SELECT id FROM ${table} WHERE tenant_id = ?`, [known.id])).toEqual([]);
      }
    }
    this.#known.delete(known);
  }

  async #makeKey(known: KnownTenant): Promise<KnownKey> {
    const { body } = await this.#operator(201, "POST", `/api/tenants/${known.id}/api-keys`, { name: "k" });
    const key: KnownKey = { id: body.id, text: body.key, states: new Set(["good"]) };
    known.keys.push(key);
    return key;
  }

  async #deployOne(known: KnownTenant, key: KnownKey): Promise<void> {
    const { body } = await this.#as(key, 201, "POST", "/api/functions", { name: "inner", handler: "cat" });
    known.functions.push("inner");
    await this.#as(key, 200, "POST", `/api/functions/${body.id}/deploy`);
    const called = await this.#as(key, 200, "POST", "/api/functions/invoke/inner", { payload: known.name });
    expect(called.body.stdout).toBe(known.name);
  }

  async #delete(known: KnownTenant): Promise<void> {
    known.states.add("gone");
    const answer = await ask(this.#daemon, "DELETE", `/api/tenants/${known.id}?force=true`);
    expect([answer.status, answer.body]).toEqual([200, { success: true, message: "tenant deleted" }]);
    known.states = new Set(["gone"]);
    for (const key of known.keys) await this.#as(key, 401, "GET", "/api/functions");
    this.#known.delete(known);
    this.deleted_count++;
  }

  async #operator(expected: number, method: string, path: string, body?: unknown): Promise<Answer> {
    const answer = await ask(this.#daemon, method, path, body);
    expect([answer.status, answer.body]).toEqual([expected, expect.anything()]);
    return answer;
  }

  async #as(key: KnownKey, expected: number, method: string, path: string, body?: unknown): Promise<Answer> {
    const answer = await this.#send(key, method, path, body);
    expect([answer.status, answer.body]).toEqual([expected, expect.anything()]);
    return answer;
  }

  #send({ text }: KnownKey, method: string, path: string, body?: unknown): Promise<Answer> {
    return ask(this.#daemon, method, path, body, { "x-api-key": text });
  }
}
