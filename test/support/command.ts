/**
 * The real `hearth` command as a child process of a test: with a home of its own, through a link as `npm install -g`
 * makes it, with pipes or under a pseudo terminal (`script` of util-linux).
 */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect } from "vitest";
import { NODE_PATH, PROJECT_DIR } from "../../src/installation/paths.js";
import { type Daemon, eventually, KEY } from "./daemon.ts";

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export interface RunOptions {
  /** Standard input; without it there is an empty one. */
  readonly stdin?: string | Buffer;
  readonly env?: Readonly<Record<string, string>>;
}

/** A command that runs. */
export class Running {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<Ended>;
  out = "";
  err = "";

  constructor(child: ChildProcessWithoutNullStreams) {
    this.child = child;
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      this.out += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.err += text;
    });
    // A command that ends without having read all of it.
    child.stdin.on("error", () => {});
    this.ended = new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => resolve({ code, out: this.out, err: this.err }));
    });
  }

  /** Waits until the output so far matches. */
  async shows(pattern: RegExp): Promise<void> {
    await eventually(`${pattern} in ${JSON.stringify(this.out)}`, () => pattern.test(this.out));
  }
}

export class Commands {
  readonly home = mkdtempSync("/var/tmp/hearth-home-");
  /** Where `hearth` is, as a link to the checkout. */
  readonly bin_dir = join(this.home, "bin");
  readonly env: Record<string, string>;

  constructor(env: Readonly<Record<string, string>>) {
    mkdirSync(this.bin_dir);
    symlinkSync(join(PROJECT_DIR, "src/setup/cli.js"), join(this.bin_dir, "hearth"));
    this.env = {
      PATH: `${this.bin_dir}:${dirname(NODE_PATH)}:/usr/bin:/bin:/usr/sbin:/sbin`,
      HOME: this.home,
      // What `script` runs its line with. It goes on after a command that has ended by itself upon Ctrl-C.
      SHELL: "/bin/bash",
      TERM: "xterm-256color",
      LANG: "C.UTF-8",
      ...env,
    };
  }

  dispose(): void {
    rmSync(this.home, { recursive: true });
  }

  start(command: string, args: readonly string[], { env = {} }: RunOptions = {}): Running {
    return new Running(spawn(command, args, { cwd: this.home, env: { ...this.env, ...env } }));
  }

  /** `hearth <args>` to its end. */
  run(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
    const running = this.start("hearth", args, options);
    running.child.stdin.end(options.stdin ?? "");
    return running.ended;
  }

  /** A line for bash, to its end. */
  bash(line: string, options: RunOptions = {}): Promise<Ended> {
    const running = this.start("bash", ["-c", line], options);
    running.child.stdin.end(options.stdin ?? "");
    return running.ended;
  }

  /** A line for a shell on a terminal of so many columns. What is written to its standard input is typed. */
  terminal(line: string, columns = 80, options: RunOptions = {}): Running {
    return this.start("script", ["-qec", `stty cols ${columns} rows 24; ${line}`, "/dev/null"], options);
  }
}

/** `hearth` as the operator of a daemon uses it, from its first call after the daemon's start until `dispose`. */
export function operatorOf(daemon: Daemon) {
  let commands: Commands | null = null;
  const shell = (): Commands => {
    commands ??= new Commands({ HEARTH_URL: daemon.url, HEARTH_KEY: KEY });
    return commands;
  };
  const hearth = (...args: string[]) => shell().run(args);
  const hearthAs = (key: string, ...args: string[]) => shell().run(args, { env: { HEARTH_KEY: key } });
  /** Standard output of a command that has to succeed. */
  const out = async (...args: string[]): Promise<string> => {
    const ended = await hearth(...args);
    expect(ended, args.join(" ")).toMatchObject({ code: 0 });
    return ended.out;
  };
  const answer = async (...args: string[]) => JSON.parse(await out(...args, "--json"));
  return { shell, hearth, hearthAs, out, answer, dispose: () => commands?.dispose() };
}

/** Text of a terminal without what moves and colours it. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is taken out.
export const bare = (text: string) => text.replace(/\x1b\[[0-9;?]*[A-Za-z]|\r/g, "");
