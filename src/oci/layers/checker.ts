/**
 * Checks layers in worker threads while they stream: the main thread copies bytes and waits, nothing more.
 *
 * L1 At most `layer_checks_max` layers are checked at once. A check counts until it has ended or is aborted.
 * L2 At most `layer_window_bytes` of a layer, and the piece being written, are on their way to its thread.
 * L3 The first failure of a check is the answer to every later call on it.
 */
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { Piscina } from "piscina";
import { giveBack } from "../../base/buffer-memory.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { CheckAnswer, CheckMessage, CheckTask } from "./check-thread.ts";
import type { LayerCheck, LayerChecker, TakePiece } from "./contract.ts";
import type { InspectedLayer } from "./inspection.ts";

/** Media types of layers. Those that may not be distributed come from other places than the registry: the gateway refuses them. */
const MEDIA_TYPES = [
  /^application\/vnd\.oci\.image\.layer\.v1\.tar(\+gzip|\+zstd)?$/,
  /^application\/vnd\.docker\.image\.rootfs\.diff\.tar(\.gzip|\.zstd)?$/,
];
const DIGEST = /^sha256:[0-9a-f]{64}$/;

class ThreadedCheck implements LayerCheck {
  readonly #port: MessagePort;
  readonly #onPiece: TakePiece | null;
  readonly #onEnd: () => void;
  readonly #result = Promise.withResolvers<InspectedLayer>();
  #on_way_bytes = 0;
  /** The writer that waits for room. */
  #room: PromiseWithResolvers<void> | null = null;
  #failure: AppError | null = null;
  #isOver = false;

  constructor(port: MessagePort, onPiece: TakePiece | null, onEnd: () => void) {
    this.#port = port;
    this.#onPiece = onPiece;
    this.#onEnd = onEnd;
    this.#result.promise.catch(() => {});
    port.on("message", (answer: CheckAnswer) => this.#take(answer));
  }

  async write(chunk: Uint8Array): Promise<void> {
    if (this.#failure !== null) throw this.#failure;
    // A copy of these bytes alone: they may lie in memory that Node shares out.
    const bytes = new Uint8Array(chunk);
    this.#on_way_bytes += bytes.length;
    this.#port.postMessage({ bytes } satisfies CheckMessage, [bytes.buffer]);
    if (this.#on_way_bytes <= LIMITS.layer_window_bytes) return;
    this.#room ??= Promise.withResolvers();
    await this.#room.promise;
    if (this.#failure !== null) throw this.#failure;
  }

  end(): Promise<InspectedLayer> {
    if (this.#failure === null) this.#port.postMessage("end" satisfies CheckMessage);
    return this.#result.promise;
  }

  abort(): void {
    this.fail(new AppError("INTERNAL", "the check of the layer was aborted"));
  }

  fail(error: AppError): void {
    if (this.#isOver) return;
    this.#failure = error;
    this.#result.reject(error);
    this.#port.postMessage("abort" satisfies CheckMessage);
    this.#finish();
  }

  #take(answer: CheckAnswer): void {
    if ("taken_bytes" in answer) {
      this.#on_way_bytes -= answer.taken_bytes;
      if (this.#on_way_bytes > LIMITS.layer_window_bytes) return;
      this.#room?.resolve();
      this.#room = null;
    } else if ("piece" in answer) {
      this.#give(answer.piece);
    } else if ("result" in answer) {
      this.#result.resolve(answer.result);
      this.#finish();
    } else {
      this.fail(new AppError(answer.failure.code, answer.failure.message));
    }
  }

  #give(piece: Uint8Array): void {
    const sent_bytes = piece.length;
    const onSent = () => {
      giveBack(piece);
      if (!this.#isOver) this.#port.postMessage({ sent_bytes } satisfies CheckMessage);
    };
    if (this.#isOver || this.#onPiece === null) giveBack(piece);
    else this.#onPiece(piece, onSent);
  }

  #finish(): void {
    this.#isOver = true;
    this.#room?.resolve();
    this.#room = null;
    this.#port.close();
    this.#onEnd();
  }
}

export class LayerChecks implements LayerChecker {
  readonly #threads: Piscina<CheckTask, void>;
  #open_count = 0;

  constructor(log: Log) {
    this.#threads = new Piscina<CheckTask, void>({
      filename: new URL("./check-thread.ts", import.meta.url).href,
      name: "check",
      minThreads: 0,
      maxThreads: LIMITS.layer_threads_max,
      idleTimeout: LIMITS.layer_thread_idle_ms,
      concurrentTasksPerWorker: Math.ceil(LIMITS.layer_checks_max / LIMITS.layer_threads_max),
      maxQueue: LIMITS.layer_checks_max,
      resourceLimits: { maxOldGenerationSizeMb: LIMITS.layer_thread_heap_mb },
      recordTiming: false,
    });
    // Without a listener an error outside of any task would end the daemon. Another thread takes the place.
    this.#threads.on("error", (error) => log.error("a thread that checks layers exited", { error: errorText(error) }));
  }

  /** Throws CAPACITY_FULL (L1), IMAGE_INVALID for something that is no layer. */
  open({ media_type, take, ...claimed }: Parameters<LayerChecker["open"]>[0]): LayerCheck {
    if (!MEDIA_TYPES.some((known) => known.test(media_type)))
      throw new AppError("IMAGE_INVALID", `media type of a layer not supported: ${media_type.slice(0, 128)}`);
    if (!DIGEST.test(claimed.digest))
      throw new AppError("IMAGE_INVALID", `digest of a layer not supported: ${claimed.digest.slice(0, 128)}`);
    if (this.#open_count >= LIMITS.layer_checks_max) {
      throw new AppError("CAPACITY_FULL", `too many layers at once (limit ${LIMITS.layer_checks_max})`, {
        retry_after: 1,
      });
    }
    this.#open_count++;
    const { port1, port2 } = new MessageChannel();
    const opened = new ThreadedCheck(port1, take, () => {
      this.#open_count--;
    });
    const lost = (cause: unknown) =>
      new AppError("INTERNAL", `the thread that checked a layer exited: ${errorText(cause)}`, { cause });
    this.#threads
      .run({ claimed, isGiven: take !== null, port: port2 }, { transferList: [port2] })
      .catch((cause: unknown) => opened.fail(lost(cause)));
    return opened;
  }

  /** Ends the threads. Open checks fail. */
  async close(): Promise<void> {
    await this.#threads.destroy();
  }
}
