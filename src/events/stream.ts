/**
 * One reader of events: what it has missed is read from the log page by page, as fast as it takes them; from there on
 * it is pushed what is new. `Events` (service.ts) makes, feeds and ends it.
 *
 * E1. Every event behind the first id that matches is sent once, in order, or `gap` is sent in place of what is gone.
 * E2. What waits for the reader is bounded: above `event_stream_bytes_max` of what is new it is forgotten, and the reader
 *     catches up from the log when it takes something again. One that takes nothing is cut by the listener (T4 of
 *     src/http/stream.ts), and comes back with the id that it saw last.
 * E3. Nothing is sent with a credential that is no longer good, and at a heartbeat at the latest the stream ends.
 * E4. `return` lets go of it, begun or not; so does its end.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { CONTAINER_EVENTS, type EventFilter } from "./schema.ts";

/** A row of the log, in the form in which it is sent. */
export interface LoggedEvent {
  readonly number: number;
  readonly tenant_id: string;
  readonly name: string;
  readonly event_type: string;
  readonly container_id: string | null;
  readonly operation_id: string | null;
  readonly snapshot_id: string | null;
  readonly text: string;
}

export interface EventPage {
  readonly events: readonly LoggedEvent[];
  readonly gone_number: number;
}

/** The log, as a stream reads it. */
export interface EventLog {
  readonly clock: Clock;
  /** Up to which event everything was pushed to all streams that follow. */
  readonly pushed_seq: number;
  /** A tenant's next events behind `number`, at most `event_page_rows`, and up to where its events are gone. */
  page(tenant_id: string, number: number): Promise<EventPage>;
  /** Looks for what nobody has told of. */
  published(): void;
}

export interface EventStreamOptions {
  readonly tenant_id: string;
  readonly filter: EventFilter;
  /** The id behind which it begins. */
  readonly number: number;
  /** Of the tenant's newest event. */
  readonly newest_number: number;
  /** The id that was asked for where this log has not given it: it is another log's, and all that is kept is sent. */
  readonly strange_id: number | null;
  readonly recheck: () => Promise<void> | undefined;
  readonly signal: AbortSignal;
  /** Called once. */
  readonly onEnd: (stream: EventStream) => void;
}

export function eventText(name: string, id: number | null, data: string): string {
  return `event: ${name}\n${id === null ? "" : `id: ${id}\n`}data: ${data}\n\n`;
}

export class EventStream implements AsyncIterable<Uint8Array> {
  readonly tenant_id: string;
  readonly #options: EventStreamOptions;
  readonly #log: EventLog;
  #number: number;
  #texts: string[] = [];
  #bytes = 0;
  #isFollowing = false;
  #isOpen = true;
  /** Of the last event that the reader was given. */
  #given_number: number;
  /** Until the reader is told. */
  #strange_id: number | null;
  #wake: () => void = () => {};
  #cancelHeartbeat: () => void = () => {};

  constructor(log: EventLog, options: EventStreamOptions) {
    this.#log = log;
    this.#options = options;
    this.tenant_id = options.tenant_id;
    this.#number = options.number;
    this.#given_number = options.number;
    this.#strange_id = options.strange_id;
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    const pieces = this.#pieces();
    return {
      next: () => pieces.next(),
      return: () => {
        this.end();
        return pieces.return();
      },
    };
  }

  /** Takes a new event, where it follows. */
  push(event: LoggedEvent): void {
    if (!this.#isFollowing || event.number <= this.#number) return;
    this.#number = event.number;
    if (!this.#wants(event)) return;
    this.#add(event.text);
    if (this.#bytes > LIMITS.event_stream_bytes_max) {
      this.#isFollowing = false;
      this.#forget();
      this.#number = this.#given_number;
    }
    this.#wake();
  }

  /** What waits is still sent. */
  end(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#cancelHeartbeat();
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    this.#options.onEnd(this);
    this.#wake();
  }

  readonly #onAbort = (): void => this.end();

  #wants({ name, event_type, container_id, operation_id, snapshot_id }: LoggedEvent): boolean {
    const { filter } = this.#options;
    return (
      (filter.name === undefined || filter.name === name) &&
      (filter.type === undefined || filter.type === event_type) &&
      (filter.container_id === undefined || filter.container_id === container_id) &&
      (filter.operation_id === undefined || filter.operation_id === operation_id) &&
      (filter.snapshot_id === undefined || filter.snapshot_id === snapshot_id) &&
      (filter.container_ids === undefined ||
        (CONTAINER_EVENTS.includes(name) && filter.container_ids.has(container_id ?? "")))
    );
  }

  #add(text: string): void {
    this.#texts.push(text);
    this.#bytes += Buffer.byteLength(text);
  }

  #forget(): void {
    this.#texts = [];
    this.#bytes = 0;
  }

  #take(): Buffer {
    const text = this.#texts.join("");
    this.#forget();
    this.#given_number = this.#number;
    return Buffer.from(text);
  }

  async *#pieces(): AsyncGenerator<Uint8Array, void> {
    const { signal, recheck, number, newest_number } = this.#options;
    if (signal.aborted) this.end();
    else signal.addEventListener("abort", this.#onAbort);
    try {
      const ids = { last_event_id: String(number), newest_event_id: String(newest_number) };
      const ready = JSON.stringify({ ...ids, heartbeat_ms: LIMITS.event_heartbeat_ms });
      yield Buffer.from(`retry: ${LIMITS.event_retry_ms}\n${eventText("ready", number, ready)}`);
      this.#beat();
      while (this.#isOpen || (this.#isFollowing && this.#bytes > 0)) {
        if (!this.#isFollowing) await this.#catchUp();
        if (this.#bytes > 0) {
          await recheck();
          yield this.#take();
        } else if (this.#isFollowing && this.#isOpen) {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } catch (error) {
      // The key is gone: an end like any other (E3).
      if (!(error instanceof AppError) || error.code !== "UNAUTHORIZED") throw error;
    } finally {
      this.end();
    }
  }

  /** The next page; from one that is not full on the stream is pushed what follows, unless that was pushed meanwhile. */
  async #catchUp(): Promise<void> {
    const { pushed_seq } = this.#log;
    const { events, gone_number } = await this.#log.page(this.tenant_id, this.#number);
    const strange_id = this.#strange_id;
    this.#strange_id = null;
    if (strange_id !== null || gone_number > this.#number) this.#addGap(strange_id ?? this.#number, gone_number);
    for (const event of events) {
      this.#number = event.number;
      if (this.#wants(event)) this.#add(event.text);
    }
    if (events.length < LIMITS.event_page_rows && this.#log.pushed_seq === pushed_seq) this.#isFollowing = true;
  }

  #addGap(after: number, until: number): void {
    this.#number = until;
    const gap = { after_event_id: String(after), until_event_id: String(until) };
    this.#add(eventText("gap", until, JSON.stringify(gap)));
  }

  #beat(): void {
    const { clock } = this.#log;
    this.#cancelHeartbeat = clock.after(LIMITS.event_heartbeat_ms, () => {
      void this.#stillGood().then((isGood) => {
        if (!this.#isOpen) return;
        if (!isGood) return this.end();
        this.#log.published();
        // A reader that has not taken the last one needs no other.
        const at = toEpochSeconds(clock.epochMs());
        const id = this.#isFollowing ? this.#number : null;
        if (this.#bytes === 0) this.#add(eventText("heartbeat", id, JSON.stringify({ at })));
        this.#wake();
        this.#beat();
      });
    });
  }

  async #stillGood(): Promise<boolean> {
    try {
      await this.#options.recheck();
      return true;
    } catch (error) {
      return !(error instanceof AppError) || error.code !== "UNAUTHORIZED";
    }
  }
}
