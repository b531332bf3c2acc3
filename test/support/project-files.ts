/** The files of the checkout that belong to the project, and their text. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { PROJECT_DIR } from "../../src/installation/paths.js";

/** Tracked files of the checkout, and new ones that git does not ignore. */
export const PROJECT_FILES: readonly string[] = execFileSync(
  "git",
  ["ls-files", "--cached", "--others", "--exclude-standard"],
  { cwd: PROJECT_DIR },
)
  .toString()
  .split("\n")
  .filter((file) => file !== "");

/** Code that a script of the tests writes, and that a unit test compares. Rules of style are for other files. */
export const GENERATED = /\.generated\.(js|d\.ts)$/;

/** Files of the program itself, without generated code. What runs inside of instances is no part of it, nor are the examples of runtimes. */
export const SOURCES = PROJECT_FILES.filter(
  (file) =>
    /^(src|pool|runtimes)\/.*\.(ts|js)$/.test(file) &&
    !GENERATED.test(file) &&
    !/\.test\.ts$|^runtimes\/\w+\/(example|inside)\//.test(file),
);

export const readText = (path: string): string => readFileSync(join(PROJECT_DIR, path), "utf8");
