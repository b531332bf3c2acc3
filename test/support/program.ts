/** The tree of commands of `hearth` for a test that runs none of them. */
import type { Command } from "commander";
import { buildProgram } from "../../src/cli/program.ts";

/** Stands for the session of a command: no command has one. */
export const start = (): never => {
  throw new Error("no command runs here");
};

export const makeProgram = (): Command => buildProgram("1.2.3", start);

/** Lists a command and all commands below it. */
export function commandsOf(command: Command): Command[] {
  return [command, ...command.commands.flatMap(commandsOf)];
}
