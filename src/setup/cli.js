#!/usr/bin/env node
/**
 * The `hearth` command for any Node: finds the project's own Node 24 and runs src/cli.ts with it; input, output,
 * signals and the exit code pass through.
 */
import { existsSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { keepCompiled } from "../installation/compile-cache.js";
import { NODE_PATH, PROJECT_DIR } from "../installation/paths.js";

const CLI = join(PROJECT_DIR, "src/cli.ts");
const SELF = fileURLToPath(import.meta.url);

if (!existsSync(NODE_PATH)) {
  process.stderr.write(`hearth is not set up yet: run 'npm start' in ${PROJECT_DIR} first\n`);
  process.exitCode = 1;
} else if (realpathSync(NODE_PATH) === realpathSync(process.execPath)) {
  // Under npx this is the right Node already: no second process.
  keepCompiled();
  await import(CLI);
} else {
  const { spawn } = await import("node:child_process");
  const child = spawn(NODE_PATH, [SELF, ...process.argv.slice(2)], { stdio: "inherit" });
  // A terminal sends SIGINT to the child itself.
  process.on("SIGINT", () => {});
  for (const signal of /** @type {const} */ (["SIGTERM", "SIGHUP"])) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    process.stderr.write(`hearth: ${NODE_PATH}: ${error.message}\n`);
    process.exitCode = 1;
  });
  child.on("close", (code, signal) => {
    if (signal === null) {
      process.exitCode = code ?? 1;
    } else {
      process.removeAllListeners(signal);
      process.kill(process.pid, signal);
    }
  });
}
