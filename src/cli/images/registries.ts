/** Credentials for registries: of one pull or push, and those that the daemon stores. */
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { visible } from "../output/text.ts";
import { relative } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { readInput, readSecret } from "../session/input.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type Registry = ResponseOf<"GET /api/oci/registries">["registries"][number];

/** Helps where a registry denies access. */
export const LOGIN_ADVICE = { FORBIDDEN: "to store credentials: hearth login registry <host> -u <name>" };

async function passwordOf({ terminal }: Session, username: string, flags: Flags): Promise<string> {
  const password =
    flags.passwordStdin === true
      ? (await readInput("-")).trim()
      : await readSecret(`password of ${visible(username)}: `, terminal);
  if (password === "") throw usage("the password is empty");
  return password;
}

/** The credentials that the flags of a pull or push give; empty if there are none. */
export async function credentialsOf(session: Session, flags: Flags) {
  const registry_username = flags.username as string | undefined;
  if (registry_username !== undefined) {
    return { registry_username, registry_password: await passwordOf(session, registry_username, flags) };
  }
  if (flags.passwordStdin === true) throw usage("--password-stdin needs a user name", "give --username <name>");
  return {};
}

export async function loginRegistry(session: Session, [registry = ""]: Words, flags: Flags): Promise<void> {
  const username = flags.username as string | undefined;
  if (username === undefined) throw usage("the user name is missing", "give --username <name>");
  const body = { username, password: await passwordOf(session, username, flags) };
  const stored = await session.client().request("PUT /api/oci/registries/:registry", { params: { registry }, body });
  session.show(stored, () => `credentials for ${visible(stored.registry)} are stored\n`);
}

export async function logoutRegistry(session: Session, [registry = ""]: Words): Promise<void> {
  session.sought = { word: registry, names: () => session.registryNames() };
  const answer = await session.client().request("DELETE /api/oci/registries/:registry", { params: { registry } });
  session.show(answer, () => `credentials for ${visible(registry)} are deleted\n`);
}

export async function listRegistries(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const client = session.client();
  const answer = await readList("registries", limit, (query) => client.request("GET /api/oci/registries", { query }));
  const columns: Column<Registry>[] = [
    { title: "REGISTRY", value: ({ registry }) => registry },
    { title: "USER", value: ({ username }) => username },
    { title: "CHANGED", value: ({ updated_at }) => relative(updated_at, session.now) },
  ];
  const empty = "no credentials stored: hearth login registry <host> -u <name>";
  session.show(answer, () => session.table(columns, answer.registries, empty));
  session.noteCut(answer.registries.length, limit, answer);
}
