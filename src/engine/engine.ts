/**
 * The engine's port: what the rest of the program may ask of containers, and what holds after each call. One
 * implementation exists (`local-engine.ts`); the OCI runtime below it is a port of its own (`oci-runtime.ts`).
 */
import type { MinitClient } from "./minit-client.ts";
import type { UserNamespaceInfo } from "./user-namespaces.ts";

export { extract, pack } from "./archive.ts";
export type { StoreArea } from "./area.ts";
export type { ContainerPlan, Ended, LiveContainer } from "./container.ts";
export type { Exec, ExecListener, GatheredExit, RunRequest, TerminalSize } from "./container-client.ts";
export type { ContainerEngine } from "./container-engine.ts";
export type { ContainerLog, LogLine } from "./container-log.ts";
export type { FileEntry, FileSession, FileSessions } from "./files.ts";
export type { ExecOutcome, ExecRequest } from "./minit-client.ts";
export type { Publication } from "./publications.ts";
export type { AllowRule, NetworkPolicy, PublishedPort } from "./rules.ts";

/** Where the time of a start went, in milliseconds. */
export interface StartTimings {
  /** Waiting for a network slot. */
  readonly network_ms: number;
  /** Writing the bundle. */
  readonly rootfs_ms: number;
  /** From the OCI runtime's start to minit's first word. */
  readonly start_ms: number;
}

export interface InstanceLimits {
  readonly memory_limit_mb: number;
  /** Percent of one core; null means no quota. */
  readonly cpu_limit_percent: number | null;
}

/** A running container for function calls: read-only root, unprivileged uid of its own, no capabilities. */
export interface Instance {
  readonly id: string;
  /** Random per boot of the container: equal nonces mean the same container. */
  readonly nonce: string;
  readonly address: string;
  readonly uid: number;
  readonly minit: MinitClient;
  readonly timings: StartTimings;
}

/** An instance that outlived the process that started it: whole, idle, clean, and connected as before. */
export interface Adopted {
  readonly instance: Instance;
  /** What `mark` wrote; null: never marked, a cell. */
  readonly mark: string | null;
}

/** A resource of this machine's kernel that containers share, and whether one of them can use up all of it. */
export interface Budget {
  readonly name: "terminals" | "open_files" | "socket_memory" | "disk_io" | "uplink" | "tracked_connections";
  readonly is_bounded: boolean;
  /** The bound, or the reason why there is none. */
  readonly note: string;
}

export interface EngineInfo {
  readonly oci_runtime: string;
  readonly oci_runtime_version: string;
  readonly cgroup_mode: CgroupMode;
  readonly image: string;
  readonly image_release: string;
  readonly subnet: string;
  /** This machine's address as seen from inside of instances. */
  readonly gateway: string;
  readonly bridge: string;
  /** Of API containers. */
  readonly user_namespaces: UserNamespaceInfo;
  readonly budgets: readonly Budget[];
}

/** `v1` and `hybrid` limit through the v1 controllers; hybrid has a cgroup2 tree mounted beside them. */
export type CgroupMode = "v1" | "hybrid" | "v2";

export interface Engine {
  /**
   * Brings up what every container shares, and looks at what an earlier process with the same data directory left
   * behind: instances that live, are idle and are as this process would make them are resolved to, as if started here
   * (`remove` those that are not wanted); all else is removed, in part after this has resolved. Called once, before
   * all else. Rejects when this machine cannot run containers, with the reason.
   */
  boot(): Promise<readonly Adopted[]>;
  /** Starts a container and waits for its minit. On rejection (START_FAILED) nothing of it is left. */
  start(id: string): Promise<Instance>;
  /**
   * Notes on the host whom an instance belongs to, for a later process to read. Once per instance, before `limit` and
   * the first command; not empty, at most 4,000 bytes. Synchronous, one system call, whole or not at all. Throws when
   * the container's directory is gone.
   */
  mark(instance: Instance, text: string): void;
  /** Sets the limits of a running instance. Synchronous: four small writes, 16 µs. Throws when the container is gone. */
  limit(instance: Instance, limits: InstanceLimits): void;
  /**
   * Gives an instance a part of the processor time (0 to 1) that others have when all are busy. Synchronous: one small
   * write. Does nothing when the container is gone.
   */
  weigh(instance: Instance, share: number): void;
  /**
   * Counts what an instance sends as a tenant's, from a moment later on: its share of the uplink, and its tracked
   * connections. Once it is bound.
   */
  attribute(instance: Instance, tenant_id: string): void;
  /** How often the kernel killed for memory in this instance. 0 when that is not known. */
  oomKills(instance: Instance): number;
  /**
   * Memory charged to all instances together, without file pages that would be given back first. Synchronous, two
   * small reads however many instances there are.
   */
  memoryUsedMb(): number;
  /**
   * Lets instances reach a TCP port of this machine at the `gateway` address. Resolves once the way is open; nothing
   * else of the machine is reachable.
   */
  openPort(port: number): Promise<void>;
  /** Kills and removes the container and everything it held. Resolves when nothing is left; safe to call twice. */
  remove(instance: Instance): Promise<void>;
  /** Whether `path` is a directory in the image of function instances. */
  hasDirectory(path: string): Promise<boolean>;
  info(): EngineInfo;
  /** Removes what `boot` made. All instances must be removed before. */
  shutdown(): Promise<void>;
}
