/**
 * A worker thread that checks layers. Each task is one layer: its bytes come through a port, one message a piece, and the
 * thread answers each piece when it has checked it. The task is a named export; piscina calls it by name.
 *
 * T1. A tar that is given out leaves in pieces of at most `layer_step_bytes`. While more than `layer_window_bytes` of them are on their
 *     way, decompression rests.
 */
import type { MessagePort } from "node:worker_threads";
import { giveBack } from "../../base/buffer-memory.ts";
import { AppError, type ErrorCode, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { type ClaimedLayer, type InspectedLayer, LayerInspection } from "./inspection.ts";

export interface CheckTask {
  readonly claimed: ClaimedLayer;
  /** True if the tar is given out (T1). */
  readonly isGiven: boolean;
  readonly port: MessagePort;
}

/** To the thread. */
export type CheckMessage = { readonly bytes: Uint8Array } | { readonly sent_bytes: number } | "end" | "abort";

/** From the thread. After a result or a failure nothing follows. */
export type CheckAnswer =
  | { readonly taken_bytes: number }
  | { readonly piece: Uint8Array }
  | { readonly result: InspectedLayer }
  | { readonly failure: { readonly code: ErrorCode; readonly message: string } };

/** Checks one layer. Resolves when the port is closed: after the result, after a failure, or when the other side aborts. */
export function check({ claimed, isGiven, port }: CheckTask): Promise<void> {
  const answer = (message: CheckAnswer) => port.postMessage(message);
  const give = (bytes: Uint8Array) => {
    for (let at = 0; at < bytes.length; at += LIMITS.layer_step_bytes) {
      // A copy of these bytes alone, which moves to the main thread.
      const piece = new Uint8Array(bytes.subarray(at, at + LIMITS.layer_step_bytes));
      port.postMessage({ piece } satisfies CheckAnswer, [piece.buffer]);
    }
  };
  const inspection = new LayerInspection(claimed, isGiven ? give : null);
  const take = async (message: Exclude<CheckMessage, "abort" | { readonly sent_bytes: number }>) => {
    if (message === "end") {
      answer({ result: await inspection.end() });
      port.close();
    } else {
      const taken_bytes = message.bytes.length;
      await inspection.write(message.bytes);
      giveBack(message.bytes);
      answer({ taken_bytes });
    }
  };
  const fail = (error: unknown) => {
    const code = error instanceof AppError ? error.code : "INTERNAL";
    answer({ failure: { code, message: errorText(error) } });
    port.close();
  };
  const state = { isOpen: true, last: Promise.resolve() };
  return new Promise((resolve) => {
    port.on("message", (message: CheckMessage) => {
      if (message === "abort") port.close();
      else if (typeof message === "object" && "sent_bytes" in message) inspection.sent(message.sent_bytes);
      else state.last = state.last.then(() => (state.isOpen ? take(message).catch(fail) : undefined));
    });
    port.once("close", () => {
      state.isOpen = false;
      inspection.destroy();
      resolve();
    });
  });
}
