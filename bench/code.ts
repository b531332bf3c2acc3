/** Functions with code for the benches: their files, their archive, and how they are deployed. */
import { gzipSync } from "node:zlib";
import { until } from "./clock.ts";
import type { Daemon, FunctionSpec } from "./daemon.ts";

export type Runtime = "nodejs" | "python3";
export type Files = Readonly<Record<string, string | Buffer>>;

/** What a function with code may have beside the other settings of a function. */
export interface CodeSpec extends Omit<FunctionSpec, "handler"> {
  readonly runtime: Runtime;
  readonly instance_concurrency?: number;
  readonly instance_calls_max?: number;
  readonly timeout_seconds?: number;
}

const HANDLERS: Readonly<Record<Runtime, string>> = { nodejs: "index.mjs#handler", python3: "main.py:handler" };

/** A function that returns its payload. `note` makes its code differ from that of others. */
export function echo(runtime: Runtime, note = ""): Readonly<Record<string, string>> {
  return runtime === "nodejs"
    ? { "index.mjs": `// ${note}\nexport const handler = (payload) => payload;\n` }
    : { "main.py": `# ${note}\ndef handler(payload, context):\n    return payload\n` };
}

/** The same as a coroutine, which an instance runs beside others without a thread for each call. */
export function asyncEcho(runtime: Runtime): Files {
  return runtime === "nodejs"
    ? { "index.mjs": "export const handler = async (payload) => payload;\n" }
    : { "main.py": "async def handler(payload, context):\n    return payload\n" };
}

const BLOCK_BYTES = 512;

/** A tar.gz of regular files, packed in this process as a client does it. */
export function pack(files: Files): Buffer {
  const blocks: Buffer[] = [];
  for (const [path, file] of Object.entries(files)) {
    const content = typeof file === "string" ? Buffer.from(file) : file;
    const head = Buffer.alloc(BLOCK_BYTES);
    head.write(path, 0, 100);
    head.write("0000644\x000000000\x000000000\0", 100);
    head.write(`${content.length.toString(8).padStart(11, "0")}\0${"0".repeat(11)}\0`, 124);
    head.write("        0", 148);
    head.write("ustar\x0000", 257);
    const sum = head.reduce((total, byte) => total + byte, 0);
    head.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    blocks.push(head, content, Buffer.alloc((BLOCK_BYTES - (content.length % BLOCK_BYTES)) % BLOCK_BYTES));
  }
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK_BYTES)]), { level: 1 });
}

export interface Deployed {
  readonly function_id: string;
  readonly version: number;
}

/** Uploads code and deploys a function with it, as `hearth deploy` does. One instance has loaded it afterwards. */
export async function deployCode(daemon: Daemon, spec: CodeSpec, files: Files): Promise<Deployed> {
  const { code_sha256 } = (await daemon.call("POST", "/api/functions/code", pack(files))) as { code_sha256: string };
  const wanted = { ...spec, handler: HANDLERS[spec.runtime], code_sha256 };
  const { functions } = (await daemon.call("POST", "/api/functions/deployments", { functions: [wanted] })) as {
    functions: readonly [Deployed];
  };
  return functions[0];
}

const CELLS_TIMEOUT_MS = 60_000;
const POLL_MS = 2;

/**
 * Waits until the reserve of a runtime holds what it has by its share, and nothing is on its way. The first instance of a
 * runtime's class, which its first deployment starts, gives the class its share.
 */
export async function cellsReady(daemon: Daemon, runtime: Runtime): Promise<void> {
  let seen = "";
  const ask = async (): Promise<true | null> => {
    const { classes, ...stats } = await daemon.stats();
    seen = JSON.stringify(classes);
    const moving_count =
      stats.warming_count + stats.busy_count + stats.recycling_count + stats.terminating_count + stats.cells_starting;
    const own = classes.find((one) => one.class.startsWith(`${runtime}-`));
    return own !== undefined && own.cells > 0 && own.cells >= own.cells_target && moving_count === 0 ? true : null;
  };
  await until(ask, { poll_ms: POLL_MS, deadline_ms: CELLS_TIMEOUT_MS, what: () => `cells of ${runtime}: ${seen}` });
}
