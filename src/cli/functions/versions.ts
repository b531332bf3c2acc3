/** The versions of a function: listed, one shown, two compared, one chosen; the code of one. */
import { createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { LIMITS } from "../../base/limits.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import type { Format } from "../output/terminal.ts";
import { shellWord, visible } from "../output/text.ts";
import { bytes, relative } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { metered } from "../session/meter.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { fileLine, settingLine } from "./changes.ts";
import { sentence as functionSentence } from "./functions.ts";

/** The number of a word like `3` or `v3`. Throws a usage failure for any other. */
export function versionNumber(word: string | undefined): number {
  const number = Number(word?.replace(/^v/, ""));
  if (Number.isSafeInteger(number) && number >= 1) return number;
  throw usage(`invalid version: '${word}'`, "give a version number; hearth versions lists them");
}

export async function versions(session: Session, [name = "", one, other]: Words, flags: Flags): Promise<void> {
  if (one === undefined) return list(session, name, flags.limit as number | undefined);
  const version = String(versionNumber(one));
  const other_version = other === undefined ? null : String(versionNumber(other));
  const params = { function_id: await session.functionId(name), version };
  const client = session.client();
  session.advice = { NOT_FOUND: `to list the versions: hearth versions ${shellWord(name)}` };
  if (other_version === null) {
    const found = await client.request("GET /api/functions/:function_id/versions/:version", { params });
    return session.show(found, () => session.list(entriesOf(found, session.now)));
  }
  const found = await client.request("GET /api/functions/:function_id/versions/:version/diff/:other_version", {
    params: { ...params, other_version },
  });
  const { paint } = session.terminal;
  session.show(found, () =>
    [...found.changes.map(settingLine), ...found.files.map((file) => fileLine(file, paint))].join(""),
  );
  if (session.flags.json === true) return;
  if (found.is_truncated) session.terminal.note("more files differ");
  if (found.changes.length + found.files.length === 0) session.terminal.note("no differences");
}

async function list(session: Session, name: string, limit: number | undefined): Promise<void> {
  const params = { function_id: await session.functionId(name) };
  const client = session.client();
  const answer = await readList("versions", limit, (query) =>
    client.request("GET /api/functions/:function_id/versions", { params, query }),
  );
  type Version = (typeof answer.versions)[number];
  const format = ({ is_active }: Version): Format | null => (is_active ? "green" : null);
  const columns: Column<Version>[] = [
    { title: "VERSION", value: ({ version }) => version, side: "right", format },
    { title: "", value: ({ is_active }) => (is_active ? "current" : ""), format },
    { title: "MADE", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "BY", value: ({ made_by }) => made_by, isSpare: true },
    { title: "RUNTIME", value: ({ runtime }) => runtime, isSpare: true },
    { title: "MEMORY", value: ({ memory_limit_mb }) => `${memory_limit_mb} MiB`, side: "right", isSpare: true },
    {
      title: "CODE",
      value: ({ code_size_bytes }) => (code_size_bytes === null ? null : bytes(code_size_bytes)),
      side: "right",
    },
    { title: "HANDLER", value: ({ handler }) => handler, isLong: true },
    { title: "NOTE", value: ({ note }) => note ?? "", isLong: true },
  ];
  session.show(answer, () => session.table(columns, answer.versions, "no versions"));
  session.noteCut(answer.versions.length, limit, answer);
}

export async function rollback(session: Session, [name = "", version]: Words): Promise<void> {
  const wanted = versionNumber(version);
  const params = { function_id: await session.functionId(name) };
  session.advice = { NOT_FOUND: `to list the versions: hearth versions ${shellWord(name)}` };
  const record = await session.terminal.progress(
    `rolling back ${visible(name)}`,
    session.client().request("POST /api/functions/:function_id/rollback", { params, body: { version: wanted } }),
  );
  session.show(record, () => functionSentence(session, record));
}

/** Writes a version's code as tar.gz to a file, or to standard output unless that is a terminal. */
export async function code(session: Session, [name = "", word]: Words, flags: Flags): Promise<void> {
  const file = flags.output as string | undefined;
  const client = session.client(LIMITS.cli_call_timeout_ms);
  if (file === undefined && session.terminal.width !== null) {
    const word = shellWord(name);
    throw usage(
      "the code is an archive, and standard output is a terminal",
      `hearth code ${word} | tar -xz, or --output <file>`,
    );
  }
  const params = { function_id: await session.functionId(name) };
  const version =
    word === undefined
      ? (await client.request("GET /api/functions/:function_id", { params })).version
      : versionNumber(word);
  const { pieces } = await client.open("GET /api/functions/:function_id/versions/:version/code", {
    params: { ...params, version: String(version) },
  });
  if (file === undefined) {
    for await (const piece of pieces) await session.terminal.pass("out", piece);
    return;
  }
  const passed = { bytes: 0 };
  const target = createWriteStream(file, { flags: "wx" });
  await pipeline(metered(session, "receiving", pieces, { bytes: null }, passed), target).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code !== undefined && error.syscall !== undefined)
        throw usage(`cannot write ${file}: ${error.message}`);
      throw error;
    },
  );
  session.show(
    { version, file, bytes_count: passed.bytes },
    () => `${bytes(passed.bytes)} written to ${shellWord(file)}\n`,
  );
}
