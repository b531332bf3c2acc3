/**
 * Profiles: a daemon's URL and a key under a name, in one file of the user. It holds keys: only the user may read it,
 * and it is replaced as a whole, so that a command that is killed leaves the old one or the new one.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { didYouMean } from "../../base/suggest.ts";
import { usage } from "./failure.ts";

export interface Profile {
  readonly url: string;
  readonly key: string;
  /** True if a sign-in with a password made the key: signing out revokes it. */
  readonly is_signed_in?: boolean;
}

interface ProfileFile {
  /** The one in use; null for this machine's daemon. */
  readonly current: string | null;
  readonly profiles: Readonly<Record<string, Profile>>;
}

const EMPTY: ProfileFile = { current: null, profiles: {} };

export class Profiles {
  readonly file: string;

  constructor(file: string) {
    this.file = file;
  }

  /** Throws a usage failure where the file is there and does not hold profiles. */
  read(): ProfileFile {
    let text: string;
    try {
      text = readFileSync(this.file, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return EMPTY;
      throw usage(`cannot read the profiles: ${(error as Error).message}`);
    }
    const found = parse(text);
    if (found === null)
      throw usage(`invalid profile file: ${this.file}`, "repair the file, or remove it and log in again");
    return found;
  }

  names(): string[] {
    return Object.keys(this.read().profiles);
  }

  get(name: string): Profile {
    const { profiles } = this.read();
    const profile = Object.hasOwn(profiles, name) ? profiles[name] : undefined;
    if (profile !== undefined) return profile;
    const names = Object.keys(profiles);
    throw usage(
      `no profile named '${name}'`,
      didYouMean(name, names) ??
        (names.length === 0 ? "to create one: hearth login" : `choose one of: ${names.join(", ")}`),
    );
  }

  put(name: string, profile: Profile, isCurrent: boolean): void {
    const { current, profiles } = this.read();
    const entries = Object.entries(profiles).filter(([other]) => other !== name);
    this.#write({
      current: isCurrent ? name : current,
      profiles: Object.fromEntries([...entries, [name, profile]]),
    });
  }

  /** Null: none is in use. */
  use(name: string | null): void {
    if (name !== null) this.get(name);
    this.#write({ ...this.read(), current: name });
  }

  remove(name: string): void {
    this.get(name);
    const { current, profiles } = this.read();
    this.#write({
      current: current === name ? null : current,
      profiles: Object.fromEntries(Object.entries(profiles).filter(([other]) => other !== name)),
    });
  }

  #write(content: ProfileFile): void {
    const next = `${this.file}.${process.pid}`;
    try {
      mkdirSync(dirname(this.file), { recursive: true, mode: 0o700 });
      // One that is there, left by a killed process of the same number or put there, is never written to or through.
      rmSync(next, { force: true });
      writeFileSync(next, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600, flush: true, flag: "wx" });
      renameSync(next, this.file);
    } catch (error) {
      rmSync(next, { force: true });
      throw usage(`cannot write the profiles: ${(error as Error).message}`);
    }
  }
}

function parse(text: string): ProfileFile | null {
  try {
    const { current, profiles } = JSON.parse(text) as ProfileFile;
    const isRight =
      (current === null || typeof current === "string") &&
      Object.values(profiles).every(({ url, key }) => typeof url === "string" && typeof key === "string");
    return isRight ? { current, profiles } : null;
  } catch {
    return null;
  }
}
