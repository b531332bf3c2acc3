/**
 * The port of a function runtime: how the handler of a version becomes running code in an instance. A runtime is chosen
 * by name in the create request; `runtimes/index.ts` lists those that exist.
 */

import type { BindHead } from "./envelope.ts";

/**
 * The way in which an instance serves calls. `process`: a command per call, one call at a time. `resident`: each cell
 * starts one process from `argv`, before any function is known. The process takes its function with `bind` and then serves
 * calls, several at a time (envelope.ts). It has `open_timeout_ms` to send CALL_OPEN (minit/protocol.h).
 */
export type Serving =
  | { readonly kind: "process" /** The command of one call. */; command(handler: string): readonly string[] }
  | { readonly kind: "resident"; readonly argv: readonly string[]; readonly open_timeout_ms: number };

/**
 * A file of the code by its relative path, or a command: a name for the search path, or a path. A file `instead` of the
 * code runs instead of the command if it exists.
 */
export type Program =
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "command"; readonly name: string; readonly instead?: string };

/** How instances of any image differ from those of the profile. */
export interface ForeignImage {
  /** Paths of which the image needs one that programs can run, and what is wrong with an image that has none. */
  readonly needs: readonly { readonly one_of: readonly string[]; readonly complaint: string }[];
  /** Argv of the resident process; absent: as in the profile. */
  readonly argv?: readonly string[];
  /** Files of the profile by their paths in instances, all in /dev. */
  readonly files?: Readonly<Record<string, string>>;
}

export interface Runtime {
  readonly name: string;
  /** Other names that requests may use. Records show `name`. */
  readonly aliases: readonly string[];
  /** The curated image its instances are made from. */
  readonly profile: string;
  /** Size of an instance's /tmp and of its /dev/shm; `tmpfs_mb` unless given. */
  readonly scratch_mb?: number;
  /** One line for the API's help. */
  readonly about: string;
  readonly foreign: ForeignImage;
  /** Directory of this checkout. Instances see a copy of its files, read-only at RUNTIME_INSIDE; null: none. */
  readonly directory: string | null;
  /** Programs of this machine by the names that their copies beside these files have. Absent: none. */
  readonly programs?: Readonly<Record<string, string>>;
  readonly serving: Serving;
  /** True if requests choose how the process takes calls (`protocol`). */
  readonly hasProtocol: boolean;
  /** True if a version without code cannot be deployed. */
  readonly needsCode: boolean;
  /**
   * True if processes of such a version load much faster with a code cache (envelope.ts). Absent: the runtime has none.
   * `code_size_bytes`: size of all files of the code.
   */
  hasCodeCache?(handler: string, code_size_bytes: number): boolean;
  /** Returns the file or command that a handler names; null if only running it can tell. */
  program(handler: string, protocol: BindHead["protocol"]): Program | null;
  /** Returns what is wrong with a handler, or null. */
  complaint(handler: string): string | null;
}

/** Path of a runtime's own files in an instance. The image has the empty directory. */
export const RUNTIME_INSIDE = "/opt/hearth";
/** Path of a version's code in an instance. The image has the empty directory. */
export const CODE_INSIDE = "/function";
