/** How a command is described: all that the program, its help and completion know of one before it is loaded. */
import { InvalidArgumentError } from "commander";
import { parseSpan } from "../output/time.ts";
import type { Flags, Session, Words } from "./session.ts";

export interface Flag {
  /** As commander writes it: `--limit <n>`, `-v, --verbose`, `--no-env`. `<file>` is completed with files. */
  readonly flags: string;
  readonly about: string;
  readonly parse?: (text: string, previous: unknown) => unknown;
  readonly choices?: readonly string[];
}

export interface Verb {
  readonly name: string;
  readonly aliases?: readonly string[];
  /** `<function>`, `[payload]`; what each means is in `WORDS`. */
  readonly words?: readonly string[];
  readonly summary: string;
  /** What else its help says. */
  readonly more?: string;
  readonly flags?: readonly Flag[];
  readonly examples: readonly string[];
  /** Verbs of one name more, which take precedence over its first word. */
  readonly more_verbs?: readonly Verb[];
  /** Whether the words are a command's from the first one on (of `exec`: from the second), its flags too. */
  readonly isCommand?: boolean;
  /** Whether what follows is another program's. */
  readonly isPassThrough?: boolean;
  /** Loads what does it. */
  readonly load: () => Promise<Run>;
}

export type Run = (session: Session, words: Words, flags: Flags) => Promise<void>;

export interface Group {
  readonly name: string;
  readonly aliases?: readonly string[];
  readonly summary: string;
  readonly verbs: readonly (Verb | Group)[];
}

/** Number of a flag's value or a word; commander adds which one it was. */
export function number(text: string): number {
  return parsed(text, "expected a number");
}

export function numberOrDefault(text: string): number | "default" {
  return text === "default" ? text : parsed(text, "expected a number or default");
}

function parsed(text: string, complaint: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError(complaint);
  return value;
}

export function wholeNumber(text: string): number {
  const value = number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError("expected a whole number, at least 1");
  return value;
}

/** The id of an event; 0 is before the first one. */
export function eventNumber(text: string): number {
  const value = number(text);
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError("expected an event id");
  return value;
}

/** All values of a flag that is given several times. */
export function collect(text: string, previous: unknown): string[] {
  return [...(Array.isArray(previous) ? (previous as string[]) : []), text];
}

/** Seconds of a flag's value. */
export function seconds(text: string): number {
  const value = parseSpan(text);
  if (value === null) throw new InvalidArgumentError("expected seconds, or a unit: 90s, 15m, 12h, 30d");
  return value;
}

/** So many seconds ago, as a number, or a date as it was written. */
export function moment(text: string): number | string {
  const ago = parseSpan(text);
  if (ago !== null) return ago;
  if (Number.isNaN(Date.parse(text))) throw new InvalidArgumentError("expected a time ago (10m) or a date");
  return new Date(text).toISOString();
}

const MEGABYTES: Readonly<Record<string, number>> = { "": 1, m: 1, mb: 1, mib: 1, g: 1024, gb: 1024, gib: 1024 };

/** Mebibytes of a flag's value. */
export function megabytes(text: string): number {
  const [, amount, unit = ""] = /^(\d{1,9})\s*([a-z]*)$/i.exec(text.trim()) ?? [];
  const factor = MEGABYTES[unit.toLowerCase()];
  if (amount === undefined || factor === undefined) throw new InvalidArgumentError("expected MiB, or a unit: 512m, 2g");
  return Number(amount) * factor;
}

export const LIMIT: Flag = { flags: "--limit <n>", about: "maximum number of entries, the newest", parse: wholeNumber };

export interface PublishedPort {
  readonly container_port: number;
  readonly host_port?: number;
  readonly host_address?: "127.0.0.1" | "0.0.0.0";
  readonly protocol?: "tcp" | "udp";
}
