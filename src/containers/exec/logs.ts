/** Log entries as the API shows them, and who follows them. */
import { toIsoTime } from "../../base/clock.ts";
import { Semaphore } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { ContainerLog, LogLine, TailOptions } from "../../engine/ports.ts";

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

const full = () => new AppError("CAPACITY_FULL", "too many concurrent log readers", { retry_after: 1 });

/** Readers of logs, within bounds: each holds a segment in memory while it looks at it. Those of a tenant take turns. */
export class LogReaders {
  readonly #reads = new Semaphore(LIMITS.log_reads_max, LIMITS.log_reads_waiting_max, full);
  /** Tenants that read. */
  readonly #of_tenant = new Map<string, Semaphore>();

  /** Yields lines that are asked for, oldest first. Rejects with CAPACITY_FULL. */
  async *read(
    tenant_id: string,
    log: ContainerLog,
    options: TailOptions,
  ): AsyncGenerator<readonly LogLine[], void, undefined> {
    const over = Promise.withResolvers<void>();
    await new Promise<void>((begin, refuse) => {
      const held = () => {
        begin();
        return over.promise;
      };
      const own = this.#own(tenant_id);
      own
        .run(() => this.#reads.run(held))
        .catch(refuse)
        .finally(() => own.isIdle && this.#of_tenant.delete(tenant_id));
    });
    try {
      yield* log.tailPieces(options);
    } finally {
      over.resolve();
    }
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

/** One object a line. */
const ndjson = (lines: readonly LogLine[]) =>
  Buffer.from(lines.map((line) => `${JSON.stringify(entryOf(line))}\n`).join(""));

/** The lines that there are, as they are sent. `last_seq`: number of the last one, or what was asked for. */
export interface Begun {
  readonly pieces: readonly Uint8Array[];
  readonly last_seq: number;
}

export async function begun(source: AsyncIterable<readonly LogLine[]>, after_seq: number): Promise<Begun> {
  const pieces: Uint8Array[] = [];
  let last_seq = after_seq;
  for await (const lines of source) {
    pieces.push(ndjson(lines));
    last_seq = lines.at(-1)?.seq ?? last_seq;
  }
  return { pieces, last_seq };
}

/** What there is, then what comes, until the reader goes or its credential ends. */
export async function* followed(
  log: ContainerLog,
  { pieces, last_seq }: Begun,
  signal: AbortSignal,
  recheck: () => Promise<void> | undefined,
): AsyncGenerator<Uint8Array> {
  yield* pieces;
  for await (const line of log.follow(last_seq, signal)) {
    await recheck();
    // A log holds what the command wrote, and no word of minit's.
    if (line.stream !== "minit") yield ndjson([line]);
  }
}
