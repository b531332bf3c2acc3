/**
 * The port of messages for code inside of containers: what the routes of its socket ask for. `Self` is the container whose
 * socket accepted the connection, and nothing in a request changes it.
 *
 * Each call throws the refusals of the API (`AppError`). A `signal` is aborted when the client leaves or the daemon stops: a
 * call that waits then returns what it has, and a stream ends.
 */
import type { Trace } from "../../base/trace.ts";
import type { JsonMessage } from "../envelope/message-schema.ts";

/** A running container. */
export interface Self {
  readonly tenant_id: string;
  readonly container_id: string;
  /** Of the request; no span of the request itself is exported. */
  readonly trace?: Trace;
}

/** A record as it is sent. */
export type Sent = Readonly<Record<string, unknown>>;

/** A message that a receiver holds until its lease ends. */
export type Delivered = Sent & {
  readonly msg_id: string;
  readonly inbox: string;
  readonly stream_seq: number;
  readonly lease: string;
};

export interface ReceiveRequest {
  /** Null: its own. Otherwise `queue:<name>`. */
  readonly inbox: string | null;
  readonly max: number;
  /** 0: does not wait. */
  readonly wait_ms: number;
  /** Null: the default of the bus. */
  readonly lease_ms: number | null;
  readonly ordered: boolean;
}

export interface StreamRequest extends Pick<ReceiveRequest, "inbox" | "lease_ms" | "ordered"> {
  /** Messages that are sent before one of them is settled. */
  readonly prefetch: number;
}

export interface SettleRequest {
  readonly inbox: string | null;
  readonly msg_id: string;
  readonly action: "ack" | "nack";
  readonly lease: string | null;
  readonly reason: string | null;
  readonly requeue: boolean;
  readonly delay_ms: number | null;
}

/** A message to publish: plain JSON, or a `jets.Envelope` in base64. */
export type PublishRequest = JsonMessage | { readonly envelope_b64: string };

export interface ReplyRequest {
  /** The message that is answered, of the container's own inbox. Null: `correlation_id` and `to` say which. */
  readonly msg_id: string | null;
  readonly correlation_id: string | null;
  readonly to: string | null;
  readonly type: string | null;
  readonly payload: unknown;
}

export interface StateWrite {
  readonly value: unknown;
  /** The version that the key has; 0: the key does not exist. Null: whichever. */
  readonly if_version: number | null;
}

export interface StateEntry extends Sent {
  readonly key: string;
  readonly version: number;
}

/** All parts; null: this daemon has none of the kind, and its routes are unknown. */
export interface Inside {
  readonly messages: InsideMessages;
  readonly topics: InsideTopics | null;
  readonly states: InsideStates | null;
}

export interface InsideMessages {
  /** Says who the container is: its id, name, inbox and permission level. */
  self(self: Self): Promise<Sent>;
  /** Publishes a message, durable when this resolves. Rejects with FORBIDDEN for another `from` or too much permission. */
  publish(self: Self, message: PublishRequest): Promise<Sent>;
  /** Leases messages. Waits for the first one; resolves to none after `wait_ms`. */
  receive(self: Self, request: ReceiveRequest, signal: AbortSignal): Promise<readonly Delivered[]>;
  /**
   * Yields messages as they come, each leased when it is yielded. While `prefetch` of them are neither settled nor past their
   * lease, none follows: those that wait in a buffer would otherwise count as delivered.
   */
  deliveries(self: Self, request: StreamRequest, signal: AbortSignal): Promise<AsyncIterable<Delivered>>;
  settle(self: Self, request: SettleRequest): Promise<Sent>;
  /** Publishes and waits for the reply. Rejects with TIMEOUT. */
  request(self: Self, message: JsonMessage, timeout_ms: number | null, signal: AbortSignal): Promise<Sent>;
  reply(self: Self, request: ReplyRequest): Promise<Sent>;
}

export interface InsideTopics {
  /** Copies of what is published to `topic:<name>` come into the container's inbox from now on. Safe to repeat. */
  subscribe(self: Self, topic: string): Promise<Sent>;
  unsubscribe(self: Self, topic: string): Promise<Sent>;
}

export interface InsideStates {
  /** The entries of the tenant whose keys begin with `prefix`, by key. */
  list(self: Self, prefix: string): Promise<readonly StateEntry[]>;
  /** Rejects with NOT_FOUND. */
  get(self: Self, key: string): Promise<StateEntry>;
  /** Rejects with WRONG_STATE where the key has another version. */
  put(self: Self, key: string, write: StateWrite): Promise<StateEntry>;
  delete(self: Self, key: string): Promise<Sent>;
  /** Yields the present entries, then each change. */
  watch(self: Self, prefix: string, signal: AbortSignal): Promise<AsyncIterable<StateEntry>>;
}
