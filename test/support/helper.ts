/**
 * The helper that tests compile. In the project `sanitized` it is a dynamic build with ASan and UBSan: each report ends
 * the process and fails the running test. PID 1 of an OCI container cannot reach the report's file: there a report ends
 * only the container.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import {
  HELPER_COMPILE,
  helperPath,
  helperSourceDir,
  helperSources,
  readDirectories,
} from "../../src/installation/paths.js";

const SOURCES = helperSourceDir();
const SANITIZER = join(import.meta.dirname, "sanitizer.c");
/** As large as sanitizer.c maps it. */
const REPORT_BYTES = 65_536;

export const isSanitized = process.env.HEARTH_TEST_SANITIZED === "1";

/** Static runtimes, because the images of containers have none. A trap has no runtime at all: see sanitizer.c. */
const SANITIZED_COMPILE = [
  ..."cc -std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Werror".split(" "),
  ..."-fsanitize=address,undefined -fsanitize-undefined-trap-on-error -static-libasan".split(" "),
];

/** Compiles a program of C files, with set-up's flags or others. */
export function compile(target: string, sources: readonly string[], flags: readonly string[] = HELPER_COMPILE): void {
  execFileSync("sh", ["-c", 'exec "$@"', "sh", ...flags, "-o", target, ...sources]);
  chmodSync(target, 0o755);
}

function helperSourcePaths(): string[] {
  return helperSources(SOURCES)
    .filter((name) => name.endsWith(".c"))
    .map((name) => join(SOURCES, name));
}

const made = { directory: "" };

const reportPath = (): string => join(made.directory, "report");

/** Emptied in place: processes that run have it mapped. */
function clearReport(): void {
  writeFileSync(reportPath(), Buffer.alloc(REPORT_BYTES), { flag: "r+" });
}

/** The directory of this test file's sanitized builds and of their report, until `removeSanitized`. */
function sanitizedDirectory(): string {
  if (made.directory !== "") return made.directory;
  made.directory = mkdtempSync("/var/tmp/hearth-sanitized-");
  chmodSync(made.directory, 0o755);
  writeFileSync(reportPath(), Buffer.alloc(REPORT_BYTES));
  // Helpers of every uid write the report.
  chmodSync(reportPath(), 0o666);
  return made.directory;
}

/** Compiles C files with both sanitizers, at the first use of `name`. Returns the program's path. */
export function compileSanitized(name: string, sources: readonly string[]): string {
  const target = join(sanitizedDirectory(), name);
  const report = `-DREPORT="${reportPath()}"`;
  if (!existsSync(target)) compile(target, [...sources, SANITIZER], [...SANITIZED_COMPILE, report]);
  return target;
}

/** Removes the builds and the report. */
export function removeSanitized(): void {
  if (made.directory !== "") rmSync(made.directory, { recursive: true, force: true });
  made.directory = "";
}

/** Takes the first report since the last call, with the lines of its addresses. Null: there is none. */
export function takeReport(): string | null {
  if (made.directory === "") return null;
  const text = readFileSync(reportPath(), "latin1").replace(/\0.*$/s, "");
  if (text === "") return null;
  clearReport();
  const lineOf = (file: string, address: string) =>
    execFileSync("addr2line", ["-f", "-p", "-s", "-e", file, address]).toString().trim();
  const { directory } = made;
  return text.replace(/\((\S+)\+(0x[0-9a-f]+)\)/g, (match, file: string, address: string) =>
    existsSync(join(directory, basename(file))) ? lineOf(join(directory, basename(file)), address) : match,
  );
}

const sanitizedHelper = (): string => compileSanitized("minit", helperSourcePaths());

/** Puts a helper of this test run at `target`. */
export function compileHelper(target: string): void {
  if (!isSanitized) {
    compile(target, helperSourcePaths());
    return;
  }
  copyFileSync(sanitizedHelper(), target);
  chmodSync(target, 0o755);
}

/** Puts a helper at `target` whose PID 1 attacks this machine's files where its environment says so (hostile-init.c). */
export function compileHostileHelper(target: string): void {
  const isMain = (path: string) => basename(path) === "main.c";
  const sources = helperSourcePaths();
  const main = `${target}-main.o`;
  compile(main, sources.filter(isMain), [
    ...HELPER_COMPILE.filter((flag) => flag !== "-static"),
    "-c",
    "-Dmain=minit_main",
  ]);
  compile(target, [...sources.filter((path) => !isMain(path)), main, join(import.meta.dirname, "hostile-init.c")]);
}

/** The helper that an engine of the tests runs: that of set-up, or the sanitized one. */
export function engineHelper(): string {
  return isSanitized ? sanitizedHelper() : helperPath(readDirectories(process.env, []).data_dir);
}
