/** Bounds for bytes that a client sends while the daemon holds something for it: how fast they come, and how many. */
import type { Clock } from "./clock.ts";
import { AppError } from "./errors.ts";
import { LIMITS } from "./limits.ts";

/**
 * Yields the pieces of an upload. Throws BODY_TOO_LARGE above `bytes_max`, and REQUEST_TIMEOUT if fewer than
 * `spool_bytes_min` bytes come in each `upload_stall_ms` that the daemon waits for the client. `what` names the upload.
 */
export async function* paced(
  source: AsyncIterable<Uint8Array>,
  { clock, bytes_max, what }: { readonly clock: Clock; readonly bytes_max: number; readonly what: string },
): AsyncGenerator<Uint8Array, void, undefined> {
  let [all_bytes, bytes, waited_ms] = [0, 0, 0];
  let from_ms = clock.monotonicMs();
  for await (const piece of source) {
    waited_ms += clock.monotonicMs() - from_ms;
    bytes += piece.length;
    all_bytes += piece.length;
    if (all_bytes > bytes_max) throw new AppError("BODY_TOO_LARGE", `${what} too large (limit ${bytes_max} bytes)`);
    if (waited_ms >= LIMITS.upload_stall_ms) {
      if (bytes < LIMITS.spool_bytes_min) throw tooSlow(bytes, waited_ms);
      [bytes, waited_ms] = [0, 0];
    }
    yield piece;
    from_ms = clock.monotonicMs();
  }
}

function tooSlow(bytes: number, waited_ms: number): AppError {
  const { spool_bytes_min, upload_stall_ms } = LIMITS;
  return new AppError(
    "REQUEST_TIMEOUT",
    `upload too slow: ${bytes} bytes in ${Math.round(waited_ms)} ms (at least ${spool_bytes_min} in ${upload_stall_ms} ms)`,
  );
}
