/** The `hearth` command: its words to src/cli/main.ts, which does the rest. src/setup/cli.js is what a shell starts. */
import { main } from "./cli/main.ts";

await main(process.argv.slice(2));
