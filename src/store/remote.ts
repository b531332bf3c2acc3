/**
 * The store on a libSQL server (sqld), over a WebSocket or HTTP. A batch is one request, which the server runs in one
 * transaction; requests follow each other, so that batches commit in the order of their calls.
 *
 * E1. A request that the server does not answer within `store_answer_ms` fails, and the next one goes over a new
 *     connection if this one ever answered. The server may have committed it all the same: only a row or a batch with an
 *     expectation tells.
 * E2. The server knows no condition on the number of changed rows, so a statement after each expectation fails the batch.
 * E3. Commits are as durable as the server makes them: sqld runs SQLite with `synchronous=NORMAL` and lets no client
 *     change it, so a power cut of the server may take the last ones, also those that asked for `durable`.
 */
import { type Client, createClient, type InStatement, LibsqlBatchError, type ResultSet } from "@libsql/client/web";
import type { Clock } from "../base/clock.ts";
import { AppError, errorText, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { missingMigrations, notMigrated } from "./migrate.ts";
import { MIGRATIONS, type Migration } from "./migrations.ts";
import {
  assertChanges,
  assertVersion,
  bindable,
  checkParameters,
  checkValues,
  countParameters,
  READ_VERSION,
  readable,
  sqliteCode,
  storeError,
  writeVersion,
} from "./sql.ts";
import type {
  Append,
  CommitListener,
  Row,
  Statement,
  Store,
  StoreStats,
  Value,
  WriteOptions,
  WriteResult,
} from "./store.ts";
import { type BatchItem, chunksOf, type QueueLimits, type RowItem, type Table, WriteQueue } from "./write-queue.ts";

export interface RemoteLimits extends QueueLimits {
  readonly store_read_rows_max: number;
  readonly store_answer_ms: number;
}

export interface RemoteOptions {
  /** `ws://`, `wss://`, `http://` or `https://`, of a libSQL server. */
  readonly url: string;
  /** Credential that the server asks for; null: none. */
  readonly auth_token?: string | null;
  readonly clock: Clock;
  readonly limits?: Partial<RemoteLimits>;
  readonly migrations?: readonly Migration[];
}

/** Connects and brings the schema up to date. Rejects with INTERNAL and the reason if the server cannot be used. */
export async function openRemote(options: RemoteOptions): Promise<Store> {
  const { url, auth_token = null, clock, migrations = MIGRATIONS } = options;
  const limits = { ...LIMITS, ...options.limits };
  const connect = () => createClient({ url, ...(auth_token === null ? {} : { authToken: auth_token }) });
  const server = new Server(connect, url, clock, limits.store_answer_ms);
  try {
    await migrateRemote(server, url, migrations);
  } catch (error) {
    server.close();
    throw error;
  }
  return new RemoteStore(server, clock, limits);
}

async function migrateRemote(server: Server, url: string, migrations: readonly Migration[]): Promise<void> {
  let found = Number((await server.execute(READ_VERSION)).rows[0]?.[0] ?? 0);
  for (const { version, statements } of missingMigrations(found, url, migrations)) {
    const steps = statements.map((sql) => ({ sql }));
    // If two daemons start at the same time, one fails here.
    await server.batch([assertVersion(found), ...steps, writeVersion(version)]).catch((cause) => {
      throw notMigrated(url, version, cause);
    });
    found = version;
  }
}

/** Requests to the server, each within its time (E1). */
class Server {
  readonly #connect: () => Client;
  readonly #url: string;
  readonly #clock: Clock;
  readonly #answer_ms: number;
  #client: Client;
  /** True if the server has answered over the present connection. */
  #hasAnswered = false;

  constructor(connect: () => Client, url: string, clock: Clock, answer_ms: number) {
    this.#connect = connect;
    this.#client = connect();
    this.#url = url;
    this.#clock = clock;
    this.#answer_ms = answer_ms;
  }

  execute(statement: Statement): Promise<ResultSet> {
    return this.#answered(this.#client.execute(encoded(statement)));
  }

  /** All statements in one transaction. */
  batch(statements: readonly Statement[]): Promise<ResultSet[]> {
    return this.#answered(this.#client.batch(statements.map(encoded), "write"));
  }

  close(): void {
    this.#client.close();
  }

  async #answered<Result>(request: Promise<Result>): Promise<Result> {
    const late = Promise.withResolvers<never>();
    const cancel = this.#clock.after(this.#answer_ms, () => {
      late.reject(this.#unanswered(`no response within ${this.#answer_ms} ms`));
      this.#renew();
    });
    try {
      const result = await Promise.race([request, late.promise]);
      this.#hasAnswered = true;
      return result;
    } catch (error) {
      throw isOfServer(error) ? error : this.#unanswered(errorText(error), error);
    } finally {
      cancel();
    }
  }

  /** A client does not close a connection that is being opened: one is left to open or fail by itself. */
  #renew(): void {
    if (!this.#hasAnswered) return;
    this.#hasAnswered = false;
    this.#client.close();
    this.#client = this.#connect();
  }

  #unanswered(reason: string, cause?: unknown): AppError {
    return new AppError("INTERNAL", `cannot reach the store ${this.#url}: ${reason}`, { cause });
  }
}

/** True if the server has answered: it refused the statement. */
function isOfServer(error: unknown): boolean {
  if (error instanceof AppError || sqliteCode(error) !== "") return true;
  return error instanceof Error && "code" in error && /^(SQL_|ARGS_)/.test(String(error.code));
}

function encoded({ sql, args = [] }: Statement): InStatement {
  return { sql, args: bindable(args) as Value[] };
}

class RemoteStore implements Store {
  readonly #server: Server;
  readonly #clock: Clock;
  readonly #limits: RemoteLimits;
  readonly #queue: WriteQueue;
  #onCommit: CommitListener = () => {};
  #isCommitting = false;
  #closed: Promise<void> | null = null;

  constructor(server: Server, clock: Clock, limits: RemoteLimits) {
    this.#server = server;
    this.#clock = clock;
    this.#limits = limits;
    this.#queue = new WriteQueue({ limits, flush: () => void this.#flush() });
  }

  write(statements: readonly Statement[], options?: WriteOptions): Promise<WriteResult> {
    return this.#queue.write(statements, options);
  }

  appender(table: string, columns: readonly string[]): Append {
    return this.#queue.appender(table, columns);
  }

  async read<R extends Row = Row>(sql: string, args: readonly Value[] = []): Promise<R[]> {
    if (this.#closed !== null) throw new AppError("SHUTTING_DOWN", "the store is closed");
    checkValues(args);
    checkParameters(sql, countParameters(sql), args);
    const { store_read_rows_max: rows_max } = this.#limits;
    const found = await this.#server.execute({ sql, args }).catch((error) => {
      throw storeError(error);
    });
    invariant(found.rows.length <= rows_max, `read too large (limit ${rows_max} rows): ${sql}`);
    return found.rows.map((cells) => {
      const entries = found.columns.map((name, i) => [name, readable(cells[i], found.columnTypes[i] === "TEXT")]);
      return Object.fromEntries(entries) as R;
    });
  }

  async readOne<R extends Row = Row>(sql: string, args: readonly Value[] = []): Promise<R | null> {
    return (await this.read<R>(sql, args))[0] ?? null;
  }

  onCommit(listener: CommitListener): void {
    this.#onCommit = listener;
  }

  stats(): StoreStats {
    return { ...this.#queue.waiting, wal_bytes: 0 };
  }

  close(): Promise<void> {
    this.#closed ??= this.#queue.close(() => !this.#isCommitting).then(() => this.#server.close());
    return this.#closed;
  }

  /** Never rejects. */
  async #flush(): Promise<void> {
    if (this.#isCommitting) return;
    this.#isCommitting = true;
    while (!this.#queue.isEmpty) {
      const items = this.#queue.take();
      await this.#commitRows(items.filter((item) => item.kind === "row"));
      for (const item of items) if (item.kind === "batch") await this.#commitBatch(item);
    }
    this.#isCommitting = false;
    this.#queue.settled();
  }

  async #transaction(steps: readonly Statement[], items_count: number): Promise<ResultSet[]> {
    const begun_ms = this.#clock.monotonicMs();
    return this.#server.batch(steps).finally(() => this.#onCommit(items_count, this.#clock.monotonicMs() - begun_ms));
  }

  /** All rows in one transaction, many per statement; if that fails, each in its own. */
  async #commitRows(rows: readonly RowItem[]): Promise<void> {
    if (rows.length === 0) return;
    const tables = Map.groupBy(rows, ({ table }) => table);
    const inserts = [...tables].flatMap(([table, own]) => [...chunksOf(own)].map((chunk) => insertOf(table, chunk)));
    try {
      await this.#transaction(inserts, rows.length);
      for (const { resolve } of rows) resolve();
    } catch (error) {
      // An unreachable server would cost the single rows the same time again.
      if (rows.length > 1 && !(error instanceof AppError)) for (const row of rows) await this.#commitRows([row]);
      else for (const { reject } of rows) reject(storeError(error));
    }
  }

  async #commitBatch({ statements, resolve, reject }: BatchItem): Promise<void> {
    const steps: Statement[] = [];
    /** Index of each statement among the steps (E2). */
    const places: number[] = [];
    try {
      for (const { sql, args = [], expect_changes } of statements) {
        checkParameters(sql, countParameters(sql), args);
        places.push(steps.length);
        steps.push({ sql, args });
        if (expect_changes !== undefined) steps.push(assertChanges(expect_changes));
      }
      const results = await this.#transaction(steps, 1);
      resolve({ conflict: null, changes: places.map((place) => results[place]?.rowsAffected ?? 0) });
    } catch (error) {
      const failed = error instanceof LibsqlBatchError ? error.statementIndex : -1;
      const conflict = failed < 0 || places.includes(failed) ? -1 : places.indexOf(failed - 1);
      if (conflict >= 0) resolve({ conflict, changes: [] });
      else reject(storeError(error));
    }
  }
}

function insertOf({ inserts }: Table, rows: readonly RowItem[]): Statement {
  return { sql: inserts.get(rows.length) ?? "", args: rows.flatMap(({ values }) => values) };
}
