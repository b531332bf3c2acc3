/**
 * The adapter of the runtime `custom` in tests: a process in namespaces of its own (processes, mounts, network), so that
 * ports are free and nothing outlives it.
 */
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll } from "vitest";
import { type BindHead, type CallHead, STATUS } from "../../runtimes/envelope.ts";
import { type Tree, writeTree } from "./code.ts";
import { compileHelper } from "./helper.ts";
import { type Answer, type CallOptions, ResidentProcess } from "./resident-process.ts";
import { bindHead, callHead, resultOf } from "./resident-requests.ts";

const IN_NAMESPACES = ["unshare", "-pnmf", "--kill-child", "--mount-proc", "sh", "-c"];
const SCRIPT = 'ip link set lo up && exec "$0" adapter "$1"';

/** The end of a call: its status by name, and its result or error. */
export interface Outcome {
  readonly status: string;
  readonly content: unknown;
  readonly stdout: string;
  readonly stderr: string;
}

function outcomeOf({ ended, status, content, stdout, stderr }: Answer): Outcome {
  const name = Object.entries(STATUS).find(([, value]) => value === status)?.[0] ?? ended;
  return { status: name, content: resultOf({ content }) ?? null, stdout, stderr };
}

export class Adapter {
  readonly process: ResidentProcess;
  readonly code: string;
  #count = 0;

  constructor(process: ResidentProcess, code: string) {
    this.process = process;
    this.code = code;
  }

  async bind(handler: string, head: Partial<BindHead> = {}, options: CallOptions = {}): Promise<Outcome> {
    const { environment, ...rest } = head;
    const whole = { PATH: process.env.PATH ?? "", ...environment };
    const bound = { handler, protocol: "http", working_directory: this.code, environment: whole, ...rest } as const;
    return outcomeOf(await this.process.bind(bindHead(bound), options));
  }

  async call(payload: string | Uint8Array = "", head: Partial<CallHead> = {}): Promise<Outcome> {
    this.#count++;
    return outcomeOf(await this.process.call(callHead({ invocation_id: `inv-${this.#count}`, ...head }), payload));
  }
}

/** Compiles the helper for a test file, and ends what its tests started. */
export function adapters(): { start(files?: Tree): Promise<Adapter> } {
  const made = { directory: "", running: [] as Adapter[] };
  beforeAll(() => {
    made.directory = mkdtempSync("/var/tmp/hearth-adapter-");
    chmodSync(made.directory, 0o755);
    compileHelper(join(made.directory, "minit"));
  });
  afterEach(async () => {
    for (const adapter of made.running.splice(0)) await adapter.process.end();
  });
  afterAll(() => rmSync(made.directory, { recursive: true, force: true }));
  return {
    async start(files = {}) {
      const code = mkdtempSync(join(made.directory, "code-"));
      writeTree(code, files);
      const argv = [...IN_NAMESPACES, SCRIPT, join(made.directory, "minit"), code];
      const adapter = new Adapter(await ResidentProcess.open(argv), code);
      made.running.push(adapter);
      return adapter;
    },
  };
}
