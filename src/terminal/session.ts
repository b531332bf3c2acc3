/**
 * One terminal: a shell on a pseudo terminal of a container, and the client that is attached to it, if any. How frames
 * become calls is socket.ts's, who may have how many sessions service.ts's.
 *
 * S1. At most one client is attached. Another one takes its place, and it is told.
 * S2. The shell outlives its client: what it shows meanwhile is kept up to `terminal_backlog_bytes`, the newest, and is
 *     the next client's first output. What was on its way to a client that broke is lost.
 * S3. A client that does not take output stops the shell, by the terminal, and nobody else. Before the first client the
 *     shell waits where the half of a backlog is full, so that nothing is lost; after the last one nothing stops it.
 * S4. It ends once: with its shell, with the container, `idle_ms` after its last client, `ttl_ms` after it was made, or
 *     when it is told to. Nothing of it is in the container a grace later.
 * S5. What ends by itself while nobody is attached leaves its last output to one more client, with how it ended.
 */
import { constants } from "node:os";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Exec, ExecListener, RunRequest } from "../engine/ports.ts";
import { Backlog } from "./backlog.ts";
import type { SessionRecord, TerminalSize } from "./schema.ts";
import { type TerminalState, type TerminalVerb, terminalStates } from "./states.ts";

export interface SessionEnd {
  readonly exit_code: number;
  readonly signal: string | null;
  /** Null but where the session has failed. */
  readonly error_message: string | null;
  /** The daemon ends, and the client may find another one. */
  readonly is_leaving?: true;
}

/** Who is attached. None of these may throw. */
export interface TerminalClient {
  /** False: the next should wait until `takeMore` is called. */
  show(bytes: Buffer): boolean;
  /** The shell takes input again. */
  drained(): void;
  /** The last call, behind all that the shell has shown. */
  ended(end: SessionEnd): void;
  /** The last call: another client has taken its place. */
  replaced(): void;
}

export interface SessionOptions {
  readonly id: string;
  /** Counts the sessions of this process: its place in lists. */
  readonly number: number;
  readonly tenant_id: string;
  readonly container_id: string;
  readonly size: TerminalSize;
  readonly is_shell: boolean;
  readonly request: Pick<RunRequest, "environment" | "working_directory" | "timeout_ms" | "grace_ms" | "user">;
  readonly clock: Clock;
  readonly idle_ms: number;
  readonly ttl_ms: number;
  open(request: RunRequest, listener: ExecListener): Exec;
  /** Whether the container still runs. */
  isLive(): boolean;
  /** Told of every change of state, the first one too. */
  changed(session: Session, change: "created" | "attached" | "detached" | "ended"): void;
}

/** How a shell ends whose terminal is taken away from it (128 + SIGHUP). */
const HUNG_UP: SessionEnd = { exit_code: 129, signal: "SIGHUP", error_message: null };
/** The same at the end of the daemon. */
export const LEFT: SessionEnd = { ...HUNG_UP, is_leaving: true };
/** How all ends with the container. */
const KILLED: SessionEnd = { exit_code: 137, signal: "SIGKILL", error_message: null };

export class Session {
  readonly id: string;
  readonly number: number;
  readonly tenant_id: string;
  readonly container_id: string;
  readonly #options: SessionOptions;
  readonly #backlog = new Backlog(LIMITS.terminal_backlog_bytes);
  readonly #created_ms: number;
  #state: TerminalState = terminalStates.initial;
  #size: TerminalSize;
  #shell = "";
  #pid = 0;
  #exec: Exec | null = null;
  #client: TerminalClient | null = null;
  #end: SessionEnd | null = null;
  #unseen: Buffer | null = null;
  #active_ms: number;
  #cancelIdle: () => void = () => {};
  #cancelTtl: () => void = () => {};

  constructor(options: SessionOptions) {
    const { id, number, tenant_id, container_id, size, clock } = options;
    this.id = id;
    this.number = number;
    this.tenant_id = tenant_id;
    this.container_id = container_id;
    this.#options = options;
    this.#size = size;
    this.#created_ms = clock.epochMs();
    this.#active_ms = this.#created_ms;
  }

  get shell(): string {
    return this.#shell;
  }

  get pid(): number {
    return this.#pid;
  }

  get state(): TerminalState {
    return this.#state;
  }

  get end(): SessionEnd | null {
    return this.#end;
  }

  /** S5. To be kept by whoever takes it. Null: a client has seen the end, or there is none, or it was taken. */
  takeUnseen(): Buffer | null {
    const unseen = this.#unseen;
    this.#unseen = null;
    return unseen;
  }

  /**
   * Starts the first of these that is there, each an argv. Throws INVALID_ARGUMENT where none of them is, and what the engine
   * throws where it cannot be started at all. To be called once, before all else.
   */
  async start(programs: readonly (readonly string[])[]): Promise<void> {
    const { request, clock, ttl_ms, changed } = this.#options;
    for (const argv of programs) {
      const exec = this.#options.open(
        {
          ...request,
          argv,
          output_bytes_max: null,
          is_stream: true,
          has_more_stdin: true,
          terminal: this.#size,
        },
        { onOutput: (_, chunk) => this.#onOutput(chunk), onDrain: () => this.#client?.drained() },
      );
      const pid = await exec.started.then(
        (started) => started.pid,
        () => null,
      );
      if (pid === null) {
        // Throws where it was something else than the shell that was not there.
        await exec.exited;
        continue;
      }
      this.#exec = exec;
      this.#shell = argv[0] ?? "";
      this.#pid = pid;
      this.#cancelTtl = clock.after(ttl_ms, () => this.hangUp());
      this.#waitForClient();
      changed(this, "created");
      this.#watch(exec);
      return;
    }
    const names = programs.map(([name = ""]) => name);
    throw new AppError("INVALID_ARGUMENT", `shell: not found in the container: ${names.join(", ")}`, {
      details: { received: names.at(-1) ?? null },
      hint: "send the path of a program in the container",
    });
  }

  /** S1. One that comes to a session that has ended is told so. */
  attach(client: TerminalClient): void {
    if (this.#end !== null) {
      client.ended(this.#end);
      return;
    }
    const before = this.#client;
    this.#cancelIdle();
    this.#client = client;
    before?.replaced();
    this.#move("attach", "attached");
    const missed = this.#backlog.take();
    const isTaking = missed.length === 0 || client.show(missed);
    if (isTaking) this.#exec?.resume();
    else this.#exec?.pause();
  }

  /** Harmless for a client that is not attached any more. */
  detach(client: TerminalClient): void {
    if (this.#client !== client) return;
    this.#client = null;
    this.#waitForClient();
    this.#exec?.resume();
    this.#move("detach", "detached");
  }

  /** What is typed. False: the next should wait for `drained`. */
  write(bytes: Buffer): boolean {
    this.#touch();
    return this.#exec?.write(bytes) ?? true;
  }

  /** After a `show` that gave false. */
  takeMore(): void {
    this.#exec?.resume();
  }

  resize(size: TerminalSize): void {
    this.#touch();
    this.#size = size;
    this.#exec?.resize(size);
  }

  /** To what runs in the foreground. */
  signal(signal: number): void {
    this.#touch();
    this.#exec?.signal(signal);
  }

  /** Takes the terminal away from the shell, which ends it. */
  hangUp(end: SessionEnd = HUNG_UP): void {
    const exec = this.#exec;
    this.#over("end", end);
    exec?.close();
  }

  record(): SessionRecord {
    const { id, tenant_id, container_id } = this;
    return {
      id,
      session_id: id,
      tenant_id,
      target: "container",
      container_id,
      child_container_id: container_id,
      state: this.#state,
      shell: this.#shell,
      is_shell: this.#options.is_shell,
      ...this.#size,
      pid: this.#pid,
      attach_url: `/ws/terminal/attach?session_id=${id}`,
      created_at: toEpochSeconds(this.#created_ms),
      last_activity_at: toEpochSeconds(this.#active_ms),
      expires_at: toEpochSeconds(this.#created_ms + this.#options.ttl_ms),
      exit_code: this.#end?.exit_code ?? null,
      signal: this.#end?.signal ?? null,
      error_code: this.#state === "error" ? "INTERNAL" : null,
      error_message: this.#end?.error_message ?? null,
      retry_count: 0,
    };
  }

  #onOutput(chunk: Buffer): boolean {
    this.#touch();
    if (this.#client !== null) return this.#client.show(chunk);
    if (this.#end !== null) return true;
    this.#backlog.add(chunk);
    // S3. Half: what is on its way comes all the same.
    return this.#state !== "ready" || this.#backlog.length < LIMITS.terminal_backlog_bytes / 2;
  }

  #watch(exec: Exec): void {
    exec.exited.then(
      ({ exit_code, signal }) => {
        // S5.
        if (this.#client === null) this.#unseen = Buffer.from(this.#backlog.take());
        this.#over("end", { exit_code, signal: signalName(signal), error_message: null });
      },
      // The container's own connection ends in the same moment, where the container does.
      () => setImmediate(() => this.#lost()),
    );
  }

  #lost(): void {
    if (this.#options.isLive()) this.#over("fail", { ...KILLED, error_message: "connection to the shell lost" });
    else this.#over("end", KILLED);
  }

  /** S4. */
  #over(verb: "end" | "fail", end: SessionEnd): void {
    if (this.#end !== null) return;
    this.#end = end;
    this.#exec = null;
    this.#cancelIdle();
    this.#cancelTtl();
    this.#backlog.clear();
    const client = this.#client;
    this.#client = null;
    this.#move(verb, "ended");
    client?.ended(end);
  }

  #waitForClient(): void {
    const { clock, idle_ms } = this.#options;
    this.#cancelIdle = clock.after(idle_ms, () => this.hangUp());
  }

  #touch(): void {
    this.#active_ms = this.#options.clock.epochMs();
  }

  #move(verb: TerminalVerb, change: "attached" | "detached" | "ended"): void {
    this.#touch();
    this.#state = terminalStates.next(this.#state, verb);
    this.#options.changed(this, change);
  }
}

const NAMES = new Map(Object.entries(constants.signals).map(([name, signal]) => [Number(signal), name]));

/** Null for 0, which is none. */
function signalName(signal: number): string | null {
  return signal === 0 ? null : (NAMES.get(signal) ?? `SIG${signal}`);
}
