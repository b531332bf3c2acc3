/**
 * The port of a function runtime: how a handler text becomes a command in an instance. A runtime is chosen by name in
 * the create request; `runtimes/index.ts` lists those that exist.
 */

/**
 * The way in which an instance serves calls. `process`: a command per call, one call at a time. `resident`: the command
 * starts one process, which serves up to `concurrency` calls (1 to 64) at a time over the frames of minit/protocol.h. It
 * has `open_timeout_ms` to send CALL_OPEN.
 */
export type Serving =
  | { readonly kind: "process" }
  | { readonly kind: "resident"; readonly concurrency: number; readonly open_timeout_ms: number };

export interface Runtime {
  readonly name: string;
  /** The curated image its instances are made from. */
  readonly profile: string;
  /** Size of an instance's /tmp and of its /dev/shm; `tmpfs_mb` unless given. */
  readonly scratch_mb?: number;
  /** One line for the API's help. */
  readonly about: string;
  readonly serving: Serving;
  /** The command of one call, or of the resident process. Called once per version, not per call. */
  command(handler: string): readonly string[];
  /** What is wrong with a handler, or null. */
  complaint(handler: string): string | null;
}
