/** Texts of handlers, as far as runtimes share their rules: command lines, and paths of files of the code. */

/** Words that only a shell understands as a command (POSIX special and regular built-ins without a file, reserved words). */
const SHELL_WORDS = new Set(
  (
    ". : alias bg break builtin case cd command continue declare do done elif else esac eval exec exit export fc fg fi for " +
    "function getopts hash if in jobs local read readonly return select set shift source then times trap type typeset " +
    "ulimit umask unalias unset until wait while"
  ).split(" "),
);

/** Nothing in it that a shell would treat: no quotes, expansions, redirections, lists, globs, comments or assignments. */
const PLAIN_LINE = /^[A-Za-z0-9_@%+:,./=^ \t-]+$/;

/** The words of a line that needs no shell, or null where it does. */
export function plainWords(line: string): string[] | null {
  if (!PLAIN_LINE.test(line)) return null;
  const words = line.split(/[ \t]+/).filter((word) => word !== "");
  const [first] = words;
  if (first === undefined || first.includes("=") || SHELL_WORDS.has(first)) return null;
  return words;
}

/** Returns what is wrong with the text of any handler, or null. */
export function textComplaint(handler: string): string | null {
  if (handler.trim() === "") return "is empty";
  return handler.includes("\0") ? "contains a NUL character" : null;
}

/** Returns what is wrong with the path of a file of the code, or null. */
export function pathComplaint(path: string): string | null {
  if (path.startsWith("/")) return "names an absolute path: paths are relative to the code";
  return path.split("/").includes("..") ? "names a path with '..': it must stay inside the code" : null;
}
