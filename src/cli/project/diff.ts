/** `hearth diff`: the settings and files in which a folder differs from the active versions of its functions. */

import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { LIMITS } from "../../base/limits.ts";
import { type FileChange, fileLine } from "../functions/changes.ts";
import type { Format } from "../output/terminal.ts";
import { visible } from "../output/text.ts";
import { EXIT } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { uploadCodes } from "./deploy.ts";
import { type DeployedFunction, deployProject, namesOf, plan } from "./deployment.ts";
import { scan } from "./files.ts";
import { type ProjectFunction, readProject } from "./project.ts";
import { type PackedFile, packedFiles } from "./tar-files.ts";
import { tarOf } from "./tar-writer.ts";
import { textLines, unified } from "./text-diff.ts";

export interface ComparedFile extends FileChange {
  /** Lines in the unified format, where both are small texts. */
  readonly lines: readonly string[];
}

/** The files that differ, by path. */
export function changesOf(from: ReadonlyMap<string, PackedFile>, to: ReadonlyMap<string, PackedFile>): ComparedFile[] {
  return [...new Set([...from.keys(), ...to.keys()])].sort().flatMap((path): ComparedFile[] => {
    const [before, after] = [from.get(path), to.get(path)];
    if (before === undefined) return [{ path, change: "added", lines: [] }];
    if (after === undefined) return [{ path, change: "removed", lines: [] }];
    const isEqual =
      before.type === after.type && before.content === after.content && before.isExecutable === after.isExecutable;
    if (isEqual) return [];
    const [old, own] = [textLines(before.bytes), textLines(after.bytes)];
    return [{ path, change: "changed", lines: old === null || own === null ? [] : unified(old, own) }];
  });
}

/** The files of a version; none without code. */
async function activeFiles(session: Session, function_id: string): Promise<Map<string, PackedFile>> {
  const client = session.client(LIMITS.cli_call_timeout_ms);
  const { version, code_sha256 } = await client.request("GET /api/functions/:function_id", { params: { function_id } });
  if (code_sha256 === null) return new Map();
  const { pieces } = await client.open("GET /api/functions/:function_id/versions/:version/code", {
    params: { function_id, version: String(version) },
  });
  const gunzip = createGunzip();
  const reading = pipeline(Readable.from(pieces), gunzip);
  const files = await packedFiles(gunzip);
  // packedFiles() stops at the end of the archive, which breaks the pipeline.
  await reading.catch(() => {});
  return files;
}

const LINE_FORMATS: Readonly<Record<string, Format>> = { "+": "green", "-": "red", "@": "cyan" };

function shown({ terminal }: Session, file: ComparedFile): string {
  const below = file.lines.map((line) => {
    const text = `    ${line.split("\t").map(visible).join("\t")}`;
    const paint = LINE_FORMATS[line.charAt(0)];
    return `${paint === undefined ? text : terminal.paint(paint, text)}\n`;
  });
  return fileLine(file, terminal.paint) + below.join("");
}

interface Difference extends DeployedFunction {
  readonly files: readonly ComparedFile[];
}

async function compared(session: Session, one: ProjectFunction, found: DeployedFunction): Promise<Difference> {
  const hasOtherCode = found.action === "created" || found.changes.some(({ field }) => field === "code_sha256");
  if (!hasOtherCode) return { ...found, files: [] };
  const before = found.action === "created" ? new Map() : await activeFiles(session, found.function_id);
  return { ...found, files: changesOf(before, await packedFiles(tarOf(scan(one.directory)))) };
}

export async function diff(session: Session, [folder = "."]: Words, _flags: Flags): Promise<void> {
  const project = await readProject(folder);
  // The daemon compares what it would store, and stores no version.
  const codes = await uploadCodes(session, project);
  const compare = deployProject(session, project, { codes, isDryRun: true });
  const { functions } = await session.terminal.progress(`comparing ${namesOf(project)}`, compare);
  const all: Difference[] = [];
  for (const [i, one] of project.functions.entries()) {
    const found = functions[i];
    if (found !== undefined) all.push(await compared(session, one, found));
  }
  session.show({ functions: all }, () =>
    all.map((one) => plan(session, one) + one.files.map((file) => shown(session, file)).join("")).join(""),
  );
  if (all.some(({ action }) => action !== "unchanged")) process.exitCode = EXIT.refused;
}
