/** API keys, of the caller's tenant or, for the operator, of another; and access tokens made from a key. */

import { didYouMean } from "../../base/suggest.ts";
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { visible } from "../output/text.ts";
import { parseMoment, parseSpan, relative, span } from "../output/time.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type KeyList = ResponseOf<"GET /api/api-keys">;
type Key = KeyList["api_keys"][number];
type NewKey = ResponseOf<"POST /api/api-keys">;
/** `bootstrap` is the key of the first start. */
const KEY_ID = /^(key_[0-9a-z]{12}|bootstrap)$/;

type Scope = Key["scopes"][number];

/** `read,invoke`, once or several times; the API says which there are. */
function scopesOf(flags: Flags): Scope[] | undefined {
  return (flags.scopes as string[] | undefined)?.flatMap((list) =>
    list.split(",").map((scope) => scope.trim() as Scope),
  );
}

function showKeys(session: Session, answer: KeyList): void {
  const columns: Column<Key>[] = [
    { title: "ID", value: ({ id }) => id },
    { title: "NAME", value: ({ name }) => name, isLong: true },
    { title: "BEGINS WITH", value: ({ prefix }) => prefix, isSpare: true },
    { title: "SCOPES", value: ({ scopes }) => scopes.join(",") },
    {
      title: "REACHES",
      value: ({ scope_resource_ids: ids }) => (ids.length === 0 ? "all" : ids.join(",")),
      isSpare: true,
    },
    { title: "MADE", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "EXPIRES", value: ({ expires_at }) => relative(expires_at, session.now) },
    { title: "USED", value: ({ last_used_at }) => relative(last_used_at, session.now) },
  ];
  session.show(answer, () => session.table(columns, answer.api_keys, "no keys"));
  session.noteCut(answer.api_keys.length, undefined, answer);
}

/** The text of the key alone on standard output, for `$(hearth keys create ci)`. */
function showNewKey(session: Session, made: NewKey): void {
  session.show(made, () => `${made.key}\n`);
  if (session.flags.json === true) return;
  const expires = made.expires_at === null ? "" : `, expires ${relative(made.expires_at, session.now)}`;
  session.terminal.note(
    `key ${visible(made.name)} (${made.id}), scopes ${made.scopes.join(", ")}${expires}; hearth shows it only once`,
  );
}

function bodyOf(session: Session, name: string, flags: Flags) {
  const given = flags.expires as string | undefined;
  const expires_at = given === undefined ? undefined : parseMoment(given, session.now);
  if (expires_at === null)
    throw usage(`invalid time: '${given}'`, "give a time from now like 30d, or a date like 2027-01-31");
  return { name, scopes: scopesOf(flags), expires_at };
}

function ownKeys(session: Session): Promise<KeyList> {
  const client = session.client();
  return readList("api_keys", undefined, (query) => client.request("GET /api/api-keys", { query }));
}

function tenantKeys(session: Session, tenant_id: string): Promise<KeyList> {
  const client = session.client();
  return readList("api_keys", undefined, (query) =>
    client.request("GET /api/tenants/:tenant_id/api-keys", { params: { tenant_id }, query }),
  );
}

export async function listKeys(session: Session): Promise<void> {
  showKeys(session, await ownKeys(session));
}

export async function createKey(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const client = session.client();
  const names = (flags.container as string[] | undefined) ?? [];
  const scope_resource_ids = await Promise.all(names.map((given) => session.containerId(given)));
  const reach = names.length === 0 ? {} : { scope_type: "container" as const, scope_resource_ids };
  const body = { ...bodyOf(session, name, flags), ...reach };
  showNewKey(session, await client.request("POST /api/api-keys", { body }));
}

/** The id behind an id or a name: `listed` are the keys that it may be one of, read when it is a name. */
async function keyId(idOrName: string, listed: () => Promise<{ readonly api_keys: readonly Key[] }>): Promise<string> {
  if (KEY_ID.test(idOrName)) return idOrName;
  const { api_keys } = await listed();
  const ids = api_keys.filter(({ name }) => name === idOrName).map(({ id }) => id);
  const [id] = ids;
  if (id !== undefined && ids.length === 1) return id;
  if (id !== undefined) {
    throw new Failure(
      EXIT.refused,
      `several keys have the name '${idOrName}'`,
      `give the id of one: ${ids.join(", ")}`,
    );
  }
  const names = api_keys.map(({ name }) => name);
  throw new Failure(EXIT.refused, `no key named '${idOrName}'`, didYouMean(idOrName, names));
}

export async function revokeKey(session: Session, [key = ""]: Words): Promise<void> {
  const key_id = await keyId(key, () => ownKeys(session));
  const answer = await session.client().request("DELETE /api/api-keys/:key_id", { params: { key_id } });
  session.show(answer, () => `${visible(key_id)} is revoked\n`);
}

export async function listTenantKeys(session: Session, [tenant = ""]: Words): Promise<void> {
  showKeys(session, await tenantKeys(session, await session.tenantId(tenant)));
}

export async function createTenantKey(session: Session, [tenant = "", name = ""]: Words, flags: Flags): Promise<void> {
  const body = bodyOf(session, name, flags);
  const params = { tenant_id: await session.tenantId(tenant) };
  showNewKey(session, await session.client().request("POST /api/tenants/:tenant_id/api-keys", { params, body }));
}

export async function revokeTenantKey(session: Session, [tenant = "", key = ""]: Words): Promise<void> {
  const tenant_id = await session.tenantId(tenant);
  const key_id = await keyId(key, () => tenantKeys(session, tenant_id));
  const params = { tenant_id, key_id };
  const answer = await session.client().request("DELETE /api/tenants/:tenant_id/api-keys/:key_id", { params });
  session.show(answer, () => `${visible(key_id)} is revoked\n`);
}

export async function createToken(session: Session, _words: Words, flags: Flags): Promise<void> {
  const given = flags.expiresIn as string | undefined;
  const expires_in = given === undefined ? undefined : parseSpan(given);
  if (expires_in === null) throw usage(`invalid duration: '${given}'`, "give seconds, or a unit: 15m");
  const made = await session
    .client()
    .request("POST /api/auth/token", { body: { scopes: scopesOf(flags), expires_in } });
  session.show(made, () => `${made.access_token}\n`);
  if (session.flags.json === true) return;
  session.terminal.note(`token with scopes ${made.scopes.join(", ")}, valid for ${span(made.expires_in)}`);
}

export async function rotateOperatorKey(session: Session, _words: Words, flags: Flags): Promise<void> {
  const overlap_seconds = flags.overlap as number | undefined;
  const body = overlap_seconds === undefined ? {} : { overlap_seconds };
  const made = await session.client().request("POST /api/operator/key/rotate", { body });
  session.show(made, () => `${made.key}\n`);
  if (session.flags.json === true) return;
  session.terminal.note(`the previous key ${endOf(made.previous_expires_at, session)}`);
}

export async function rotateTokenKey(session: Session, _words: Words, flags: Flags): Promise<void> {
  const overlap_seconds = flags.overlap as number | undefined;
  const body = overlap_seconds === undefined ? {} : { overlap_seconds };
  const made = await session.client().request("POST /api/operator/token-key/rotate", { body });
  session.show(made, () => `every earlier token ${endOf(made.previous_expires_at, session)}\n`);
}

/** Returns the end of a replaced key or its tokens, as the predicate of a sentence. */
function endOf(at: number, { now }: Session): string {
  return at <= now ? "is no longer valid" : `expires ${relative(at, now)}`;
}
