/**
 * Runs on the store's one worker thread: copies the write-ahead log back into the database file, with the two syncs
 * that takes, while the main thread goes on committing. It has a connection of its own per file, kept between runs.
 */
import Database from "libsql";
import { AppError, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { sqliteCode } from "./sql.ts";

export interface CheckpointTask {
  readonly path: string;
  readonly busy_timeout_ms: number;
}

export interface CheckpointReply {
  /** Frames (pages) in the log, and how many of them the file has now. */
  readonly frames: number;
  readonly frames_copied: number;
}

const connections = new Map<string, Database.Database>();

export function checkpoint({ path, busy_timeout_ms }: CheckpointTask): CheckpointReply {
  const connection = connections.get(path) ?? new Database(path, { timeout: busy_timeout_ms });
  connections.set(path, connection);
  failpoint("store.checkpoint.begun");
  try {
    // PASSIVE waits for nobody and keeps nobody waiting.
    const row = connection.prepare("PRAGMA wal_checkpoint(PASSIVE)").get() as { log: number; checkpointed: number };
    failpoint("store.checkpoint.done");
    return { frames: row.log, frames_copied: row.checkpointed };
  } catch (cause) {
    // An error of libsql does not survive the way to the main thread.
    throw new AppError("INTERNAL", `${sqliteCode(cause)} ${errorText(cause)}`);
  }
}
