/** The verbs of folders with hearth.toml, as they are described; what they do is loaded when one is called. */
import { NEVER_CODE } from "../project/never-code.ts";
import { RUNTIME_EXAMPLES } from "../project/runtime-examples.ts";
import type { Verb } from "../session/verb.ts";

const runtimes = RUNTIME_EXAMPLES.flatMap(({ runtime, aliases }) => [runtime, ...aliases]);

const IGNORED = `Files that .hearthignore or .gitignore name are left out, and ${NEVER_CODE.slice(0, 8).join(", ")} too. .hearthignore decides first; a line !name keeps a file. node_modules and site-packages are packed unless .hearthignore names them.`;

export const PROJECT_VERBS: readonly Verb[] = [
  {
    name: "init",
    words: ["[folder]"],
    summary: "write an example function into a folder",
    more: "The folder gets hearth.toml, .hearthignore, a handler and a test payload. hearth replaces no files and asks no daemon.",
    flags: [
      { flags: "--runtime <name>", about: "runtime of the example (nodejs)", choices: runtimes },
      { flags: "--name <name>", about: "name of the function (that of the folder)" },
    ],
    examples: ["hearth init hello", "hearth init report --runtime python3"],
    load: async () => (await import("../project/init.ts")).init,
  },
  {
    name: "deploy",
    words: ["[folder|function]"],
    summary: "deploy a folder with hearth.toml, or a function that exists",
    more: `A word is a folder if it begins with a dot, has a slash, or names a folder with hearth.toml; all others are functions. Without a word the folder is the current one. hearth packs and uploads the files, creates or updates the functions of hearth.toml, all or none, and returns when they are warm. Unchanged functions get no new version. ${IGNORED} --build installs what package.json or requirements.txt names, or runs [build] command, in a container that is removed afterwards. --from-container makes a new version, or a new function, whose instances have the files of a container.`,
    flags: [
      { flags: "--note <text>", about: "note of the new version" },
      { flags: "--smoke <payload>", about: "call that must succeed before the new version becomes active" },
      { flags: "--build", about: "install dependencies in a container first" },
      { flags: "--dry-run", about: "print what would change, and change nothing" },
      { flags: "--from-container <container>", about: "make the function's files those of a container as it is now" },
      { flags: "--handler <line>", about: "with --from-container: command that answers calls" },
    ],
    examples: [
      "hearth deploy",
      "hearth deploy ./hello --note 'fix the greeting'",
      "hearth deploy hello",
      "hearth deploy tool --from-container box --handler /usr/local/bin/tool",
    ],
    load: async () => (await import("../project/deploy.ts")).deploy,
  },
  {
    name: "dev",
    words: ["[folder]"],
    summary: "deploy a folder on every save, call its function on Enter",
    more: "hearth prints the output of all calls. Enter calls the function with payload.json, or with the file that payload in hearth.toml names; 1 to 9 choose one of several functions; q or Ctrl-C ends. A failed deployment changes nothing and is printed.",
    examples: ["hearth dev", "hearth dev ./hello"],
    load: async () => (await import("../project/dev.ts")).dev,
  },
  {
    name: "diff",
    words: ["[folder]"],
    summary: "show what a deployment of a folder would change",
    more: "hearth compares settings and files with the active versions. As with diff(1), the exit code is 0 if nothing differs and 1 if something does.",
    examples: ["hearth diff", "hearth diff ./hello --json"],
    load: async () => (await import("../project/diff.ts")).diff,
  },
];
