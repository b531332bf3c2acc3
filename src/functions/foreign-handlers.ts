/** Handlers as other services write them, and how this one does. */

/** File and name with any of their signs between them: `index.handler`, `app:main`. */
const FOREIGN_HANDLER = /^(?<file>[\w/-]+(?:\.[\w/-]+)*?)(?<ending>\.(?:[cm]?[jt]s|py))?[.:#](?<name>[A-Za-z_]\w*)$/;

/** A word behind a dot that is the ending of a file, and no name of a function. */
const FILE_ENDING = /^(?:[cm]?[jt]s|[jt]sx|json|go|java|py|rb|sh)$/;

/** Longer texts are nobody's habit, and would make long hints. */
const FOREIGN_LENGTH_MAX = 256;

/** True for `index.handler`: whoever sends it expects a runtime that takes files. */
export function isModuleHandler(handler: string): boolean {
  const { file, ending, name } = partsOf(handler);
  return file !== undefined && ending === undefined && name !== undefined && handler === `${file}.${name}`;
}

/** Returns how this service writes a handler of another one; undefined if it looks like none. */
export function handlerHint(runtime: string, handler: string): string | undefined {
  const { file, ending, name } = partsOf(handler);
  if (file === undefined || name === undefined) return undefined;
  if (ending !== undefined && (ending === ".py") !== (runtime === "python3")) return undefined;
  if (runtime === "nodejs")
    return `send the file with its ending and the export, as in '${file}${ending ?? ".mjs"}#${name}'`;
  // Lambda writes a module in a folder as pkg.module.function, too.
  if (runtime === "python3") return `send the file and the function, as in '${file.replaceAll(".", "/")}.py:${name}'`;
  return undefined;
}

function partsOf(handler: string): Partial<Record<"file" | "ending" | "name", string>> {
  if (handler.length > FOREIGN_LENGTH_MAX) return {};
  const parts = FOREIGN_HANDLER.exec(handler)?.groups ?? {};
  return FILE_ENDING.test(parts.name ?? "") ? {} : parts;
}
