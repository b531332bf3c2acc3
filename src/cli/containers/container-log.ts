/**
 * What a container's command writes, up to now or until it ends. The log is followed from where it was when the stream
 * breaks: containers outlive the daemon. Whether the container has ended is looked at after each of its events.
 */
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import { ApiError, type ResponseOf } from "../../client/client.ts";
import { serverEvents } from "../daemon/events.ts";
import { json, visible } from "../output/text.ts";
import { stamp } from "../output/time.ts";
import { EXIT } from "../session/failure.ts";
import { frames } from "../session/frames.ts";
import { pauseBetween } from "../session/poll.ts";
import { type ContainerRecord, type Flags, isRefusal, type Session, type Words } from "../session/session.ts";

type Entry = ResponseOf<"GET /api/containers/:container_id/logs">["logs"][number];

export interface Following {
  readonly limit?: number | undefined;
  readonly since?: string | undefined;
  /** Number of the line to begin behind, in place of the newest `limit`: 0 for all that the log keeps. */
  readonly after_seq?: number;
  readonly print: (entry: Entry) => void;
  /** Whether somebody has stopped it, after which no restart is waited for. */
  readonly isStopped?: () => boolean;
}

/** Whether it will not go on by itself. */
function isOver({ state, restart, exit_code }: ContainerRecord, isStopped: boolean): boolean {
  if (state !== "exited" && state !== "error") return false;
  return isStopped || restart === "no" || (restart === "on-failure" && exit_code === 0);
}

/**
 * Goes on after a connection that broke, a bounded number of times in a row, until an attempt says that it is the last or
 * `signal` does. What the API refuses is thrown.
 */
async function again(signal: AbortSignal, attempt: (succeeded: () => void) => Promise<boolean>): Promise<void> {
  for (let failed_count = 0; ; ) {
    try {
      if (await attempt(() => (failed_count = 0))) return;
    } catch (error) {
      if (signal.aborted) return;
      failed_count += 1;
      const isBroken = !(error instanceof ApiError) || isRefusal(error, "SHUTTING_DOWN");
      if (!isBroken || failed_count > LIMITS.cli_reconnects_max) throw error;
    }
    await pauseBetween();
  }
}

/** The container's end, null once it is deleted. */
export async function endOf(
  session: Session,
  container_id: string,
  isStopped: () => boolean,
): Promise<ContainerRecord | null> {
  const client = session.client();
  const abort = new AbortController();
  let record: ContainerRecord | null = null;
  try {
    await again(abort.signal, async (succeeded) => {
      const query = { name: "container_update", container_id };
      const { pieces } = await client.open("GET /api/events", { query, signal: abort.signal });
      for await (const _ of serverEvents(pieces)) {
        record = await client.request("GET /api/containers/:container_id", { params: { container_id } });
        succeeded();
        if (isOver(record, isStopped())) return true;
      }
      return false;
    });
  } catch (error) {
    if (!isRefusal(error, "NOT_FOUND")) throw error;
    record = null;
  } finally {
    abort.abort();
  }
  return record;
}

/** Prints what is written until the container has ended; its record then, null once it is deleted. */
export async function followToEnd(
  session: Session,
  container_id: string,
  { limit = LIMITS.log_lines_max, since, after_seq: begin_seq, print, isStopped = () => false }: Following,
): Promise<ContainerRecord | null> {
  const client = session.client();
  const params = { container_id };
  const over = new AbortController();
  const end = endOf(session, container_id, isStopped).finally(() => over.abort());
  end.catch(() => {});
  let after_seq = begin_seq;
  const printNew = (entry: Entry) => {
    if (after_seq !== undefined && entry.seq > after_seq + 1) {
      session.terminal.note(`… ${counted(entry.seq - after_seq - 1, "line")} skipped: the log no longer keeps them`);
    }
    after_seq = entry.seq;
    print(entry);
  };
  const look = () => (after_seq === undefined ? { limit, since } : { after_seq });
  /** Up to line `last_seq`, or until `signal` is aborted. */
  const follow = async (last_seq: number, signal: AbortSignal, succeeded: () => void) => {
    const query = { ...look(), follow: true };
    const { pieces } = await client.open("GET /api/containers/:container_id/logs", { params, query, signal });
    for await (const entry of frames<Entry>(pieces)) {
      succeeded();
      printNew(entry);
      if (entry.seq >= last_seq) return;
    }
  };
  try {
    await again(over.signal, async (succeeded) => {
      await follow(Number.POSITIVE_INFINITY, over.signal, succeeded);
      return over.signal.aborted;
    });
  } catch (error) {
    if (!isRefusal(error, "NOT_FOUND")) throw error;
  }
  const record = await end;
  if (record === null) return null;
  // What was written last may not have come before the word of the end.
  const { logs } = await client.request("GET /api/containers/:container_id/logs", { params, query: { limit: 1 } });
  const last_seq = logs.at(-1)?.seq ?? 0;
  if ((after_seq ?? 0) >= last_seq) return record;
  const rest = new AbortController();
  await follow(last_seq, rest.signal, () => {}).finally(() => rest.abort());
  return record;
}

/** Writes why the container could not be started, or was stopped by the daemon, if it was: no log has that. */
export function reportError(
  terminal: Session["terminal"],
  { error_message }: Pick<ContainerRecord, "error_message">,
): void {
  if (error_message === null) return;
  const isUnhealthy = error_message.startsWith("unhealthy:");
  const what = isUnhealthy ? "the container was stopped" : "the container could not be started";
  terminal.err(`hearth: ${what}: ${visible(error_message)}\n`);
}

/** A line as it was written, on the stream that it was written to. */
export function pass(session: Session, { stream, message, partial }: Entry): void {
  const end = partial ? "" : "\n";
  if (stream === "stderr") session.terminal.err(`${message}${end}`);
  else session.terminal.out(`${message}${end}`);
}

/** On a terminal what would drive it is made visible. */
function show(session: Session, entry: Entry, withTime: boolean): void {
  const { terminal } = session;
  const at = withTime ? `${terminal.paint("dim", stamp(Math.floor(Date.parse(entry.timestamp) / 1000)))}  ` : "";
  const message = terminal.width === null ? entry.message : entry.message.split("\t").map(visible).join("\t");
  // With times every piece is a line of its own.
  pass(session, at === "" ? { ...entry, message } : { ...entry, message: `${at}${message}`, partial: false });
}

export async function containerLogs(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const isJson = session.flags.json === true;
  const params = { container_id: await session.containerId(name) };
  const query = { limit: (flags.tail ?? flags.limit) as number | undefined, since: sinceOf(session, flags) };
  const print = (entry: Entry) => {
    if (isJson) session.terminal.out(`${json(entry, 0)}\n`);
    else show(session, entry, flags.timestamps === true);
  };
  if (flags.follow === true) {
    session.interrupt_exit_code = EXIT.success;
    const limit = query.limit ?? LIMITS.log_lines_default;
    const record = await followToEnd(session, params.container_id, { limit, since: query.since, print });
    if (record !== null) reportError(session.terminal, record);
    return;
  }
  const answer = await session.client().request("GET /api/containers/:container_id/logs", { params, query });
  if (isJson) session.show(answer, () => "");
  else for (const entry of answer.logs) print(entry);
  reportError(session.terminal, await session.client().request("GET /api/containers/:container_id", { params }));
}

/** `10m` is so long ago; anything else is a moment for the API. */
function sinceOf(session: Session, flags: Flags): string | undefined {
  const since = flags.since as number | string | undefined;
  return typeof since === "number" ? String(session.now - since) : since;
}
