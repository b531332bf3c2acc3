/** Log entries as the API shows them, and who follows them. */
import { toIsoTime } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { ContainerLog, LogLine } from "../engine/engine.ts";

export function entryOf({ seq, at_ms, stream, message, partial }: LogLine) {
  return {
    seq,
    timestamp: toIsoTime(at_ms),
    stream,
    level: stream === "stderr" ? ("error" as const) : ("info" as const),
    message,
    partial,
  };
}

/**
 * Readers of logs, within bounds: each that looks at a log holds a segment in memory for that moment, and each that
 * follows one its files open.
 */
export class LogReaders {
  readonly #counts = new Map<string, number>();
  #count = 0;
  #reading_count = 0;
  readonly #waiting: (() => void)[] = [];

  /** Reads in its turn. Throws CAPACITY_FULL. */
  async read<T>(read: () => Promise<T>): Promise<T> {
    if (this.#reading_count < LIMITS.log_reads_max) {
      this.#reading_count++;
    } else {
      if (this.#waiting.length >= LIMITS.log_reads_waiting_max) {
        throw new AppError("CAPACITY_FULL", "too many logs are read at the same time", { retry_after: 1 });
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await read();
    } finally {
      // Whoever waits longest takes the place over.
      const next = this.#waiting.shift();
      if (next === undefined) this.#reading_count--;
      else next();
    }
  }

  /** One follower more, until what is returned is called. Throws CONCURRENCY_LIMIT, CAPACITY_FULL. */
  enter(tenant_id: string): () => void {
    const own = this.#counts.get(tenant_id) ?? 0;
    if (own >= LIMITS.log_followers_per_tenant_max) {
      throw new AppError("CONCURRENCY_LIMIT", `the tenant follows ${own} logs already`, { retry_after: 5 });
    }
    if (this.#count >= LIMITS.log_followers_max) {
      throw new AppError("CAPACITY_FULL", "as many logs are followed as may be", { retry_after: 5 });
    }
    this.#counts.set(tenant_id, own + 1);
    this.#count++;
    let isLeft = false;
    return () => {
      if (isLeft) return;
      isLeft = true;
      const left = (this.#counts.get(tenant_id) ?? 1) - 1;
      if (left > 0) this.#counts.set(tenant_id, left);
      else this.#counts.delete(tenant_id);
      this.#count--;
    };
  }
}

/** What there is, then what comes, one object a line, until the reader goes or its credential ends. */
export async function* followed(
  log: ContainerLog,
  begun: readonly LogLine[],
  after_seq: number,
  signal: AbortSignal,
  recheck: () => Promise<void> | undefined,
): AsyncGenerator<Uint8Array> {
  const line = (entry: LogLine) => Buffer.from(`${JSON.stringify(entryOf(entry))}\n`);
  if (begun.length > 0) yield Buffer.concat(begun.map(line));
  for await (const entry of log.follow(begun.at(-1)?.seq ?? after_seq, signal)) {
    await recheck();
    yield line(entry);
  }
}
