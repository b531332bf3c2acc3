/**
 * Tokens of viewers, which stand in the URL of a desktop. A token is good for one container of one tenant and only for its
 * viewer. They live in memory, as hashes: none outlives the daemon.
 *
 * G1. A token opens viewers for `gui_token_seconds`; while one is open, and as long after it, it opens further ones, which a
 *     page that loses its connection needs. It ends `gui_session_seconds_max` after its making in any case.
 * G2. It ends with the credential that it was made with.
 * G3. A guessed, expired or foreign token has one refusal.
 * G4. A tenant has at most `gui_tokens_per_tenant_max`: a further one takes the place of its oldest.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";

const ID_LENGTH = 16;
const SECRET_LENGTH = 40;
const TOKEN = new RegExp(`^gt_([0-9a-f]{${ID_LENGTH}})_([0-9a-f]{${SECRET_LENGTH}})$`);

/** Rejects once the credential is no longer good; undefined where it is known to be good. */
export type Recheck = () => Promise<void> | undefined;

export interface GuiToken {
  readonly tenant_id: string;
  readonly container_id: string;
  readonly recheck: Recheck;
}

interface Kept extends GuiToken {
  readonly id: string;
  readonly hash: Buffer;
  /** Monotonic. */
  readonly ends_ms: number;
  /** Monotonic; while a viewer is open it counts from that viewer's end. */
  expires_ms: number;
  viewer_count: number;
}

export class GuiTokens {
  readonly #clock: Clock;
  readonly #ids: Ids;
  /** By id, oldest first. */
  readonly #kept = new Map<string, Kept>();

  constructor(clock: Clock, ids: Ids) {
    this.#clock = clock;
    this.#ids = ids;
  }

  get count(): number {
    return this.#kept.size;
  }

  /** Throws CAPACITY_FULL. */
  make(of: GuiToken): string {
    const now_ms = this.#clock.monotonicMs();
    this.#prune(of.tenant_id, now_ms);
    const [id, secret] = [this.#ids.hex(ID_LENGTH), this.#ids.hex(SECRET_LENGTH)];
    this.#kept.set(id, {
      ...of,
      id,
      hash: hashOf(secret),
      expires_ms: now_ms + LIMITS.gui_token_seconds * 1_000,
      ends_ms: now_ms + LIMITS.gui_session_seconds_max * 1_000,
      viewer_count: 0,
    });
    return `gt_${id}_${secret}`;
  }

  /** Resolves to what a token stands for. Rejects with UNAUTHORIZED (G2, G3). */
  async find(container_id: string, token: string): Promise<GuiToken> {
    const kept = this.#find(container_id, token);
    await kept.recheck()?.catch((error) => {
      this.#kept.delete(kept.id);
      throw error instanceof AppError && error.code !== "UNAUTHORIZED" ? error : refused();
    });
    return kept;
  }

  /** Counts a viewer from now until what `close` says; `ends` is called at the token's last moment. */
  open(token: GuiToken, ends: () => void): { readonly close: () => void } {
    const kept = token as Kept;
    kept.viewer_count++;
    const cancel = this.#clock.after(Math.max(0, kept.ends_ms - this.#clock.monotonicMs()), ends);
    let isOpen = true;
    return {
      close: () => {
        if (!isOpen) return;
        isOpen = false;
        cancel();
        kept.viewer_count--;
        kept.expires_ms = Math.max(kept.expires_ms, this.#clock.monotonicMs() + LIMITS.gui_token_seconds * 1_000);
      },
    };
  }

  #find(container_id: string, token: string): Kept {
    const [, id = "", secret = ""] = TOKEN.exec(token) ?? [];
    const kept = this.#kept.get(id);
    // Hashes of equal length, compared in constant time: the answer does not show how much of a guess was right.
    const isKnown = timingSafeEqual(kept?.hash ?? NO_HASH, hashOf(secret));
    if (kept === undefined || !isKnown || kept.container_id !== container_id) throw refused();
    if (this.#isOver(kept, this.#clock.monotonicMs())) {
      this.#kept.delete(id);
      throw refused();
    }
    return kept;
  }

  #isOver({ ends_ms, expires_ms, viewer_count }: Kept, now_ms: number): boolean {
    return now_ms >= ends_ms || (viewer_count === 0 && now_ms >= expires_ms);
  }

  /** G4, and what has expired. */
  #prune(tenant_id: string, now_ms: number): void {
    let own_count = 0;
    let oldest: Kept | null = null;
    for (const kept of this.#kept.values()) {
      if (this.#isOver(kept, now_ms)) {
        this.#kept.delete(kept.id);
      } else if (kept.tenant_id === tenant_id) {
        own_count++;
        oldest ??= kept;
      }
    }
    if (oldest !== null && own_count >= LIMITS.gui_tokens_per_tenant_max) this.#kept.delete(oldest.id);
    if (this.#kept.size >= LIMITS.gui_tokens_max) {
      throw new AppError("CAPACITY_FULL", `too many URLs of desktops on this node (limit ${LIMITS.gui_tokens_max})`, {
        retry_after: LIMITS.gui_token_seconds,
      });
    }
  }
}

const hashOf = (secret: string): Buffer => createHash("sha256").update(secret).digest();
const NO_HASH = Buffer.alloc(32);

function refused(): AppError {
  return new AppError("UNAUTHORIZED", "gui_token: invalid or expired", {
    hint: "request a new URL of the desktop",
  });
}
