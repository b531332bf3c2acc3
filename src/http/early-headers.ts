/**
 * Headers of an answer that takes long. Some clients give up on a request that has no headers after 30 s. Headers of a
 * route with `early_status` leave after `early_headers_ms` at the latest; then a space follows now and then, which JSON
 * permits before its value.
 *
 * H1. Headers that left fix the status: an answer with another status, and every refusal, cuts the connection, unless the
 *     route has a body for refusals (`late_refusal`).
 * H2. Headers leave only after the whole request arrived: most clients read no answer before.
 */
import type { HttpBindings } from "@hono/node-server";
import type { CancelTimer, Clock } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";

export interface EarlyOptions {
  readonly clock: Clock;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

export class EarlyHeaders {
  readonly #http: HttpBindings;
  readonly #options: EarlyOptions;
  readonly #every_ms: number;
  #areSent = false;

  constructor(http: HttpBindings, options: EarlyOptions, every_ms: number = LIMITS.early_headers_ms) {
    this.#http = http;
    this.#options = options;
    this.#every_ms = every_ms;
  }

  get areSent(): boolean {
    return this.#areSent;
  }

  /** Runs `work`, and sends the headers while it takes long. */
  async during<T>(work: () => T | Promise<T>): Promise<T> {
    const timer: { cancel: CancelTimer } = { cancel: () => {} };
    const wait = (): void => {
      timer.cancel = this.#options.clock.after(this.#every_ms, () => {
        this.#beat();
        wait();
      });
    };
    wait();
    try {
      return await work();
    } finally {
      timer.cancel();
    }
  }

  /** Sends the answer behind headers that left. False, and nothing is sent, where they say another status (H1). */
  end(status: number, json: string): boolean {
    if (status !== this.#options.status) return false;
    this.#http.outgoing.end(json);
    return true;
  }

  #beat(): void {
    const { incoming, outgoing } = this.#http;
    if (!incoming.complete || outgoing.destroyed) return;
    if (this.#areSent) {
      outgoing.write(" ");
      return;
    }
    this.#areSent = true;
    outgoing.writeHead(this.#options.status, this.#options.headers);
    outgoing.flushHeaders();
  }
}
