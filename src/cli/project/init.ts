/** `hearth init`: the example of a runtime, made a project. Asks no daemon. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { shellWord, visible } from "../output/text.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { URL_OF_THIS_MACHINE } from "../session/target.ts";
import { invokeCommand } from "./deployment.ts";
import { HEARTH_IGNORE } from "./ignore-rules.ts";
import { PROJECT_FILE, readProject } from "./project.ts";
import { exampleOf, RUNTIME_EXAMPLES, type RuntimeExample } from "./runtime-examples.ts";

/** Path of the schema of hearth.toml, which editors read. */
export const SCHEMA_PATH = "/api/schemas/hearth.toml.json";

const RUNTIMES = new URL("../../../runtimes/", import.meta.url);

const IGNORE_TEXT = `# Files that are no code of the function, with the syntax of .gitignore, whose rules count too.
# hearth leaves out .git, .env and hearth.toml by itself.
payload.json
`;

function projectText(schema: string, name: string, runtime: string, handler: string): string {
  return `#:schema ${schema}
# 'hearth deploy' makes a function of this folder, 'hearth dev' does it on every save.

function = ${JSON.stringify(name)}
runtime = "${runtime}"
handler = "${handler}"
timeout_seconds = 30

# [environment]
# GREETING = "hello"
# API_TOKEN = { secret = "API_TOKEN" }   # hearth secrets set API_TOKEN

# A call of each new version, which must succeed before the version becomes active:
# [smoke]
# payload = { name = "Ada" }
`;
}

export async function init(session: Session, [folder = "."]: Words, flags: Flags): Promise<void> {
  const { runtime, handler } = chosenExample((flags.runtime as string | undefined) ?? "nodejs");
  const name = (flags.name as string | undefined) ?? basename(resolve(folder));
  if (name === "" || name !== name.trim() || /[\p{Cc}/]/u.test(name) || !name.isWellFormed()) {
    throw usage(`invalid name of a function: ${JSON.stringify(name)}`, "give one with --name");
  }
  const example = new URL(`${runtime}/example/`, RUNTIMES);
  const files = new Map<string, Buffer | string>([
    [PROJECT_FILE, projectText(schemaUrl(session), name, runtime, handler)],
    [HEARTH_IGNORE, IGNORE_TEXT],
    ...readdirSync(example).map((file) => [file, readFileSync(new URL(file, example))] as const),
  ]);
  const taken = [...files.keys()].filter((file) => existsSync(join(folder, file)));
  if (taken.length > 0) {
    const hint = taken.includes(PROJECT_FILE)
      ? "choose another folder; hearth init replaces no files"
      : `choose another folder, or write ${PROJECT_FILE} with the keys function, runtime and handler`;
    throw usage(`${resolve(folder)} already has ${taken.join(", ")}`, hint);
  }
  write(folder, files);
  const made = { name, runtime, folder: resolve(folder), files: [...files.keys()] };
  const [first] = (await readProject(folder)).functions;
  const place = folder === "." ? "" : ` ${shellWord(folder)}`;
  const next = [`hearth deploy${place}`, ...(first === undefined ? [] : [await invokeCommand(first)])];
  session.show(made, () => `${visible(made.folder)} has ${made.files.join(", ")}\n`);
  if (session.flags.json === true) return;
  session.terminal.note("next:");
  for (const command of next) session.terminal.note(`  ${command}`);
}

function chosenExample(given: string): RuntimeExample {
  const found = exampleOf(given);
  if (found !== undefined) return found;
  throw usage(`unknown runtime: '${given}'`, `runtimes: ${RUNTIME_EXAMPLES.map(({ runtime }) => runtime).join(", ")}`);
}

/** On the daemon that commands use, if that is known. */
function schemaUrl({ flags, environment }: Session): string {
  return `${flags.url ?? environment.url ?? URL_OF_THIS_MACHINE}`.replace(/\/+$/, "") + SCHEMA_PATH;
}

function write(folder: string, files: ReadonlyMap<string, Buffer | string>): void {
  try {
    mkdirSync(folder, { recursive: true });
    for (const [file, content] of files) {
      const isScript = typeof content !== "string" && content.toString("latin1", 0, 2) === "#!";
      writeFileSync(join(folder, file), content, { flag: "wx", mode: isScript ? 0o755 : 0o644 });
    }
  } catch (error) {
    throw new Failure(EXIT.usage, `cannot write ${folder}: ${(error as Error).message}`, null, error);
  }
}
