/**
 * Instructions of a build file, typed and checked for their form. Words are as written: stages.ts replaces variables in them.
 *
 * I1. What is not supported is refused with the number of its line. Nothing is passed over in silence but MAINTAINER.
 */
import {
  documentOf,
  type Flag,
  type HereDocument,
  invalidLine,
  jsonOf,
  type RawInstruction,
  readBuildFile,
  splitWords,
} from "./build-file.ts";
import { isUrl, remoteFile } from "./downloads.ts";
import { checkNested, isFixed, type MountText, mountText, runMount } from "./mounts.ts";

/** A command as arguments, or as a line for the stage's shell. */
export type Command = { readonly argv: readonly string[] } | { readonly line: string };

/** A file with an interpreter in its first line, which is run itself. */
export interface Script {
  readonly script: string;
}

export interface Pair {
  readonly name: string;
  readonly value: string;
}

export interface CopyInstruction {
  readonly kind: "copy";
  readonly keyword: "COPY" | "ADD";
  /** Name or number of a stage, or an image; null: the context. */
  readonly from: string | null;
  readonly sources: readonly string[];
  readonly documents: readonly HereDocument[];
  readonly target: string;
  readonly owner: string | null;
  readonly mode: string | null;
  /** Links on the way to the target are replaced by directories. */
  readonly is_link: boolean;
  /** Sources keep the directories of their path. */
  readonly has_parents: boolean;
  /** Patterns of what is left out. */
  readonly excludes: readonly string[];
  /** Of a file of a URL, as written; null: any. */
  readonly checksum: string | null;
  /** Archives are unpacked; null: those of the context. */
  readonly is_unpacked: boolean | null;
}

export interface RunInstruction {
  readonly kind: "run";
  readonly command: Command | Script;
  readonly mounts: readonly MountText[];
  readonly has_network: boolean;
}

type Meaning =
  | { readonly kind: "from"; readonly base: string; readonly name: string | null; readonly platform: string | null }
  | { readonly kind: "arg"; readonly entries: readonly { readonly name: string; readonly value: string | null }[] }
  | { readonly kind: "env" | "label"; readonly pairs: readonly Pair[] }
  | RunInstruction
  | CopyInstruction
  | { readonly kind: "workdir" | "user" | "stopsignal"; readonly value: string }
  | { readonly kind: "cmd" | "entrypoint"; readonly command: Command }
  | { readonly kind: "shell"; readonly argv: readonly string[] }
  | { readonly kind: "expose" | "volume"; readonly words: readonly string[] }
  | { readonly kind: "healthcheck"; readonly command: Command | null; readonly flags: readonly Flag[] }
  | { readonly kind: "onbuild"; readonly trigger: string }
  | { readonly kind: "none" };

export type Instruction = Meaning & {
  readonly line: number;
  /** For messages and the history of the image: the instruction on one line. */
  readonly text: string;
};

const STAGE_NAME = /^[a-z][a-z0-9._-]*$/;
const VARIABLE = /^[A-Za-z_]\w*$/;

/** Throws INVALID_ARGUMENT. */
export function instructionOf(raw: RawInstruction, escape_char: string): Instruction {
  const parse = PARSERS[raw.keyword];
  if (parse === undefined) throw invalidLine(raw.line, `unknown instruction: ${raw.keyword.slice(0, 40)}`);
  if (raw.text === "" && raw.documents.length === 0) throw invalidLine(raw.line, `${raw.keyword} has no arguments`);
  const meaning = parse(raw, escape_char);
  const flags = raw.flags.map(({ name, value }) => `--${name}${value === null ? "" : `=${value}`}`);
  return { ...meaning, line: raw.line, text: [raw.keyword, ...flags, raw.text].join(" ") };
}

const PARSERS: Readonly<Record<string, (raw: RawInstruction, escape_char: string) => Meaning>> = {
  FROM: from,
  ARG: arg,
  ENV: (raw, escape_char) => ({ kind: "env", pairs: pairs(raw, escape_char) }),
  LABEL: (raw, escape_char) => ({ kind: "label", pairs: pairs(raw, escape_char) }),
  RUN: run,
  COPY: copy,
  ADD: copy,
  WORKDIR: ({ text }) => ({ kind: "workdir", value: text }),
  USER: ({ text }) => ({ kind: "user", value: text }),
  STOPSIGNAL: ({ text }) => ({ kind: "stopsignal", value: text }),
  CMD: (raw) => ({ kind: "cmd", command: commandOf(raw.text) }),
  ENTRYPOINT: (raw) => ({ kind: "entrypoint", command: commandOf(raw.text) }),
  SHELL: (raw) => ({ kind: "shell", argv: jsonWords(raw) }),
  EXPOSE: ({ text }, escape_char) => ({ kind: "expose", words: splitWords(text, escape_char) }),
  VOLUME: ({ text }, escape_char) => ({ kind: "volume", words: jsonOf(text) ?? splitWords(text, escape_char) }),
  HEALTHCHECK: healthcheck,
  MAINTAINER: () => ({ kind: "none" }),
  ONBUILD: ({ text, line }, escape_char) => {
    triggered(text, escape_char, line);
    return { kind: "onbuild", trigger: text };
  },
};
const NO_TRIGGERS = new Set(["FROM", "MAINTAINER", "ONBUILD"]);

/** The instruction of a trigger, at the line of the instruction that it belongs to. Throws INVALID_ARGUMENT. */
export function triggered(trigger: string, escape_char: string, line: number): Instruction {
  const [raw, ...others] = readBuildFile(trigger).instructions;
  if (raw === undefined || others.length > 0) throw invalidLine(line, "ONBUILD needs one instruction");
  if (NO_TRIGGERS.has(raw.keyword)) throw invalidLine(line, `ONBUILD must not have ${raw.keyword}`);
  return instructionOf({ ...raw, line }, escape_char);
}

function jsonWords({ keyword, text, line }: RawInstruction): string[] {
  const words = jsonOf(text);
  if (words === null || words.length === 0) throw invalidLine(line, `${keyword} needs a JSON list of texts`);
  return words;
}

function commandOf(text: string): Command {
  const argv = jsonOf(text);
  return argv === null ? { line: text } : { argv };
}

const SWITCHES = new Set(["link", "parents", "unpack", "keep-git-dir"]);

function switched({ keyword, line }: RawInstruction, name: string, value: string): string {
  if (value === "true" || value === "false") return value;
  throw invalidLine(line, `${keyword} --${name} must be true or false: '${value.slice(0, 40)}'`);
}

function flagsOf<Name extends string>(raw: RawInstruction, known: readonly Name[]): Partial<Record<Name, string>> {
  const found: Partial<Record<Name, string>> = {};
  for (const { name, value } of raw.flags) {
    const key = known.find((one) => one === name);
    if (key === undefined) throw invalidLine(raw.line, `${raw.keyword} --${name} is not supported`);
    if (found[key] !== undefined) throw invalidLine(raw.line, `duplicate flag: ${raw.keyword} --${name}`);
    found[key] = SWITCHES.has(name) ? switched(raw, name, value ?? "true") : (value ?? "");
    if (found[key] === "") throw invalidLine(raw.line, `${raw.keyword} --${name} needs a value`);
  }
  return found;
}

function from(raw: RawInstruction, escape_char: string): Meaning {
  const { platform = null } = flagsOf(raw, ["platform"]);
  const [base = "", as, name = null, ...rest] = splitWords(raw.text, escape_char);
  if (rest.length > 0 || (as !== undefined && (as.toUpperCase() !== "AS" || name === null))) {
    throw invalidLine(raw.line, "malformed FROM (expected FROM image [AS name])");
  }
  const stage = name?.toLowerCase() ?? null;
  if (stage !== null && !STAGE_NAME.test(stage)) throw invalidLine(raw.line, `malformed name of a stage: '${name}'`);
  return { kind: "from", base, name: stage, platform };
}

function arg({ text, line }: RawInstruction, escape_char: string): Meaning {
  const entries = splitWords(text, escape_char).map((word) => {
    const at = word.indexOf("=");
    const name = at < 0 ? word : word.slice(0, at);
    if (!VARIABLE.test(name)) throw invalidLine(line, `malformed name of an argument: '${name.slice(0, 100)}'`);
    return { name, value: at < 0 ? null : word.slice(at + 1) };
  });
  return { kind: "arg", entries };
}

/** `name=value …`, or the old form `name the rest`. */
function pairs({ keyword, text, line }: RawInstruction, escape_char: string): Pair[] {
  const words = splitWords(text, escape_char);
  const [first = ""] = words;
  if (!first.includes("=")) {
    const value = text.slice(first.length).trim();
    if (value === "") throw invalidLine(line, `${keyword} needs name=value`);
    return [{ name: first, value }];
  }
  return words.map((word) => {
    const at = word.indexOf("=");
    if (at <= 0) throw invalidLine(line, `${keyword} needs name=value: '${word.slice(0, 100)}'`);
    return { name: word.slice(0, at), value: word.slice(at + 1) };
  });
}

function run(raw: RawInstruction, escape_char: string): Meaning {
  const mounts: MountText[] = [];
  let has_network = true;
  for (const { name, value } of raw.flags) {
    if (name === "mount" && value !== null) {
      mounts.push(mountText(value, raw.line));
    } else if (name === "network" && (value === "none" || value === "default")) {
      has_network = value === "default";
    } else if (name === "security" && value === "sandbox") {
      // What every command has.
    } else {
      throw invalidLine(raw.line, `RUN --${name}${value === null ? "" : `=${value}`} is not supported`);
    }
  }
  const given = { expand: (text: string) => text, working_directory: "/", line: raw.line };
  const fixed = mounts.filter(isFixed).map((mount) => runMount(mount, given));
  checkNested(fixed, raw.line);
  return { kind: "run", command: runCommand(raw, escape_char), mounts, has_network };
}

/** A here-document alone is the script; behind a command it stays what the shell reads. */
function runCommand({ text, documents, line }: RawInstruction, escape_char: string): Command | Script {
  const [first] = documents;
  if (first === undefined) {
    const command = commandOf(text);
    if ("argv" in command && command.argv.length === 0) throw invalidLine(line, "RUN has no command");
    return command;
  }
  if (documents.length > 1 || splitWords(text, escape_char).length > 1) {
    return { line: [text, ...documents.flatMap(({ lines }) => lines)].join("\n") };
  }
  return first.content.startsWith("#!") ? { script: first.content } : { line: first.content };
}

function copy(raw: RawInstruction, escape_char: string): Meaning {
  const keyword = raw.keyword === "ADD" ? "ADD" : "COPY";
  const excludes = raw.flags.flatMap(({ name, value }) => (name === "exclude" && value ? [value] : []));
  const plain = { ...raw, flags: raw.flags.filter(({ name, value }) => name !== "exclude" || !value) };
  const known =
    keyword === "ADD"
      ? (["chown", "chmod", "link", "checksum", "unpack", "keep-git-dir"] as const)
      : (["from", "chown", "chmod", "link", "parents"] as const);
  const flags: Partial<Record<(typeof COPY_FLAGS)[number], string>> = flagsOf(plain, known);
  if (flags["keep-git-dir"] === "true")
    throw invalidLine(raw.line, "ADD --keep-git-dir=true is not supported: ADD takes the files of a commit alone");
  const words = jsonOf(raw.text) ?? splitWords(raw.text, escape_char);
  const target = words.at(-1);
  if (target === undefined || words.length < 2) throw invalidLine(raw.line, `${keyword} needs a source and a target`);
  const sources = words.slice(0, -1).filter((word) => raw.documents.length === 0 || documentOf(word) === null);
  const plain_urls = sources.filter((source) => keyword === "ADD" && isUrl(source) && !source.includes("$"));
  for (const url of plain_urls) remoteFile(url, null, (why) => invalidLine(raw.line, why));
  const { from = null, chown: owner = null, chmod: mode = null, checksum = null } = flags;
  const [is_link, has_parents] = [flags.link === "true", flags.parents === "true"];
  const is_unpacked = flags.unpack === undefined ? null : flags.unpack === "true";
  const options = { owner, mode, is_link, has_parents, excludes, checksum, is_unpacked };
  return { kind: "copy", keyword, from, sources, documents: raw.documents, target, ...options };
}

const COPY_FLAGS = ["from", "chown", "chmod", "link", "parents", "checksum", "unpack", "keep-git-dir"] as const;

const HEALTH_FLAGS = ["interval", "timeout", "start-period", "start-interval", "retries"] as const;

function healthcheck(raw: RawInstruction): Meaning {
  flagsOf(raw, HEALTH_FLAGS);
  const [, kind = "", rest = ""] = /^(\S+)\s*([\s\S]*)$/.exec(raw.text) ?? [];
  if (kind.toUpperCase() === "NONE" && rest === "") return { kind: "healthcheck", command: null, flags: [] };
  if (kind.toUpperCase() !== "CMD" || rest === "") throw invalidLine(raw.line, "HEALTHCHECK needs CMD or NONE");
  return { kind: "healthcheck", command: commandOf(rest), flags: raw.flags };
}
