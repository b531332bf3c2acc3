/**
 * System-call filters as ready BPF, a file for each set of capabilities. The OCI runtime compiles the rules once, which
 * takes milliseconds; every start after that gets the result. A runtime that takes rules only gets them each time.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import type { OciRuntime } from "./runtime.ts";
import { loadSeccomp, type OciSeccomp, seccompKey } from "./seccomp.ts";

/** Rules for the runtime to compile, or ready BPF in base 64. */
export type Filter = { readonly rules: OciSeccomp } | { readonly bpf_base64: string };

export class Filters {
  readonly #directory: string;
  readonly #runtime: OciRuntime;

  constructor(directory: string, runtime: OciRuntime) {
    this.#directory = directory;
    this.#runtime = runtime;
  }

  /** The rules themselves, for processes with these capabilities (`CAP_…`). */
  rules(capabilities: readonly string[]): Filter {
    return { rules: loadSeccomp(process.arch, capabilities) };
  }

  /** The compiled filter, where one for these rules was kept. */
  kept(capabilities: readonly string[]): Filter | null {
    const file = this.#file(capabilities);
    if (file === null || !existsSync(file)) return null;
    return { bpf_base64: readFileSync(file).toString("base64") };
  }

  /** True if later starts can use what the runtime compiles. */
  get areKept(): boolean {
    return this.#runtime.takesBpf;
  }

  /** Keeps what the runtime compiled. */
  keep(capabilities: readonly string[], bpf: Buffer): Filter {
    const file = this.#file(capabilities);
    if (file !== null) {
      mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
      writeFileSync(`${file}.new`, bpf, { flush: true });
      renameSync(`${file}.new`, file);
    }
    return { bpf_base64: bpf.toString("base64") };
  }

  /** Has the filter compiled again: what was kept does not work. */
  drop(capabilities: readonly string[]): void {
    const file = this.#file(capabilities);
    if (file !== null) rmSync(file, { force: true });
  }

  /** Null when the runtime takes rules only. */
  #file(capabilities: readonly string[]): string | null {
    if (!this.#runtime.takesBpf) return null;
    const key = seccompKey(loadSeccomp(process.arch, capabilities), this.#runtime.version);
    return `${this.#directory}/seccomp-${key}.bpf`;
  }
}
