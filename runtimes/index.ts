/** The function runtimes by name. */
import type { Runtime } from "./runtime.ts";
import { shell } from "./shell/index.ts";

export type { Runtime } from "./runtime.ts";

export const RUNTIMES: ReadonlyMap<string, Runtime> = new Map([shell].map((runtime) => [runtime.name, runtime]));

export const RUNTIME_DEFAULT = shell.name;
