/** API containers of a daemon under test: the few things that every test of them asks for. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type Daemon, eventually } from "./daemon.ts";

// biome-ignore lint/suspicious/noExplicitAny: records as they came.
type Json = any;

export interface LogLine {
  readonly seq: number;
  readonly stream: string;
  readonly message: string;
}

export class ContainerUser {
  readonly #daemon: Daemon;

  constructor(daemon: Daemon) {
    this.#daemon = daemon;
  }

  /** Its record. Throws unless it was made. */
  async create(fields: { readonly name: string } & Record<string, unknown>): Promise<Json> {
    const { status, body } = await this.#daemon.call("POST", "/api/containers", fields);
    if (status !== 201) throw new Error(`create answered ${status}: ${JSON.stringify(body)}`);
    return body;
  }

  async get(id: string): Promise<Json> {
    return (await this.#daemon.call("GET", `/api/containers/${id}`)).body;
  }

  /** Waits until a record is as it should be. */
  async until(id: string, what: string, isSo: (record: Json) => boolean): Promise<Json> {
    return eventually(`${id}: ${what}`, async () => {
      const record = await this.get(id);
      return isSo(record) ? record : null;
    });
  }

  async exec(id: string, command: readonly string[], more: object = {}): Promise<Json> {
    const { status, body } = await this.#daemon.call("POST", `/api/containers/${id}/exec`, { command, ...more });
    if (status !== 200) throw new Error(`exec answered ${status}: ${JSON.stringify(body)}`);
    return body;
  }

  /** What a shell line printed, on both streams. */
  async shell(id: string, line: string, more: object = {}): Promise<string> {
    const { stdout, stderr } = await this.exec(id, ["sh", "-c", line], more);
    return stdout + stderr;
  }

  /** What Python statements printed, on both streams. */
  async python(id: string, code: string, more: object = {}): Promise<string> {
    const { stdout, stderr } = await this.exec(id, ["python3", "-"], { stdin_data: code, ...more });
    return stdout + stderr;
  }

  /** The newest so many lines of its command, oldest first. */
  async logs(id: string, limit = 10_000): Promise<LogLine[]> {
    return (await this.#daemon.call("GET", `/api/containers/${id}/logs?limit=${limit}`)).body.logs;
  }

  async delete(...ids: readonly string[]): Promise<void> {
    for (const id of ids) {
      const { status, body } = await this.#daemon.call("DELETE", `/api/containers/${id}`);
      if (status !== 200) throw new Error(`delete answered ${status}: ${JSON.stringify(body)}`);
    }
  }
}

/** What tells a process from every other there was on this machine: its pid and when it was started (proc_pid_stat(5)). */
export function identityOf(pid: number): string {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return `${pid} ${stat.slice(stat.lastIndexOf(")")).split(" ")[20]}`;
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Processes on this machine, with their arguments. */
export function commandLines(): { pid: number; args: string[] }[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return [{ pid: Number(pid), args: readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0") }];
      } catch {
        // It ended while we looked.
        return [];
      }
    });
}

/** A directory of this machine with a secret, which no process in a container may read or change. */
export class HostSecret {
  readonly directory: string;
  readonly text: string;

  constructor({ tag }: Daemon) {
    this.directory = `/var/tmp/hearth-host-${tag}`;
    this.text = `secret-of-the-host-${tag}`;
  }

  make(): void {
    mkdirSync(this.directory, { mode: 0o777 });
    writeFileSync(`${this.directory}/secret`, this.text);
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}
