/** How a command is described: all that the program, its help and completion know of one before it is loaded. */
import { InvalidArgumentError } from "commander";
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
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("expected a number");
  return value;
}

export function wholeNumber(text: string): number {
  const value = number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError("expected a whole number from 1 on");
  return value;
}

/** The id of an event; 0 is before the first one. */
export function eventNumber(text: string): number {
  const value = number(text);
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError("expected the id of an event");
  return value;
}

/** All values of a flag that is given several times. */
export function collect(text: string, previous: unknown): string[] {
  return [...(Array.isArray(previous) ? (previous as string[]) : []), text];
}

export const LIMIT: Flag = { flags: "--limit <n>", about: "at most so many, the newest", parse: wholeNumber };
