/**
 * Authenticates pulls and pushes to a registry: Basic, or a bearer token that a realm issues for the repository.
 *
 * A1. Credentials go to the registry's own origin and to the realm that it names, and nowhere else: the guard of outgoing requests
 *     takes no headers to another origin.
 * A2. A realm is at an https URL, unless the host of its URL may speak plain HTTP.
 * A3. Neither a credential nor a text of a registry is in an error.
 */
import { z } from "zod";
import { AppError } from "../../base/errors.ts";
import type { Outgoing, OutgoingAnswer } from "../../base/outgoing-requests.ts";
import type { REGISTRY_LIMITS } from "../../base/registry-limits.ts";
import { connectionFailure, denied, shownHost, statusFailure, wrongAnswer } from "./failures.ts";
import type { RegistryHost, RegistryHosts } from "./hosts.ts";

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** Bounds of registries; tests give smaller ones. */
export type RegistryLimits = Readonly<Record<keyof typeof REGISTRY_LIMITS, number>>;

interface Challenge {
  /** In lower case. */
  readonly scheme: string;
  readonly parameters: ReadonlyMap<string, string>;
}

/** One scheme, or one parameter of the scheme before it (RFC 9110 §11.6.1). */
const CHALLENGE_PART = /[\s,]*([\w!#$%&'*+.^`|~-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?/y;
/** Characters that go into a header as they are. */
const TOKEN = /^[\x21-\x7e]+$/;
const SCOPE = /^(repository:[a-z0-9./_:-]+):(?:pull|push|pull,push|push,pull)$/;

const TokenAnswer = z.object({ token: z.string().optional(), access_token: z.string().optional() });

/** Parses the header WWW-Authenticate. Returns the challenges up to the first part that is none. */
export function parseChallenges(header: string): readonly Challenge[] {
  const found: { scheme: string; parameters: Map<string, string> }[] = [];
  const part = new RegExp(CHALLENGE_PART);
  for (let match = part.exec(header); match !== null; match = part.exec(header)) {
    const [, name = "", quoted, plain] = match;
    const value = quoted?.replace(/\\(.)/g, "$1") ?? plain;
    if (value === undefined) found.push({ scheme: name.toLowerCase(), parameters: new Map() });
    else found.at(-1)?.parameters.set(name.toLowerCase(), value);
  }
  return found;
}

/** Returns the header for a name and a password. Throws INVALID_ARGUMENT for a name that Basic cannot carry. */
export function basicHeader({ username, password }: Credentials): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  if (/[:\x00-\x1f\x7f]/.test(username) || /[\x00-\x1f\x7f]/.test(password)) {
    throw new AppError(
      "INVALID_ARGUMENT",
      "invalid registry credentials: ':' in the user name, or a control character",
    );
  }
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

export interface AuthorizationOptions {
  readonly outgoing: Outgoing;
  readonly hosts: RegistryHosts;
  readonly host: RegistryHost;
  readonly repository: string;
  /** `pull` unless given. */
  readonly actions?: "pull" | "pull,push";
  readonly credentials: Credentials | null;
  readonly limits: RegistryLimits;
  readonly signal: AbortSignal;
}

export class Authorization {
  readonly #options: AuthorizationOptions;
  readonly #basic: string | null;
  #header: string | null = null;
  #tokens_count = 0;
  /** The answer to a challenge under way: layers that are refused at the same time share it. */
  #answering: Promise<void> | null = null;

  constructor(options: AuthorizationOptions) {
    this.#options = options;
    // H1 of hosts.ts.
    this.#basic = options.credentials === null || options.host.isMirror ? null : basicHeader(options.credentials);
  }

  /** The header for the registry's own origin. */
  get header(): string | null {
    return this.#header;
  }

  get hasCredentials(): boolean {
    return this.#basic !== null;
  }

  /**
   * Answers a challenge: `header` is another one afterwards. `used`: the header that the registry refused. Rejects with FORBIDDEN
   * if no other may be accepted. `subject`: for the error, what was asked for.
   */
  async answer(challenge: string, used: string | null, subject: string): Promise<void> {
    if (used !== this.#header) return;
    this.#answering ??= this.#answer(challenge, used, subject).finally(() => {
      this.#answering = null;
    });
    await this.#answering;
  }

  async #answer(header: string, used: string | null, subject: string): Promise<void> {
    const challenges = parseChallenges(header);
    const bearer = challenges.find(({ scheme }) => scheme === "bearer");
    if (bearer !== undefined) {
      this.#header = `Bearer ${await this.#token(bearer, subject)}`;
      return;
    }
    const isBasic = challenges.some(({ scheme }) => scheme === "basic");
    if (!isBasic || this.#basic === null || used === this.#basic) throw this.#denied(subject);
    this.#header = this.#basic;
  }

  #denied(subject: string): AppError {
    return denied(this.#options.host, subject, this.hasCredentials);
  }

  /** Asks the realm of a challenge for a token that may do what is to be done. */
  async #token({ parameters }: Challenge, subject: string): Promise<string> {
    const { outgoing, hosts, host, repository, actions = "pull", credentials, limits, signal } = this.#options;
    if (++this.#tokens_count > limits.registry_tokens_max) throw this.#denied(subject);
    const realm = parameters.get("realm") ?? "";
    const url = URL.parse(realm);
    const isUsable =
      url !== null &&
      url.username === "" &&
      (url.protocol === "https:" || (url.protocol === "http:" && hosts.mayBePlain(url.host)));
    if (!isUsable) throw wrongAnswer(host, "its token realm is not an https URL");
    const scope = parameters.get("scope") ?? "";
    const service = parameters.get("service");
    if (service !== undefined) url.searchParams.set("service", service);
    // Another scope would ask for more than is needed.
    url.searchParams.set("scope", `${SCOPE.exec(scope)?.[1] ?? `repository:${repository}`}:${actions}`);
    if (credentials !== null && this.#basic !== null) url.searchParams.set("account", credentials.username);
    const place = `token realm ${url.host} of registry ${shownHost(host)}`;
    const answer = await outgoing
      .request(url.href, {
        headers: this.#basic === null ? {} : { authorization: this.#basic },
        common_headers: { accept: "application/json" },
        timeout_ms: limits.registry_answer_ms,
        bytes_max: limits.registry_token_bytes_max,
        listed: [...host.listed, ...hosts.listedRealm(url.host)],
        authorities: host.authorities,
        signal,
      })
      .catch((error) => {
        throw connectionFailure(error, host, place);
      });
    if (answer.status === 401 || answer.status === 403) throw this.#denied(subject);
    if (answer.status === 429) throw statusFailure(answer, host, "a token", this.hasCredentials);
    if (answer.status !== 200) {
      throw new AppError("REGISTRY_FAILED", `${place} failed: status ${answer.status}`, {
        retryable: answer.status >= 500,
      });
    }
    return this.#tokenOf(answer, place);
  }

  #tokenOf({ body }: OutgoingAnswer, place: string): string {
    const parsed = TokenAnswer.safeParse(jsonOf(body));
    const token = parsed.success ? (parsed.data.token ?? parsed.data.access_token ?? "") : "";
    if (token.length > this.#options.limits.registry_token_length_max || !TOKEN.test(token)) {
      throw wrongAnswer(this.#options.host, `no usable token from ${place}`);
    }
    return token;
  }
}

/** Returns the value of a JSON text, undefined for any other text. */
function jsonOf(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}
