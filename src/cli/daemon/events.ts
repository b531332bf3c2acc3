/** Events as lines: those that are kept, or those that happen. A stream that breaks is gone on with where it was. */
import { LIMITS } from "../../base/limits.ts";
import { ApiError } from "../../client/client.ts";
import { json, visible } from "../output/text.ts";
import { stamp } from "../output/time.ts";
import { EXIT } from "../session/failure.ts";
import { pauseBetween } from "../session/poll.ts";
import type { Flags, Session, Words } from "../session/session.ts";

interface ServerEvent {
  readonly name: string;
  readonly id: number | null;
  readonly data: Readonly<Record<string, unknown>>;
}

/** What is told in the columns before. */
const SHOWN: ReadonlySet<string> = new Set(["event_id", "event_type", "at", "timestamp"]);

/** The events of a stream, as far as it goes. Comments and fields that are not used here are passed over. */
export async function* serverEvents(pieces: AsyncIterable<Buffer>): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of pieces) {
    text += decoder.decode(piece, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const fields = new Map<string, string>();
      for (const line of text.slice(0, end).split("\n")) {
        const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
        if (name !== undefined) fields.set(name, value ?? "");
      }
      text = text.slice(end + 2);
      const id = fields.get("id");
      yield {
        name: fields.get("event") ?? "message",
        id: id === undefined ? null : Number(id),
        data: JSON.parse(fields.get("data") ?? "{}"),
      };
    }
  }
}

function lineOf(session: Session, { name, data }: ServerEvent): string {
  const { paint } = session.terminal;
  const rest = Object.entries(data)
    .filter(([field, value]) => !SHOWN.has(field) && value !== null)
    .map(([field, value]) => `${field}=${typeof value === "string" ? value : json(value, 0)}`);
  const at = typeof data.at === "number" ? stamp(data.at) : "";
  return `${paint("dim", at)}  ${name}  ${String(data.event_type ?? "")}  ${visible(rest.join(" "))}\n`;
}

export async function events(session: Session, _words: Words, flags: Flags): Promise<void> {
  const isFollowing = flags.follow === true;
  if (isFollowing) session.interrupt_exit_code = EXIT.success;
  const filter = {
    name: flags.name as string | undefined,
    type: flags.type as string | undefined,
    container_id: flags.container as string | undefined,
    operation_id: flags.operation as string | undefined,
  };
  const isWanted = ({ name, data }: ServerEvent): boolean =>
    (filter.name ?? name) === name &&
    (filter.type ?? data.event_type) === data.event_type &&
    (filter.container_id ?? data.container_id) === data.container_id &&
    (filter.operation_id ?? data.operation_id) === data.operation_id;
  let last_event_id = (flags.after as number | undefined) ?? (isFollowing ? undefined : 0);
  for (let failed_count = 0; ; ) {
    // Where what is kept ends is seen only by who is sent all of it.
    const query = { ...(isFollowing ? filter : {}), last_event_id };
    const abort = new AbortController();
    let newest = Number.POSITIVE_INFINITY;
    try {
      const { pieces } = await session.client().open("GET /api/events", { query, signal: abort.signal });
      for await (const event of serverEvents(pieces)) {
        last_event_id = event.id ?? last_event_id;
        failed_count = 0;
        if (event.name === "ready") newest = Number(event.data.newest_event_id);
        else if (isFollowing || event.name === "gap" || isWanted(event)) show(session, event);
        if (!isFollowing && (last_event_id ?? 0) >= newest) return;
      }
    } catch (error) {
      // Before anything was heard it is not a stream that broke.
      const isBroken = isFollowing && last_event_id !== undefined && !(error instanceof ApiError);
      failed_count += 1;
      if (!isBroken || failed_count > LIMITS.cli_reconnects_max) throw error;
    } finally {
      abort.abort();
    }
    await pauseBetween();
  }
}

function show(session: Session, event: ServerEvent): void {
  if (event.name === "heartbeat") return;
  if (event.name === "gap") {
    const { after_event_id, until_event_id } = event.data;
    session.terminal.note(`… events ${after_event_id} (exclusive) to ${until_event_id} are no longer kept`);
    return;
  }
  session.terminal.out(
    session.flags.json === true ? `${json({ name: event.name, ...event.data }, 0)}\n` : lineOf(session, event),
  );
}
