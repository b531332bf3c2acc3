/**
 * The port of a function runtime: how a handler text becomes a command in an instance. A runtime is chosen by name in
 * the create request; `runtimes/index.ts` lists those that exist.
 */
export interface Runtime {
  readonly name: string;
  /** The curated image its instances are made from. */
  readonly profile: string;
  /** Size of an instance's /tmp and of its /dev/shm; `tmpfs_mb` unless given. */
  readonly scratch_mb?: number;
  /** One line for the API's help. */
  readonly about: string;
  /** The command of one call. Called once per version, not per call. */
  command(handler: string): readonly string[];
  /** What is wrong with a handler, or null. */
  complaint(handler: string): string | null;
}
