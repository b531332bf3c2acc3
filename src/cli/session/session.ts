/** What a command works with: the terminal, the API, how results are shown, and what is known of names. */
import { type Clock, toEpochSeconds } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import { didYouMean } from "../../base/suggest.ts";
import { ApiError, Client, type ResponseOf } from "../../client/client.ts";
import { type Column, list, table } from "../output/table.ts";
import type { Terminal } from "../output/terminal.ts";
import { json } from "../output/text.ts";
import { parseExactly } from "./exact-json.ts";
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
export type SnapshotRecord = ResponseOf<"GET /api/snapshots">["snapshots"][number];
export type InvocationRecord = ResponseOf<"GET /api/functions/:function_id/invocations/:invocation_id">;

const FUNCTION_ID = /^fn_[0-9a-z]{16}$/;
const CONTAINER_ID = /^ctr_[0-9a-z]{16}$/;
const SNAPSHOT_ID = /^snp_[0-9a-z]{16}$/;
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
  #own_tenant: Promise<string> | null = null;

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
    return new Client({ url: this.target.url, key: this.target.key, timeout_ms, read: parseExactly });
  }

  /** A client for routes that require the credential's tenant, whose id the first call requests from the daemon. */
  async tenantClient(timeout_ms: number = LIMITS.cli_request_timeout_ms): Promise<Client> {
    const { url, key } = this.target;
    this.#own_tenant ??= this.client(timeout_ms)
      .request("GET /api/tenant")
      .then(({ tenant_id }) => tenant_id);
    return new Client({ url, key, tenant_id: await this.#own_tenant, timeout_ms, read: parseExactly });
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

  /** The id of a snapshot, from its id or from a name that only one snapshot has. */
  async snapshotId(nameOrId: string): Promise<string> {
    if (SNAPSHOT_ID.test(nameOrId)) return nameOrId;
    const client = await this.tenantClient();
    const { snapshots } = await readList("snapshots", undefined, (query) =>
      client.request("GET /api/snapshots", { query }),
    );
    const [found, ...others] = snapshots.filter(({ name }) => name === nameOrId);
    if (found === undefined) {
      const hint = didYouMean(nameOrId, snapshotWords(snapshots)) ?? "to list snapshots: hearth snapshot ls";
      throw new Failure(EXIT.refused, `no snapshot named '${nameOrId}'`, hint);
    }
    if (others.length === 0) return found.snapshot_id;
    const ids = [found, ...others].map(({ snapshot_id }) => snapshot_id).slice(0, IDS_SHOWN);
    const message = `name '${nameOrId}' is ambiguous: ${others.length + 1} snapshots have it`;
    throw new Failure(EXIT.refused, message, `give an id, the newest first: ${ids.join(", ")}`);
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

  /** Names of snapshots, and ids of those without a name of their own. */
  snapshotNames(): Promise<string[]> {
    return this.#names(async (_, query) => {
      const client = await this.tenantClient(LIMITS.cli_aside_timeout_ms);
      const { snapshots } = await client.request("GET /api/snapshots", { query });
      return snapshotWords(snapshots).map((name) => ({ name }));
    });
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

/** Ids that a message about an ambiguous name lists. */
const IDS_SHOWN = 5;

/** The word for each snapshot: its name if no other one has it, else its id. */
function snapshotWords(snapshots: readonly SnapshotRecord[]): string[] {
  const counts = new Map<string | null, number>();
  for (const { name } of snapshots) counts.set(name, (counts.get(name) ?? 0) + 1);
  return snapshots.map(({ name, snapshot_id }) => (name !== null && counts.get(name) === 1 ? name : snapshot_id));
}

export function isRefusal(error: unknown, code: string): boolean {
  return error instanceof ApiError && error.body?.error_code === code;
}

/** Makes the session of a verb from the flags of every verb. */
export type Start = (flags: GlobalFlags) => Session;
