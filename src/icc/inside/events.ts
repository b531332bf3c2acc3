/** Records as server-sent events, with a comment at an interval while there are none. */
import { Streamed } from "../../base/answer.ts";
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";

/** `idOf`: the id of an event. A source that fails in the middle cuts the connection. */
export function serverSentEvents<Item>(
  name: string,
  source: AsyncIterable<Item>,
  idOf: (item: Item) => number,
  clock: Clock,
): Streamed {
  return new Streamed(texts(name, source, idOf, clock), {
    content_type: "text/event-stream",
    headers: { "cache-control": "no-store" },
  });
}

async function* texts<Item>(
  name: string,
  source: AsyncIterable<Item>,
  idOf: (item: Item) => number,
  clock: Clock,
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
      if (got === null) {
        yield Buffer.from(":\n\n");
        continue;
      }
      if (got.done === true) return;
      yield Buffer.from(`event: ${name}\nid: ${idOf(got.value)}\ndata: ${JSON.stringify(got.value)}\n\n`);
      next = items.next();
    }
  } finally {
    void Promise.resolve(items.return?.()).catch(() => {});
  }
}
