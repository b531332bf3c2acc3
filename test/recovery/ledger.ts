/**
 * What a client knows of its functions from the answers that it got, held against the daemon after a crash.
 *
 * L1. What was answered stands: functions, states, versions, and records with every field.
 * L2. What was under way at the crash has happened wholly or not at all, and nothing stays half-way.
 * L3. No record id and no function id is given twice.
 */
import { expect } from "vitest";
import { type Answer, type Daemon, eventually } from "../support/daemon.ts";

type State = "absent" | "pending" | "active" | "paused";

export interface Known {
  readonly name: string;
  /** Null until a creation was answered. */
  id: string | null;
  /** The last one that is known, and those that a request under way may have led to. */
  states: Set<State>;
  /** The one that is current, and those that a request under way may have made so. */
  versions: Set<number>;
  version_count: number;
  // biome-ignore lint/suspicious/noExplicitAny: records as they came.
  readonly records: Map<string, any>;
  /** Ids of those that no check has seen yet. */
  readonly fresh: Set<string>;
}

/** The daemon ended before it answered. */
export class DaemonDied extends Error {}

/** The answer of a daemon that may be killed at any moment. Throws DaemonDied where that was so. */
export async function ask(
  daemon: Daemon,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  try {
    return await daemon.call(method, path, body, headers);
  } catch (error) {
    await eventually("the daemon that did not answer is dead", () => !daemon.isAlive, 2_000).catch(() => {
      throw error;
    });
    throw new DaemonDied(`${method} ${path}`);
  }
}

/** Repeats work until the daemon dies. Resolves to false if it has not after `rounds_max` rounds. */
export async function dies(work: () => Promise<void>, rounds_max: number): Promise<boolean> {
  try {
    for (let n = 0; n < rounds_max; n++) await work();
    return false;
  } catch (error) {
    if (error instanceof DaemonDied) return true;
    throw error;
  }
}

/** Starts the daemon with a failpoint armed (`name:passage`). Resolves to false if it died during the start. */
export async function startArmed(
  daemon: Daemon,
  settings: Readonly<Record<string, string>>,
  failpoint: string,
): Promise<boolean> {
  try {
    await daemon.start({ ...settings, HEARTH_FAILPOINT: failpoint });
    return true;
  } catch (error) {
    if (String(error).includes("ended with SIGKILL")) return false;
    throw error;
  }
}

export class Ledger {
  readonly #daemon: Daemon;
  readonly #known = new Map<string, Known>();
  readonly #ids = new Set<string>();
  #payload_count = 0;
  readonly #nonces = new Set<string>();
  record_count = 0;
  /** First calls after a start that an instance of an earlier process served. */
  adopted_count = 0;

  constructor(daemon: Daemon) {
    this.#daemon = daemon;
  }

  /** Its instances echo their version, as hearth and as the version's own environment have it, and the payload. */
  async create(name: string, fields: Record<string, unknown> = {}): Promise<Known> {
    const known: Known = {
      name,
      id: null,
      states: new Set(["absent"]),
      versions: new Set([1]),
      version_count: 1,
      records: new Map(),
      fresh: new Set(),
    };
    this.#known.set(name, known);
    const handler = 'printf "%s:" $HEARTH_FUNCTION_VERSION $OWN_VERSION; cat';
    const body = { name, handler, environment: { OWN_VERSION: "1" }, ...fields };
    const created = await this.#move(known, "pending", 201, "POST", "/api/functions", body);
    known.id = created.body.id as string;
    this.#note(known.id);
    return known;
  }

  async deploy(known: Known, verb: "deploy" | "resume" = "deploy"): Promise<void> {
    await this.#move(known, "active", 200, "POST", `/api/functions/${known.id}/${verb}`);
  }

  async pause(known: Known): Promise<void> {
    await this.#move(known, "paused", 200, "POST", `/api/functions/${known.id}/pause`);
  }

  /** Makes the next version and points to it. */
  async update(known: Known): Promise<void> {
    const version = known.version_count + 1;
    await this.#point(known, version, "PUT", "", { environment: { OWN_VERSION: String(version) } });
    known.version_count = version;
  }

  async rollback(known: Known, version: number): Promise<void> {
    await this.#point(known, version, "POST", "/rollback", { version });
  }

  async delete(known: Known): Promise<void> {
    await this.#move(known, "absent", 200, "DELETE", `/api/functions/${known.id}`);
    this.#known.delete(known.name);
  }

  // biome-ignore lint/suspicious/noExplicitAny: the record as it came.
  async invoke(known: Known, payload_bytes = 0): Promise<any> {
    const payload = `p${this.#payload_count++}`.padEnd(payload_bytes, "x");
    const versions = [...known.versions];
    const { status, body } = await this.#request("POST", `/api/functions/invoke/${known.name}`, { payload });
    expect([status, body]).toEqual([200, expect.objectContaining({ status: "success", function_name: known.name })]);
    expect([...versions, ...known.versions]).toContain(body.version);
    expect(body.stdout).toBe(`${body.version}:${body.version}:${payload}`);
    this.#note(numberOf(body.invocation_id));
    known.records.set(body.invocation_id, body);
    known.fresh.add(body.invocation_id);
    this.record_count++;
    // An instance that has served is not cold, whichever process had started it.
    expect([body.cold_start, this.#nonces.has(body.instance_nonce)]).not.toEqual([true, true]);
    this.#nonces.add(body.instance_nonce);
    return body;
  }

  /** The functions of which something is known. */
  get functions(): readonly Known[] {
    return [...this.#known.values()];
  }

  /**
   * Holds what is known against a daemon that has started again, and learns how what was under way ended. Of the
   * records those that are new since the last check, or all.
   */
  async check(records: "new" | "all" = "new"): Promise<void> {
    for (const known of this.functions) {
      const function_record = await this.#settled(known);
      if (function_record === null) {
        expect([known.name, ...known.states]).toContain("absent");
        this.#known.delete(known.name);
        continue;
      }
      expect([known.name, ...known.states]).toContain(function_record.state);
      if (known.id === null) this.#note(function_record.id);
      else expect(function_record.id).toBe(known.id);
      expect([...known.versions]).toContain(function_record.version);
      known.id = function_record.id as string;
      known.states = new Set([function_record.state as State]);
      known.versions = new Set([function_record.version]);
      await this.#checkVersions(known, function_record.version);
      await this.#checkRecords(known, records === "all" ? [...known.records.keys()] : [...known.fresh]);
      known.fresh.clear();
      if (function_record.state === "active") await this.#callAgain(known);
    }
  }

  async #callAgain(known: Known): Promise<void> {
    const nonces = new Set(this.#nonces);
    const { instance_nonce } = await this.invoke(known);
    if (nonces.has(instance_nonce)) this.adopted_count++;
  }

  /** Deletes every function that is there, but pauses `kept`. */
  async clear(kept: Known | null = null): Promise<void> {
    for (const known of this.functions) {
      if (known !== kept) await this.delete(known);
      else if (known.states.has("active")) await this.pause(known);
    }
  }

  /** The function's record when it is in none of the states that only lead to another; null when there is none. */
  // biome-ignore lint/suspicious/noExplicitAny: the record as it came.
  async #settled({ name }: Known): Promise<any> {
    const { status, body } = await eventually(`function ${name} settles`, async () => {
      const answer = await this.#request("GET", `/api/functions/by-name/${name}`);
      return ["deploying", "deleting"].includes(answer.body.state) ? null : answer;
    });
    expect([200, 404]).toContain(status);
    return status === 404 ? null : body;
  }

  /** The versions are numbered without a gap: those that were answered, and perhaps one more. */
  async #checkVersions(known: Known, current: number): Promise<void> {
    const { body } = await this.#request("GET", `/api/functions/${known.id}/versions?limit=1000`);
    const numbers: number[] = body.versions.map(({ version }: { version: number }) => version).reverse();
    expect(numbers).toEqual(numbers.map((_, i) => i + 1));
    expect([known.version_count, known.version_count + 1]).toContain(numbers.length);
    expect(numbers).toContain(current);
    known.version_count = numbers.length;
  }

  /** The records are there as they were answered. */
  async #checkRecords({ id, records }: Known, ids: readonly string[]): Promise<void> {
    const { body } = await this.#request("GET", `/api/functions/${id}/invocations?limit=1000`);
    // biome-ignore lint/suspicious/noExplicitAny: records as they came.
    const listed = new Map<string, any>(body.invocations.map((one: any) => [one.invocation_id, one]));
    // Those of calls that were answered to nobody count as given too (L3).
    for (const invocation_id of listed.keys()) this.#ids.add(numberOf(invocation_id));
    for (const invocation_id of ids) {
      // The list ends at a thousand records and 16 MiB; what it leaves out is asked for alone.
      const kept =
        listed.get(invocation_id) ??
        (await this.#request("GET", `/api/functions/${id}/invocations/${invocation_id}`)).body;
      expect(kept).toEqual(records.get(invocation_id));
    }
  }

  /** A request that leads to a state when it is answered, and perhaps when it is not. */
  async #move(
    known: Known,
    to: State,
    expected: number,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<Answer> {
    known.states.add(to);
    const answer = await this.#request(method, path, body);
    expect([answer.status, answer.body]).toEqual([expected, expect.anything()]);
    known.states = new Set([to]);
    return answer;
  }

  async #point(known: Known, version: number, method: string, path: string, body: unknown): Promise<void> {
    known.versions.add(version);
    const answer = await this.#request(method, `/api/functions/${known.id}${path}`, body);
    expect([answer.status, answer.body]).toEqual([200, expect.objectContaining({ version })]);
    known.versions = new Set([version]);
  }

  #request(method: string, path: string, body?: unknown): Promise<Answer> {
    return ask(this.#daemon, method, path, body);
  }

  #note(id: string): void {
    expect([id, this.#ids.has(id)]).toEqual([id, false]);
    this.#ids.add(id);
  }
}

/** An invocation's number: it alone must be unique, whatever the random part of the id. */
function numberOf(invocation_id: string): string {
  return invocation_id.split("_", 2).join("_");
}
