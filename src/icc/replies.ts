/** Requests that wait for their reply, by the inbox of the requester and the id of its message. */

import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { Shares } from "../base/shares.ts";
import type { Envelope } from "./envelope/envelope.ts";

interface Waiting {
  readonly resolve: (reply: Envelope) => void;
}

export class Replies {
  readonly #waiting = new Map<string, Waiting>();

  /** The reply to a message, once it comes. `end` forgets it. */
  expect(tenant_id: string, inbox: string, msg_id: string): { readonly reply: Promise<Envelope>; end(): void } {
    const name = nameOf(tenant_id, inbox, msg_id);
    if (this.#waiting.has(name)) {
      throw new AppError("WRONG_STATE", `a request with the msg_id ${msg_id} waits for its reply already`);
    }
    let resolve: (reply: Envelope) => void = () => {};
    const reply = new Promise<Envelope>((done) => {
      resolve = done;
    });
    this.#waiting.set(name, { resolve });
    return { reply, end: () => this.#waiting.delete(name) };
  }

  has(tenant_id: string, inbox: string, correlation_id: string): boolean {
    return correlation_id !== "" && this.#waiting.has(nameOf(tenant_id, inbox, correlation_id));
  }

  /** Gives the reply to the request that waits for it. */
  settle(tenant_id: string, inbox: string, reply: Envelope): void {
    const name = nameOf(tenant_id, inbox, reply.correlation_id);
    const waiting = this.#waiting.get(name);
    this.#waiting.delete(name);
    waiting?.resolve(reply);
  }
}

function nameOf(tenant_id: string, inbox: string, msg_id: string): string {
  return `${tenant_id}\n${inbox}\n${msg_id}`;
}

/** Waits of receivers and requests, bounded per tenant and in all. */
export class Waits {
  readonly #shares = new Shares({
    each_max: LIMITS.message_waits_per_tenant_max,
    all_max: LIMITS.message_waits_max,
    always_max: LIMITS.message_waits_always_max,
  });

  get count(): number {
    return this.#shares.count;
  }

  /** Throws CONCURRENCY_LIMIT, or CAPACITY_FULL if the tenant could wait and the node cannot. The returned function ends the wait. */
  begin(tenant_id: string): () => void {
    return this.#shares.take(tenant_id, (reached, max) => {
      const [code, whose] =
        reached === "each_max"
          ? (["CONCURRENCY_LIMIT", "the tenant"] as const)
          : (["CAPACITY_FULL", "this node"] as const);
      const text = `too many receives and requests of ${whose} wait for messages (limit ${max})`;
      return new AppError(code, text, { retry_after: 1 });
    });
  }
}
