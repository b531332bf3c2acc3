/**
 * Leases as containers have them: with a proof that the daemon gave this lease of this message to this container. Leases of
 * the bus are counted, so another receiver of a queue could guess one.
 */
import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import { AppError } from "../../base/errors.ts";
import type { Self } from "./inside.ts";

const KEY_BYTES = 32;
/** As hard to guess as an API key. */
const PROOF_BYTES = 20;
/** No delivery has it, so the bus refuses it like one that is over. */
const NO_LEASE = "none";

/** A delivery, by what its receiver says of it. */
interface Held {
  readonly inbox: string;
  readonly msg_id: string;
  readonly lease: string;
}

/** Single writer: the secret is in one data directory; a second node could not verify its leases. */
export class ContainerLeases {
  readonly #key: Buffer;

  /** Leases of one secret are good in every process that has it. */
  constructor(secret: Uint8Array) {
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", "leases", KEY_BYTES));
  }

  /** Returns the lease that the container gets. */
  seal(self: Self, held: Held): string {
    return `${held.lease}.${this.#proof(self, held)}`;
  }

  /**
   * Returns the lease of the bus, one that no delivery has for a lease that is not the container's, and null for none. Throws
   * FORBIDDEN for none in an inbox that is not the container's own.
   */
  open(self: Self, { inbox, msg_id, lease }: Omit<Held, "lease"> & { readonly lease: string | null }): string | null {
    const isOwn = inbox === self.container_id;
    if (lease === null) {
      if (isOwn) return null;
      throw new AppError("FORBIDDEN", `a container settles in ${inbox} only what it holds`, {
        details: { expected: ["lease"] },
        hint: "send the lease of the message, as the receive returned it",
      });
    }
    const [plain = "", proof = null] = lease.split(".", 2);
    // An earlier program gave it; the own inbox needs none.
    if (proof === null) return isOwn ? plain : NO_LEASE;
    const expected = Buffer.from(this.#proof(self, { inbox, msg_id, lease: plain }));
    const given = Buffer.from(proof);
    return given.length === expected.length && timingSafeEqual(given, expected) ? plain : NO_LEASE;
  }

  #proof({ tenant_id, container_id }: Self, { inbox, msg_id, lease }: Held): string {
    const text = JSON.stringify([tenant_id, container_id, inbox, msg_id, lease]);
    return createHmac("sha256", this.#key).update(text).digest().subarray(0, PROOF_BYTES).toString("base64url");
  }
}
