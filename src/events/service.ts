/**
 * Changes of a tenant's resources in a durable log: each event is written in the very batch that makes the change, so
 * that neither is there without the other. Readers of the stream get them from here.
 *
 * E5. An event's number is the next of its tenant: higher than that of all before it, never given again, and without a
 *     trace of other tenants' events. The order over all tenants (`seq`) stays inside.
 * E6. What is deleted of the log is noted per tenant, so that a reader who asks for it is told (`gap`).
 * E7. All that follow are fed from one reading of what is new, however many they are.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import {
  type Row,
  type Statement,
  type Store,
  textOrNull,
  type WriteOptions,
  type WriteResult,
} from "../store/store.ts";
import type { ActivityEntry, EventFilter, NewEvent } from "./schema.ts";
import {
  type EventLog,
  type EventPage,
  EventStream,
  type EventStreamOptions,
  eventText,
  type LoggedEvent,
} from "./stream.ts";

/** Of the tenant's newest event, those that are no longer kept included; takes the tenant twice. */
const NEWEST = `max(coalesce((SELECT max(number) FROM events WHERE tenant_id = ?), 0),
  coalesce((SELECT number FROM event_horizons WHERE tenant_id = ?), 0))`;
const SELECT =
  "SELECT seq, number, tenant_id, name, event_type, container_id, operation_id, snapshot_id, data FROM events";

export interface EventsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
}

export interface OpenStream {
  readonly filter: EventFilter;
  /** The id behind which it begins; null: from now on. */
  readonly last_event_id: number | null;
  readonly recheck: () => Promise<void> | undefined;
  readonly signal: AbortSignal;
}

export class Events implements EventLog {
  readonly clock: Clock;
  readonly #store: Store;
  readonly #log: Log;
  readonly #streams = new Map<string, Set<EventStream>>();
  #stream_count = 0;
  #pushed_seq = 0;
  /** Done when `#pushed_seq` is where the log stood when the first of the streams came. */
  #primed: Promise<void> | null = null;
  #isScheduled = false;
  #isClosed = false;
  /** New events of a tenant since its events were counted. */
  readonly #uncounted = new Map<string, number>();

  constructor({ store, clock, log }: EventsOptions) {
    this.#store = store;
    this.#log = log;
    this.clock = clock;
  }

  get pushed_seq(): number {
    return this.#pushed_seq;
  }

  /** The event as a statement of the batch that makes the change. `published` wants to be called after its commit. */
  statement(tenant_id: string, event: NewEvent): Statement {
    const { name, event_type, container_id = null, operation_id = null, snapshot_id = null } = event;
    const at_ms = Math.floor(this.clock.epochMs());
    const ids = Object.entries({ container_id, operation_id, snapshot_id }).filter(([, id]) => id !== null);
    const head = { event_type, at: toEpochSeconds(at_ms), timestamp: at_ms, ...Object.fromEntries(ids) };
    const whole = JSON.stringify({ ...head, ...event.data });
    // Its maker is to keep it small; the change that it tells of must not fail for it.
    const data =
      Buffer.byteLength(whole) <= LIMITS.event_bytes_max ? whole : JSON.stringify({ ...head, truncated: true });
    this.#uncounted.set(tenant_id, (this.#uncounted.get(tenant_id) ?? 0) + 1);
    return {
      // Nothing is told of a tenant that is gone.
      sql: `INSERT INTO events (tenant_id, number, at_ms, name, event_type, container_id, operation_id, snapshot_id, data)
        SELECT ?, ${NEWEST} + 1, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM tenants WHERE id = ?)`,
      args: [
        ...[tenant_id, tenant_id, tenant_id, at_ms, name, event_type],
        ...[container_id, operation_id, snapshot_id, data, tenant_id],
      ],
    };
  }

  /** Commits a change with the events that tell of it: both, or none of them. */
  async write(
    statements: readonly Statement[],
    tenant_id: string,
    events: readonly NewEvent[],
    options?: WriteOptions,
  ): Promise<WriteResult> {
    const told = events.map((event) => this.statement(tenant_id, event));
    try {
      return await this.#store.write([...statements, ...told], options);
    } finally {
      // After a failure too: it may be committed and not be synced.
      this.published();
    }
  }

  /** An event of which nothing else is written. */
  async emit(tenant_id: string, event: NewEvent): Promise<void> {
    await this.write([], tenant_id, [event]);
  }

  /** Tells that events may have been committed. */
  published(): void {
    if (this.#stream_count === 0 || this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      void this.#pushNew().catch((error) => this.#log.warn("cannot read events", { error: errorText(error) }));
    });
  }

  /** A stream for a reader. Throws CONCURRENCY_LIMIT, CAPACITY_FULL, SHUTTING_DOWN. */
  async open(tenant_id: string, { filter, last_event_id, recheck, signal }: OpenStream): Promise<EventStream> {
    const own = this.#streams.get(tenant_id) ?? new Set();
    if (this.#isClosed) throw new AppError("SHUTTING_DOWN", "the daemon is shutting down");
    if (own.size >= LIMITS.event_streams_per_tenant_max) {
      throw new AppError(
        "CONCURRENCY_LIMIT",
        `too many event streams of the tenant (limit ${LIMITS.event_streams_per_tenant_max})`,
        {
          retry_after: 5,
        },
      );
    }
    if (this.#stream_count >= LIMITS.event_streams_max) {
      throw new AppError("CAPACITY_FULL", `too many event streams on this node (limit ${LIMITS.event_streams_max})`, {
        retry_after: 5,
      });
    }
    const place = { stream: null as EventStream | null };
    this.#streams.set(tenant_id, own);
    this.#stream_count += 1;
    const release = (): void => {
      this.#stream_count -= 1;
      if (this.#stream_count === 0) this.#primed = null;
      if (place.stream !== null) own.delete(place.stream);
      if (own.size === 0 && this.#streams.get(tenant_id) === own) this.#streams.delete(tenant_id);
    };
    try {
      this.#primed ??= this.#prime();
      await this.#primed;
      const begin = await this.#begin(tenant_id, last_event_id);
      place.stream = new EventStream(this, { tenant_id, filter, ...begin, recheck, signal, onEnd: release });
      own.add(place.stream);
      if (this.#isClosed || signal.aborted) place.stream.end();
      return place.stream;
    } catch (error) {
      release();
      throw error;
    }
  }

  async page(tenant_id: string, number: number): Promise<EventPage> {
    const gone = "SELECT number FROM event_horizons WHERE tenant_id = ?";
    // In one statement: between two of them events may be deleted.
    const rows = await this.#store.read(
      `${SELECT.replace(" FROM", `, (${gone}) AS gone FROM`)} WHERE tenant_id = ? AND number > ? ORDER BY number LIMIT ?`,
      [tenant_id, tenant_id, number, LIMITS.event_page_rows],
    );
    const gone_number = rows[0] === undefined ? (await this.#store.readOne(gone, [tenant_id]))?.number : rows[0].gone;
    return { events: rows.map(loggedEvent), gone_number: Number(gone_number ?? 0) };
  }

  /** Returns one page of a tenant's kept events, newest first. */
  recent(tenant_id: string, place: Place): Promise<Listed<ActivityEntry>> {
    const select = `${SELECT.replace("seq, number", "number AS seq, number")} WHERE tenant_id = ?`;
    return readPage(this.#store, select, [tenant_id], place, activityOf, "number");
  }

  /** Deletes what is too old or too much. */
  async prune(): Promise<void> {
    const expired_ms = this.clock.epochMs() - LIMITS.events_kept_seconds * 1000;
    const rows_max = LIMITS.delete_rows_per_pass;
    for (;;) {
      const rows = await this.#store.read("SELECT seq, at_ms FROM events ORDER BY seq LIMIT ?", [rows_max]);
      const kept = rows.findIndex(({ at_ms }) => Number(at_ms) >= expired_ms);
      const last = rows[(kept < 0 ? rows.length : kept) - 1];
      if (last === undefined) break;
      await this.#forget("seq <= ?", [Number(last.seq)]);
    }
    for (const [tenant_id, count] of this.#uncounted) {
      if (count < LIMITS.events_counted_every) continue;
      this.#uncounted.delete(tenant_id);
      const own = "SELECT number FROM events WHERE tenant_id = ?";
      const args = [tenant_id, LIMITS.events_kept_per_tenant];
      const end = await this.#store.readOne(`${own} ORDER BY number DESC LIMIT 1 OFFSET ?`, args);
      for (;;) {
        const pass = `SELECT max(number) AS number FROM (${own} AND number <= ? ORDER BY number LIMIT ?)`;
        const row = await this.#store.readOne(pass, [tenant_id, end?.number ?? 0, rows_max]);
        if (row === null || row.number === null) break;
        await this.#forget("tenant_id = ? AND number <= ?", [tenant_id, Number(row.number)]);
      }
    }
  }

  /** Deletes all events of a tenant that is being deleted, and ends its readers. */
  async erase(tenant_id: string): Promise<void> {
    for (const stream of this.#streams.get(tenant_id) ?? []) stream.end();
    this.#uncounted.delete(tenant_id);
    for (let is_more = true; is_more; ) {
      const rows_max = LIMITS.delete_rows_per_pass;
      const sql = "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE tenant_id = ? LIMIT ?)";
      const { changes } = await this.#store.write([{ sql, args: [tenant_id, rows_max] }]);
      is_more = changes[0] === rows_max;
    }
    await this.#store.write([{ sql: "DELETE FROM event_horizons WHERE tenant_id = ?", args: [tenant_id] }]);
  }

  /** Ends all streams; no other is opened. */
  close(): void {
    this.#isClosed = true;
    for (const streams of this.#streams.values()) for (const stream of streams) stream.end();
  }

  /** Feeds those that follow (E7). */
  async #pushNew(): Promise<void> {
    for (;;) {
      const sql = `${SELECT} WHERE seq > ? ORDER BY seq LIMIT ?`;
      const rows = await this.#store.read(sql, [this.#pushed_seq, LIMITS.event_page_rows]);
      for (const row of rows) {
        // Another reading may have been faster.
        if (Number(row.seq) <= this.#pushed_seq) continue;
        this.#pushed_seq = Number(row.seq);
        const streams = this.#streams.get(String(row.tenant_id));
        if (streams === undefined) continue;
        const event = loggedEvent(row);
        for (const stream of streams) stream.push(event);
      }
      if (rows.length < LIMITS.event_page_rows) return;
      // Those who read get their turn.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async #prime(): Promise<void> {
    const row = await this.#store.readOne("SELECT max(seq) AS seq FROM events");
    this.#pushed_seq = Math.max(this.#pushed_seq, Number(row?.seq ?? 0));
  }

  /** Where a stream begins. */
  async #begin(
    tenant_id: string,
    last_event_id: number | null,
  ): Promise<Pick<EventStreamOptions, "number" | "newest_number" | "strange_id">> {
    const row = await this.#store.readOne(`SELECT ${NEWEST} AS newest`, [tenant_id, tenant_id]);
    const newest_number = Number(row?.newest);
    if (last_event_id === null) return { number: newest_number, newest_number, strange_id: null };
    // An id that this log has not given yet is another log's: nothing says what its reader has seen of this one.
    if (last_event_id > newest_number) return { number: 0, newest_number, strange_id: last_event_id };
    return { number: last_event_id, newest_number, strange_id: null };
  }

  /** Deletes events and notes how far they reached (E6). */
  async #forget(condition: string, args: readonly (string | number)[]): Promise<void> {
    await this.#store.write([
      {
        sql: `INSERT INTO event_horizons (tenant_id, number) SELECT tenant_id, max(number) FROM events WHERE ${condition}
          GROUP BY tenant_id ON CONFLICT (tenant_id) DO UPDATE SET number = max(number, excluded.number)`,
        args,
      },
      { sql: `DELETE FROM events WHERE ${condition}`, args },
    ]);
  }
}

function activityOf(row: Row): ActivityEntry {
  const data = JSON.parse(String(row.data)) as Readonly<Record<string, unknown>>;
  const [type, event_type] = [String(row.name), String(row.event_type)];
  const what = type.replace(/_update$/, "").replaceAll("_", " ");
  // Each concern names its thing in its own field.
  const name = [data.name, data.function_name, data.reference, data.operation_type].find(
    (one) => typeof one === "string",
  );
  return {
    activity_id: String(row.number),
    timestamp: Number(data.at),
    type,
    event_type,
    message: [what, name, event_type.replaceAll("_", " ")].filter((part) => part !== undefined).join(" "),
    container_id: textOrNull(row.container_id),
    operation_id: textOrNull(row.operation_id),
    snapshot_id: textOrNull(row.snapshot_id),
    data,
  };
}

function loggedEvent(row: Row): LoggedEvent {
  const number = Number(row.number);
  const name = String(row.name);
  return {
    number,
    tenant_id: String(row.tenant_id),
    name,
    event_type: String(row.event_type),
    container_id: textOrNull(row.container_id),
    operation_id: textOrNull(row.operation_id),
    snapshot_id: textOrNull(row.snapshot_id),
    text: eventText(name, number, `{"event_id":"${number}",${String(row.data).slice(1)}`),
  };
}
