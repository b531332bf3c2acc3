/** Profiles as commands: kept, chosen, listed, removed; `login` also asks the daemon whether the key is good. */

import { LIMITS } from "../../base/limits.ts";
import { ApiError, Client } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { visible } from "../output/text.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { readSecret } from "../session/input.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { checkKey, profilesOf, readKeyFile } from "../session/target.ts";
import { noteEnvironment, urlOf } from "./new-target.ts";
import { loginWithPassword } from "./users.ts";

async function keyOf({ flags, terminal }: Session, url: string): Promise<string> {
  if (flags.keyFile !== undefined) return readKeyFile(flags.keyFile);
  return checkKey(await readSecret(`key for ${url}: `, terminal));
}

export async function addProfile(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const url = urlOf(session);
  const key = await keyOf(session, url);
  const profiles = profilesOf(session.environment);
  profiles.put(name, { url, key }, flags.use === true);
  session.show({ name, url, current: profiles.read().current === name }, () => `profile ${visible(name)} saved\n`);
  if (session.flags.json !== true && flags.use !== true) {
    session.terminal.note(`to use it: hearth profile use ${visible(name)}`);
  }
}

export async function login(session: Session, [name = "default"]: Words, flags: Flags): Promise<void> {
  if (flags.email !== undefined) return loginWithPassword(session, flags.email as string, name);
  const url = urlOf(session);
  const key = await keyOf(session, url);
  const client = new Client({ url, key, timeout_ms: LIMITS.cli_request_timeout_ms });
  try {
    await session.terminal.progress(`connecting to ${url}`, client.request("GET /api/system/info"));
  } catch (error) {
    // A key that may not read is a key.
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) throw new Failure(EXIT.refused, `${url} rejected the key; the profile was not saved`);
    if (error.status !== 403) throw error;
  }
  profilesOf(session.environment).put(name, { url, key }, true);
  session.show({ name, url, current: true }, () => `profile ${visible(name)} is in use: ${url}\n`);
  noteEnvironment(session, url);
}

export async function listProfiles(session: Session): Promise<void> {
  const { current, profiles } = profilesOf(session.environment).read();
  const rows = Object.entries(profiles).map(([name, { url }]) => ({ name, url, current: name === current }));
  const columns: Column<(typeof rows)[number]>[] = [
    { title: "NAME", value: ({ name }) => name, format: ({ current }) => (current ? "green" : null) },
    { title: "", value: ({ current }) => (current ? "in use" : "") },
    { title: "URL", value: ({ url }) => url, isLong: true },
  ];
  session.show({ profiles: rows }, () => session.table(columns, rows, "no profiles: hearth login --url <url>"));
}

export async function useProfile(session: Session, [name]: Words, flags: Flags): Promise<void> {
  if ((name === undefined) !== (flags.none === true)) throw usage("give a profile name, or --none");
  const profiles = profilesOf(session.environment);
  profiles.use(name ?? null);
  const text =
    name === undefined
      ? "no profile in use; hearth uses the daemon of this machine"
      : `profile ${visible(name)} is in use`;
  session.show({ current: name ?? null }, () => `${text}\n`);
  if (name !== undefined) noteEnvironment(session, profiles.get(name).url);
}

export async function removeProfile(session: Session, [name = ""]: Words): Promise<void> {
  profilesOf(session.environment).remove(name);
  session.show({ removed: name }, () => `profile ${visible(name)} is removed\n`);
}
