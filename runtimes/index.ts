/** The function runtimes by name. */
import { custom } from "./custom/index.ts";
import { nodejs } from "./nodejs/index.ts";
import { python3 } from "./python3/index.ts";
import type { Runtime } from "./runtime.ts";
import { shell } from "./shell/index.ts";

export { type BindHead, type CallHead, COMMAND_EXITED, type ErrorContent, STATUS } from "./envelope.ts";
export { CODE_INSIDE, type Runtime } from "./runtime.ts";

export const RUNTIMES: ReadonlyMap<string, Runtime> = new Map(
  [shell, nodejs, python3, custom].map((runtime) => [runtime.name, runtime]),
);

const BY_ALIAS = new Map([...RUNTIMES.values()].flatMap((runtime) => runtime.aliases.map((alias) => [alias, runtime])));

/** Returns the runtime of a name or an alias; undefined if there is none. */
export function runtimeOf(name: string): Runtime | undefined {
  return RUNTIMES.get(name) ?? BY_ALIAS.get(name);
}

export const RUNTIME_DEFAULT = shell.name;
