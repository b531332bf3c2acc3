/**
 * Rules that select the files of a folder that are code. `.hearthignore` decides first, then `.gitignore`, each also in the
 * folders below and as git reads a .gitignore; then what is never code. Dependencies (`node_modules`, `site-packages`) are
 * code although projects name them in .gitignore. Paths and texts have one character for each byte (latin1).
 */
import { decidingPattern, type GitPattern, gitPatterns } from "./git-patterns.ts";
import { NEVER_CODE } from "./never-code.ts";

export const HEARTH_IGNORE = ".hearthignore";
export const GIT_IGNORE = ".gitignore";

/** Folders of dependencies, in which no .gitignore counts: packages carry their own. */
const DEPENDENCIES = /^(node_modules|site-packages)$/;

const DEFAULTS = gitPatterns(NEVER_CODE.join("\n"));

interface RuleFile {
  /** Folder of the file, relative to the root. */
  readonly base: string;
  readonly name: typeof HEARTH_IGNORE | typeof GIT_IGNORE;
  readonly patterns: readonly GitPattern[];
}

/** Why a path is left out. */
export interface LeftOut {
  /** Path of the file of rules, relative to the root; null: what is never code. */
  readonly file: string | null;
  readonly line: number;
  /** The line. */
  readonly text: string;
}

interface Verdict extends LeftOut {
  readonly isKept: boolean;
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
    const added = (files: readonly RuleFile[], name: RuleFile["name"], text: string | null) =>
      text === null ? files : [{ base, name, patterns: gitPatterns(text) }, ...files];
    return new IgnoreRules(
      added(this.#own, HEARTH_IGNORE, own),
      this.#git === null ? null : added(this.#git, GIT_IGNORE, git),
    );
  }

  /** Why a path in the folder is left out; null: it is not. The folders above the path are not left out. */
  leavesOut(path: string, isFolder: boolean): LeftOut | null {
    const own = verdict(this.#own, path, isFolder);
    if (own !== null) return own.isKept ? null : own;
    if (this.#git !== null && !isDependencies(path, isFolder)) {
      const git = verdict(this.#git, path, isFolder);
      if (git?.isKept === false) return git;
    }
    const never = decidingPattern(DEFAULTS, path, isFolder);
    return never === null ? null : { file: null, line: never.line, text: never.text };
  }

  /** Whether .hearthignore keeps a folder by a line of its own. */
  keeps(path: string): boolean {
    return verdict(this.#own, path, true)?.isKept === true;
  }

  /** The rules of a folder that is not left out. A folder that .hearthignore keeps is kept whole. */
  inFolder(path: string): IgnoreRules {
    const isKept = this.keeps(path) || isDependencies(path, true);
    return isKept ? new IgnoreRules(this.#own, null) : this;
  }
}

function isDependencies(path: string, isFolder: boolean): boolean {
  return isFolder && DEPENDENCIES.test(path.slice(path.lastIndexOf("/") + 1));
}

/** The nearest file with a rule for the path itself decides, as in git: those above had their say on the folders. */
function verdict(files: readonly RuleFile[], path: string, isFolder: boolean): Verdict | null {
  for (const { base, name, patterns } of files) {
    const inside = base === "" ? path : path.slice(base.length + 1);
    const found = decidingPattern(patterns, inside, isFolder);
    if (found === null) continue;
    const file = base === "" ? name : `${base}/${name}`;
    return { file, line: found.line, text: found.text, isKept: found.isNegative };
  }
  return null;
}
