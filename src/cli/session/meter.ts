/** The progress of a transfer, on a terminal. */
import { bytes } from "../output/time.ts";
import type { Session } from "./session.ts";

const BAR_WIDTH = 20;

/** Passes pieces on, adds their sizes to `passed`, and shows the progress; `total` is null if it is unknown. */
export async function* metered(
  { terminal, clock }: Session,
  doing: string,
  pieces: AsyncIterable<Uint8Array>,
  total: { bytes: number | null },
  passed: { bytes: number },
): AsyncGenerator<Uint8Array> {
  const meter = terminal.meter();
  const begun_ms = clock.monotonicMs();
  try {
    for await (const piece of pieces) {
      passed.bytes += piece.length;
      const rate = passed.bytes / Math.max(1, clock.monotonicMs() - begun_ms);
      meter.show(`${doing}  ${meterText(passed.bytes, total.bytes)}  ${bytes(Math.round(rate * 1_000))}/s`);
      yield piece;
    }
  } finally {
    meter.end();
  }
}

/** `[####      ]  40 %  2 MiB of 5 MiB`; `2 MiB` if the total is unknown. */
export function meterText(done: number, total: number | null): string {
  if (total === null || total === 0) return bytes(done);
  return `${percentText((100 * done) / total)}  ${bytes(done)} of ${bytes(total)}`;
}

/** `[####      ]  40 %` */
export function percentText(percent: number): string {
  const part = Math.min(1, percent / 100);
  const bar = "#".repeat(Math.round(part * BAR_WIDTH)).padEnd(BAR_WIDTH);
  return `[${bar}] ${String(Math.floor(part * 100)).padStart(3)} %`;
}
