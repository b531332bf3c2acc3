/**
 * The keys of hearth.toml: those of a function, which have the names of the API but `function` for `name`, and those of the
 * command line. A test holds this table against the schema of the API. Bounds of values are the daemon's to check.
 */
import { didYouMean } from "../../base/suggest.ts";
import { usage } from "../session/failure.ts";
import type { TomlDocument, TomlPath, TomlTable } from "./toml.ts";

export type Kind = "text" | "number" | "boolean" | "texts" | "text or texts" | "table" | "tables" | "any";
type Keys = Readonly<Record<string, Kind>>;

/** Keys that are sent as they are. */
export const SENT_KEYS: Keys = {
  description: "text",
  handler: "text",
  runtime: "text",
  image: "text",
  oci: "boolean",
  memory_limit_mb: "number",
  cpu_limit_percent: "number",
  timeout_seconds: "number",
  environment: "table",
  secrets: "texts",
  egress: "text or texts",
  instance_concurrency: "number",
  instance_calls_max: "number",
  reset_between_calls: "boolean",
  gpu_count: "number",
  protocol: "text",
  min_instances: "number",
  max_instances: "number",
  concurrency_limit: "number",
  api_access: "boolean",
  cleanup_on_exit: "boolean",
  working_directory: "text",
  smoke: "table",
};
/** Keys of a function that the command line reads. */
export const OWN_KEYS: Keys = { function: "text", directory: "text", payload: "text", build: "table" };
export const SMOKE_KEYS: Keys = { payload: "any", expect_status: "text", timeout_seconds: "number" };
export const BUILD_KEYS: Keys = { command: "text", egress: "text or texts", memory_limit_mb: "number" };
const SECRET_KEYS: Keys = { secret: "text" };

const FUNCTION_KEYS: Keys = { ...OWN_KEYS, ...SENT_KEYS };
const ROOT_KEYS: Keys = { ...FUNCTION_KEYS, functions: "tables" };

const isTable = (value: unknown): value is TomlTable =>
  typeof value === "object" && value !== null && [Object.prototype, null].includes(Object.getPrototypeOf(value));
const isTexts = (value: unknown) => Array.isArray(value) && value.every((one) => typeof one === "string");

const CHECKS: Readonly<Record<Kind, readonly [about: string, is: (value: unknown) => boolean]>> = {
  text: ["a string", (value) => typeof value === "string"],
  number: ["a number", (value) => typeof value === "number"],
  boolean: ["true or false", (value) => typeof value === "boolean"],
  texts: ["an array of strings", isTexts],
  "text or texts": ["a string or an array of strings", (value) => typeof value === "string" || isTexts(value)],
  table: ["a table", isTable],
  tables: ["[[functions]] tables", (value) => Array.isArray(value) && value.every(isTable)],
  any: ["a value", () => true],
};

function typeOf(value: unknown): string {
  if (Array.isArray(value)) return "an array";
  if (isTable(value)) return "a table";
  return typeof value === "object" ? "a date" : `a ${typeof value}`;
}

function check(document: TomlDocument, path: TomlPath, table: TomlTable, keys: Keys): void {
  for (const [key, value] of Object.entries(table)) {
    const here = [...path, key];
    const kind = Object.hasOwn(keys, key) ? keys[key] : undefined;
    if (kind === undefined) {
      const meant = key === "name" ? "did you mean 'function'?" : didYouMean(key, Object.keys(keys));
      const hint = meant ?? `known keys: ${Object.keys(keys).join(", ")}`;
      throw usage(`${document.placeOf(here)}: unknown key: ${JSON.stringify(key)}`, hint);
    }
    const [about, is] = CHECKS[kind];
    if (!is(value)) throw usage(`${document.placeOf(here)}: ${key}: expected ${about}, got ${typeOf(value)}`);
  }
}

function checkFunction(document: TomlDocument, path: TomlPath, table: TomlTable): void {
  check(document, path, table, path.length === 0 ? ROOT_KEYS : FUNCTION_KEYS);
  const { environment = {}, smoke = {}, build = {} } = table as Readonly<Record<string, TomlTable>>;
  check(document, [...path, "smoke"], smoke, SMOKE_KEYS);
  check(document, [...path, "build"], build, BUILD_KEYS);
  for (const [name, value] of Object.entries(environment)) {
    const here = [...path, "environment", name];
    if (isTable(value)) check(document, here, value, SECRET_KEYS);
    if (typeof value === "string" || (isTable(value) && typeof value.secret === "string")) continue;
    const expected = `expected a string or { secret = "NAME" }, got ${typeOf(value)}`;
    throw usage(`${document.placeOf(here)}: environment.${name}: ${expected}`);
  }
  for (const key of ["function", "handler"]) {
    if (table[key] === undefined) throw usage(`${document.placeOf(path)}: missing key: ${key}`);
  }
}

/** The tables of a project's functions with their paths. Throws a usage failure for the first wrong key. */
export function functionTables(document: TomlDocument, functions_max: number): readonly [TomlPath, TomlTable][] {
  const { table } = document;
  if (table.functions === undefined) {
    checkFunction(document, [], table);
    return [[[], table]];
  }
  const { functions, ...others } = table;
  const [other] = Object.keys(others);
  if (other !== undefined) {
    const hint = "move it below a [[functions]] header";
    throw usage(`${document.placeOf([other])}: key beside [[functions]]: ${JSON.stringify(other)}`, hint);
  }
  check(document, [], table, ROOT_KEYS);
  const all = functions as readonly TomlTable[];
  const place = document.placeOf(["functions"]);
  if (all.length === 0) throw usage(`${place}: functions: expected at least one`);
  if (all.length > functions_max) throw usage(`${place}: too many functions: ${all.length} (limit ${functions_max})`);
  return all.map((one, i) => {
    const path = ["functions", i];
    checkFunction(document, path, one);
    return [path, one];
  });
}
