/**
 * The store in a file beside the daemon: libsql in WAL mode, one writer connection and one reader connection on the
 * main thread, checkpoints on a thread of their own. This file opens, migrates, reads and closes; batching is
 * writer.ts, the log's size is checkpointer.ts.
 *
 * `synchronous=NORMAL`: a commit is in the kernel's hands when it resolves, so it survives any crash of the daemon;
 * SQLite syncs only around a checkpoint. What has to survive a power cut asks for `durable`.
 */
import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import type { Clock } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { Checkpointer, type CheckpointLimits } from "./checkpointer.ts";
import { Connection, type ConnectionLimits } from "./connection.ts";
import { migrate } from "./migrate.ts";
import { MIGRATIONS, type Migration } from "./migrations.ts";
import { Reserve } from "./reserve.ts";
import { checkValues, sqliteCode, storeError } from "./sql.ts";
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
import type { QueueLimits } from "./write-queue.ts";
import { Writer } from "./writer.ts";

export interface EmbeddedOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits?: Partial<StoreLimits>;
  /** Disk space kept for what must go on when the disk is full; none unless given. */
  readonly reserve_bytes?: number;
  readonly migrations?: readonly Migration[];
}

export type StoreLimits = ConnectionLimits & QueueLimits & CheckpointLimits;

/** Pages of 4 KiB: smaller ones commit 5 % faster, but outputs of a megabyte would become long chains. */
const PAGE_BYTES = 4096;

/** Opens or makes the file. Throws INTERNAL with the path and the reason when it cannot be used. */
export function openEmbedded(options: EmbeddedOptions): Store {
  return new EmbeddedStore(options, { ...LIMITS, ...options.limits });
}

function openError(path: string, cause: unknown): AppError {
  if (cause instanceof AppError) return cause;
  const code = sqliteCode(cause);
  const is_damaged = code.startsWith("SQLITE_NOTADB") || code.startsWith("SQLITE_CORRUPT");
  const reason = is_damaged ? "is damaged or not a database" : `cannot be opened: ${errorText(cause)}`;
  return new AppError("INTERNAL", `the store ${path} ${reason}`, { cause });
}

class EmbeddedStore implements Store {
  readonly #limits: StoreLimits;
  readonly #log: Log;
  readonly #writing: Connection;
  readonly #reading: Connection;
  readonly #reserve: Reserve;
  readonly #writer: Writer;
  readonly #checkpointer: Checkpointer;
  #closed: Promise<void> | null = null;

  constructor({ path, clock, log, reserve_bytes = 0, migrations = MIGRATIONS }: EmbeddedOptions, limits: StoreLimits) {
    this.#limits = limits;
    this.#log = log;
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      const freeInside = (): number => this.#freeInside();
      this.#reserve = new Reserve({ path: `${path}-reserve`, bytes: reserve_bytes, clock, freeInside });
      // Made before SQLite does, for the mode: environment values lie in it. Its log takes the mode over.
      closeSync(openSync(path, "a", 0o600));
      this.#writing = this.#openWriting(path);
      migrate(this.#writing, path, migrations);
      this.#reading = new Connection(path, limits);
      this.#reading.exec("PRAGMA query_only=1");
    } catch (cause) {
      throw openError(path, cause);
    }
    this.#writer = new Writer({
      connection: this.#writing,
      limits,
      reserve: this.#reserve,
      clock,
      checkpointer: () => this.#checkpointer,
    });
    this.#checkpointer = new Checkpointer({
      path,
      page_bytes: PAGE_BYTES,
      limits,
      clock,
      log,
      onFull: () => this.#reserve.release(),
      onRelease: (error) => this.#writer.release(error),
    });
  }

  write(statements: readonly Statement[], options?: WriteOptions): Promise<WriteResult> {
    return this.#writer.queue.write(statements, options);
  }

  appender(table: string, columns: readonly string[]): Append {
    return this.#writer.queue.appender(table, columns);
  }

  async read<R extends Row = Row>(sql: string, args: readonly Value[] = []): Promise<R[]> {
    if (this.#closed !== null) throw new AppError("SHUTTING_DOWN", "the store is closed");
    checkValues(args);
    try {
      return this.#reading.rows(sql, args) as R[];
    } catch (thrown) {
      throw storeError(thrown);
    }
  }

  async readOne<R extends Row = Row>(sql: string, args: readonly Value[] = []): Promise<R | null> {
    return (await this.read<R>(sql, args))[0] ?? null;
  }

  onCommit(listener: CommitListener): void {
    this.#writer.onCommit(listener);
  }

  stats(): StoreStats {
    return { ...this.#writer.queue.waiting, wal_bytes: this.#closed === null ? this.#checkpointer.wal_bytes : 0 };
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await this.#writer.close();
    await this.#checkpointer.close();
    await this.#reserve.close();
    this.#reading.close();
    try {
      // The last copy back, here: no other work is left that it could hold up, and no thread has to be started for it.
      this.#writing.rows("PRAGMA wal_checkpoint(TRUNCATE)", []);
    } catch (error) {
      // The log is complete, the next open reads it.
      this.#log.warn("the last checkpoint failed", { error: errorText(error) });
    }
    this.#writing.close();
  }

  /** Bytes of pages that a deletion has freed. */
  #freeInside(): number {
    return Number(this.#writing.rows("PRAGMA freelist_count", [])[0]?.freelist_count ?? 0) * PAGE_BYTES;
  }

  #openWriting(path: string): Connection {
    const connection = new Connection(path, this.#limits);
    connection.exec(`PRAGMA page_size=${PAGE_BYTES}; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL`);
    // Checkpoints never run inside a commit, and a log that was long once gives its space back when it begins again.
    connection.exec(`PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=${this.#limits.wal_restart_bytes}`);
    connection.exec("PRAGMA foreign_keys=1");
    const mode = connection.rows("PRAGMA journal_mode", [])[0]?.journal_mode;
    if (mode !== "wal")
      throw new AppError("INTERNAL", `the file system of ${path} does not support a write-ahead log (${mode})`);
    return connection;
  }
}
