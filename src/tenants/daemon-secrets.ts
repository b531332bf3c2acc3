/** Secrets of the daemon: from its settings, or in files of its data directory. */
import { randomBytes } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { type Config, KEY_PATTERN } from "../base/config.ts";
import type { Ids } from "../base/ids.ts";
import { keptText, writeKept } from "../base/kept-files.ts";
import { newKeyText } from "./keys.ts";
import { newTokenKey, TOKEN_KEYS_PATTERN, TokenKeys } from "./token-keys.ts";

const CURSOR_SECRET_BYTES = 32;

/** The file of the operator's key; null if a setting gives the key. */
export function ownKeyFile({ bootstrap_key, data_dir }: Config): string | null {
  return bootstrap_key === null ? `${data_dir}/key` : null;
}

/** The operator's key: from the settings, from the data directory, or made now and kept there for the command line. */
export function ownKey(config: Config, ids: Ids): { readonly text: string; readonly isNew: boolean } {
  const file = ownKeyFile(config);
  if (file === null) return { text: config.bootstrap_key ?? "", isNew: false };
  const hint = "restore the file, or delete it: the daemon then makes another key, and the present one ends";
  return keptText(file, { make: () => newKeyText(ids).text, pattern: KEY_PATTERN, hint });
}

/** The secret of list cursors. It outlives every rotation: a client may hold a cursor over one. */
export function ownCursorSecret({ data_dir }: Config): Uint8Array {
  const { text } = keptText(`${data_dir}/cursor-secret`, {
    make: () => randomBytes(CURSOR_SECRET_BYTES).toString("hex"),
    pattern: /^[0-9a-f]{64}$/,
    hint: "restore the file, or delete it: cursors of lists and leases of containers then end",
  });
  return Buffer.from(text, "hex");
}

/** Reads or makes the keys that sign own access tokens. Deleting the file ends all of them. */
export function ownTokenKeys({ data_dir }: Config, clock: Clock): TokenKeys {
  const file = `${data_dir}/token-secret`;
  const hint = "restore the file, or delete it: the daemon's access tokens then end";
  const { text } = keptText(file, { make: newTokenKey, pattern: TOKEN_KEYS_PATTERN, hint });
  return new TokenKeys({ clock, text, keep: (next) => writeKept(file, next) });
}
