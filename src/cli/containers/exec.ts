/** `hearth exec`: a command in a container, its output as it comes, its exit code ours. */
import { LIMITS } from "../../base/limits.ts";
import { ApiError } from "../../client/client.ts";
import { environmentOf } from "../functions/function-fields.ts";
import { shellWord, visible } from "../output/text.ts";
import { EXIT, EXIT_READER_GONE, Failure, usage } from "../session/failure.ts";
import { frames } from "../session/frames.ts";
import { readInput } from "../session/input.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { callersVariable } from "../session/target.ts";

type Frame =
  | { readonly type: "started" }
  | { readonly type: "stdout" | "stderr"; readonly data_b64: string }
  | { readonly type: "timeout" | "error"; readonly message: string }
  | { readonly type: "exit"; readonly code: number | null };

const WITHOUT_BOUND = "leave out -d and --json: standard input has no limit then";

/** Without the `--` before the command. */
export function commandOf(words: Words): string[] {
  const given = words as string[];
  return given[0] === "--" ? given.slice(1) : given.slice();
}

/** In milliseconds. A command that is detached has none unless it is given one. */
export function deadline({ timeout, detach }: Flags): number | undefined {
  if (timeout !== undefined) return (timeout as number) * 1_000;
  return detach === true ? undefined : LIMITS.exec_timeout_ms_max;
}

export async function exec(session: Session, [name = "", ...rest]: Words, flags: Flags): Promise<void> {
  const command = commandOf(rest);
  const environment = await environmentOf(flags, callersVariable);
  const working_directory = flags.workdir as string | undefined;
  const user = flags.user as string | undefined;
  session.advice = { NOT_RUNNING: `to start it: hearth start ${shellWord(name)}` };
  if (flags.tty === true) {
    const { attach, checkTerminal, noteLeft } = await import("./attach.ts");
    checkTerminal();
    const container_id = await session.containerId(name);
    const ended = await attach(session, { container_id, command, environment, working_directory, user });
    if (ended.exit_code === null) noteLeft(session, ended);
    process.exitCode = ended.exit_code ?? EXIT.success;
    return;
  }
  if (command.length === 0) {
    const word = shellWord(name);
    throw usage(
      "no command given",
      `to run a command: hearth exec ${word} -- ls; for a shell: hearth exec -it ${word}`,
    );
  }
  const body = { command, environment, working_directory, user, timeout_ms: deadline(flags) };
  const params = { container_id: await session.containerId(name) };
  const isInteractive = flags.interactive === true;
  if (flags.detach === true || session.flags.json === true) {
    const detach = flags.detach === true;
    // As with docker, what is detached has no terminal to read from.
    const hasInput = isInteractive && !(detach && process.stdin.isTTY);
    const stdin_data = hasInput ? await readInput("-", WITHOUT_BOUND) : undefined;
    const client = session.client(LIMITS.cli_call_timeout_ms);
    const answer = await client.request("POST /api/containers/:container_id/exec", {
      params,
      body: { ...body, stdin_data, detach },
    });
    session.show(answer, () => `${answer.job_id}\n`);
    process.exitCode = answer.exit_code ?? EXIT.success;
    return;
  }
  session.terminal.onReaderGone = () => process.exit(EXIT_READER_GONE);
  if (isInteractive) {
    process.exitCode = await interact(session, params.container_id, body);
    return;
  }
  const stream = session.client().open("POST /api/containers/:container_id/stream", { params, body });
  const { pieces } = await stream.catch((error) => {
    throw unstarted(error) ?? error;
  });
  process.exitCode = await streamed(session, pieces, "out");
}

/** With our standard input, however long it is. */
async function interact(session: Session, container_id: string, start: object): Promise<number> {
  const { converse, Lost } = await import("./streams.ts");
  try {
    return await converse(session, { path: `/ws/containers/${container_id}/exec`, start, hasInput: true });
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    throw new Failure(EXIT.unreachable, error.message, "the daemon ended the command");
  }
}

/** As shells have it: 127 for a command that is not there, 126 for one that is not executable. Null: another refusal. */
function unstarted(error: unknown): Failure | null {
  const body = error instanceof ApiError ? error.body : null;
  const exit_code = body?.error_code === "INVALID_ARGUMENT" ? (body.details?.exit_code ?? null) : null;
  return body === null || exit_code === null ? null : new Failure(exit_code, body.error);
}

/** Passes a command's output on, its standard output to `stdout`; `onOutput` sees it too. Resolves to its exit code. */
export async function streamed(
  { terminal }: Session,
  pieces: AsyncIterable<Buffer>,
  stdout: "out" | "err",
  onOutput: (bytes: Buffer) => void = () => {},
): Promise<number> {
  for await (const frame of frames<Frame>(pieces)) {
    if ("data_b64" in frame) onOutput(Buffer.from(frame.data_b64, "base64"));
    if (frame.type === "stdout") await terminal.pass(stdout, Buffer.from(frame.data_b64, "base64"));
    else if (frame.type === "stderr") await terminal.pass("err", Buffer.from(frame.data_b64, "base64"));
    else if (frame.type === "timeout") terminal.err(`hearth: ${visible(frame.message)}\n`);
    else if (frame.type === "error") throw new Failure(EXIT.refused, frame.message);
    else if (frame.type === "exit") return frame.code ?? EXIT.refused;
  }
  throw new Failure(EXIT.unreachable, "connection lost before the command exited", "the daemon ended the command");
}
