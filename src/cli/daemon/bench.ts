/** `hearth bench`: the measurements of the checkout that this command is part of, as `npm run bench` runs them. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { usage } from "../session/failure.ts";
import type { Session, Words } from "../session/session.ts";

const CHECKOUT = fileURLToPath(new URL("../../..", import.meta.url));

export async function bench(session: Session, words: Words): Promise<void> {
  if (!existsSync(join(CHECKOUT, "bench/index.ts"))) throw usage(`no bench folder in ${CHECKOUT}`);
  // Ctrl-C reaches npm by itself; how that ends is how this ends.
  session.interrupt_exit_code = null;
  const args = ["run", "--silent", "bench", "--", ...words.filter((word) => word !== undefined)];
  const child = spawn("npm", args, { cwd: CHECKOUT, stdio: "inherit" });
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  child.on("error", (error) => reject(usage(`cannot run npm: ${error.message}`)));
  child.on("close", (code, signal) => resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])));
  process.exitCode = await promise;
}
