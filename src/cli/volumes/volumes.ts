/** The verbs of volumes: made, listed, renamed, deleted, and the files in them. */
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import type { ResponseOf } from "../../client/client.ts";
import { operationOf, succeeded } from "../daemon/operations.ts";
import { pairs } from "../functions/function-fields.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import { shellWord, visible } from "../output/text.ts";
import { bytes, relative } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { readBytes } from "../session/input.ts";
import { readList } from "../session/pages.ts";
import { type Flags, isRefusal, type Session, type Words } from "../session/session.ts";
import { copyBetween, parsePlace, volumeTree } from "./copy.ts";

type Volume = ResponseOf<"GET /api/volumes/:name">;
type File = ResponseOf<"GET /api/volumes/:name/ls">["files"][number];

/** `<volume>:<path>`; of a volume alone its root. */
function place(text: string): { readonly name: string; readonly path: string } {
  const found = parsePlace(text) ?? parsePlace(`${text}:/`);
  if (found === null)
    throw usage(`invalid volume path: '${text}'`, "expected <volume>:<path>, for example data:/notes/a.txt");
  return found;
}

export async function createVolume(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const labels = flags.label === undefined ? undefined : pairs(flags.label as string[], "--label");
  const body = { name, labels, quota_mb: flags.quota as number | undefined };
  const made = await session.client().request("POST /api/volumes", { body });
  session.show(made, () => `${visible(made.name)} is created (${made.id})\n`);
}

export async function listVolumes(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const client = session.client();
  const answer = await readList("volumes", limit, (query) => client.request("GET /api/volumes", { query }));
  const columns: Column<Volume>[] = [
    { title: "NAME", value: ({ name }) => name },
    { title: "STATUS", value: ({ status }) => status, format: ({ status }) => (status === "active" ? null : "yellow") },
    {
      title: "QUOTA",
      value: ({ quota_mb }) => (quota_mb === null ? null : bytes(quota_mb * 1024 ** 2)),
      side: "right",
    },
    { title: "MADE", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "ID", value: ({ id }) => id, format: () => "dim", isSpare: true },
  ];
  session.show(answer, () => session.table(columns, answer.volumes, "no volumes yet: hearth volumes create data"));
  session.noteCut(answer.volumes.length, limit, answer);
}

export async function inspectVolume(session: Session, [name = ""]: Words): Promise<void> {
  const found = await session.client().request("GET /api/volumes/:name/inspect", { params: session.volume(name) });
  session.show(found, () => session.list(entriesOf(found, session.now)));
}

export async function renameVolume(session: Session, [name = "", new_name = ""]: Words): Promise<void> {
  const request = { params: session.volume(name), body: { new_name } };
  const answer = await session.client().request("POST /api/volumes/:name/rename", request);
  session.show(answer, () => `${visible(answer.old_name)} is now ${visible(answer.new_name)}\n`);
}

export async function deleteVolume(session: Session, [name = ""]: Words): Promise<void> {
  const client = session.client();
  session.advice = { IN_USE: "to list the containers that mount it: hearth volumes inspect; to remove one: hearth rm" };
  const answer = await client.request("DELETE /api/volumes/:name", { params: session.volume(name) });
  const operation_id = operationOf(answer);
  const found = operation_id === null ? answer : await succeeded(session, operation_id, `deleting ${name}`);
  session.show(found, () => `${visible(name)} is deleted\n`);
}

const TYPES: Readonly<Record<string, string>> = { file: "-", directory: "d", symlink: "l", fifo: "p", socket: "s" };

/** All entries of a directory; a page at a time, each shown as it comes. */
export async function listFiles(session: Session, [word]: Words): Promise<void> {
  if (word === undefined) return listVolumes(session, [], {});
  const { name, path } = place(word);
  const params = session.volume(name);
  const client = session.client();
  const files: File[] = [];
  for (let page = 1; ; page++) {
    const query = { path, page, page_size: LIMITS.file_page_size_max };
    const answer = await client.request("GET /api/volumes/:name/ls", { params, query });
    files.push(...answer.files);
    if (answer.has_more && files.length < LIMITS.cli_files_max) continue;
    const columns: Column<File>[] = [
      { title: "MODE", value: ({ type, mode }) => `${TYPES[type] ?? "?"}${String(mode).padStart(4, "0")}` },
      { title: "SIZE", value: ({ size, type }) => (type === "file" ? bytes(size) : null), side: "right" },
      { title: "CHANGED", value: ({ modified_at }) => relative(modified_at, session.now) },
      { title: "NAME", value: ({ name, target }) => (target === null ? name : `${name} -> ${target}`) },
    ];
    session.show({ ...answer, files }, () => session.table(columns, files, "the directory is empty"));
    if (answer.has_more)
      session.terminal.note(`showing only ${files.length} of ${counted(answer.total, "entry", "entries")}`);
    return;
  }
}

export async function readFile(session: Session, [word = ""]: Words): Promise<void> {
  const { name, path } = place(word);
  const params = { ...session.volume(name), path: path.slice(1) };
  const { pieces } = await session.client().open("GET /api/volumes/:name/files/*", { params });
  for await (const piece of pieces) await session.terminal.pass("out", piece);
}

/** One file, from a file or standard input, whole: what is larger is for `cp`. */
export async function putFile(session: Session, [word = "", file = "-"]: Words, flags: Flags): Promise<void> {
  const { name, path } = place(word);
  const content = (await readBytes(file, LIMITS.cli_put_bytes_max)).toString("base64");
  const body = { path, content, mode: flags.mode as number | undefined };
  const params = session.volume(name);
  const answer = await session.client().request("POST /api/volumes/:name/files", { params, body });
  session.show(answer, () => `${visible(`${name}:${answer.path}`)} is written\n`);
}

export async function removeFile(session: Session, [word = ""]: Words, flags: Flags): Promise<void> {
  const { name, path } = place(word);
  if (path === "/") {
    const hint = `to delete the volume with all its files: hearth volumes delete ${shellWord(name)}`;
    throw usage(`rm removes files of a volume, not the volume itself: '${word}'`, hint);
  }
  const params = { ...session.volume(name), path: path.slice(1) };
  session.advice = { NOT_EMPTY: "to remove it with its contents: -r" };
  const query = { recursive: flags.recursive === true };
  try {
    const answer = await session.client().request("DELETE /api/volumes/:name/files/*", { params, query });
    session.show(answer, () => `${visible(`${name}:${path}`)} is removed\n`);
  } catch (error) {
    if (!(flags.force === true && isRefusal(error, "NOT_FOUND"))) throw error;
  }
}

export function copyVolume(session: Session, words: Words): Promise<void> {
  return copyBetween(session, words, async (name) => volumeTree(session, name));
}
