/**
 * Bounds on chunks of a request body. Node's parser takes some µs for each chunk, whatever it holds, and nobody is answered
 * meanwhile.
 *
 * N1. A body in very small chunks ends its connection: its sender needs no key.
 * N2. A connection with many small chunks rests after each burst, so that it has a small part of the event loop.
 */
import type { IncomingMessage } from "node:http";
import type { Clock } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";

/** Below all readers of the body, some of which only throw it away. */
export function boundChunks(incoming: IncomingMessage, clock: Clock): void {
  if (incoming.headers["transfer-encoding"] === undefined) return;
  const { socket } = incoming;
  const push = incoming.push.bind(incoming);
  const read = incoming._read.bind(incoming);
  let count = 0;
  let bytes = 0;
  let burst_count = 0;
  let burst_bytes = 0;
  let isResting = false;
  let isWanted = false;
  incoming._read = (size) => {
    if (isResting) isWanted = true;
    else read(size);
  };
  const rest = (): void => {
    isResting = true;
    socket.pause();
    clock.after(LIMITS.body_chunks_rest_ms, () => {
      isResting = false;
      if (isWanted && !socket.destroyed) read(0);
      isWanted = false;
    });
  };
  incoming.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk === null) return push(chunk, encoding);
    count++;
    bytes += chunk.length;
    if (count > LIMITS.body_small_chunks_max && bytes < count * LIMITS.body_chunk_bytes_min) {
      socket.destroy();
      return false;
    }
    burst_count++;
    burst_bytes += chunk.length;
    if (burst_count >= LIMITS.body_small_chunks_max) {
      if (!isResting && burst_bytes < burst_count * LIMITS.body_chunk_bytes_small) rest();
      burst_count = 0;
      burst_bytes = 0;
    }
    return push(chunk, encoding);
  };
}
