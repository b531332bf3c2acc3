/**
 * Addresses of messages: a container by id or name, `queue:<name>` for receivers that share one inbox, `topic:<name>` for
 * subscribers that each get a copy. The name of an inbox is the container's id, or the address itself. `state:<key>` is a key
 * of the tenant's states, which keeps the last message alone and has no inbox.
 */
import { AppError } from "../base/errors.ts";

const NAMED = /^(queue|topic):([a-z0-9][a-z0-9._-]{0,62})$/;
const STATE = /^state:([A-Za-z0-9][A-Za-z0-9._:-]{0,127})$/;
const PREFIXED = /^(queue|topic|binding|state):/;

export type Address =
  | { readonly kind: "container"; readonly text: string }
  | { readonly kind: "queue" | "topic"; readonly text: string }
  /** A key of the tenant's states, which has no inbox. */
  | { readonly kind: "state"; readonly text: string; readonly key: string };

/** Reads an address. Throws INVALID_ARGUMENT for a queue or topic without a valid name. */
export function parseAddress(text: string): Address {
  const named = NAMED.exec(text);
  if (named !== null) return { kind: named[1] === "queue" ? "queue" : "topic", text };
  const key = STATE.exec(text)?.[1];
  if (key !== undefined) return { kind: "state", text, key };
  if (!PREFIXED.test(text)) return { kind: "container", text };
  throw new AppError("INVALID_ARGUMENT", `invalid address: ${text.slice(0, 100)}`, {
    details: {
      expected: ["container id or name", "queue:<name>", "topic:<name>", "state:<key>"],
      received: text.slice(0, 100),
    },
    hint: "a name has 1 to 63 lower-case letters, digits, '.', '_' or '-', and begins with a letter or digit",
  });
}

/** The stream of an inbox, as clients of JetStream-like services read it. */
export function streamOf(inbox: string): string {
  return `INBOX_${inbox.toUpperCase().replace(/[^A-Z0-9]/g, "_")}`;
}

export const subjectOf = (inbox: string): string => `jets.cmd.${inbox}`;

export const DEAD_STREAM = "JETS_DLQ";
export const DEAD_SUBJECT = "jets.dlq";

/** Path of the socket in each container. */
export const SOCKET_PATH = "/run/hearth/icc.sock";
