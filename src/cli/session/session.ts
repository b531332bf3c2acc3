/** What a command works with: the terminal, the API, how results are shown, and what is known of names. */
import { type Clock, toEpochSeconds } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import { didYouMean } from "../../base/suggest.ts";
import { ApiError, Client, type ResponseOf } from "../../client/client.ts";
import { type Column, list, table } from "../output/table.ts";
import type { Terminal } from "../output/terminal.ts";
import { json } from "../output/text.ts";
import { EXIT, Failure } from "./failure.ts";
import { readList } from "./pages.ts";
import { type Environment, readTarget, type Target, type TargetFlags } from "./target.ts";

export interface GlobalFlags extends TargetFlags {
  /** Whether the API's answer is printed as it is. */
  readonly json?: boolean;
}

/** The words and flags behind a verb, as the program has parsed them. */
export type Words = readonly (string | undefined)[];
export type Flags = Readonly<Record<string, unknown>>;

export type FunctionRecord = ResponseOf<"GET /api/functions/:function_id">;
export type ContainerRecord = ResponseOf<"GET /api/containers/:container_id">;
export type InvocationRecord = ResponseOf<"GET /api/functions/:function_id/invocations/:invocation_id">;

const FUNCTION_ID = /^fn_[0-9a-z]{16}$/;
const CONTAINER_ID = /^ctr_[0-9a-z]{16}$/;
const TENANT_ID = /^(ten_[0-9a-z]{16}|default)$/;

/** What was asked for by its name, and how to learn which names there are. */
export interface Sought {
  readonly word: string;
  readonly names: () => Promise<string[]>;
}

export interface SessionOptions {
  readonly terminal: Terminal;
  readonly clock: Clock;
  readonly environment: Environment;
  readonly flags: GlobalFlags;
}

export class Session {
  readonly terminal: Terminal;
  readonly clock: Clock;
  readonly environment: Environment;
  readonly flags: GlobalFlags;
  /** The thing that was asked for by its name; null when none was. */
  sought: Sought | null = null;
  /** What helps against a refusal, by its code, in the words of the command line: shown in place of the API's hint. */
  advice: Readonly<Record<string, string>> = {};
  /** What Ctrl-C ends with: success for what only it can end. Null: it ends a child, which then ends this. */
  interrupt_exit_code: number | null = EXIT.interrupted;
  #target: Target | null = null;

  constructor({ terminal, clock, environment, flags }: SessionOptions) {
    this.terminal = terminal;
    this.clock = clock;
    this.environment = environment;
    this.flags = flags;
  }

  /** Where requests go; read when the first one is made. */
  get target(): Target {
    this.#target ??= readTarget(this.flags, this.environment);
    return this.#target;
  }

  /** Where requests went; null when none was made. */
  get asked(): Target | null {
    return this.#target;
  }

  client(timeout_ms: number = LIMITS.cli_request_timeout_ms): Client {
    return new Client({ url: this.target.url, key: this.target.key, timeout_ms });
  }

  get now(): number {
    return toEpochSeconds(this.clock.epochMs());
  }

  isFunctionId(nameOrId: string): boolean {
    return FUNCTION_ID.test(nameOrId);
  }

  isContainerId(nameOrId: string): boolean {
    return CONTAINER_ID.test(nameOrId);
  }

  /** The id behind a name or an id. */
  async functionId(nameOrId: string): Promise<string> {
    if (this.isFunctionId(nameOrId)) return nameOrId;
    this.sought = { word: nameOrId, names: () => this.functionNames() };
    const { id } = await this.client().request("GET /api/functions/by-name/:name", { params: { name: nameOrId } });
    return id;
  }

  async tenantId(nameOrId: string): Promise<string> {
    if (TENANT_ID.test(nameOrId)) return nameOrId;
    const client = this.client();
    const { tenants } = await readList("tenants", undefined, (query) => client.request("GET /api/tenants", { query }));
    const found = tenants.find(({ name }) => name === nameOrId);
    if (found !== undefined) return found.tenant_id;
    const names = tenants.map(({ name }) => name);
    throw new Failure(EXIT.refused, `no tenant named '${nameOrId}'`, didYouMean(nameOrId, names));
  }

  /** The container's id, behind its name too. */
  async containerId(nameOrId: string): Promise<string> {
    if (this.isContainerId(nameOrId)) return nameOrId;
    this.sought = { word: nameOrId, names: () => this.containerNames() };
    const named = await this.client().request("GET /api/containers/by-name/:name", { params: { name: nameOrId } });
    if (named.found) return named.container_id;
    const hint = didYouMean(nameOrId, await this.containerNames());
    throw new Failure(EXIT.refused, `${named.error_message} [NOT_FOUND]`, hint);
  }

  /** The path parameter of a volume, which goes by its name alone. */
  volume(name: string): { readonly name: string } {
    this.sought = { word: name, names: () => this.volumeNames() };
    return { name };
  }

  /** The path parameter of a secret, which goes by its name alone. */
  secret(name: string): { readonly name: string } {
    this.sought = { word: name, names: () => this.secretNames() };
    return { name };
  }

  functionNames(): Promise<string[]> {
    return this.#names(async (client, query) => (await client.request("GET /api/functions", { query })).functions);
  }

  containerNames(): Promise<string[]> {
    return this.#names(async (client, query) => (await client.request("GET /api/containers", { query })).containers);
  }

  volumeNames(): Promise<string[]> {
    return this.#names(async (client, query) => (await client.request("GET /api/volumes", { query })).volumes);
  }

  imageReferences(): Promise<string[]> {
    return this.#names(async (client, query) => {
      const { images } = await client.request("GET /api/oci/images", { query });
      return images.map(({ reference }) => ({ name: reference }));
    });
  }

  /** Those with stored credentials. */
  registryNames(): Promise<string[]> {
    return this.#names(async (client, query) => {
      const { registries } = await client.request("GET /api/oci/registries", { query });
      return registries.map(({ registry }) => ({ name: registry }));
    });
  }

  secretNames(): Promise<string[]> {
    return this.#names(async (client, query) => (await client.request("GET /api/secrets", { query })).secrets);
  }

  /** Ids of terminal sessions that have not ended. */
  terminalIds(): Promise<string[]> {
    return this.#names(async (client) => {
      const { sessions } = await client.request("GET /api/terminal/sessions");
      return sessions.map(({ session_id }) => ({ name: session_id }));
    });
  }

  /** None where the key is not the operator's. */
  tenantNames(): Promise<string[]> {
    return this.#names(async (client, query) => (await client.request("GET /api/tenants", { query })).tenants);
  }

  /** Names, where they are known soon and may be read; else none. */
  async #names(
    ask: (client: Client, query: { readonly limit: number }) => Promise<readonly { readonly name: string }[]>,
  ): Promise<string[]> {
    try {
      const found = await ask(this.client(LIMITS.cli_aside_timeout_ms), { limit: LIMITS.list_limit_max });
      return found.map(({ name }) => name);
    } catch {
      return [];
    }
  }

  /** The answer as it came for `--json`, else as `text` shows it. */
  show(answer: unknown, text: () => string): void {
    this.terminal.out(this.flags.json === true ? `${json(answer)}\n` : text());
  }

  table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], empty: string): string {
    const { width, paint } = this.terminal;
    if (rows.length > 0) return table(columns, rows, { width, paint });
    this.terminal.note(empty);
    return "";
  }

  list(entries: readonly (readonly [string, string])[]): string {
    const { width, paint } = this.terminal;
    return list(entries, { width, paint });
  }

  /** Says that a list is not the whole. */
  noteCut(shown_count: number, limit: number | undefined, { next_cursor }: { next_cursor: string | null }): void {
    if (this.flags.json === true || next_cursor === null) return;
    const isAsked = limit !== undefined && shown_count >= limit;
    this.terminal.note(
      isAsked ? `showing the newest ${shown_count}; --limit shows more` : `showing only the newest ${shown_count}`,
    );
  }
}

export function isRefusal(error: unknown, code: string): boolean {
  return error instanceof ApiError && error.body?.error_code === code;
}

/** Makes the session of a verb from the flags of every verb. */
export type Start = (flags: GlobalFlags) => Session;
