/** The command line from its words to its exit code. Nothing that it does not need for them is loaded. */
import { systemClock } from "../base/clock.ts";
import { Terminal } from "./output/terminal.ts";
import { packageVersion } from "./package-version.ts";
import { EXIT } from "./session/failure.ts";
import type { Session } from "./session/session.ts";
import { readEnvironment } from "./session/target.ts";

export async function main(args: readonly string[]): Promise<void> {
  if (args.length === 1 && (args[0] === "--version" || args[0] === "-V")) {
    process.stdout.write(`${packageVersion()}\n`);
    return;
  }
  const environment = readEnvironment();
  const clock = systemClock;
  const { stdout, stderr } = process;
  const terminal = new Terminal({ stdout, stderr, clock, isDumb: environment.isDumbTerminal });
  const state: { session: Session | null } = { session: null };
  process.on("SIGINT", () => {
    const exit_code = state.session === null ? EXIT.interrupted : state.session.interrupt_exit_code;
    if (exit_code !== null) process.exit(exit_code);
  });
  process.on("exit", () => terminal.restore());
  const [{ buildProgram }, { Session }] = await Promise.all([import("./program.ts"), import("./session/session.ts")]);
  const program = buildProgram(packageVersion(), (flags) => {
    state.session = new Session({ terminal, clock, environment, flags });
    return state.session;
  });
  try {
    if (args.length === 0) program.outputHelp();
    else await program.parseAsync(args, { from: "user" });
  } catch (error) {
    const { report } = await import("./report.ts");
    process.exitCode = await report(error, state.session, terminal, isJson(args));
  }
}

/** Also where the words could not be parsed. */
function isJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return args.slice(0, end < 0 ? args.length : end).includes("--json");
}
