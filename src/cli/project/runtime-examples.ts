/** The runtimes whose example `hearth init` copies, each with the handler of its example. A test holds it against runtimes/. */

export interface RuntimeExample {
  readonly runtime: string;
  readonly aliases: readonly string[];
  readonly handler: string;
}

export const RUNTIME_EXAMPLES: readonly RuntimeExample[] = [
  { runtime: "nodejs", aliases: ["node"], handler: "index.mjs#handler" },
  { runtime: "python3", aliases: ["python"], handler: "main.py:handler" },
  { runtime: "custom", aliases: [], handler: "server.py" },
  { runtime: "shell", aliases: [], handler: "./run.sh" },
];

/** Returns the example of a runtime by its name or an alias; undefined for others. */
export function exampleOf(name: string): RuntimeExample | undefined {
  return RUNTIME_EXAMPLES.find(({ runtime, aliases }) => runtime === name || aliases.includes(name));
}
