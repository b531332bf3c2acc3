/** Small texts that the daemon keeps in files which only its user reads. A file is whole or missing, also after a kill or power cut. */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

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

/** Returns the text of the file; makes it if the file is missing or empty. */
export function keptText(file: string, make: () => string): { readonly text: string; readonly isNew: boolean } {
  const found = readKept(file);
  if (found !== "") return { text: found, isNew: false };
  const text = make();
  writeKept(file, text);
  return { text, isNew: true };
}
