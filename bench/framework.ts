/**
 * A peer of the bench of functions with code: Google's functions-framework, which serves an exported function over HTTP in one
 * process. It brings more than a hundred packages, so it is no dependency of the project: it is installed for a run into a
 * temporary folder, at one version, without install scripts. That needs the npm registry; without it the peer is missing.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { NODE_PATH, PROJECT_DIR } from "../src/installation/paths.js";
import { until } from "./clock.ts";
import { freePort, temporaryDirectory } from "./daemon.ts";
import { Connection } from "./http.ts";

const PACKAGE = "@google-cloud/functions-framework";
const VERSION = "5.0.5";
const INSTALL_TIMEOUT_MS = 120_000;
const START_TIMEOUT_MS = 20_000;
const POLL_MS = 20;

export class Framework {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** Installs the peer. Resolves to the reason if that fails. */
  static async install(): Promise<Framework | string> {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, "package.json"), '{ "type": "module", "main": "index.js" }\n');
    writeFileSync(
      join(directory, "index.js"),
      "export const echo = (request, response) => response.json(request.body);\n",
    );
    const npm = join(PROJECT_DIR, "node_modules/npm/bin/npm-cli.js");
    const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--save-exact"];
    try {
      await promisify(execFile)(NODE_PATH, [npm, "install", ...flags, `${PACKAGE}@${VERSION}`], {
        cwd: directory,
        timeout: INSTALL_TIMEOUT_MS,
      });
      return new Framework(directory);
    } catch (error) {
      rmSync(directory, { recursive: true, force: true });
      const reason = String((error as { stderr?: string }).stderr ?? error)
        .trim()
        .split("\n")
        .at(0);
      return `${PACKAGE} ${VERSION} could not be installed from the npm registry: ${reason}`;
    }
  }

  /** Starts it in a fresh process and runs `body` with its port. */
  async serve(body: (port: number) => Promise<void>): Promise<void> {
    const port = await freePort();
    const bin = join(this.#directory, "node_modules", PACKAGE, "build/src/main.js");
    const child = spawn(NODE_PATH, [bin, "--target=echo", `--source=${this.#directory}`, `--port=${port}`], {
      stdio: ["ignore", "ignore", "inherit"],
      env: { ...process.env, NODE_ENV: "production" },
    });
    try {
      const what = (): string => "functions-framework gets ready";
      await until(() => connected(child, port), { poll_ms: POLL_MS, deadline_ms: START_TIMEOUT_MS, what });
      await body(port);
    } finally {
      const gone = new Promise((resolve) => child.once("exit", resolve));
      if (child.exitCode === null) {
        child.kill("SIGKILL");
        await gone;
      }
    }
  }

  remove(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

async function connected(child: ChildProcess, port: number): Promise<true | null> {
  if (child.exitCode !== null) throw new Error(`functions-framework exited with ${child.exitCode}`);
  try {
    (await Connection.open(port)).close();
    return true;
  } catch {
    return null;
  }
}
