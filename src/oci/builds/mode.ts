/** Modes as `--chmod` takes them: octal, or symbolic as chmod(1), without a umask. */
import { invalidLine } from "./build-file.ts";

const OCTAL = /^[0-7]{1,4}$/;
const CLAUSE = /^([ugoa]*)((?:[-+=](?:[rwxXst]*|[ugo]))+)$/;
const OPERATION = /([-+=])([ugo]|[rwxXst]*)/g;
/** Bits that a class of users has. */
const CLASSES: Readonly<Record<string, number>> = { u: 0o4700, g: 0o2070, o: 0o1007, a: 0o7777 };
const PERMISSIONS: Readonly<Record<string, number>> = { r: 0o444, w: 0o222, x: 0o111, s: 0o6000, t: 0o1000 };
const SHIFTS: Readonly<Record<string, number>> = { u: 6, g: 3, o: 0 };

/** Throws INVALID_ARGUMENT unless the text is a mode. */
export function checkMode(text: string, line: number): void {
  if (OCTAL.test(text) || text.split(",").every((clause) => CLAUSE.test(clause))) return;
  throw invalidLine(line, `malformed mode: '${text.slice(0, 100)}' (expected one like 0755 or u=rwX,go=rX)`);
}

/** The mode that an entry of `mode` gets by a text that `checkMode` took. */
export function changedMode(text: string, mode: number, isDirectory: boolean): number {
  if (OCTAL.test(text)) return Number.parseInt(text, 8);
  return text.split(",").reduce((before, clause) => changedBy(clause, before, isDirectory), mode);
}

function changedBy(clause: string, before: number, isDirectory: boolean): number {
  const [, who = "", operations = ""] = CLAUSE.exec(clause) ?? [];
  const mask = [...(who === "" ? "a" : who)].reduce((bits, one) => bits | (CLASSES[one] ?? 0), 0);
  let mode = before;
  for (const [, operator = "", permissions = ""] of operations.matchAll(OPERATION)) {
    const shift = SHIFTS[permissions];
    const bits = shift === undefined ? bitsOf(permissions, mode, isDirectory) : ((mode >> shift) & 7) * 0o111;
    if (operator === "=") mode &= ~mask;
    mode = operator === "-" ? mode & ~(bits & mask) : mode | (bits & mask);
  }
  return mode;
}

function bitsOf(permissions: string, mode: number, isDirectory: boolean): number {
  const executes = isDirectory || (mode & 0o111) !== 0;
  return [...permissions].reduce(
    (bits, one) => bits | (one === "X" ? (executes ? 0o111 : 0) : (PERMISSIONS[one] ?? 0)),
    0,
  );
}
