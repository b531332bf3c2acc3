/** Log entries as the API shows them, and who follows them. */
import { toIsoTime } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { Gate } from "../base/gate.ts";
import { LIMITS } from "../base/limits.ts";
import { Shares } from "../base/shares.ts";
import type { ContainerLog, LogLine } from "../engine/engine.ts";

export function entryOf({ seq, at_ms, stream, message, partial }: LogLine) {
  const isError = stream === "stderr";
  return {
    seq,
    timestamp: toIsoTime(at_ms),
    stream: isError ? ("stderr" as const) : ("stdout" as const),
    level: isError ? ("error" as const) : ("info" as const),
    message,
    partial,
  };
}

/**
 * Readers of logs, within bounds: each that looks at a log holds a segment in memory for that moment, and each that
 * follows one its files open.
 */
export class LogReaders {
  readonly #followers = new Shares({
    each_max: LIMITS.log_followers_per_tenant_max,
    all_max: LIMITS.log_followers_max,
  });
  readonly #reads = new Gate(LIMITS.log_reads_max, LIMITS.log_reads_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many logs are read at the same time", { retry_after: 1 });
  });

  /** Reads in its turn. Throws CAPACITY_FULL. */
  read<T>(read: () => Promise<T>): Promise<T> {
    return this.#reads.run(read);
  }

  /** One follower more, until what is returned is called. Throws CONCURRENCY_LIMIT, CAPACITY_FULL. */
  enter(tenant_id: string): () => void {
    return this.#followers.take(tenant_id, (reached) =>
      reached === "each_max"
        ? new AppError("CONCURRENCY_LIMIT", `the tenant follows ${LIMITS.log_followers_per_tenant_max} logs already`, {
            retry_after: 5,
          })
        : new AppError("CAPACITY_FULL", "as many logs are followed as may be", { retry_after: 5 }),
    );
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
    // A log holds what the command wrote, and no word of minit's.
    if (entry.stream !== "minit") yield line(entry);
  }
}
