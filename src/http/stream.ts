/**
 * Answers that come in pieces: bytes, lines, events. They are written straight to the socket, one piece at a time, and
 * the next one is asked for when the client has taken the last: what is slow is the client, never this process's memory.
 *
 * T1. Headers leave at once, before there is a first piece.
 * T2. A source is asked for a piece only when nothing waits to be sent.
 * T3. A client that goes away ends the source at once: `return` is called on it, and the request's `signal` fires.
 * T4. A client that takes nothing of what waits for `stall_ms` is cut; a source that has nothing to say may be silent for
 *     as long as it likes.
 * T5. A source that fails in the middle cuts the connection, so that no client takes a part for the whole, and so does one
 *     that gives another number of bytes than were announced: its client would wait for the rest.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { HttpBindings } from "@hono/node-server";
import type { Streamed } from "../base/answer.ts";
import { giveBack } from "../base/buffer-memory.ts";
import { AppError } from "../base/errors.ts";

/** Sends all of it; resolves when the last piece is handed to the socket or the client has gone. Rejects as the source does. */
export async function send(
  { outgoing }: Pick<HttpBindings, "outgoing">,
  { source, status, headers, is_exclusive }: Streamed,
  stall_ms: number,
): Promise<void> {
  const response = outgoing as ServerResponse;
  const pieces = source[Symbol.asyncIterator]();
  const state = { isGone: response.destroyed };
  let left_bytes = Number(headers["content-length"] ?? Number.NaN);
  const leave = (): void => {
    state.isGone = true;
    // A generator in the middle of a wait hears of it from the request's signal.
    void Promise.resolve(pieces.return?.()).catch(() => {});
  };
  response.once("close", leave);
  try {
    if (state.isGone) return leave();
    response.writeHead(status, headers);
    response.flushHeaders();
    while (!state.isGone) {
      const { done, value } = await pieces.next();
      if (done === true || state.isGone) break;
      left_bytes -= value.length;
      if (left_bytes < 0) break;
      const isTaken = is_exclusive ? response.write(value, () => giveBack(value)) : response.write(value);
      if (!isTaken) await drained(response, stall_ms);
    }
    if (state.isGone) return;
    if (left_bytes > 0 || left_bytes < 0) {
      leave();
      throw new AppError("INTERNAL", "other bytes came than were announced");
    }
    end(response, stall_ms);
  } catch (error) {
    response.destroy();
    throw error;
  } finally {
    response.off("close", leave);
  }
}

/** Cuts a client that takes nothing, from the answer's turn on its connection on. Node looks at what it has taken. */
function watch(response: ServerResponse, stall_ms: number): () => void {
  const begin = (socket: Socket): void => {
    socket.setTimeout(stall_ms);
  };
  if (response.socket === null) response.once("socket", begin);
  else begin(response.socket);
  return () => {
    response.off("socket", begin);
    const { socket } = response;
    if (socket !== null) socket.setTimeout(0);
  };
}

function drained(response: ServerResponse, stall_ms: number): Promise<void> {
  return new Promise((resolve) => {
    const stop = watch(response, stall_ms);
    const settle = (): void => {
      stop();
      response.off("drain", settle).off("close", settle);
      resolve();
    };
    response.on("drain", settle).on("close", settle);
  });
}

function end(response: ServerResponse, stall_ms: number): void {
  const stop = watch(response, stall_ms);
  // Before Node sets the wait for the next request.
  response.prependOnceListener("finish", stop);
  response.end();
}
