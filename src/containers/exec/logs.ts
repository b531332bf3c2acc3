/** Log entries as the API shows them, and who follows them. */
import { toIsoTime } from "../../base/clock.ts";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { TransferTurn } from "../../base/transfer-turns.ts";
import type { ContainerLog, LogLine, TailOptions } from "../../engine/ports.ts";

/** Minit says in the place of lines that are missing how many there were: on standard error, as the command line says more. */
export function entryOf({ seq, at_ms, stream, message, partial, is_gap }: LogLine) {
  const isError = stream === "stderr" || is_gap === true;
  return {
    seq,
    timestamp: toIsoTime(at_ms),
    stream: isError ? ("stderr" as const) : ("stdout" as const),
    level: isError ? ("error" as const) : ("info" as const),
    message,
    partial,
  };
}

const full = () => new AppError("CAPACITY_FULL", "too many concurrent log readers", { retry_after: 1 });

/** What a reader waits for, and until when. */
export interface Reader {
  readonly tenant_id: string;
  readonly turn: TransferTurn;
  readonly signal: AbortSignal;
}

/**
 * Readers of logs, within bounds: each holds a segment in memory while it looks at it. Those of a tenant take turns, and none of them
 * takes a place before what the tenant moved is paid for: with a place, a read waits for turns of the event loop alone.
 */
export class LogReaders {
  readonly #reads = new Semaphore(LIMITS.log_reads_max, LIMITS.log_reads_waiting_max, full);
  /** Tenants that read. */
  readonly #of_tenant = new Map<string, Semaphore>();

  /** Yields lines that are asked for, oldest first. Rejects with CAPACITY_FULL, and as the signal does. */
  async *read(
    reader: Reader,
    log: ContainerLog,
    options: TailOptions,
  ): AsyncGenerator<readonly LogLine[], void, undefined> {
    const leave = await this.#enter(reader);
    try {
      yield* log.tailPieces({ ...options, turn: reader.turn });
    } finally {
      leave();
    }
  }

  /** Returns the number of the first of these lines; null: there is none. Rejects likewise. */
  async first(reader: Reader, log: ContainerLog, options: TailOptions): Promise<number | null> {
    const leave = await this.#enter(reader);
    try {
      return await log.firstSeq({ ...options, turn: reader.turn });
    } finally {
      leave();
    }
  }

  /** Resolves with a place, which the returned function gives back. */
  #enter({ tenant_id, turn, signal }: Reader): Promise<() => void> {
    const over = Promise.withResolvers<void>();
    const own = this.#own(tenant_id);
    return new Promise((begin, refuse) => {
      const held = () => {
        begin(over.resolve);
        return over.promise;
      };
      const paid = async () => {
        // Whoever has gone is not read for.
        signal.throwIfAborted();
        await turn.take(0);
        signal.throwIfAborted();
        await this.#reads.run(held);
      };
      own
        .run(paid)
        .catch(refuse)
        .finally(() => own.isIdle && this.#of_tenant.delete(tenant_id));
    });
  }

  #own(tenant_id: string): Semaphore {
    const known = this.#of_tenant.get(tenant_id);
    if (known !== undefined) return known;
    const own = new Semaphore(1, LIMITS.log_reads_waiting_max, full);
    this.#of_tenant.set(tenant_id, own);
    return own;
  }
}

export async function* entriesOf(pieces: AsyncIterable<readonly LogLine[]>) {
  for await (const lines of pieces) yield lines.map(entryOf);
}

/** The lines after `after_seq` and what comes, one object a line, until the reader goes or its credential ends. */
export async function* followed(
  log: ContainerLog,
  after_seq: number,
  { signal, turn }: Reader,
  recheck: () => Promise<void> | undefined,
): AsyncGenerator<Uint8Array> {
  for await (const line of log.follow(after_seq, signal, turn)) {
    await recheck();
    // A log holds what the command wrote, and no word of minit's but that some of it is missing.
    if (line.stream === "minit" && line.is_gap !== true) continue;
    const bytes = Buffer.from(`${JSON.stringify(entryOf(line))}\n`);
    await turn.take(bytes.length * LIMITS.turn_json_weight);
    yield bytes;
  }
}
