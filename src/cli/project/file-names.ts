/**
 * Names of files as bytes. Linux allows any bytes in a name; archives and the API have names in UTF-8. While a folder is
 * read, a path is a string with one character for each byte (latin1), so that no name is lost or taken for another one.
 */
import { isUtf8 } from "node:buffer";
import { readdirSync } from "node:fs";
import { visible } from "../output/text.ts";
import { usage } from "../session/failure.ts";

/** Bytes as text; those that are not UTF-8 become U+FFFD. */
export const textOf = (bytes: string): string => Buffer.from(bytes, "latin1").toString();

/** The place of a path of bytes below a folder. */
export function placeIn(root: string, path: string): Buffer {
  const above = Buffer.from(root);
  return path === "" ? above : Buffer.concat([above, Buffer.from(`/${path}`, "latin1")]);
}

/** The names in a folder, in the order of their bytes; none if the folder was removed meanwhile. */
export function namesIn(root: string, base: string, hint: string | null = null): string[] {
  try {
    return readdirSync(placeIn(root, base), "latin1").sort();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" && base !== "") return [];
    throw usage(`cannot read ${visible(placeIn(root, base).toString())}: ${message}`, hint);
  }
}

/** A name or a path of bytes as text. Throws a usage failure for one that is not UTF-8. `what` says which of an entry it is. */
export function checkedText(bytes: string, what: string, hint: string): string {
  const whole = Buffer.from(bytes, "latin1");
  if (isUtf8(whole)) return whole.toString();
  throw usage(`${what} is not UTF-8: ${escaped(bytes)}`, hint);
}

/** Bytes beyond ASCII as escapes, as a shell takes them in $'...'. */
function escaped(bytes: string): string {
  return visible(bytes).replace(
    /[\x80-\xff]/g,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}
