/**
 * The login of a user in this tab: its refresh token, which is good once, and the time at which the access token has to be
 * renewed. A copy of the tab has the same refresh token; the daemon ends the login when both have used it.
 */

/** @import { Clock } from "./clock.js" */
/** @typedef {{ access_token: string, refresh_token: string, expires_in: number }} Tokens */

const STORED_LOGIN = "hearth.login";
/** A token is renewed so long before it ends: longer than any request but a transfer takes. */
const EARLY_MS = 300_000;

/** @returns {{ refresh_token: string, renew_at_ms: number } | null} */
function stored() {
  try {
    const { refresh_token, renew_at_ms } = JSON.parse(sessionStorage.getItem(STORED_LOGIN) ?? "null") ?? {};
    return typeof refresh_token === "string" ? { refresh_token, renew_at_ms: Number(renew_at_ms) } : null;
  } catch {
    return null;
  }
}

export class UserLogin {
  #kept = stored();
  #clock;
  #send;
  /** One renewal at a time: its token is good once. @type {Promise<string> | null} */
  #renewal = null;

  /** @param {Clock} clock @param {(refresh_token: string) => Promise<Tokens>} send asks the daemon for new tokens */
  constructor(clock, send) {
    this.#clock = clock;
    this.#send = send;
  }

  get isOpen() {
    return this.#kept !== null;
  }

  /** @param {Tokens} tokens @returns {string} the access token */
  keep({ access_token, refresh_token, expires_in }) {
    const renew_at_ms = this.#clock.epochMs() + expires_in * 1000 - EARLY_MS;
    this.#kept = { refresh_token, renew_at_ms };
    sessionStorage.setItem(STORED_LOGIN, JSON.stringify(this.#kept));
    return access_token;
  }

  forget() {
    this.#kept = null;
    this.#renewal = null;
    sessionStorage.removeItem(STORED_LOGIN);
  }

  /** A new access token where it is time for one; null otherwise. Throws ApiError. @returns {Promise<string> | null} */
  renewed() {
    if (this.#renewal !== null) return this.#renewal;
    const kept = this.#kept;
    if (kept === null || this.#clock.epochMs() < kept.renew_at_ms) return null;
    const renewal = this.#send(kept.refresh_token)
      .then((tokens) => (this.#kept === kept ? this.keep(tokens) : tokens.access_token))
      .finally(() => {
        if (this.#renewal === renewal) this.#renewal = null;
      });
    this.#renewal = renewal;
    return renewal;
  }
}
