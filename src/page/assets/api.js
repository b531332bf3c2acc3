/**
 * The daemon's API as the page uses it. Owns the key for as long as the page is signed in, and gives every request a
 * deadline and an end: signing out aborts what is under way.
 */

import { UserLogin } from "./user-login.js";

/** @import { Clock } from "./clock.js" */
/** @import { FunctionPools, FunctionPoolStatus, FunctionRecord, InvocationRecord, SessionRecord, VersionRecord, SystemInfo } from "../wire.ts" */
/** @typedef {"read" | "invoke" | "write" | "admin"} Scope */
/**
 * The fields of a version as a form sends them; absent ones stay, or have their default.
 * @typedef {object} VersionBody
 * @property {string} handler
 * @property {string} runtime
 * @property {string} [code_sha256]
 * @property {string | null} [note]
 * @property {{ payload: string }} [smoke]
 */

const STORED_KEY = "hearth.key";
const READ_MS = 15_000;
/**
 * Chromium fails a connection that is being made while an address of the machine comes or goes. What only reads is
 * tried again.
 */
const READ_ATTEMPTS = 3;
const READ_PAUSE_MS = 100;
/** Deploy and PUT wait up to a minute for warm instances; what is above is the way there and back. */
const CHANGE_MS = 90_000;
/** Files may be large: the daemon gives up what does not move, this what never ends. */
const TRANSFER_MS = 3_600_000;
/** Beyond the time that a call may wait and run. */
const INVOKE_GRACE_MS = 30_000;
/** The longest that a token may live; after it the terminal attaches again, with another one. */
const TOKEN_SECONDS = 3_600;
/** What a header may hold: anything else cannot be a key, and the browser would refuse to send it. */
const KEY_TEXT = /^[\x21-\x7e]+$/;

/** A refusal of the daemon, or no answer from it (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {{ error?: string, error_code?: string, hint?: string | null, request_id?: string, details?: { output?: unknown } | null }} body
   */
  constructor(status, body) {
    super(body.error ?? `status ${status} from hearth`);
    this.name = "ApiError";
    this.status = status;
    this.code = body.error_code ?? null;
    this.hint = body.hint ?? null;
    this.request_id = body.request_id ?? null;
    /** End of the standard error of a handler that failed. */
    this.output = typeof body.details?.output === "string" ? body.details.output : null;
  }
}

/**
 * An answer with each number of a result as the function wrote it: one that a double does not keep is an object that
 * `JSON.stringify` writes so. Browsers without `JSON.rawJSON` show the double.
 *
 * @param {string} answer
 */
function parsed(answer) {
  /** @type {any} */
  const json = JSON;
  if (!answer.includes('"result":') || json.rawJSON === undefined) return JSON.parse(answer);
  return json.parse(answer, (/** @type {string} */ _, /** @type {unknown} */ value, /** @type {any} */ { source }) =>
    typeof value === "number" && String(value) !== source ? json.rawJSON(source) : value,
  );
}

/** @param {number} status @param {string} answer */
function refusal(status, answer) {
  try {
    return new ApiError(status, JSON.parse(answer) ?? {});
  } catch {
    return new ApiError(status, {});
  }
}

/** @param {string} id @param {string} [rest] */
const path = (id, rest = "") => `/api/functions/${encodeURIComponent(id)}${rest}`;

export class Api {
  #key = sessionStorage.getItem(STORED_KEY) ?? "";
  #session = new AbortController();
  #clock;
  #onRefused;
  #login;
  /** What the key may do; null as long as nobody has asked, and where the daemon does not say. @type {ReadonlySet<string> | null} */
  #scopes = null;
  #isAsked = false;
  /** Id of the key's tenant; null until a request needs it. @type {string | null} */
  #tenant_id = null;

  /** @param {Clock} clock @param {() => void} onRefused called when the daemon no longer takes the key */
  constructor(clock, onRefused) {
    this.#clock = clock;
    this.#onRefused = onRefused;
    this.#login = new UserLogin(clock, (refresh_token) =>
      this.#send("POST", "/api/auth/refresh", { refresh_token }, READ_MS, {}),
    );
  }

  get isSignedIn() {
    return this.#key !== "";
  }

  /**
   * Keeps the key for this tab once the daemon has taken it. Throws ApiError.
   * @param {string} key
   */
  async signIn(key) {
    if (!KEY_TEXT.test(key))
      throw new ApiError(401, { error: "invalid key: empty, or with a space or a non-ASCII character" });
    await this.#send("GET", "/api/functions?limit=1", undefined, READ_MS, { "x-api-key": key });
    this.#keep(key);
  }

  /** Returns the mode of users on this daemon: `off`, `login` or `on`. @returns {Promise<string>} */
  async users() {
    return (await this.#send("GET", "/health", undefined, READ_MS, {})).users;
  }

  /**
   * Signs in with a password. Throws ApiError.
   * @param {{ email: string, password: string, name?: string }} user with a name: registers the user first
   */
  async signInUser(user) {
    const target = user.name === undefined ? "/api/auth/login" : "/api/auth/register";
    this.#keep(this.#login.keep(await this.#send("POST", target, user, READ_MS, {})));
  }

  /** @param {string} key */
  #keep(key) {
    this.#key = key;
    sessionStorage.setItem(STORED_KEY, key);
  }

  signOut() {
    // The login of a user ends on the daemon, too. An end that does not arrive comes with the expiry of its tokens.
    if (this.#login.isOpen && this.#key !== "") {
      const init = this.#init("POST", { "x-api-key": this.#key }, "{}");
      void fetch("/api/auth/logout", { ...init, keepalive: true }).catch(() => {});
    }
    this.#login.forget();
    this.#key = "";
    this.#scopes = null;
    this.#isAsked = false;
    this.#tenant_id = null;
    sessionStorage.removeItem(STORED_KEY);
    this.#session.abort();
    this.#session = new AbortController();
  }

  /** Asks once what the key may do: a token of a second says it. Where the key is a token itself there is none. */
  async learnScopes() {
    if (this.#isAsked) return;
    try {
      const { scopes } = await this.request("POST", "/api/auth/token", { expires_in: 1 });
      this.#scopes = new Set(scopes);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 403) throw error;
    }
    this.#isAsked = true;
  }

  /** Whether the key may, as far as is known: what is offered in vain is refused. @param {Scope} scope */
  may(scope) {
    return this.#scopes === null || this.#scopes.has(scope);
  }

  /** @returns {Promise<SystemInfo>} */
  systemInfo() {
    return this.request("GET", "/api/system/info");
  }

  /** @returns {Promise<FunctionPools>} */
  pools() {
    return this.request("GET", "/api/functions/pools");
  }

  /** @param {number} limit @returns {Promise<{ functions: FunctionRecord[], next_cursor: string | null }>} */
  functions(limit) {
    return this.request("GET", `/api/functions?limit=${limit}`);
  }

  /** @param {string} id @returns {Promise<FunctionRecord>} */
  functionById(id) {
    return this.request("GET", path(id));
  }

  /** @param {string} id @returns {Promise<FunctionPoolStatus>} */
  pool(id) {
    return this.request("GET", path(id, "/pool"));
  }

  /** @param {string} id @param {number} limit @returns {Promise<{ versions: VersionRecord[], next_cursor: string | null }>} */
  versions(id, limit) {
    return this.request("GET", path(id, `/versions?limit=${limit}`));
  }

  /** @param {string} id @param {number} limit @returns {Promise<{ invocations: InvocationRecord[], next_cursor: string | null }>} */
  invocations(id, limit) {
    return this.request("GET", path(id, `/invocations?limit=${limit}`));
  }

  /** @param {string} id @param {string} invocation_id @returns {Promise<InvocationRecord>} */
  invocation(id, invocation_id) {
    return this.request("GET", path(id, `/invocations/${encodeURIComponent(invocation_id)}`));
  }

  /** @param {{ name: string } & VersionBody} body @returns {Promise<FunctionRecord>} */
  create(body) {
    return this.request("POST", "/api/functions", body);
  }

  /** @param {string} id @param {VersionBody} body @returns {Promise<FunctionRecord>} */
  update(id, body) {
    return this.request("PUT", path(id), body, CHANGE_MS);
  }

  /** @param {string} id @param {"deploy" | "resume" | "pause"} verb */
  move(id, verb) {
    return this.request("POST", path(id, `/${verb}`), undefined, CHANGE_MS);
  }

  /** @param {string} id @param {number} version @returns {Promise<FunctionRecord>} */
  rollback(id, version) {
    return this.request("POST", path(id, "/rollback"), { version }, CHANGE_MS);
  }

  /** @param {string} id */
  remove(id) {
    return this.request("DELETE", path(id), undefined, CHANGE_MS);
  }

  /** @param {FunctionRecord} record @param {string} payload @returns {Promise<InvocationRecord>} */
  invoke({ id, timeout_seconds }, payload) {
    return this.request("POST", path(id, "/invoke"), { payload }, 2 * timeout_seconds * 1000 + INVOKE_GRACE_MS);
  }

  /** @param {string} container_id @param {{ cols: number, rows: number }} size @returns {Promise<SessionRecord>} */
  createSession(container_id, size) {
    return this.request("POST", "/api/terminal/sessions", { container_id, ...size });
  }

  /** Terminal sessions that have not ended, newest first. @param {number} limit @returns {Promise<{ sessions: SessionRecord[], next_cursor: string | null }>} */
  sessions(limit) {
    return this.request("GET", `/api/terminal/sessions?limit=${limit}`);
  }

  /** Whether a terminal session can be attached to. @param {string} id */
  async isSession(id) {
    try {
      const { state } = await this.request("GET", `/api/terminal/sessions/${encodeURIComponent(id)}`);
      return state !== "terminated" && state !== "error";
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return false;
      throw error;
    }
  }

  /** @param {string} id */
  endSession(id) {
    return this.request("DELETE", `/api/terminal/sessions/${encodeURIComponent(id)}`);
  }

  /**
   * Where a terminal's WebSocket is. A browser sends no headers with it, so the address has a token, and not the key.
   * @param {Readonly<Record<string, string | number>>} query
   */
  async terminalAddress(query) {
    const body = { scopes: ["invoke"], expires_in: TOKEN_SECONDS };
    const { access_token } = await this.request("POST", "/api/auth/token", body);
    const address = new URL("/ws/terminal/attach", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    for (const [name, value] of Object.entries({ ...query, token: access_token })) {
      address.searchParams.set(name, String(value));
    }
    return address.href;
  }

  /**
   * An answer that goes on, for as long as it does. Throws ApiError.
   * @param {string} target
   * @param {AbortSignal} ended
   */
  open(target, ended) {
    const signal = AbortSignal.any([this.#session.signal, ended]);
    return this.#refused(() =>
      this.#attempt("GET", signal, async () => {
        const init = { ...this.#init("GET", { "x-api-key": this.#key }, null), signal };
        const response = await fetch(target, init);
        if (!response.ok) throw refusal(response.status, await response.text());
        return response;
      }),
    );
  }

  /** What the browser saves, read to its end. @param {string} target @returns {Promise<Blob>} */
  async download(target) {
    const response = await this.open(target, AbortSignal.timeout(TRANSFER_MS));
    return response.blob().catch(() => {
      throw new ApiError(0, { error: "connection lost during the download" });
    });
  }

  /**
   * Sends a file and resolves to the answer. XMLHttpRequest reports the progress of an upload; fetch does not.
   * @param {string} target
   * @param {Blob} content
   * @param {{ content_type: string, signal: AbortSignal, onProgress: (sent_bytes: number) => void }} how
   * @returns {Promise<any>}
   */
  upload(target, content, { content_type, signal, onProgress }) {
    const ended = AbortSignal.any([this.#session.signal, signal]);
    return this.#refused(
      () =>
        new Promise((resolve, reject) => {
          const request = new XMLHttpRequest();
          const lost = (/** @type {string} */ error) => () => reject(new ApiError(0, { error }));
          request.open("POST", target);
          request.timeout = TRANSFER_MS;
          request.setRequestHeader("x-api-key", this.#key);
          request.setRequestHeader("content-type", content_type);
          request.upload.onprogress = ({ loaded }) => onProgress(loaded);
          request.onload = () => {
            if (request.status < 300) resolve(request.responseText === "" ? null : JSON.parse(request.responseText));
            else reject(refusal(request.status, request.responseText));
          };
          // A refusal of what is long may be lost: the daemon does not read on for minutes to say it.
          request.onerror = lost("connection lost during the upload; see Activity for the reason");
          request.ontimeout = lost("no response from hearth in time");
          request.onabort = lost("upload cancelled");
          ended.addEventListener("abort", () => request.abort());
          request.send(content);
        }),
    );
  }

  /**
   * @param {string} method @param {string} target @param {unknown} [body] @param {number} [deadline_ms]
   * @returns {Promise<any>}
   */
  request(method, target, body, deadline_ms = READ_MS) {
    return this.#refused(() => this.#send(method, target, body, deadline_ms, { "x-api-key": this.#key }));
  }

  /**
   * A request with the header that routes of snapshots and forks require: the id of the key's tenant.
   * @param {string} method @param {string} target @param {unknown} [body] @param {number} [deadline_ms]
   * @returns {Promise<any>}
   */
  async tenantRequest(method, target, body, deadline_ms = READ_MS) {
    const key = this.#key;
    const tenant_id = this.#tenant_id ?? (await this.request("GET", "/api/tenant")).tenant_id;
    if (key === this.#key) this.#tenant_id = tenant_id;
    return this.#refused(() => {
      const headers = { "x-api-key": this.#key, "x-tenant-id": tenant_id };
      return this.#send(method, target, body, deadline_ms, headers);
    });
  }

  /**
   * @template Result
   * @param {() => Promise<Result>} work
   */
  async #refused(work) {
    try {
      const renewal = this.#login.renewed();
      if (renewal !== null) this.#keep(await renewal);
      return await work();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401 && this.isSignedIn) this.#onRefused();
      throw error;
    }
  }

  /** @param {string} method @param {Readonly<Record<string, string>>} own headers @param {string | null} text @returns {RequestInit} */
  #init(method, own, text) {
    const headers = { ...own, ...(text === null ? {} : { "content-type": "application/json" }) };
    return { method, headers, body: text, cache: "no-store", credentials: "omit", redirect: "error" };
  }

  /**
   * @param {string} method @param {string} target @param {unknown} body @param {number} deadline_ms
   * @param {Readonly<Record<string, string>>} headers
   * @returns {Promise<any>}
   */
  #send(method, target, body, deadline_ms, headers) {
    const signal = AbortSignal.any([this.#session.signal, AbortSignal.timeout(deadline_ms)]);
    const init = { ...this.#init(method, headers, body === undefined ? null : JSON.stringify(body)), signal };
    // The daemon logs what a console reads again and again at debug.
    if (method === "GET") init.headers = { ...init.headers, "x-hearth-poll": "1" };
    return this.#attempt(method, signal, async () => {
      const response = await fetch(target, init);
      const answer = await response.text();
      if (!response.ok) throw refusal(response.status, answer);
      return answer === "" ? null : parsed(answer);
    });
  }

  /**
   * @template Result
   * @param {string} method @param {AbortSignal} signal of the request's end @param {() => Promise<Result>} work
   */
  async #attempt(method, signal, work) {
    const session = this.#session.signal;
    for (let attempts_left = method === "GET" ? READ_ATTEMPTS - 1 : 0; ; attempts_left--) {
      try {
        return await work();
      } catch (error) {
        if (error instanceof ApiError) throw error;
        if (session.aborted) throw new ApiError(0, { error: "signed out" });
        if (signal.aborted) throw new ApiError(0, { error: "no response from hearth in time" });
        if (attempts_left <= 0) throw new ApiError(0, { error: "no response from hearth" });
        await new Promise((resolve) => void this.#clock.after(READ_PAUSE_MS, () => resolve(null)));
      }
    }
  }
}
