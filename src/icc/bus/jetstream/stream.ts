/** The stream on the server: its settings, and how one that another tool made differs from them. */
import {
  DiscardPolicy,
  JetStreamApiError,
  type JetStreamManager,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from "@nats-io/jetstream";
import { AppError } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";
import type { Names } from "./names.ts";

const NANOSECONDS = 1_000_000;
const STREAM_NOT_FOUND = 10059;

type Expected = Partial<StreamConfig> & Pick<StreamConfig, "name">;

function expected(names: Names): Expected {
  return {
    name: names.stream,
    subjects: [names.subjects],
    retention: RetentionPolicy.Limits,
    storage: StorageType.File,
    discard: DiscardPolicy.New,
    max_age: LIMITS.icc_message_kept_ms * NANOSECONDS,
    duplicate_window: LIMITS.jetstream_duplicates_ms * NANOSECONDS,
    allow_direct: true,
    // Not set by us, but another tool may have: it would take messages that are kept, or refuse valid ones.
    max_msgs: -1,
    max_msgs_per_subject: -1,
    max_msg_size: -1,
    deny_delete: false,
    deny_purge: false,
    sealed: false,
  };
}

/**
 * Makes the stream unless it exists. Resolves to its last sequence number. Rejects with SERVICE_UNAVAILABLE if the stream has
 * other settings, which the message names. Replicas, placement and `max_bytes` are the operator's choice.
 */
export async function openStream(manager: JetStreamManager, names: Names): Promise<number> {
  const wanted = expected(names);
  const found = await manager.streams.info(names.stream).catch((error) => {
    if (error instanceof JetStreamApiError && error.code === STREAM_NOT_FOUND) return null;
    throw error;
  });
  // The server refuses `sealed` in the settings of a new stream.
  const { sealed: _, ...made } = wanted;
  const info = found ?? (await manager.streams.add(made));
  const config: Readonly<Record<string, unknown>> = { ...info.config };
  const differences = Object.entries(wanted)
    .filter(([name, value]) => JSON.stringify(config[name] ?? false) !== JSON.stringify(value))
    .map(([name, value]) => `${name} ${JSON.stringify(config[name])} (expected ${JSON.stringify(value)})`);
  for (const name of ["mirror", "sources"]) {
    if (config[name] !== undefined) differences.push(`${name} (expected none)`);
  }
  if (differences.length > 0) {
    throw new AppError("SERVICE_UNAVAILABLE", `stream ${names.stream} has other settings: ${differences.join(", ")}`, {
      hint: "delete the stream, so that the daemon makes it, or change its settings",
    });
  }
  return info.state.last_seq;
}
