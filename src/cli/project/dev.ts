/**
 * `hearth dev`: deploys a folder, and again on every save; calls its function on Enter; prints the output of other callers' calls.
 *
 * V1 One deployment at a time. Saves during one are one more deployment after it, of the last state.
 * V2 A failed deployment or request is printed, and the watching continues. Only Ctrl-C and q end it.
 */
import { join } from "node:path";
import type { ReadStream } from "node:tty";
import { toEpochSeconds } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import { Unreachable } from "../../client/client.ts";
import { NewRecords, print } from "../functions/records.ts";
import { json, visible } from "../output/text.ts";
import { milliseconds, stamp } from "../output/time.ts";
import { report } from "../report.ts";
import { EXIT } from "../session/failure.ts";
import { pauseBetween } from "../session/poll.ts";
import { type Flags, isRefusal, type Session, type Words } from "../session/session.ts";
import { type DeployedFunction, deployProject, testPayload } from "./deployment.ts";
import { type Code, type CodeEntry, scan } from "./files.ts";
import { FolderWatch } from "./folder-watch.ts";
import { type Project, readProject } from "./project.ts";
import { uploadCode } from "./upload.ts";

const CTRL_C = "\x03";

interface Uploaded {
  readonly fingerprint: string;
  readonly digest: string;
}

/** Packages change together with the folder that they are in. */
const IN_DEPENDENCIES = /(^|\/)(node_modules|site-packages)\//;

const isWatched = ({ type, path }: CodeEntry): boolean => type === "folder" && !IN_DEPENDENCIES.test(path);

class Development {
  readonly #session: Session;
  readonly #folder: string;
  readonly #watch: FolderWatch;
  /** The code that the daemon has, by folder. */
  readonly #uploaded = new Map<string, Uploaded>();
  /** The deployment that succeeded last. */
  #deployed: {
    readonly state: string;
    readonly project: Project;
    readonly functions: readonly DeployedFunction[];
  } | null = null;
  readonly #records = new Map<string, NewRecords>();
  /** Calls of this command, which it has printed. */
  readonly #own = new Set<string>();
  #chosen = 0;
  #isRunning = false;
  /** V1: start of the change that the next deployment is for; null: none. */
  #next_ms: number | null = null;
  /** The last deployment failed because nothing answered. */
  #isCut = false;

  constructor(session: Session, folder: string) {
    this.#session = session;
    this.#folder = folder;
    this.#watch = new FolderWatch(session.clock, (begun_ms) => void this.deploy(begun_ms));
  }

  /** Throws for a project that cannot be read, which leaves nothing to watch, and for a missing key. */
  async begin(): Promise<void> {
    const project = await readProject(this.#folder);
    // Without a key no deployment will ever succeed.
    this.#session.client();
    this.#watch.set([project.root]);
    await this.deploy(this.#session.clock.monotonicMs());
  }

  /** V1. */
  async deploy(begun_ms: number): Promise<void> {
    this.#next_ms ??= begun_ms;
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      while (this.#next_ms !== null) {
        const from_ms: number = this.#next_ms;
        this.#next_ms = null;
        await this.#deployOnce(from_ms).catch((error: unknown) => this.#tell(error));
      }
    } finally {
      this.#isRunning = false;
    }
  }

  async #deployOnce(begun_ms: number): Promise<void> {
    const project = await readProject(this.#folder);
    const codes = this.#scan(project);
    const described = project.functions.map((one) => one.described);
    const marks = [...codes].map(([directory, { fingerprint }]) => [directory, fingerprint]);
    const state = JSON.stringify([described, marks]);
    if (this.#deployed?.state === state) return;
    const { functions } = await this.#send(project, codes);
    this.#isCut = false;
    this.#deployed = { state, project, functions };
    const took_ms = this.#session.clock.monotonicMs() - begun_ms;
    for (const one of functions) this.#show(one, took_ms);
  }

  #show(one: DeployedFunction, took_ms: number): void {
    const { terminal, clock, flags } = this.#session;
    const { name, action, version } = one;
    const time = terminal.paint("dim", stamp(toEpochSeconds(clock.epochMs())));
    const did = terminal.paint(action === "unchanged" ? "dim" : "green", action);
    const line = `${time}  ${visible(name)} ${did}, version ${version}, ${milliseconds(took_ms)}`;
    terminal.out(`${flags.json === true ? json({ ...one, took_ms: Math.round(took_ms) }, 0) : line}\n`);
  }

  /** Returns the code of each folder. It scans until all folders are watched, so that no file of a new one is missed. */
  #scan({ root, functions }: Project): Map<string, Code> {
    for (;;) {
      const codes = new Map(functions.map(({ directory }) => [directory, scan(directory)]));
      const below = [...codes].flatMap(([directory, { entries }]) => [
        directory,
        ...entries.filter(isWatched).map(({ path }) => join(directory, path)),
      ]);
      const folders = [...new Set([root, ...below])];
      if (!this.#watch.set(folders)) return codes;
    }
  }

  async #send(project: Project, codes: ReadonlyMap<string, Code>) {
    for (const [directory, code] of codes) {
      const { fingerprint } = code;
      if (this.#uploaded.get(directory)?.fingerprint === fingerprint) continue;
      const { code_sha256: digest } = await uploadCode(this.#session, code);
      this.#uploaded.set(directory, { fingerprint, digest });
    }
    const digests = project.functions.map(({ directory }) => this.#uploaded.get(directory)?.digest ?? "");
    try {
      return await deployProject(this.#session, project, { codes: digests });
    } catch (error) {
      // The daemon may no longer have code that no version uses.
      this.#uploaded.clear();
      throw error;
    }
  }

  /** V2. */
  async #tell(error: unknown): Promise<void> {
    this.#isCut = error instanceof Unreachable || isRefusal(error, "SHUTTING_DOWN");
    await report(error, this.#session, this.#session.terminal, this.#session.flags.json === true);
  }

  /** Calls the chosen function with its test payload. */
  async invoke(): Promise<void> {
    const { project } = this.#deployed ?? {};
    const chosen = project?.functions[Math.min(this.#chosen, project.functions.length - 1)];
    if (chosen === undefined) return this.#session.terminal.note("nothing is deployed yet");
    try {
      const body = { payload: await testPayload(chosen) };
      const client = this.#session.client(LIMITS.cli_call_timeout_ms);
      const record = await client.request("POST /api/functions/invoke/:name", { params: { name: chosen.name }, body });
      this.#own.add(record.invocation_id);
      print(this.#session, record);
    } catch (error) {
      await this.#tell(error);
    }
  }

  choose(number: number): void {
    const one = this.#deployed?.project.functions[number - 1];
    if (one === undefined) return;
    this.#chosen = number - 1;
    this.#session.terminal.note(`Enter calls ${visible(one.name)}`);
  }

  /** Prints calls of other callers until the process ends. */
  async follow(): Promise<never> {
    let isNoted = false;
    for (;;) {
      await pauseBetween();
      try {
        await this.#look();
        isNoted = false;
        if (this.#isCut && this.#next_ms === null) void this.deploy(this.#session.clock.monotonicMs());
      } catch (error) {
        if (!isNoted)
          this.#session.terminal.note(`reading calls failed, hearth retries: ${visible((error as Error).message)}`);
        isNoted = true;
      }
    }
  }

  async #look(): Promise<void> {
    if (this.#isCut) await this.#session.client(LIMITS.cli_aside_timeout_ms).request("GET /health");
    for (const { function_id } of this.#deployed?.functions ?? []) {
      const records = this.#records.get(function_id) ?? new NewRecords(this.#session, function_id);
      this.#records.set(function_id, records);
      for (const record of await records.read(0))
        if (!this.#own.delete(record.invocation_id)) print(this.#session, record);
    }
  }
}

const MANUAL = "Enter calls the function with its test payload, 1-9 choose one of several, q ends";

export async function dev(session: Session, [folder = "."]: Words, _flags: Flags): Promise<void> {
  session.interrupt_exit_code = EXIT.success;
  const development = new Development(session, folder);
  await development.begin();
  session.terminal.note(MANUAL);
  readKeys(session, development);
  await development.follow();
}

/** Reads keys of a terminal, or lines of other input. hearth dev continues after the end of its input. */
function readKeys({ terminal }: Session, development: Development): void {
  const { stdin } = process;
  if (stdin.isTTY) terminal.raw(stdin as ReadStream);
  let isCalling = false;
  const call = async (): Promise<void> => {
    // A held key makes one call after the other.
    if (isCalling) return;
    isCalling = true;
    await development.invoke().finally(() => {
      isCalling = false;
    });
  };
  stdin.on("data", (chunk: Buffer) => {
    for (const key of chunk.toString("latin1")) {
      if (key === "q" || key === CTRL_C) process.exit(EXIT.success);
      else if (key === "\r" || key === "\n") void call();
      else if (/[1-9]/.test(key)) development.choose(Number(key));
    }
  });
  stdin.on("error", () => {});
}
