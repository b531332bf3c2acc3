/**
 * Small texts that the daemon keeps in files which only its user reads. A file is whole or missing, also after a kill or
 * a power cut.
 */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { AppError, errorText } from "./errors.ts";

export interface KeptText {
  readonly make: () => string;
  /** Matches the whole text; any other text is damaged. */
  readonly pattern: RegExp;
  /** Advice for the operator of a damaged file. */
  readonly hint: string;
}

/** Returns the text without surrounding space; empty for a file that is not there. */
export function readKept(file: string): string {
  return existsSync(file) ? readFileSync(file, "utf8").trim() : "";
}

/** Replaces the file in one step. */
export function writeKept(file: string, text: string): void {
  writeFileSync(`${file}.new`, `${text}\n`, { mode: 0o600, flush: true });
  renameSync(`${file}.new`, file);
  const directory = openSync(dirname(file), "r");
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

/**
 * Returns the text of the file; makes it if the file is missing or empty. Throws INTERNAL with the path if the text is
 * damaged or the file cannot be used.
 */
export function keptText(
  file: string,
  { make, pattern, hint }: KeptText,
): { readonly text: string; readonly isNew: boolean } {
  try {
    const found = readKept(file);
    if (pattern.test(found)) return { text: found, isNew: false };
    if (found !== "") throw new AppError("INTERNAL", `the file ${file} is damaged`, { hint });
    const text = make();
    writeKept(file, text);
    return { text, isNew: true };
  } catch (cause) {
    if (cause instanceof AppError) throw cause;
    throw new AppError("INTERNAL", `cannot read or create the file ${file}: ${errorText(cause)}`, { cause });
  }
}
