/**
 * Users at the command line. A password is exchanged for an API key of this machine, which a profile keeps: a key needs no
 * refresh, so that commands may run side by side. Signing out revokes it.
 */
import { hostname } from "node:os";
import { LIMITS } from "../../base/limits.ts";
import { ApiError, Client, type ResponseOf } from "../../client/client.ts";
import { visible } from "../output/text.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { readPassword } from "../session/input.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { profilesOf } from "../session/target.ts";
import { noteEnvironment, urlOf } from "./new-target.ts";

type Opened = ResponseOf<"POST /api/auth/login">;

const timeout_ms = LIMITS.cli_request_timeout_ms;
const NAME_LENGTH_MAX = LIMITS.tenant_name_length_max;

/** Makes the key that stays, saves it as the profile in use, and ends the login that made it. */
async function keep(session: Session, url: string, opened: Opened, name: string): Promise<void> {
  const client = new Client({ url, key: opened.access_token, timeout_ms });
  try {
    const expires_at = session.now + LIMITS.cli_key_seconds;
    const body = { name: `hearth on ${visible(hostname())}`.slice(0, NAME_LENGTH_MAX), expires_at };
    const { key, id } = await client.request("POST /api/api-keys", { body });
    try {
      profilesOf(session.environment).put(name, { url, key, is_signed_in: true }, true);
    } catch (error) {
      await client.request("DELETE /api/api-keys/:key_id", { params: { key_id: id } });
      throw error;
    }
  } finally {
    await client.request("POST /api/auth/logout", { body: {} });
  }
  const { email, tenant_id } = opened.user;
  session.show({ name, url, current: true, email, tenant_id }, () => {
    const days = LIMITS.cli_key_seconds / 86_400;
    return `${visible(email)} is signed in; profile ${visible(name)} is in use for ${days} days: ${url}\n`;
  });
  noteEnvironment(session, url);
}

function askPassword({ terminal }: Session, email: string, url: string, isNew: boolean): Promise<string> {
  return readPassword(`password of ${visible(email)} for ${url}: `, terminal, isNew);
}

export async function register(session: Session, [email = "", name = "default"]: Words, flags: Flags): Promise<void> {
  const url = urlOf(session);
  const password = await askPassword(session, email, url, true);
  const body = { email, password, name: (flags.name as string | undefined) ?? email.split("@", 1)[0] ?? email };
  const client = new Client({ url, key: null, timeout_ms });
  await keep(session, url, await client.request("POST /api/auth/register", { body }), name);
}

export async function loginWithPassword(session: Session, email: string, name: string): Promise<void> {
  const url = urlOf(session);
  const body = { email, password: await askPassword(session, email, url, false) };
  const client = new Client({ url, key: null, timeout_ms });
  await keep(session, url, await client.request("POST /api/auth/login", { body }), name);
}

/** Revokes the key that a sign-in with a password made, then deletes the profile. Other keys may be in use elsewhere. */
export async function logout(session: Session, [given]: Words): Promise<void> {
  const profiles = profilesOf(session.environment);
  const name = given ?? profiles.read().current;
  if (name === null) throw usage("no profile is in use", "name the one to delete: hearth logout <profile>");
  const { url, key, is_signed_in = false } = profiles.get(name);
  if (is_signed_in) {
    const client = new Client({ url, key, timeout_ms });
    try {
      const { key_id } = await client.request("GET /api/auth/me");
      await client.request("DELETE /api/api-keys/:key_id", { params: { key_id } });
    } catch (error) {
      // The key has ended already.
      const isVoid = error instanceof ApiError && error.status === 401;
      if (!isVoid) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new Failure(
          EXIT.refused,
          `the key of profile '${name}' was not revoked: ${reason}`,
          `to delete the profile alone: hearth profile remove ${name}`,
        );
      }
    }
  }
  profiles.remove(name);
  const revoked = is_signed_in ? ", and its key is revoked" : "; its key stays valid";
  session.show({ removed: name, revoked: is_signed_in }, () => `profile ${visible(name)} is removed${revoked}\n`);
}

export async function whoami(session: Session): Promise<void> {
  const me = await session.client().request("GET /api/auth/me");
  session.show(me, () => {
    const reach = me.scope_type === "full" ? "the whole tenant" : me.scope_resource_ids.join(", ");
    const user = me.user === null ? [] : [["user", `${visible(me.user.email)} (${visible(me.user.name)})`]];
    const rows = [
      ...user,
      ["tenant", me.tenant_id],
      [me.credential, me.key_id],
      ["scopes", me.scopes.join(", ")],
      ["reaches", reach],
    ];
    return rows.map(([title = "", value = ""]) => `${title.padEnd(12)}${value}\n`).join("");
  });
}
