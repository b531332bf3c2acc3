import { readFileSync } from "node:fs";
import { join } from "node:path";
import { PROJECT_DIR } from "../../src/installation/paths.js";

/** Flags of Node in `npm start`: tests and benches start the daemon that users run. */
export const START_FLAGS: readonly string[] = startFlags();

function startFlags(): readonly string[] {
  const text = readFileSync(join(PROJECT_DIR, "src/setup/start.sh"), "utf8");
  const [, flags] = /\.bin\/node((?: --\S+)*) src\/main\.js/.exec(text) ?? [];
  if (flags === undefined) throw new Error("src/setup/start.sh starts no src/main.js");
  return flags.split(" ").filter((flag) => flag !== "");
}
