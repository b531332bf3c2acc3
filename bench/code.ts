/** Functions with code for the benches: their files, their archive and their deployment. */
import { gzipSync } from "node:zlib";
import { tarEnd, tarHeader, tarPadding } from "../src/engine/files/tar.ts";
import { until } from "./clock.ts";
import { type Daemon, type FunctionSpec, movingCount } from "./daemon.ts";

export const RUNTIMES = ["nodejs", "python3"] as const;
export type Runtime = (typeof RUNTIMES)[number];
export type Files = Readonly<Record<string, string | Buffer>>;

/** Settings of a function with code. */
export interface CodeSpec extends Omit<FunctionSpec, "handler"> {
  readonly runtime: Runtime;
  readonly instance_concurrency?: number;
  readonly instance_calls_max?: number;
  readonly timeout_seconds?: number;
}

/** Payload of the calls, which a function returns as its result. */
export const PAYLOAD = { hello: "world" };

const HANDLERS: Readonly<Record<Runtime, string>> = { nodejs: "index.mjs#handler", python3: "main.py:handler" };

/** A function that returns its payload. `note` makes its code differ from that of others. */
export function echo(runtime: Runtime, note = ""): Readonly<Record<string, string>> {
  return runtime === "nodejs"
    ? { "index.mjs": `// ${note}\nexport const handler = (payload) => payload;\n` }
    : { "main.py": `# ${note}\ndef handler(payload, context):\n    return payload\n` };
}

/** The same as an asynchronous function, which an instance runs beside others without a thread for each call. */
export function asyncEcho(runtime: Runtime): Files {
  return runtime === "nodejs"
    ? { "index.mjs": "export const handler = async (payload) => payload;\n" }
    : { "main.py": "async def handler(payload, context):\n    return payload\n" };
}

/** Returns a tar.gz of regular files, packed in this process as a client does it. */
export function pack(files: Files): Buffer {
  const parts = Object.entries(files).flatMap(([name, file]) => {
    const content = Buffer.from(file);
    const size = content.length;
    const head = tarHeader({ name, type: "file", size, mode: 0o644, link: "", uid: 0, gid: 0, mtime_ms: 0 });
    return [head, content, tarPadding(size)];
  });
  return gzipSync(Buffer.concat([...parts, tarEnd()]), { level: 1 });
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
 * Waits until the reserve holds the runtime's share of cells, and the pool is at rest. The first instance of a runtime's class,
 * which its first deployment starts, gives the class its share.
 */
export async function cellsReady(daemon: Daemon, runtime: Runtime): Promise<void> {
  let seen = "";
  const ask = async (): Promise<true | null> => {
    const stats = await daemon.stats();
    seen = JSON.stringify(stats.classes);
    const own = stats.classes.find((one) => one.class.startsWith(`${runtime}-`));
    return own !== undefined && own.cells > 0 && own.cells >= own.cells_target && movingCount(stats) === 0
      ? true
      : null;
  };
  await until(ask, { poll_ms: POLL_MS, deadline_ms: CELLS_TIMEOUT_MS, what: () => `cells of ${runtime}: ${seen}` });
}
