/**
 * The commands as a tree that commander parses, helps with and completion walks. Every verb takes the same flags for
 * where and how, and its help ends with an example and the exit codes.
 */
import { styleText } from "node:util";
import { Argument, Command, type CommanderError, Option } from "commander";
import { commandHint, flagHint } from "./docker-words.ts";
import { addHelp, addText } from "./help.ts";
import { EXIT_HELP, usage } from "./session/failure.ts";
import type { Flags, GlobalFlags, Start, Words } from "./session/session.ts";
import type { Flag, Group, Verb } from "./session/verb.ts";
import { ACCESS_VERBS } from "./verbs/access.ts";
import { CONTAINER_VERBS, CONTAINERS, SHARED_VERBS, TERMINALS } from "./verbs/containers.ts";
import { BENCH, COMPLETION, DAEMON_VERBS } from "./verbs/daemon.ts";
import { FUNCTION_VERBS } from "./verbs/functions.ts";
import { ICC, LEVELS } from "./verbs/icc.ts";
import { IMAGES, TOP_IMAGE_VERBS } from "./verbs/images.ts";
import { NAMES, NETWORKS } from "./verbs/networks.ts";
import { PROFILES } from "./verbs/profiles.ts";
import { SECRETS } from "./verbs/secrets.ts";
import { PUBLISH, SERVICES } from "./verbs/services.ts";
import { SNAPSHOTS } from "./verbs/snapshots.ts";
import { VOLUMES } from "./verbs/volumes.ts";

/** Flags of every verb. */
const EVERYWHERE: readonly Flag[] = [
  { flags: "--json", about: "print the API's response as JSON" },
  { flags: "--url <url>", about: "URL of the daemon (HEARTH_URL)" },
  { flags: "--key-file <file>", about: "file with an API key or access token, - for standard input (HEARTH_KEY)" },
  { flags: "--profile <name>", about: "saved URL and key (HEARTH_PROFILE)" },
];

/** Refused without being shown: every user of the machine can read the arguments of a process. */
const NO_KEY = new Option("--key <key>").hideHelp().argParser(() => {
  throw usage("--key would show the key to every user of this machine", "use --key-file <file>, or HEARTH_KEY");
});

/** What the words behind a verb are. */
const WORDS: Readonly<Record<string, string>> = {
  function: "name or id",
  container: "name or id",
  thing: "name or id of a function or a container",
  command: "the command and its arguments; put -- before a command that begins with a dash",
  snapshot: "id, or a name that only one snapshot has",
  "other-snapshot": "snapshot to compare with: id or name",
  volume: "name",
  secret: "name",
  "volume:path": "a volume and a path in it, for example data:/notes/a.txt",
  "new-name": "the new name",
  image: "reference or id of an image",
  reference: "reference of an image: alpine:3.20, registry.example.com/team/app:1",
  "new-reference": "the additional reference",
  filter: "a part of the reference",
  registry: "host of a registry as references name it: registry.example.com, 127.0.0.1:5000, docker.io",
  source: "a local path, - for a tar archive from standard input, or <name>:<path>",
  target: "a local path, - for a tar archive to standard output, or <name>:<path>",
  directory: "a folder with the files of the build; the current one if not given",
  folder: "a folder with hearth.toml; the current one if not given",
  "folder|function": "a folder with hearth.toml (the current one if not given), or the name or id of a function",
  file: "a file; - or nothing reads standard input",
  session: "id",
  port: "port in the container",
  service: "id, or a name that only one service has",
  name: "",
  address: "id or name of a container, or queue:<name> or topic:<name>",
  "msg-id": "id of a message",
  letter: "number of a dead letter",
  level: "highest permission level of messages that the container sends",
  payload: "the payload, as JSON or text; - to read it from standard input",
  invocation: "id of an invocation record",
  version: "version number",
  "other-version": "number of the version to compare with",
  email: "e-mail address of the user",
  tenant: "name or id",
  key: "id or name",
  operation: "id",
  profile: "name",
  "image-profile": "name of a profile of images: prod, rlm",
  channel: "latest or stable",
  release: "version of a release",
  "other-release": "version of the release to compare with",
  "new-profile": "name of the new profile",
  shell: "bash, zsh or fish",
  args: "flags of the benchmarks",
};

const ROOT_HELP = `A first function, on the daemon's machine:
  hearth init hello
  hearth deploy hello
  hearth invoke hello '{"name":"Ada"}'
`;

const ROOT_TEXT = `'hearth help settings' lists the settings of the daemon; 'hearth help limits' lists the limits.

hearth finds the daemon and the key in this order: --url and --key-file, or --profile; HEARTH_URL and HEARTH_KEY; the profile of HEARTH_PROFILE or the selected one; the daemon of this machine (http://127.0.0.1:8700, key file in HEARTH_DATA_DIR or /var/lib/hearth).
`;

function addFlags(command: Command, flags: readonly Flag[], group: string | null): void {
  for (const { flags: text, about, parse, choices } of flags) {
    const option = new Option(text, about);
    if (choices !== undefined) option.choices(choices);
    if (parse !== undefined) option.argParser(parse);
    if (group !== null) option.helpGroup(group);
    command.addOption(option);
  }
  if (flags === EVERYWHERE) command.addOption(NO_KEY);
}

/** Those of a verb and of the words before it; the last one counts. */
function globalFlags(command: Command): GlobalFlags {
  const before = command.parent === null ? {} : globalFlags(command.parent);
  const { json, url, keyFile, profile } = command.opts<GlobalFlags>();
  const given = Object.entries({ json, url, keyFile, profile }).filter(([, value]) => value !== undefined);
  return { ...before, ...Object.fromEntries(given) };
}

function addVerb(parent: Command, verb: Verb, start: Start): Command {
  const command = parent.command(verb.name).summary(verb.summary).description(sentence(verb.summary));
  if (verb.aliases !== undefined) command.aliases(verb.aliases);
  for (const word of verb.words ?? []) {
    const name = word.replace(/^[[<]|(\.\.\.)?[\]>]$/g, "");
    const argument = new Argument(word, WORDS[name]);
    if (name === "shell") argument.choices(["bash", "zsh", "fish"]);
    if (name === "level") argument.choices(LEVELS);
    command.addArgument(argument);
  }
  addFlags(command, verb.flags ?? [], null);
  if (verb.isPassThrough === true) command.allowUnknownOption().passThroughOptions();
  else addFlags(command, EVERYWHERE, "Global options:");
  if (verb.isCommand === true) command.passThroughOptions();
  if (verb.more_verbs !== undefined) command.enablePositionalOptions().helpCommand(false);
  for (const one of verb.more_verbs ?? []) addVerb(command, one, start);
  if (verb.more !== undefined) addText(command, `\n${verb.more}`);
  const examples = verb.examples.map((line) => `  ${line}`).join("\n");
  command.addHelpText("after", `\n${verb.examples.length > 1 ? "Examples" : "Example"}:\n${examples}\n`);
  addText(command, EXIT_HELP);
  boundUnknown(command, verb);
  command.exitOverride((error) => {
    refuseFlag(command, error);
    if (!WORDS_WRONG.has(error.code)) throw error;
    throw usage(
      // Without the words themselves: one may be a secret that stands there by mistake.
      error.message.replace(/^error: /, "").replace(/(but got \d+): .*$/s, "$1"),
      `usage: ${pathOf(command)} ${wordsOf(command).join(" ")}`.trimEnd(),
    );
  });
  return command.action(async (...given: unknown[]) => {
    const words = given.slice(0, -2).flat() as Words;
    const run = await verb.load();
    await run(start(globalFlags(command)), words, command.opts() as Flags);
  });
}

/**
 * Bounds what commander takes as unknown, which ends as help where -h is in it. Of a command of a container, that is the first
 * unknown flag alone: a -h behind it may be the command's. Of other verbs it is what stands before --.
 */
function boundUnknown(command: Command, verb: Verb): void {
  if (verb.isPassThrough === true || (verb.more_verbs ?? []).length > 0) return;
  const parseOptions = command.parseOptions.bind(command);
  command.parseOptions = (args) => {
    const { operands, unknown } = parseOptions(args);
    const [first, second] = unknown;
    const hint = first === "-h" ? flagHint(ownPath(command), first) : null;
    // `run -h web`: docker's -h has a value.
    if (hint !== null && second !== undefined && !second.startsWith("-")) throw usage("-h has no value", hint);
    const end = verb.isCommand === true ? 1 : unknown.indexOf("--");
    return { operands, unknown: end < 0 ? unknown : unknown.slice(0, end) };
  };
}

/** Throws the refusal of a flag that only docker has; nothing for other errors. Its value may be a secret, and is left out. */
function refuseFlag(command: Command, { code, message }: CommanderError): void {
  if (code !== "commander.unknownOption") return;
  const [, flag = ""] = /^error: unknown option '(-[^-]|--[^='\s]+)/.exec(message) ?? [];
  const hint = flagHint(ownPath(command), flag);
  if (hint !== null) throw usage(`unknown option '${flag}'`, hint);
}

/** Throws the error, or in its place the refusal of a command that only docker has. */
function refuseCommand(command: Command, error: CommanderError): never {
  const [, word = ""] = /^error: unknown command '([^']*)'/.exec(error.message) ?? [];
  const hint = error.code === "commander.unknownCommand" ? commandHint(`${ownPath(command)} ${word}`.trim()) : null;
  throw hint === null ? error : usage(`unknown command '${word}'`, hint);
}

/** Codes of commander for words that are missing or too many: then the words that there may be help most. */
const WORDS_WRONG: ReadonlySet<string> = new Set(["commander.missingArgument", "commander.excessArguments"]);

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** Without the program's own name. */
const ownPath = (command: Command) => pathOf(command).split(" ").slice(1).join(" ");

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

function addGroup(parent: Command, group: Group, start: Start): Command {
  const command = parent.command(group.name).summary(group.summary).description(sentence(group.summary));
  if (group.aliases !== undefined) command.aliases(group.aliases);
  command.helpCommand(false);
  command.exitOverride((error) => refuseCommand(command, error));
  configure(command);
  for (const one of group.verbs) add(command, one, start);
  return command;
}

function add(parent: Command, one: Verb | Group, start: Start): Command {
  return "verbs" in one ? addGroup(parent, one, start) : addVerb(parent, one, start);
}

function wordsOf(command: Command): string[] {
  return command.registeredArguments.map((argument) => {
    const name = `${argument.name()}${argument.variadic ? "..." : ""}`;
    return argument.required ? `<${name}>` : `[${name}]`;
  });
}

/** Flags may stand before the verb too; those behind it are the verb's. */
function configure(command: Command): void {
  command.enablePositionalOptions();
  addFlags(command, EVERYWHERE, "Global options:");
}

export function buildProgram(version: string, start: Start): Command {
  const program = new Command("hearth");
  // Failures are thrown, and told in one place. All of these are inherited by what is added.
  program
    .exitOverride((error) => refuseCommand(program, error))
    .addHelpOption(new Option("-h, --help", "show the help of a command").helpGroup("Global options:"))
    .configureOutput({ outputError: () => {} })
    .configureHelp({
      styleTitle: (title) => styleText("bold", title, { validateStream: false }),
      // Without the "[options]" that each of them has.
      subcommandTerm: (command) => [[command.name(), ...command.aliases()].join("|"), ...wordsOf(command)].join(" "),
    });
  program
    .description(
      "hearth runs functions in warm containers, and long-lived containers. This command is a client of its API.",
    )
    .version(version);
  configure(program);
  program.addHelpText("after", `\n${ROOT_HELP}`);
  addText(program, `${ROOT_TEXT}${EXIT_HELP}`);
  program.commandsGroup("Functions (also as 'hearth functions …' and 'hearth fn …'):");
  for (const verb of FUNCTION_VERBS) addVerb(program, SHARED_VERBS[verb.name] ?? verb, start);
  program.commandsGroup("Containers (also as 'hearth containers …' and 'hearth ctr …'):");
  for (const verb of [...CONTAINER_VERBS, PUBLISH]) addVerb(program, verb, start);
  program.commandsGroup("Images (also as 'hearth image …'):");
  for (const verb of TOP_IMAGE_VERBS) addVerb(program, verb, start);
  program.commandsGroup("Other commands:");
  const functions = {
    name: "functions",
    aliases: ["fn"],
    summary: "function commands, the same as above",
    verbs: FUNCTION_VERBS,
  };
  addGroup(program, functions, start);
  addGroup(program, CONTAINERS, start);
  addGroup(program, IMAGES, start);
  addGroup(program, PROFILES, start);
  addGroup(program, SNAPSHOTS, start);
  addGroup(program, VOLUMES, start);
  addGroup(program, NETWORKS, start);
  addGroup(program, NAMES, start);
  addGroup(program, SECRETS, start);
  addGroup(program, SERVICES, start);
  addGroup(program, ICC, start);
  addGroup(program, TERMINALS, start);
  addHelp(program);
  for (const one of [...DAEMON_VERBS, ...ACCESS_VERBS, COMPLETION, BENCH]) add(program, one, start);
  program
    .command("__complete", { hidden: true })
    .argument("[words...]")
    .allowUnknownOption()
    .passThroughOptions()
    .action(async (words: readonly string[]) => {
      const { candidates } = await import("./completion.ts");
      for (const line of await candidates(program, words, start)) process.stdout.write(`${line}\n`);
    });
  return program;
}
