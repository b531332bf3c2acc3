/** A nats-server of Debian on a free port of loopback, with JetStream in a temporary directory. Ended by its pid. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sleep, systemClock } from "../../src/base/clock.ts";

const READY_TIMEOUT_MS = 20_000;

export interface NatsOptions {
  /** Further lines of the configuration. */
  readonly configuration?: string;
}

export class TestNatsServer {
  readonly port: number;
  readonly directory: string;
  readonly #configuration: string;
  #child: ChildProcess | null = null;

  private constructor(port: number, directory: string, configuration: string) {
    this.port = port;
    this.directory = directory;
    this.#configuration = configuration;
  }

  static async start({ configuration = "" }: NatsOptions = {}): Promise<TestNatsServer> {
    const directory = mkdtempSync(join(tmpdir(), "hearth-nats-"));
    const server = new TestNatsServer(await freePort(), directory, configuration);
    await server.start();
    return server;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Starts it, on the state that an earlier start left. */
  async start(): Promise<void> {
    const file = join(this.directory, "nats.conf");
    writeFileSync(
      file,
      `listen: "127.0.0.1:${this.port}"\njetstream: { store_dir: "${this.directory}/store" }\n${this.#configuration}\n`,
    );
    this.#child = spawn("nats-server", ["-c", file, "-l", join(this.directory, "nats.log")], { stdio: "ignore" });
    const deadline_ms = performance.now() + READY_TIMEOUT_MS;
    while (!(await isListening(this.port))) {
      if (performance.now() > deadline_ms) throw new Error("nats-server does not listen");
      await sleep(systemClock, 20);
    }
  }

  /** SIGKILL, unless another signal is named. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  }

  /** Stops it for a while: connections stay open, and nothing answers. */
  async pause(): Promise<void> {
    this.#child?.kill("SIGSTOP");
    while (!/ T /.test(readFileSync(`/proc/${this.pid}/stat`, "utf8"))) await sleep(systemClock, 1);
  }

  resume(): void {
    this.#child?.kill("SIGCONT");
  }

  async stop(): Promise<void> {
    this.resume();
    await this.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("data", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
