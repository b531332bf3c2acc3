/**
 * One registry as a pull or a push reaches it: its protocol, who asks, and which failures are tried again. What is asked is the
 * client's (client.ts) or the uploads' (uploads.ts).
 */
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { Authorization, type AuthorizationOptions } from "./authorization.ts";
import { isNotConnected, mayBePlainHttp } from "./failures.ts";

/** Attempts at something that stalls: each takes the whole silence. */
const STALLS_MAX = 2;

export interface ConnectionOptions extends AuthorizationOptions {
  readonly clock: Clock;
}

export class RegistryConnection {
  readonly #options: ConnectionOptions;
  readonly authorization: Authorization;
  /** Null until the host has answered. */
  #protocol: "https:" | "http:" | null = null;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.authorization = new Authorization(options);
  }

  /** Protocol and host that answered last; https before. */
  get origin(): string {
    return `${this.#protocol ?? "https:"}//${this.#options.host.host}`;
  }

  /**
   * Sends one request, by https, or by http where the host may speak it and answers nothing else. `open` gets the origin: protocol
   * and host. Rejects as it does.
   */
  async reach<Result>(open: (origin: string) => Promise<Result>): Promise<Result> {
    try {
      return await this.#reach(this.#protocol ?? "https:", open);
    } catch (error) {
      if (this.#protocol !== null || !this.#options.host.mayBePlain || !mayBePlainHttp(error)) throw error;
    }
    return this.#reach("http:", open);
  }

  async #reach<Result>(protocol: "https:" | "http:", open: (origin: string) => Promise<Result>): Promise<Result> {
    const result = await open(`${protocol}//${this.#options.host.host}`);
    this.#protocol = protocol;
    return result;
  }

  mayRetry(failure: unknown, attempt: number): failure is AppError {
    const { limits, signal } = this.#options;
    if (!(failure instanceof AppError) || !failure.retryable || signal.aborted) return false;
    if (this.#protocol === null && isNotConnected(failure.cause)) return false;
    if ((failure.retry_after ?? 0) * 1_000 > limits.registry_pause_ms_max) return false;
    return attempt < (failure.code === "TIMEOUT" ? STALLS_MAX : limits.registry_attempts_max);
  }

  async retried<T>(work: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (failure) {
        if (!this.mayRetry(failure, attempt)) throw failure;
        await this.pause(attempt, failure);
      }
    }
  }

  /** Waits before another attempt; longer after each, or as long as the registry asks for. */
  async pause(attempt: number, failure: AppError): Promise<void> {
    const { clock, limits, signal } = this.#options;
    const backoff_ms = limits.registry_pause_ms * 2 ** (attempt - 1);
    const pause_ms = Math.max(backoff_ms, (failure.retry_after ?? 0) * 1_000);
    await new Promise<void>((resolve) => {
      const cancel = clock.after(Math.min(pause_ms, limits.registry_pause_ms_max), resolve);
      const stop = () => {
        cancel();
        resolve();
      };
      signal.addEventListener("abort", stop, { once: true });
    });
    if (signal.aborted) throw signal.reason;
  }
}
