/** The engine's port: function instances. */
import type { Clock } from "../../base/clock.ts";
import type { Egress } from "../../base/egress.ts";
import type { OutputStream } from "./commands.ts";
import type { Resident, ServeRequest } from "./residents.ts";

/** Durations of the parts of a start, in milliseconds. */
export interface StartTimings {
  /** Waiting for a network slot. */
  readonly network_ms: number;
  /** Writing the bundle. */
  readonly rootfs_ms: number;
  /** From the OCI runtime's start to minit's first word. */
  readonly start_ms: number;
  /** From minit's first word until the resident process is open; 0 without one. */
  readonly open_ms: number;
}

export interface InstanceLimits {
  readonly memory_limit_mb: number;
  /** Percent of one core; null means no quota. */
  readonly cpu_limit_percent: number | null;
}

/** Properties of an instance that are fixed at its start. */
export interface InstanceClass {
  /** Short text that tells the class from every other one, also in a later process. */
  readonly key: string;
  /** Id of the image: the digest of its configuration. */
  readonly image: string;
  /** Size of /tmp and of /dev/shm, each. */
  readonly scratch_mb: number;
  /** Directory of this machine that instances see read-only at RUNTIME_INSIDE (container-environment.ts); null: none. */
  readonly runtime_directory: string | null;
  /** The process that serves the calls of an instance; null: each call starts a command. */
  readonly resident: ResidentProgram | null;
  /** Given for an image that anybody may have made. Absent: a profile, which has all directories of instances. */
  readonly foreign?: ForeignRoot;
  /** GPUs that each instance holds for a tenant from its start until nothing of it is left. Absent: none. */
  readonly gpus?: { readonly tenant_id: string; readonly count: number };
}

/** Directories and programs for instances whose image is not a profile. */
export interface ForeignRoot {
  /** Files of the pinned image by their paths in instances, all in /dev, read-only. */
  readonly pinned_files: Readonly<Record<string, string>>;
}

/** A resident process, as a class has it. */
export interface ResidentProgram {
  readonly argv: readonly string[];
  /** Time limit from the start until the process is open. */
  readonly open_timeout_ms: number;
}

/** A running container for function calls: read-only root, unprivileged uid of its own, no capabilities. */
export interface Instance {
  readonly id: string;
  /** Random per boot of the container: equal nonces mean the same container. */
  readonly nonce: string;
  readonly address: string;
  readonly uid: number;
  readonly minit: InstanceMinit;
  /** The open process of a class with `resident`, which takes up to `LIMITS.resident_calls_max` calls at a time. */
  readonly resident: Resident | null;
  readonly timings: StartTimings;
  /** Variables of its GPUs for all its programs; absent without GPUs. */
  readonly gpu_environment?: Readonly<Record<string, string>>;
}

/** Files and network of a function's version, as an instance gets them when it is bound. */
export interface Attachment {
  /** Id of a subvolume of the kind `code`, read-only at /function (attach.c of the helper); null: none. */
  readonly code: string | null;
  /**
   * Contents of files in /run/secrets by name: at most `secret_files_max`, `secret_files_bytes_max` together, names as
   * those of secrets. Only the uid of the instance can read them, and none is ever written to a disk.
   */
  readonly secrets: ReadonlyMap<string, Uint8Array>;
  readonly egress: Egress;
}

/** The connection to the minit of one instance. */
export interface InstanceMinit {
  readonly isOpen: boolean;
  /** Runs the only command of a call. Rejects when the connection ends before the command. */
  execSole(request: ExecRequest): Promise<ExecOutcome>;
  /**
   * Starts the instance's resident process, once, instead of commands. `onLog` takes output of no call, in pieces
   * of at most 64 KiB; the caller bounds what it keeps. `Resident.tail` has the newest without it.
   */
  serve(request: ServeRequest, onLog?: (stream: OutputStream, chunk: Buffer) => void): Resident;
  /**
   * Calls `listener` once when the connection ends, however it ends, or soon when it has ended. One listener; a later
   * one replaces it.
   */
  onClosed(listener: () => void): void;
  /** Resolves when minit answers. Rejects with INTERNAL when it does not within `timeout_ms`. */
  ping(timeout_ms: number, clock: Clock): Promise<void>;
  /** Ends the connection; requests without an answer reject. */
  close(): void;
}

export interface ExecRequest {
  readonly argv: readonly string[];
  /** `NAME=value` */
  readonly environment: readonly string[];
  readonly working_directory: string;
  readonly timeout_ms: number;
  readonly stdout_bytes_max: number;
  readonly stderr_bytes_max: number;
  /** Empty /tmp and /dev/shm afterwards. */
  readonly wipe: boolean;
  /** Standard input of the command. */
  readonly payload: string;
}

export interface ExecOutcome {
  /** 0 to 255; 128 + signal when a signal ended it; 127 command not found, 126 not executable. */
  readonly exit_code: number;
  readonly signal: number;
  readonly timed_out: boolean;
  readonly spawn_failed: boolean;
  readonly stdout_truncated: boolean;
  readonly stderr_truncated: boolean;
  readonly stdout: string;
  readonly stderr: string;
  /** From the spawn to the exit, as minit saw it. */
  readonly handler_ms: number;
  readonly cpu_ms: number;
  readonly memory_peak_kb: number;
  /** Resolves when the instance can take the next call. */
  readonly idle: Promise<void>;
}

/**
 * An instance that outlived the process that started it: whole, idle, clean, and connected as before, with its resident
 * process open.
 */
export interface Adopted {
  readonly instance: Instance;
  /** Key of the class that it was started with. */
  readonly class: string;
  /** Id of the image that it runs on. */
  readonly image: string;
  /** Text that `mark` wrote; null: never marked, a cell. */
  readonly mark: string | null;
  /** True if `furnished` was called. */
  readonly is_furnished: boolean;
}

export interface Instances {
  /**
   * Takes the GPUs of a class, starts a container and waits for its minit, and until the resident process of the class is open. The host
   * keeps the class's key for a later process. On rejection (START_FAILED, or a LackingError without free GPUs) nothing of it is left. The message of a
   * resident process that failed has the end of its output.
   */
  start(id: string, of: InstanceClass): Promise<Instance>;
  /**
   * Gives an instance code, secrets and egress, also to processes in it that run already. At most once per instance,
   * before `mark`: a later process removes an instance that has an attachment and no mark, and keeps the egress of the
   * others. It ends with the instance. Costs nothing without code and secrets and with egress `on`.
   * Rejects with START_FAILED; the instance may have a part of it then, so remove it. The subvolume must stay as long
   * as instances have it: without it they find no files, and only programs that run already continue.
   */
  attach(instance: Instance, attachment: Attachment): Promise<void>;
  /**
   * Notes the owner of an instance on the host, for a later process to read. Once per instance, before `limit` and
   * the first command; not empty, at most 4,000 bytes. Synchronous, one system call, whole or not at all. Throws when
   * the container's directory is gone.
   */
  mark(instance: Instance, text: string): void;
  /**
   * Notes on the host that the resident process of a marked instance has loaded its owner's code, for a later process to
   * read. Once per instance. Synchronous, one system call. Throws when the container's directory is gone.
   */
  furnished(instance: Instance): void;
  /** Sets the limits of a running instance. Synchronous: four small writes, 16 µs. Throws when the container is gone. */
  limit(instance: Instance, limits: InstanceLimits): void;
  /**
   * Gives an instance a part of the processor time (0 to 1) that others have when all are busy. Synchronous: one small
   * write. Does nothing when the container is gone.
   */
  weigh(instance: Instance, share: number): void;
  /**
   * Changes the part of one core that all processes of an instance may use, in percent; null: no quota. Synchronous: one small
   * write. Does nothing when the container is gone.
   */
  setQuota(instance: Instance, cpu_limit_percent: number | null): void;
  /**
   * Processor time that the processes of an instance have used since its start, in milliseconds. Synchronous: one small read.
   * 0 if unknown.
   */
  cpuUsedMs(instance: Instance): number;
  /** Counts an instance's traffic for a tenant's share of the uplink, shortly afterwards. Call once it is bound. */
  attribute(instance: Instance, tenant_id: string): void;
  /** Returns the number of processes that the kernel killed for memory in this instance. 0 if unknown. */
  oomKills(instance: Instance): number;
  /**
   * Memory charged to all instances together, without file pages that would be given back first. Synchronous, two
   * small reads however many instances there are.
   */
  memoryUsedMb(): number;
  /** Kills and removes the container and everything it held. Resolves when nothing is left; safe to call twice. */
  remove(instance: Instance): Promise<void>;
  /** Keeps the image of a class mounted until the returned function is called. Rejects with NOT_FOUND without that image. */
  hold(of: InstanceClass): Promise<() => void>;
  /**
   * Resolves to the type and permission bits of a path in the image of the class, as stat(2) has them, links followed; null if
   * there is nothing. Rejects with NOT_FOUND without that image.
   */
  modeOf(of: InstanceClass, path: string): Promise<number | null>;
}
