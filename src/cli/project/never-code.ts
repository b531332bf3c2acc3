/** Names that are no code of a function, with the syntax of gitignore. */

/** Left out unless .hearthignore names it with `!`. */
export const NEVER_CODE: readonly string[] = [
  ".git",
  ".hg",
  ".svn",
  ".gitignore",
  ".hearth*",
  "hearth.toml",
  ".env",
  ".env.*",
  ".DS_Store",
  "__pycache__",
  "*.pyc",
  // Temporary files of editors.
  "*.sw[a-p]",
  "*~",
  ".#*",
];
