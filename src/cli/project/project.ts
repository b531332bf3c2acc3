/**
 * A folder with hearth.toml: its functions as a deployment takes them. Paths in the file are relative to the folder, and stay
 * inside of it.
 */
import { existsSync, realpathSync, statSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { LIMITS } from "../../base/limits.ts";
import { ApiError, type RequestOf } from "../../client/client.ts";
import { shellWord, visible } from "../output/text.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { readInput } from "../session/input.ts";
import { functionTables, SENT_KEYS } from "./keys.ts";
import { parseToml, type TomlDocument, type TomlPath, type TomlTable } from "./toml.ts";

export const PROJECT_FILE = "hearth.toml";
const PAYLOAD_FILE = "payload.json";

type Deployment = RequestOf<"POST /api/functions/deployments">["body"];
export type Described = Deployment["functions"][number];

export interface Build {
  /** A line for sh; null: the default of the runtime. */
  readonly command: string | null;
  readonly egress: "on" | "off" | readonly string[];
  readonly memory_limit_mb: number | null;
}

export interface ProjectFunction {
  readonly name: string;
  /** As the API takes it, without its code. */
  readonly described: Described;
  /** Absolute path of its files. */
  readonly directory: string;
  readonly build: Build;
  /** Absolute path of the payload for tests; null: none. */
  readonly payload_file: string | null;
}

export interface Project {
  /** Absolute path of the folder, links resolved. */
  readonly root: string;
  readonly functions: readonly ProjectFunction[];
  /** Returns a refusal of the deployment as a failure that names the line of its key; other errors as they are. */
  refusal(error: unknown): unknown;
}

/** Returns true if a folder has a hearth.toml. */
export function isProject(folder: string): boolean {
  return existsSync(join(folder, PROJECT_FILE));
}

/** Reads a folder's hearth.toml. Throws a usage failure that names the line of the mistake. */
export async function readProject(folder: string): Promise<Project> {
  const file = join(folder, PROJECT_FILE);
  if (!isProject(folder)) {
    const target = folder === "." ? "" : ` ${shellWord(folder)}`;
    const isMissing = !existsSync(folder);
    throw usage(
      isMissing ? `no such folder: ${folder}` : `no ${PROJECT_FILE} in ${resolve(folder)}`,
      `create one with: hearth init${target} --runtime nodejs`,
    );
  }
  if (statSync(file).size > LIMITS.cli_project_bytes_max) {
    throw usage(`${file} is too large (limit ${LIMITS.cli_project_bytes_max} bytes)`);
  }
  const document = parseToml(await readInput(file), shown(file));
  const root = realpathSync(folder);
  const tables = functionTables(document, LIMITS.deployment_functions_max);
  const functions = tables.map(([path, table]) => functionOf({ root, document, path }, table));
  const names = functions.map(({ name }) => name);
  const twice = names.findIndex((name, i) => names.indexOf(name) < i);
  if (twice >= 0) {
    const place = document.placeOf(["functions", twice, "function"]);
    throw usage(`${place}: function: name used twice: '${names[twice]}'`);
  }
  const paths = tables.map(([path]) => path);
  return { root, functions, refusal: (error) => refusal(error, document, paths) };
}

/** `./hearth.toml` is the file itself. */
const shown = (file: string) => visible(file.replace(/^\.\//, ""));

interface Place {
  readonly root: string;
  readonly document: TomlDocument;
  readonly path: TomlPath;
}

function functionOf(place: Place, table: TomlTable): ProjectFunction {
  const name = table.function as string;
  const directory = inside(place, "directory", (table.directory as string | undefined) ?? ".");
  const isFolder = statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true;
  if (!isFolder) throw wrong(place, "directory", `no such folder: ${directory}`);
  const sent = Object.fromEntries(Object.entries(table).filter(([key]) => Object.hasOwn(SENT_KEYS, key)));
  const { command = null, egress = "on", memory_limit_mb = null } = (table.build ?? {}) as Partial<Build>;
  return {
    name,
    described: { name, ...sent } as Described,
    directory,
    build: { command, egress, memory_limit_mb },
    payload_file: payloadFile(place, table.payload as string | undefined, directory),
  };
}

function payloadFile(place: Place, given: string | undefined, directory: string): string | null {
  if (given === undefined) {
    const file = join(directory, PAYLOAD_FILE);
    return existsSync(file) ? file : null;
  }
  const file = inside(place, "payload", given);
  if (!existsSync(file)) throw wrong(place, "payload", `no such file: ${file}`);
  return file;
}

/** A path of the file, links resolved where it exists. */
function inside(place: Place, key: string, path: string): string {
  const file = resolve(place.root, path);
  const real = existsSync(file) ? realpathSync(file) : file;
  const way = relative(place.root, real);
  if (way === ".." || way.startsWith(`..${sep}`)) throw wrong(place, key, `leaves the folder: ${path}`);
  return real;
}

function wrong({ document, path }: Place, key: string, message: string): Failure {
  return usage(`${document.placeOf([...path, key])}: ${key}: ${message}`);
}

function refusal(error: unknown, document: TomlDocument, paths: readonly TomlPath[]): unknown {
  if (!(error instanceof ApiError) || error.body === null) return error;
  const [, index = "", field = "", rest = ""] = /^functions\.(\d+)\.([^:]+): (.*)$/s.exec(error.body.error) ?? [];
  const path = paths[Number(index)];
  if (index === "" || path === undefined) return error;
  const key = field === "name" ? "function" : field;
  const place = document.placeOf([...path, ...key.split(".")]);
  return new Failure(EXIT.refused, `${place}: ${key}: ${rest} [${error.body.error_code}]`, error.body.hint, error);
}
