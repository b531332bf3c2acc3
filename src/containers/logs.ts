/** Log entries as the API shows them. */
import { toIsoTime } from "../base/clock.ts";
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
