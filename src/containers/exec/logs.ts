/** Log entries as the API shows them, and who follows them. */
import { toIsoTime } from "../../base/clock.ts";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ContainerLog, LogLine } from "../../engine/ports.ts";

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

/** Readers of logs, within bounds: each that looks at a log holds a segment in memory for that moment. */
export class LogReaders {
  readonly #reads = new Semaphore(LIMITS.log_reads_max, LIMITS.log_reads_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many concurrent log readers", { retry_after: 1 });
  });

  /** Reads in its turn. Throws CAPACITY_FULL. */
  read<T>(read: () => Promise<T>): Promise<T> {
    return this.#reads.run(read);
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
