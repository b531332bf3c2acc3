/** The address of NATS servers and the credentials for them, from the settings. */
import { AppError } from "./errors.ts";

export interface NatsServer {
  /** `host:port` of each. Safe to log. */
  readonly hosts: readonly string[];
  readonly is_tls: boolean;
  readonly user: string | null;
  readonly password: string | null;
  readonly token: string | null;
  /** Contents of a credentials file; null: none. */
  readonly credentials: Uint8Array | null;
}

const PORT = "4222";
const SERVERS_MAX = 16;

/**
 * Reads `nats://[<user>:<password>@|<token>@]<host>[:<port>][,…]`, or the same with `tls`. Throws INVALID_ARGUMENT, without
 * the text: it may contain a password.
 */
export function natsServer(url: string, credentials: Uint8Array | null): NatsServer {
  const parsed = url.split(",").map((one) => URL.parse(one.trim()));
  const first = parsed[0];
  const hosts: string[] = [];
  for (const one of parsed) {
    const isPlain = one !== null && (one.pathname === "" || one.pathname === "/") && one.search === "" && !one.hash;
    const isKnown = one?.protocol === "nats:" || one?.protocol === "tls:";
    if (one === null || !isPlain || !isKnown || one.hostname === "" || one.protocol !== first?.protocol)
      throw invalid();
    hosts.push(`${one.hostname}:${one.port === "" ? PORT : one.port}`);
  }
  if (first === undefined || first === null || hosts.length > SERVERS_MAX) throw invalid();
  const [user, password] = [decoded(first.username), decoded(first.password)];
  const isToken = user !== "" && password === "";
  return {
    hosts,
    is_tls: first.protocol === "tls:",
    user: user === "" || isToken ? null : user,
    password: password === "" ? null : password,
    token: isToken ? user : null,
    credentials,
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid();
  }
}

function invalid(): AppError {
  return new AppError(
    "INVALID_ARGUMENT",
    `invalid URL in HEARTH_NATS_URL (expected nats://[<user>:<password>@]<host>[:<port>], or tls://…, at most ${SERVERS_MAX} with commas between them)`,
  );
}
