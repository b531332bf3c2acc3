/**
 * Secrets of the daemon: from its settings, or in files of its data directory that only its user reads. A file is whole or
 * missing, also after a kill or power cut.
 */
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { Clock } from "../base/clock.ts";
import type { Config } from "../base/config.ts";
import type { Ids } from "../base/ids.ts";
import { newKeyText } from "./keys.ts";
import { newTokenKey, TokenKeys } from "./token-keys.ts";

const CURSOR_SECRET_BYTES = 32;

/** The file of the operator's key; null if a setting gives the key. */
export function ownKeyFile({ bootstrap_key, data_dir }: Config): string | null {
  return bootstrap_key === null ? `${data_dir}/key` : null;
}

/** The operator's key: from the settings, from the data directory, or made now and kept there for the command line. */
export function ownKey(config: Config, ids: Ids): { readonly text: string; readonly isNew: boolean } {
  const file = ownKeyFile(config);
  if (file === null) return { text: config.bootstrap_key ?? "", isNew: false };
  return keptSecret(file, () => newKeyText(ids).text);
}

/** The secret of list cursors. It outlives every rotation: a client may hold a cursor over one. */
export function ownCursorSecret({ data_dir }: Config): Uint8Array {
  const { text } = keptSecret(`${data_dir}/cursor-secret`, () => randomBytes(CURSOR_SECRET_BYTES).toString("hex"));
  return Buffer.from(text, "hex");
}

/** Reads or makes the keys that sign own access tokens. Deleting the file ends all of them. */
export function ownTokenKeys({ data_dir }: Config, clock: Clock): TokenKeys {
  const file = `${data_dir}/token-secret`;
  const { text } = keptSecret(file, newTokenKey);
  return new TokenKeys({ clock, text, keep: (next) => writeSecret(file, next) });
}

/** Returns the text without surrounding space; empty for a file that is not there. */
export function readSecret(file: string): string {
  return existsSync(file) ? readFileSync(file, "utf8").trim() : "";
}

/** Replaces the file in one step. */
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

/** Returns the text of the file; makes it if the file is missing or empty. */
function keptSecret(file: string, make: () => string): { readonly text: string; readonly isNew: boolean } {
  const found = readSecret(file);
  if (found !== "") return { text: found, isNew: false };
  const text = make();
  writeSecret(file, text);
  return { text, isNew: true };
}
