/**
 * Users of a tree by its own accounts, read through a session that is jailed in it. The rules are those by which minit starts
 * commands (identity.c): a name or a number, the first line that fits, and no file that is none or is too large.
 */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { FileOwner, FileSession } from "../ports/files.ts";

/** IDENTITY_FILE_MAX of runtimes/minit/identity.h. */
const ACCOUNTS_BYTES_MAX = 1024 * 1024;
/** passwd(5) has seven fields. */
const FIELDS_MAX = 7;

type Accounts = Pick<FileSession, "isOpen" | "stat" | "read">;
type Fields = readonly string[];

/** See `FileSession.findOwner`. Rejects only with the loss of the session. */
export async function findOwner(session: Accounts, text: string): Promise<FileOwner | null> {
  const colon = text.indexOf(":");
  const user = colon < 0 ? text : text.slice(0, colon);
  const isUser = isNamed(user);
  const line = firstOf(await read(session, "/etc/passwd"), (fields) => {
    return isUser(fields) && numberOf(fields[2]) !== null && numberOf(fields[3]) !== null;
  });
  const uid = numberOf(line?.[2] ?? user);
  let gid = numberOf(line?.[3] ?? "0");
  if (colon >= 0) {
    const group = text.slice(colon + 1);
    const isGroup = isNamed(group);
    const found = firstOf(
      await read(session, "/etc/group"),
      (fields) => isGroup(fields) && numberOf(fields[2]) !== null,
    );
    gid = numberOf(found?.[2] ?? group);
  }
  if (uid === null || gid === null || Math.max(uid, gid) >= LIMITS.user_namespace_ids) return null;
  return { uid, gid };
}

function isNamed(name: string): (fields: Fields) => boolean {
  const id = numberOf(name);
  return (fields) => fields[0] === name || (id !== null && numberOf(fields[2]) === id);
}

const numberOf = (text: string | undefined): number | null => (/^[0-9]+$/.test(text ?? "") ? Number(text) : null);

/** Line by line: a file of nothing but line ends would be a million strings. */
function firstOf(text: string, isIt: (fields: Fields) => boolean): Fields | null {
  for (let at = 0; at < text.length; ) {
    const found = text.indexOf("\n", at);
    const end = found < 0 ? text.length : found;
    const fields = text.slice(at, end).split(":", FIELDS_MAX);
    if (isIt(fields)) return fields;
    at = end + 1;
  }
  return null;
}

/** Empty: there is no such file, or it counts as none. */
async function read(session: Accounts, path: string): Promise<string> {
  try {
    const { type, size } = await session.stat(path, true);
    if (type !== "file" || size > ACCOUNTS_BYTES_MAX) return "";
    // It may have become another since, and grown.
    const { stream } = await session.read(path, { end: ACCOUNTS_BYTES_MAX });
    const parts: Uint8Array[] = [];
    for await (const part of stream) parts.push(part);
    return Buffer.concat(parts).toString("utf8");
  } catch (error) {
    if (error instanceof AppError && session.isOpen) return "";
    throw error;
  }
}
