/** `hearth help`: the help of a command, and the settings and limits of the daemon, printed from where they are enforced. */
import type { Command } from "commander";
import { EXIT_HELP, usage } from "./session/failure.ts";

/** Texts beside the help of commands, each with its summary. */
const TOPICS: Readonly<Record<string, { readonly about: string; readonly text: () => Promise<string> }>> = {
  settings: {
    about: "settings of the daemon",
    text: async () => (await import("../base/settings.ts")).settingsText(),
  },
  limits: {
    about: "limits of the daemon and of tenants",
    text: async () => (await import("../base/limit-texts.ts")).limitsText(),
  },
};

/** Returns what `hearth help` accepts: the texts, then the commands, each with its summary. */
export function helpTopics(program: Command): [name: string, about: string][] {
  const commands = program.createHelp().visibleCommands(program);
  return [
    ...Object.entries(TOPICS).map(([name, { about }]): [string, string] => [name, about]),
    ...commands
      .filter((one) => TOPICS[one.name()] === undefined)
      .map((one): [string, string] => [one.name(), one.summary()]),
  ];
}

/** Columns of help texts without a terminal; commander's own. */
const HELP_WIDTH = 80;

/** Adds the command `help`, which takes the place of commander's own. */
export function addHelp(program: Command): void {
  program.helpCommand(false);
  const help = program
    .command("help")
    .summary("show a command, the settings or the limits")
    .description("Show the help of a command, the settings of the daemon, or the limits.")
    .argument("[topic...]", "a command, 'settings' or 'limits'")
    .addHelpText("after", "\nExamples:\n  hearth help invoke\n  hearth help settings\n  hearth help limits\n")
    .action(async (words: readonly string[]) => {
      const topic = words.length === 1 ? TOPICS[words[0] ?? ""] : undefined;
      if (topic !== undefined) process.stdout.write(await topic.text());
      else commandOf(program, words).outputHelp();
    });
  addText(help, EXIT_HELP);
}

/** Adds sentences below the help of a command, wrapped like it. */
export function addText(command: Command, text: string): void {
  command.addHelpText("after", () => {
    const help = command.createHelp();
    return help.boxWrap(text, command.configureOutput().getOutHelpWidth?.() ?? HELP_WIDTH);
  });
}

function commandOf(program: Command, words: readonly string[]): Command {
  return words.reduce((at, word) => {
    const found = at.commands.find((one) => one.name() === word || one.aliases().includes(word));
    if (found === undefined) {
      throw usage(`unknown help topic: '${words.join(" ")}'`, "hearth --help lists the commands");
    }
    return found;
  }, program);
}
