/**
 * A terminal in a container on the one that we run on, over a WebSocket: keys go as they are pressed, what it shows comes
 * as it is. Ctrl-P Ctrl-Q leaves it there for a later `hearth attach`.
 */
import type { IncomingMessage } from "node:http";
import WebSocket from "ws";
import { LIMITS } from "../../base/limits.ts";
import { apiError, Unreachable } from "../../client/client.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import type { Session, Words } from "../session/session.ts";

export interface Attaching {
  readonly container_id?: string;
  /** One that is there, in place of a new one. */
  readonly session_id?: string;
  /** What is run; a shell unless given. */
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>> | undefined;
  readonly working_directory?: string | undefined;
  readonly user?: string | undefined;
}

export interface Attached {
  /** Null: it was left running. */
  readonly exit_code: number | null;
  readonly session_id: string;
}

type Frame =
  | { readonly type: "ready"; readonly session_id: string }
  | { readonly type: "exit"; readonly code: number | null }
  | { readonly type: "error"; readonly message: string }
  | { readonly type: "pong" };

const CTRL_P = 0x10;
const CTRL_Q = 0x11;
/** Signals that end a process which does nothing about them, and would leave the terminal raw. */
const DEADLY = { SIGTERM: 15, SIGHUP: 1 } as const;

export function checkTerminal(): void {
  if (process.stdin.isTTY && process.stdout.isTTY) return;
  throw usage("-t needs a terminal on standard input and output", "leave -t out; -i alone passes standard input");
}

/** Runs it to its end, or until it is left. Throws what the API refuses, and Failure where the connection breaks. */
export async function attach(session: Session, asked: Attaching): Promise<Attached> {
  checkTerminal();
  const { url, key } = session.target;
  const session_id = asked.session_id ?? (await started(session, asked));
  const to = new URL("/ws/terminal/attach", url);
  to.protocol = to.protocol === "https:" ? "wss:" : "ws:";
  const { columns, rows } = process.stdout;
  const query = { session_id, cols: columns, rows };
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== 0) to.searchParams.set(name, String(value));
  }
  const socket = new WebSocket(to, ["terminal"], {
    headers: key === null ? {} : { "x-api-key": key },
    handshakeTimeout: LIMITS.cli_request_timeout_ms,
    perMessageDeflate: false,
  });
  await opened(socket, url);
  return converse(session, socket);
}

/** The id of a session that is made for it. */
async function started(session: Session, asked: Attaching): Promise<string> {
  const { container_id, command = [], environment, working_directory, user } = asked;
  const body = {
    container_id,
    environment,
    working_directory,
    user,
    command: command.length === 0 ? undefined : [...command],
  };
  return (await session.client().request("POST /api/terminal/sessions", { body })).session_id;
}

async function opened(socket: WebSocket, url: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // What comes with the answer to the handshake waits for its listeners.
  socket.once("open", () => {
    socket.pause();
    resolve();
  });
  socket.once("unexpected-response", (_request, response: IncomingMessage) => {
    apiError(response).then(reject, reject);
  });
  socket.on("error", (cause) => reject(new Unreachable(`no daemon answers at ${url}`, { cause })));
  await promise;
}

async function converse({ terminal }: Session, socket: WebSocket): Promise<Attached> {
  const { stdin, stdout } = process;
  const { promise, resolve, reject } = Promise.withResolvers<Attached>();
  const state = { session_id: "", isPrefixed: false };
  const say = (frame: object) => socket.send(JSON.stringify(frame));
  const onKeys = (keys: Buffer): void => {
    const sent: number[] = [];
    for (const key of keys) {
      if (state.isPrefixed && key === CTRL_Q) {
        if (sent.length > 0) socket.send(Buffer.from(sent));
        resolve({ exit_code: null, session_id: state.session_id });
        return;
      }
      if (state.isPrefixed) sent.push(CTRL_P);
      state.isPrefixed = key === CTRL_P;
      if (!state.isPrefixed) sent.push(key);
    }
    if (sent.length > 0) socket.send(Buffer.from(sent));
  };
  const onResize = () => say({ type: "resize", cols: stdout.columns, rows: stdout.rows });
  socket.on("message", (data: Buffer, isBinary) => {
    if (isBinary) {
      if (stdout.write(data)) return;
      socket.pause();
      stdout.once("drain", () => socket.resume());
      return;
    }
    const frame = JSON.parse(data.toString("utf8")) as Frame;
    if (frame.type === "ready") state.session_id = frame.session_id;
    else if (frame.type === "exit") resolve({ exit_code: frame.code ?? EXIT.refused, session_id: state.session_id });
    else if (frame.type === "error") reject(new Failure(EXIT.refused, frame.message));
  });
  socket.on("close", (_code, reason) => {
    const why = reason.length === 0 ? "" : `: ${reason}`;
    reject(new Failure(EXIT.unreachable, `connection to the terminal closed${why}`));
  });
  const undo = terminal.raw(stdin);
  const onDeadly = (name: keyof typeof DEADLY) => process.exit(128 + DEADLY[name]);
  for (const name of Object.keys(DEADLY)) process.on(name, onDeadly);
  stdin.on("data", onKeys);
  stdout.on("resize", onResize);
  socket.resume();
  try {
    return await promise;
  } finally {
    stdin.off("data", onKeys);
    stdin.pause();
    stdout.off("resize", onResize);
    for (const name of Object.keys(DEADLY)) process.off(name, onDeadly);
    undo();
    socket.close();
  }
}

/** After Ctrl-P Ctrl-Q. */
export function noteLeft({ terminal }: Session, { session_id }: Attached): void {
  terminal.note(`\r\ndetached; to attach again: hearth attach ${session_id}`);
}

export async function reattach(session: Session, [session_id = ""]: Words): Promise<void> {
  const ended = await attach(session, { session_id });
  if (ended.exit_code === null) noteLeft(session, ended);
  process.exitCode = ended.exit_code ?? EXIT.success;
}
