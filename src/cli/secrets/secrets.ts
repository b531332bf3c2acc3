/** The verbs of secrets. A value comes from a prompt, a file or standard input, never from the words of a command. */
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { shellWord, visible } from "../output/text.ts";
import { bytes, relative } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { readBytes, readTyped } from "../session/input.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type Secret = ResponseOf<"GET /api/secrets/:name">;

const CR = 13;
const LF = 10;

/** Without the line break that `echo` and editors put behind a text. */
function withoutLineBreak(value: Buffer): Buffer {
  if (value.at(-1) !== LF) return value;
  return value.subarray(0, value.at(-2) === CR ? -2 : -1);
}

async function readValue(name: string, file: string | undefined, { terminal }: Session): Promise<Buffer> {
  if (file !== undefined) return readBytes(file, LIMITS.secret_bytes_max);
  if (process.stdin.isTTY) return Buffer.from(await readTyped(`value of ${visible(name)}: `, terminal));
  // With room for the line break.
  return withoutLineBreak(await readBytes("-", LIMITS.secret_bytes_max + 2));
}

export async function setSecret(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  if (name.includes("=")) {
    // Not sent: the name of a request is in the audit log.
    throw usage(
      "a secret's name has no '=': every user of this machine can read a value among the arguments",
      "give the name alone; hearth asks for the value",
    );
  }
  const value = await readValue(name, flags.file as string | undefined, session);
  if (value.length === 0) throw usage("the value is empty");
  const body = { value_base64: value.toString("base64") };
  value.fill(0);
  const record = await session.client().request("PUT /api/secrets/:name", { params: { name }, body });
  session.show(record, () => `${visible(record.name)} is set (${bytes(record.size_bytes)})\n`);
}

export async function listSecrets(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const client = session.client();
  const answer = await readList("secrets", limit, (query) => client.request("GET /api/secrets", { query }));
  const columns: Column<Secret>[] = [
    { title: "NAME", value: ({ name }) => name },
    { title: "SIZE", value: ({ size_bytes }) => bytes(size_bytes), side: "right" },
    { title: "MADE", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "CHANGED", value: ({ updated_at }) => relative(updated_at, session.now) },
  ];
  session.show(answer, () => session.table(columns, answer.secrets, "no secrets yet: hearth secrets set <name>"));
  session.noteCut(answer.secrets.length, limit, answer);
}

export async function deleteSecret(session: Session, [name = ""]: Words): Promise<void> {
  const params = session.secret(name);
  const answer = await session.client().request("DELETE /api/secrets/:name", { params });
  session.show(answer, () => `${visible(name)} is deleted\n`);
}

export async function rotateSecretsKey(session: Session): Promise<void> {
  const status = await session.client().request("POST /api/operator/secrets-key/rotate", {});
  const pending = counted(status.pending_count, "secret");
  session.show(status, () => `${shellWord(status.key_id)} encrypts secrets now; ${pending} with an earlier key\n`);
}
