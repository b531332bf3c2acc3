/**
 * Terminal sessions: made, found, ended, by tenant. They live in memory: a shell hangs on this process's connection to
 * it, so no session outlives the daemon, and its id is nobody's then.
 *
 * T1. A tenant has at most its limit `terminals_max` and the node `terminal_sessions_max`, those being made too.
 * T2. A session that has ended leaves the list; the results of a tenant's newest `terminal_ended_kept` stay
 *     readable. Their unseen output is kept up to `terminal_unseen_bytes_max` of each tenant.
 */
import type { Clock } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { type Listed, type Place, pageOf } from "../base/paging.ts";
import { type ServerSocket, Upgrade } from "../base/sockets.ts";
import type { TenantShares } from "../base/tenant-shares.ts";
import type { Engine, RunRequest } from "../engine/ports.ts";
import type { Events } from "../events/service.ts";
import { EndedSessions } from "./ended.ts";
import type { CreateSession, Target, TerminalSize } from "./schema.ts";
import { LEFT, Session, type SessionOptions } from "./session.ts";
import { TerminalSocket } from "./socket.ts";
import { terminalStates } from "./states.ts";

/** What a container gives to a command that is to be run in it; counted until `release`. */
export interface Shells {
  /** Throws NOT_FOUND, NOT_RUNNING, NOT_RESPONDING, CAPACITY_FULL. */
  begin(
    tenant_id: string,
    container_id: string,
    wanted: {
      readonly command: readonly string[];
      readonly environment: Readonly<Record<string, string>>;
      readonly working_directory: string | null | undefined;
      readonly user: string | null | undefined;
      readonly timeout_ms: number;
    },
  ): Promise<{
    readonly row: { readonly id: string };
    readonly request: Pick<RunRequest, "environment" | "working_directory" | "timeout_ms" | "grace_ms" | "user">;
    release(): void;
  }>;
}

export interface TerminalsOptions {
  readonly shells: Shells;
  readonly shares: TenantShares;
  readonly engine: Pick<Engine, "containers">;
  readonly events: Pick<Events, "emit">;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly idle_ms: number;
  readonly ttl_ms: number;
}

/** Where no shell is asked for: the first that the container has. */
const SHELLS = [["/bin/bash"], ["/bin/sh"]];
/** Of what the clients are: xterm.js, and terminals that are like it. */
const TERMINAL_TYPE = "xterm-256color";
const ID_LENGTH = 12;

export class Terminals {
  readonly #options: TerminalsOptions;
  readonly #sessions = new Map<string, Session>();
  #made_count = 0;
  readonly #ended = new EndedSessions<Session>();
  #isClosed = false;

  constructor(options: TerminalsOptions) {
    this.#options = options;
  }

  /**
   * Starts a shell. Throws FORBIDDEN for another target than a container, UNPROCESSABLE_ENTITY without one, NOT_FOUND,
   * NOT_RUNNING, NOT_RESPONDING, INVALID_ARGUMENT (the shell), CONCURRENCY_LIMIT, CAPACITY_FULL, SHUTTING_DOWN.
   */
  async create(tenant_id: string, wanted: CreateSession): Promise<Session> {
    const { target, container_id } = wanted;
    if (target === "master") {
      throw new AppError("FORBIDDEN", "target: a shell runs in a container, never on the node", {
        details: { expected: ["container"], received: target },
        hint: "send the container_id of a running container",
      });
    }
    if (container_id === undefined) {
      throw new AppError("UNPROCESSABLE_ENTITY", "container_id: expected string, received nothing", {
        details: { expected: ["string"], received: "nothing" },
      });
    }
    if (this.#isClosed) throw shuttingDown();
    const session = await this.#start(
      tenant_id,
      container_id,
      wanted,
      this.#options.shares.take("terminals", tenant_id),
    );
    if (!this.#isClosed) return session;
    session.hangUp();
    throw shuttingDown();
  }

  /** Of what was taken, `give` too, all is given back by the session's end, or here. */
  async #start(
    tenant_id: string,
    container_id: string,
    { shell, command, environment, working_directory, user, cols, rows }: CreateSession,
    give: () => void,
  ): Promise<Session> {
    try {
      const begun = await this.#options.shells.begin(tenant_id, container_id, {
        command: [],
        environment: { TERM: TERMINAL_TYPE, ...environment },
        working_directory,
        user,
        timeout_ms: 0,
      });
      const { row, request } = begun;
      const release = () => {
        begun.release();
        give();
      };
      try {
        const id = `sess_${this.#options.ids.hex(ID_LENGTH)}`;
        const session = new Session(
          this.#sessionOptions(id, tenant_id, {
            container_id: row.id,
            size: { cols, rows },
            is_shell: command === undefined,
            request,
            release,
          }),
        );
        await session.start(command !== undefined ? [command] : shell !== undefined ? [[shell]] : SHELLS);
        return session;
      } catch (error) {
        release();
        throw error;
      }
    } catch (error) {
      give();
      throw error;
    }
  }

  /** Those that have not ended, newest first. `container_ids`: only of these containers; absent: of all. */
  list(
    tenant_id: string,
    target: Target | undefined,
    { limit, below }: Place,
    container_ids?: ReadonlySet<string>,
  ): Listed<Session> {
    const own = [...this.#sessions.values()].filter(
      ({ tenant_id: owner, number, container_id }) =>
        target !== "master" &&
        owner === tenant_id &&
        number < below &&
        (container_ids === undefined || container_ids.has(container_id)),
    );
    own.sort((a, b) => b.number - a.number);
    return pageOf(
      own,
      limit,
      ({ number }) => number,
      (session) => session,
    );
  }

  /** Also one that has ended, for a while. Throws NOT_FOUND. */
  get(tenant_id: string, id: string): Session {
    const session = this.#sessions.get(id) ?? this.#ended.get(tenant_id, id);
    if (session?.tenant_id === tenant_id) return session;
    throw new AppError("NOT_FOUND", `terminal session '${id}' not found`);
  }

  /** The container of a session; null: there is no such session. */
  containerOf(tenant_id: string, id: string): string | null {
    const session = this.#sessions.get(id) ?? this.#ended.get(tenant_id, id);
    return session?.tenant_id === tenant_id ? session.container_id : null;
  }

  /** Throws NOT_FOUND, WRONG_STATE for one that has ended. */
  resize(tenant_id: string, id: string, size: TerminalSize): void {
    this.#running(tenant_id, id).resize(size);
  }

  /** Ends it, and its shell. Nothing to do for one that has ended. Throws NOT_FOUND. */
  end(tenant_id: string, id: string): void {
    this.get(tenant_id, id).hangUp();
  }

  /** Throws NOT_FOUND, WRONG_STATE for one that has ended, unless nobody has seen its end yet. */
  attach(
    tenant_id: string,
    id: string,
    { cols, rows }: { readonly [Side in keyof TerminalSize]?: number | undefined },
  ): Upgrade {
    const ended = this.get(tenant_id, id);
    const unseen = this.#ended.unseen(tenant_id, id);
    if (unseen !== undefined) {
      return new Upgrade((socket: ServerSocket) => {
        this.#ended.seen(tenant_id, id);
        return new TerminalSocket(socket, ended, unseen);
      });
    }
    const session = this.#running(tenant_id, id);
    const { cols: before_cols, rows: before_rows } = session.record();
    return new Upgrade((socket: ServerSocket) => {
      if (cols !== undefined || rows !== undefined)
        session.resize({ cols: cols ?? before_cols, rows: rows ?? before_rows });
      return new TerminalSocket(socket, session);
    });
  }

  /** For a client that wants one of its own. Throws what `create` does. */
  async attachNew(tenant_id: string, wanted: CreateSession): Promise<Upgrade> {
    const session = await this.create(tenant_id, wanted);
    return new Upgrade(
      (socket) => new TerminalSocket(socket, session),
      () => session.hangUp(),
    );
  }

  /** Ends all sessions; none is made any more. */
  close(): void {
    this.#isClosed = true;
    for (const session of this.#sessions.values()) session.hangUp(LEFT);
  }

  #running(tenant_id: string, id: string): Session {
    const session = this.get(tenant_id, id);
    terminalStates.next(session.state, "attach");
    return session;
  }

  #sessionOptions(
    id: string,
    tenant_id: string,
    {
      release,
      ...asked
    }: Pick<SessionOptions, "container_id" | "size" | "is_shell" | "request"> & { readonly release: () => void },
  ): SessionOptions {
    const { engine, clock, idle_ms, ttl_ms } = this.#options;
    return {
      id,
      number: ++this.#made_count,
      tenant_id,
      ...asked,
      clock,
      idle_ms,
      ttl_ms,
      open: (run, listener) => engine.containers.exec(asked.container_id, run, listener),
      isLive: () => engine.containers.live(asked.container_id)?.control.isOpen === true,
      changed: (session, change) => {
        if (change === "created") this.#sessions.set(id, session);
        if (change === "ended") {
          this.#sessions.delete(id);
          this.#ended.add(session, session.takeUnseen());
          release();
        }
        this.#tell(session, change);
      },
    };
  }

  #tell(session: Session, event_type: string): void {
    const { events, log } = this.#options;
    const { id, tenant_id, container_id, state, end } = session;
    const ended = end === null ? {} : { exit_code: end.exit_code, signal: end.signal };
    const data = { session_id: id, state, ...ended };
    events.emit(tenant_id, { name: "terminal_update", event_type, container_id, data }).catch((error) => {
      log.warn("cannot store the event of a terminal", { session_id: id, error: errorText(error) });
    });
  }
}

const shuttingDown = (): AppError => new AppError("SHUTTING_DOWN", "the daemon is shutting down");
