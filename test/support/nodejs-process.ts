/** The program of the runtime nodejs on this machine, bound to a function that a test writes. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BindHead, CallHead } from "../../runtimes/envelope.ts";
import { nodejs } from "../../runtimes/nodejs/index.ts";
import { CODE_INSIDE, RUNTIME_INSIDE } from "../../runtimes/runtime.ts";
import { NODE_PATH } from "../../src/installation/paths.js";
import { type Tree, writeTree } from "./code.ts";
import { engineHelper } from "./helper.ts";
import { type Answer, type CallOptions, ResidentProcess } from "./resident-process.ts";
import { bindHead, callHead, requestOf } from "./resident-requests.ts";

/** Returns the argv of the runtime with this machine's paths. The process's directory takes the place of /tmp. */
function argvOf(code_directory: string): string[] {
  if (nodejs.serving.kind !== "resident") throw new Error("nodejs is not resident");
  const [, ...rest] = nodejs.serving.argv;
  const words = rest.filter((word) => word !== "/dev/shm").map((word) => word.replace(/^\/tmp$/, "{directory}"));
  return [
    NODE_PATH,
    ...words.map((word) => {
      const program = nodejs.programs?.[word.slice(RUNTIME_INSIDE.length + 1)];
      if (word === "/dev/init") return engineHelper();
      if (word === CODE_INSIDE || program !== undefined) return program ?? code_directory;
      return word.replace(RUNTIME_INSIDE, nodejs.directory ?? RUNTIME_INSIDE);
    }),
  ];
}

export class NodejsProcess {
  readonly resident: ResidentProcess;
  readonly code_directory: string;
  /** Answer to the bind. */
  readonly bound: Promise<Answer>;

  private constructor(resident: ResidentProcess, code_directory: string, bind: Buffer) {
    this.resident = resident;
    this.code_directory = code_directory;
    this.bound = resident.request(bind);
  }

  /**
   * Starts the process and binds it to the files of a function. Does not wait for the bind. `wrap` may put a command
   * around that of the process. `cache` is the body of the bind. `code`: a directory for the files; a new one by default.
   */
  static async start(
    files: Tree,
    bind: Partial<BindHead> = {},
    wrap: (argv: readonly string[]) => readonly string[] = (argv) => argv,
    cache: Uint8Array = new Uint8Array(),
    code = mkdtempSync(join(tmpdir(), "code-")),
  ): Promise<NodejsProcess> {
    writeTree(code, files);
    const resident = await ResidentProcess.open(wrap(argvOf(code)));
    const environment = { PATH: process.env.PATH ?? "", COLOUR: "blue", SCRATCH: resident.directory };
    const head = bindHead({ handler: "index.mjs#handler", working_directory: code, environment, ...bind });
    return new NodejsProcess(resident, code, requestOf(head, cache));
  }

  /** Calls the function once it is bound, as the daemon does. A payload that is no text or bytes is sent as JSON. */
  async call(payload: unknown = "", head: Partial<CallHead> = {}, options: CallOptions = {}): Promise<Answer> {
    await this.bound;
    const body = typeof payload === "string" || payload instanceof Uint8Array ? payload : JSON.stringify(payload);
    return this.resident.call(callHead(head), body, options);
  }

  async end(): Promise<void> {
    await this.resident.end();
    rmSync(this.code_directory, { recursive: true, force: true });
  }
}
