/** Records as server-sent events, with a comment at an interval while there are none. */
import { Streamed } from "../../base/answer.ts";
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

interface EventOptions<Item> {
  /** Returns the part of an item that is sent; absent: the whole item. */
  readonly itemOf?: (item: Item) => unknown;
  /** Rejects once the credential of the request is no longer good: the stream ends, at the next heartbeat at the latest. */
  readonly recheck?: () => Promise<void> | undefined;
}

/** `idOf`: the id of an event. A source that fails in the middle cuts the connection. */
export function serverSentEvents<Item>(
  name: string,
  source: AsyncIterable<Item>,
  idOf: (item: Item) => number,
  clock: Clock,
  options: EventOptions<Item> = {},
): Streamed {
  return new Streamed(texts(name, source, idOf, clock, options), {
    content_type: "text/event-stream",
    headers: { "cache-control": "no-store" },
  });
}

async function* texts<Item>(
  name: string,
  source: AsyncIterable<Item>,
  idOf: (item: Item) => number,
  clock: Clock,
  { itemOf = (item) => item, recheck }: EventOptions<Item>,
): AsyncGenerator<Uint8Array, void> {
  const items = source[Symbol.asyncIterator]();
  try {
    yield Buffer.from(`retry: ${LIMITS.event_retry_ms}\n\n`);
    let next = items.next();
    for (;;) {
      // The stream may have ended when it fails.
      next.catch(() => {});
      const beat = Promise.withResolvers<null>();
      const cancel = clock.after(LIMITS.icc_socket_heartbeat_ms, () => beat.resolve(null));
      const got = await Promise.race([next, beat.promise]).finally(cancel);
      if (!(await isGood(recheck))) return;
      if (got === null) {
        yield Buffer.from(":\n\n");
        continue;
      }
      if (got.done === true) return;
      yield Buffer.from(`event: ${name}\nid: ${idOf(got.value)}\ndata: ${JSON.stringify(itemOf(got.value))}\n\n`);
      next = items.next();
    }
  } finally {
    void Promise.resolve(items.return?.()).catch(() => {});
  }
}

async function isGood(recheck: (() => Promise<void> | undefined) | undefined): Promise<boolean> {
  try {
    await recheck?.();
    return true;
  } catch (error) {
    if (error instanceof AppError && error.code === "UNAUTHORIZED") return false;
    throw error;
  }
}
