/**
 * Completion of commands. What a shell loads is a few lines that ask `hearth __complete <words…>` for what may stand
 * where the cursor is; it walks the tree of commands, so there is no second list of them. Names of functions and
 * tenants are asked of the API, within a second; where nothing answers there are none.
 *
 * An answer is a line for each candidate, `<word>\t<what it is>`; `:file` as the first line stands for the shell's own
 * files, beside those.
 */
import type { Command, Option } from "commander";
import { helpTopics } from "./help.ts";
import { visible } from "./output/text.ts";
import { usage } from "./session/failure.ts";
import type { Session, Start, Words } from "./session/session.ts";
import { profilesOf } from "./session/target.ts";

const FILES = ":file";

const BASH = `_hearth() {
  local IFS=$'\\n' line
  local -a found=()
  mapfile -t found < <(hearth __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=()
  if [[ \${found[0]} == ${FILES} ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "\${COMP_WORDS[COMP_CWORD]}")
    compopt -o filenames
    found=("\${found[@]:1}")
    ((\${#found[@]})) && compopt -o nospace
  fi
  for line in "\${found[@]}"; do COMPREPLY+=("$(printf %q "\${line%%$'\\t'*}")"); done
}
complete -F _hearth hearth
`;

const ZSH = `#compdef hearth
_hearth() {
  local line
  local -a found names
  found=("\${(@f)$(hearth __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  local -a ending
  if [[ \${found[1]} == ${FILES} ]]; then
    _files
    shift found
    ending=(-S '')
  fi
  for line in "\${found[@]}"; do
    [[ -n $line ]] && names+=("\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}")
  done
  _describe hearth names $ending
}
compdef _hearth hearth
`;

const FISH = `function __hearth_complete
  set -l before (commandline -opc)
  set -l found (hearth __complete -- $before[2..-1] (commandline -ct) 2>/dev/null)
  if test "$found[1]" = ${FILES}
    __fish_complete_path (commandline -ct)
    set -e found[1]
  end
  test (count $found) -gt 0; and printf '%s\\n' $found
end
complete -c hearth -f -a '(__hearth_complete)'
`;

const SHELLS: Readonly<Record<string, string>> = { bash: BASH, zsh: ZSH, fish: FISH };

export async function completion(session: Session, [shell = ""]: Words): Promise<void> {
  const script = SHELLS[shell];
  if (script === undefined) throw usage(`unsupported shell: '${shell}'`, "use bash, zsh or fish");
  session.terminal.out(script);
}

interface Place {
  readonly command: Command;
  /** The flag whose value stands at the cursor; null: a word or a flag does. */
  readonly option: Option | null;
  /** Words behind the verb, before the cursor. */
  readonly words_count: number;
  /** Whether `--` was given: no flags any more. */
  readonly isAfterFlags: boolean;
  /** Values of flags so far, for where to ask. */
  readonly given: Readonly<Record<string, string>>;
}

const optionOf = (command: Command, word: string) =>
  command.options.find((option) => option.long === word || option.short === word);
const takesValue = (option: Option | undefined) => option !== undefined && (option.required || option.optional);

function placeOf(program: Command, before: readonly string[]): Place {
  let command = program;
  let pending: Option | null = null;
  let words_count = 0;
  let isAfterFlags = false;
  const given: Record<string, string> = {};
  for (const word of before) {
    if (pending !== null) {
      given[pending.attributeName()] = word;
      pending = null;
    } else if (word === "--") isAfterFlags = true;
    else if (!isAfterFlags && word.startsWith("-")) {
      const [name = "", value] = word.split("=", 2);
      const option = optionOf(command, name);
      if (option === undefined || !takesValue(option)) continue;
      if (value === undefined) pending = option;
      else given[option.attributeName()] = value;
    } else {
      const next = command.commands.find((one) => one.name() === word || one.aliases().includes(word));
      if (next === undefined) words_count++;
      else command = next;
    }
  }
  return { command, option: pending, words_count, isAfterFlags, given };
}

type Candidate = readonly [word: string, about: string];

/** What may stand as the last of `words`, of which there is always one, perhaps empty. */
export async function candidates(program: Command, words: readonly string[], start: Start): Promise<string[]> {
  // bash has `--name=value` as three words.
  const split = words.filter((word) => word !== "=");
  const current = split.at(-1) ?? "";
  const place = placeOf(program, split.slice(0, -1));
  const found = await candidatesAt(place, current, start);
  const { hasFiles, words: offered } = "words" in found ? found : { hasFiles: false, words: found };
  const lines = offered
    .filter(([word]) => word.startsWith(current))
    .map(([word, about]) => `${word}\t${visible(about)}`);
  return hasFiles ? [FILES, ...lines] : lines;
}

/** Whether a name that somebody else has given stands for itself: `--url=http:elsewhere` would send the key there. */
export function isWord(name: string, isAfterFlags: boolean): boolean {
  return visible(name) === name && (isAfterFlags || !name.startsWith("-"));
}

type Names = readonly [about: string, names: (session: Session) => Promise<string[]>];
const FUNCTION: Names = ["function", (session) => session.functionNames()];
const CONTAINER: Names = ["container", (session) => session.containerNames()];
const SNAPSHOT: Names = ["snapshot", (session) => session.snapshotNames()];
const VOLUME: Names = ["volume", (session) => session.volumeNames()];
const IMAGE: Names = ["image", (session) => session.imageReferences()];
const REGISTRY: Names = ["registry", (session) => session.registryNames()];
const SECRET: Names = ["secret", (session) => session.secretNames()];

/** What the words are names of. */
const NAMES: Readonly<Record<string, readonly Names[]>> = {
  function: [FUNCTION],
  container: [CONTAINER],
  address: [CONTAINER],
  thing: [FUNCTION, CONTAINER],
  "folder|function": [FUNCTION],
  snapshot: [SNAPSHOT],
  "other-snapshot": [SNAPSHOT],
  volume: [VOLUME],
  image: [IMAGE],
  registry: [REGISTRY],
  secret: [SECRET],
  "volume:path": [VOLUME],
  session: [["terminal", (session) => session.terminalIds()]],
  tenant: [["tenant", (session) => session.tenantNames()]],
};

interface WithFiles {
  readonly hasFiles: true;
  readonly words: readonly Candidate[];
}
const ONLY_FILES: WithFiles = { hasFiles: true, words: [] };

async function candidatesAt(place: Place, current: string, start: Start): Promise<readonly Candidate[] | WithFiles> {
  const { command, option, words_count, isAfterFlags, given } = place;
  const session = () =>
    start({ url: given.url, keyFile: given.keyFile, profile: given.profile } as Parameters<Start>[0]);
  if (option !== null) {
    if (option.flags.includes("<file>")) return ONLY_FILES;
    if (option.attributeName() === "profile") return profileNames(session());
    return (option.argChoices ?? []).map((word) => [word, ""]);
  }
  if (!isAfterFlags && current.startsWith("-")) {
    const help: Candidate = ["--help", "show help"];
    return [
      ...command.options
        .filter(({ hidden }) => !hidden)
        .map(({ long, description }): Candidate => [long ?? "", description]),
      help,
    ];
  }
  if (command.commands.length > 0) {
    return command
      .createHelp()
      .visibleCommands(command)
      .map((one) => [one.name(), one.summary()]);
  }
  const at = Math.min(words_count, command.registeredArguments.length - 1);
  const last = command.registeredArguments[at];
  const argument = at === words_count || last?.variadic === true ? last : undefined;
  if (argument?.argChoices !== undefined) return argument.argChoices.map((word) => [word, ""]);
  if (argument?.name() === "topic") return words_count === 0 && command.parent ? helpTopics(command.parent) : [];
  if (argument?.name() === "file" || argument?.name() === "folder") return ONLY_FILES;
  if (argument?.name() === "source" || argument?.name() === "target") {
    const [about, names] = command.parent?.name() === "volumes" ? VOLUME : CONTAINER;
    // As either side of cp: `<name>:<path>` cannot begin with what a path begins with.
    const words = (await names(session())).filter((name) => isWord(name, isAfterFlags) && /^[^/.:][^/:]*$/.test(name));
    return { hasFiles: true, words: words.map((name): Candidate => [`${name}:`, about]) };
  }
  const found = NAMES[argument?.name() ?? ""] ?? [];
  if (found.length > 0) {
    const hasFiles = argument?.name() === "folder|function";
    const lists = await Promise.all(
      found.map(async ([about, names]) =>
        (await names(session())).filter((name) => isWord(name, isAfterFlags)).map((name): Candidate => [name, about]),
      ),
    );
    return hasFiles ? { hasFiles, words: lists.flat() } : lists.flat();
  }
  return argument?.name() === "profile" ? profileNames(session()) : [];
}

function profileNames(session: Session): Candidate[] {
  return Object.entries(profilesOf(session.environment).read().profiles).map(([name, { url }]) => [name, url]);
}
