/**
 * Rules that select the files of a folder that are code. `.hearthignore` decides first, then `.gitignore`, each also in the folders below and with
 * the syntax of gitignore; then what is never code. Dependencies (`node_modules`, `site-packages`) are code although
 * projects name them in .gitignore.
 */
import ignore, { type Ignore } from "ignore";
import { NEVER_CODE } from "./never-code.ts";

export const HEARTH_IGNORE = ".hearthignore";
export const GIT_IGNORE = ".gitignore";

/** Folders of dependencies, in which no .gitignore counts: packages carry their own. */
const DEPENDENCIES = /^(node_modules|site-packages)$/;

const rulesOf = (text: string | readonly string[]): Ignore => ignore({ allowRelativePaths: true }).add(text);

const DEFAULTS = rulesOf(NEVER_CODE);

interface RuleFile {
  /** Folder of the file, relative to the root. */
  readonly base: string;
  readonly rules: Ignore;
}

/** The rules in a folder. Immutable: a folder below has its own. */
export class IgnoreRules {
  readonly #own: readonly RuleFile[];
  /** Null: no .gitignore counts. */
  readonly #git: readonly RuleFile[] | null;

  private constructor(own: readonly RuleFile[], git: readonly RuleFile[] | null) {
    this.#own = own;
    this.#git = git;
  }

  static readonly none = new IgnoreRules([], []);

  /** The rules with those of a folder's own files; null: the folder has no such file. */
  with(base: string, own: string | null, git: string | null): IgnoreRules {
    const added = (files: readonly RuleFile[], text: string | null) =>
      text === null ? files : [{ base, rules: rulesOf(text) }, ...files];
    return new IgnoreRules(added(this.#own, own), this.#git === null ? null : added(this.#git, git));
  }

  /** Returns true if a path below the folder is left out. */
  isIgnored(path: string, isFolder: boolean): boolean {
    const own = verdict(this.#own, path, isFolder);
    if (own !== null) return own === "ignored";
    if (this.#git !== null && !isDependencies(path, isFolder)) {
      if (verdict(this.#git, path, isFolder) === "ignored") return true;
    }
    return DEFAULTS.test(isFolder ? `${path}/` : path).ignored;
  }

  /** The rules of a folder that is not left out. A folder that .hearthignore keeps is kept whole. */
  inFolder(path: string): IgnoreRules {
    const isKept = verdict(this.#own, path, true) === "kept" || isDependencies(path, true);
    return isKept ? new IgnoreRules(this.#own, null) : this;
  }
}

function isDependencies(path: string, isFolder: boolean): boolean {
  return isFolder && DEPENDENCIES.test(path.slice(path.lastIndexOf("/") + 1));
}

/** The nearest file with a rule for the path decides. */
function verdict(files: readonly RuleFile[], path: string, isFolder: boolean): "ignored" | "kept" | null {
  for (const { base, rules } of files) {
    const inside = base === "" ? path : path.slice(base.length + 1);
    const { ignored, unignored } = rules.test(isFolder ? `${inside}/` : inside);
    if (ignored) return "ignored";
    if (unignored) return "kept";
  }
  return null;
}
