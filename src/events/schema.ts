/** Shapes of events, as a concern gives them and as a reader of the stream gets them. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { epochSeconds, nextCursor, pageQuery, queryLimit, queryNumber } from "../base/schema.ts";

/** What changed: the name of the event on the wire. What happened to it is the event's `event_type`. */
const EVENT_NAMES = [
  "container_update",
  "operation_update",
  "volume_update",
  "function_update",
  "image_update",
  "snapshot_update",
  "terminal_update",
  "api_key_update",
  "tenant_update",
  "secret_update",
  "service_update",
  "message_update",
] as const;
export type EventName = (typeof EVENT_NAMES)[number];

/** A change, as the concern that makes it tells of it. Nothing in it is a secret or a payload, and output only in `build_log`. */
export interface NewEvent {
  readonly name: EventName;
  /** A past participle: `created`, `started`, `died`. */
  readonly event_type: string;
  readonly container_id?: string | null;
  readonly operation_id?: string | null;
  readonly snapshot_id?: string | null;
  /** What else a reader is told: the thing's id, its name, its state. */
  readonly data?: Readonly<Record<string, unknown>>;
}

const cursor = queryNumber(0, Number.MAX_SAFE_INTEGER);

export const eventsQuery = z.object({
  last_event_id: cursor
    .optional()
    .describe(
      "Resumes after this event id; 0 starts with the oldest kept event. The Last-Event-ID header takes precedence. Default: new events only.",
    ),
  container_id: z.string().optional().describe("Only events of this container, by id or name."),
  operation_id: z.string().optional().describe("Only events of this operation."),
  snapshot_id: z.string().optional().describe("Only events of this snapshot."),
  name: z
    .string()
    .optional()
    .describe(`Only events of this name: ${EVENT_NAMES.join(", ")}.`),
  type: z.string().optional().describe("Only events of this event_type."),
});

export type EventFilter = Pick<
  z.output<typeof eventsQuery>,
  "container_id" | "operation_id" | "snapshot_id" | "name" | "type"
> & {
  /** Only events of these containers, their operations and terminals. */
  readonly container_ids?: ReadonlySet<string> | undefined;
};

/** Events that tell of a container itself. */
export const CONTAINER_EVENTS: readonly string[] = [
  "container_update",
  "operation_update",
  "terminal_update",
  "message_update",
] satisfies readonly EventName[];

/** A value of `Last-Event-ID`; null where it is none of ours. */
export function parseEventId(text: string): number | null {
  const parsed = cursor.safeParse(text.trim());
  return parsed.success ? parsed.data : null;
}

/** What the stream says, for its description. */
export const EVENTS_SUMMARY = `Streams the tenant's events as server-sent events: first ready, then one per change, and a heartbeat every ${LIMITS.event_heartbeat_ms / 1000} s. A gap event marks events that are no longer kept.`;

/** An event in the list of the newest ones. */
export const activityEntry = z
  .object({
    activity_id: z.string().describe("Id of the event; the stream GET /api/events has the same."),
    timestamp: epochSeconds,
    type: z.string().describe("Name of the event, such as container_update."),
    event_type: z.string().describe("What happened, as a past participle: created, started, died."),
    message: z.string().describe("The event as text."),
    container_id: z.string().nullable().describe("Id of the container; null for other events."),
    operation_id: z.string().nullable().describe("Id of the operation; null for other events."),
    snapshot_id: z.string().nullable().describe("Id of the snapshot; null for other events."),
    data: z.record(z.string(), z.unknown()).describe("All fields of the event."),
  })
  .meta({ id: "Activity" });
export type ActivityEntry = Readonly<z.output<typeof activityEntry>>;

export const activityList = z
  .object({ activities: z.array(activityEntry).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "ActivityList" });

export const activityQuery = pageQuery.extend({
  limit: queryLimit(LIMITS.activity_limit_default, LIMITS.activity_limit_max),
});
