/** Secrets of the daemon in files that only its user reads. A file is whole or not there, also after a kill or power cut. */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

/** Returns the text without surrounding space; empty for a file that is not there. */
export function readSecret(file: string): string {
  return existsSync(file) ? readFileSync(file, "utf8").trim() : "";
}

/** Replaces the file at once. */
export function writeSecret(file: string, text: string): void {
  writeFileSync(`${file}.new`, `${text}\n`, { mode: 0o600, flush: true });
  renameSync(`${file}.new`, file);
  const directory = openSync(dirname(file), "r");
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

/** Returns the text of the file; makes it where there is none, or an empty one, which nobody could use. */
export function keptSecret(file: string, make: () => string): { readonly text: string; readonly isNew: boolean } {
  const found = readSecret(file);
  if (found !== "") return { text: found, isNew: false };
  const text = make();
  writeSecret(file, text);
  return { text, isNew: true };
}
