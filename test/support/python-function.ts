/** Functions of the runtime python3 for its tests: processes that have loaded a function. */
import { join } from "node:path";
import { expect } from "vitest";
import { type BindHead, type CallHead, STATUS } from "../../runtimes/envelope.ts";
import { python3 } from "../../runtimes/python3/index.ts";
import { type Tree, writeTree } from "./code.ts";
import { type Answer, type CallOptions, ResidentProcess } from "./resident-process.ts";
import { bindHead, callHead, resultOf } from "./resident-requests.ts";

/** Files of code, or the text of main.py. */
export type Code = string | Tree;

/** Returns the head that binds a process to `main.py`. */
export function pythonHead(more: Partial<BindHead> = {}): BindHead {
  return bindHead({ handler: "main.py", environment: { PATH: "/usr/bin:/bin", STAGE: "test" }, ...more });
}

/** The command of the runtime with its program in `inside`, for code in `code`. */
export function pythonCommand(inside: string, code: string): string[] {
  const argv = python3.serving.kind === "resident" ? python3.serving.argv : [];
  return [...argv.slice(0, -2), join(inside, "main.py"), code];
}

export function writeCode(directory: string, code: Code): void {
  writeTree(directory, typeof code === "string" ? { "main.py": code } : code);
}

/** Starts the program of the runtime on this machine. Its code is what its directory holds when it is bound. */
export const startPython = (): Promise<ResidentProcess> =>
  ResidentProcess.open(pythonCommand(python3.directory ?? "", "{directory}"));

/** A process of this machine that is bound to a function. */
export class PythonFunction {
  readonly process: ResidentProcess;
  readonly bound: Answer;

  private constructor(process: ResidentProcess, bound: Answer) {
    this.process = process;
    this.bound = bound;
  }

  static async load(code: Code, head: Partial<BindHead> = {}): Promise<PythonFunction> {
    const process = await startPython();
    writeCode(process.directory, code);
    return new PythonFunction(process, await process.bind(pythonHead(head)));
  }

  call(payload: Uint8Array | string = "", head: Partial<CallHead> = {}, options: CallOptions = {}): Promise<Answer> {
    return this.process.call(callHead(head), payload, options);
  }

  /** Calls and returns the value of the result, or of the error. */
  async value(payload: Uint8Array | string = "", head: Partial<CallHead> = {}): Promise<unknown> {
    return resultOf(await this.call(payload, head)) ?? null;
  }

  end(): Promise<unknown> {
    return this.process.end();
  }
}

/** The functions of a test. */
export class PythonFunctions {
  readonly #running: { end(): Promise<unknown> }[] = [];

  add(...processes: readonly { end(): Promise<unknown> }[]): void {
    this.#running.push(...processes);
  }

  readonly load = async (code: Code, head: Partial<BindHead> = {}): Promise<PythonFunction> => {
    const loaded = await PythonFunction.load(code, head);
    this.add(loaded);
    return loaded;
  };

  /** Loads a function that is expected to load. */
  readonly loaded = async (code: Code, head: Partial<BindHead> = {}): Promise<PythonFunction> => {
    const made = await this.load(code, head);
    expect(made.bound).toMatchObject({ ended: "answered", status: STATUS.returned });
    return made;
  };

  async end(): Promise<void> {
    await Promise.all(this.#running.splice(0).map((one) => one.end()));
  }
}
