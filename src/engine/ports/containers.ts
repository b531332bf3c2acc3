/** The engine's port: API containers and the ports that they publish. */

import type { Clock, EpochMs } from "../../base/clock.ts";
import type { Egress } from "../../base/egress.ts";
import type { TransferTurn } from "../../base/transfer-turns.ts";
import type { AttachRequest, Exec, ExecListener, Gathering, RunRequest } from "./commands.ts";
import type { OpenFiles } from "./files.ts";
import type { GpuRequest, HeldGpus } from "./gpus.ts";
import type { SnapshotPair, SnapshotPause, SubvolumeKind, SubvolumeName } from "./storage.ts";

export type Protocol = "tcp" | "udp";

export interface PublishedPort {
  readonly container_port: number;
  readonly host_port: number;
  /** 127.0.0.1: for this machine alone; 0.0.0.0: on all addresses that it has. */
  readonly host_address: "127.0.0.1" | "0.0.0.0";
  readonly protocol: Protocol;
}

/** A port of this machine that a hearth daemon leads into a container. */
export interface Publication {
  /** nftables table of the daemon: `hearth_<tag>`. */
  readonly table: string;
  readonly protocol: string;
  readonly host_port: number;
  /** `<address>:<port>` of the container. */
  readonly target: string;
}

/**
 * A container as it is made and started, in one shape from the container concern to the OCI configuration. The stored
 * record of a container extends it.
 */
export interface ContainerSpec extends GpuRequest {
  readonly id: string;
  readonly tenant_id: string;
  /** Name, from which the host name derives. */
  readonly name: string;
  /** Image that its root lies on: an id, or a reference. `SCRATCH_IMAGE` of src/base/scratch-image.ts: none, the root is empty at first. */
  readonly image_id: string;
  /** Empty: nothing runs but minit, until a command is requested. */
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** Variables of its image, below its own; null for a profile, whose containers have PATH and HOME of this node. */
  readonly image_environment: Readonly<Record<string, string>> | null;
  /** `<user>[:<group>]`, each a name or a number of the container's own /etc/passwd and /etc/group; null: root. */
  readonly user: string | null;
  readonly working_directory: string;
  readonly memory_limit_mb: number;
  /** Percent of one core; null means no quota. */
  readonly cpu_limit_percent: number | null;
  readonly disk_limit_mb: number | null;
  readonly strict: boolean;
  readonly read_only_root: boolean;
  /** Directories that stay writable below a read-only root: each is then an empty tmpfs. */
  readonly writable_paths: readonly string[];
  readonly egress: Egress;
  readonly ports: readonly PublishedPort[];
  /** Private network, whose members of the same tenant reach each other by address and name; null: it reaches no container. */
  readonly network: string | null;
  /** True if it and all containers of its tenant that do the same resolve each other's names. */
  readonly dns: boolean;
  /** Address that was reserved for it (`Networks.reserve`); null or absent: any. */
  readonly reserved_address?: string | null;
  readonly volumes: readonly VolumeMount[];
  /** Directories that are an empty tmpfs, also below a root that can be written to. */
  readonly tmpfs?: readonly MemoryDirectory[];
  /** True: its output waits for the first client that attaches, `attach_hold_ms` at most. Of this start alone. */
  readonly attach?: boolean;
  /** True: its command has a standard input, which that client writes. Otherwise it is empty. */
  readonly stdin?: boolean;
  /** True: it sees the socket of `Containers.serveSockets` in /run/hearth. Absent: it has no such directory. */
  readonly has_socket?: boolean;
}

/** A subvolume that is mounted at a path inside. */
export interface VolumeMount {
  /** Of the volume. */
  readonly id: string;
  readonly target: string;
  /** That of its subvolume, `volumes` unless given. */
  readonly kind?: SubvolumeKind;
  /**
   * Name of the directory or file at the top of the subvolume that is mounted in place of all of it. The engine's caller has made it,
   * and nothing runs that sees the top.
   */
  readonly entry?: string;
  readonly is_read_only?: boolean;
}

export interface MemoryDirectory {
  readonly target: string;
  /** Of its files; that of /tmp unless given. */
  readonly size_bytes?: number;
}

/** A unix socket that one running container sees as /run/hearth/icc.sock. */
export interface ContainerSocket {
  readonly container_id: string;
  readonly tenant_id: string;
  /** Path on this machine. Only root reaches its directory, and the container, which cannot write to it. */
  readonly path: string;
}

/** Listens on the sockets of containers. Its calls never throw. */
export interface SocketListener {
  /** Listens before the first process of a container starts, and on that of each container that runs already. */
  open(socket: ContainerSocket): void;
  /** Ends the socket of a container that has ended, or did not start, and all its connections. */
  close(container_id: string): void;
}

/** A running container whose names other containers of its tenant resolve. */
export interface NamedContainer {
  readonly id: string;
  readonly name: string;
  readonly address: string;
  readonly network: string | null;
  readonly full_names: readonly string[];
  readonly ttl_seconds: number;
}

/** Changes of a container's root against its image, as a tar file. */
export interface DifferenceRequest {
  readonly id: string;
  /** Path of the file, which must not be there. */
  readonly file: string;
  /** Largest size of the file. */
  readonly bytes_max: number;
  readonly timeout_ms: number;
}

/** A running container. */
export interface LiveContainer {
  readonly id: string;
  /** Process id of its first process, on this machine. */
  readonly pid: number;
  readonly address: string;
  readonly control: ContainerControl;
  readonly gpus: HeldGpus;
}

/** The connection to the minit of a container that runs. */
export interface ContainerControl {
  readonly isOpen: boolean;
  /** Resolves when minit answers. Rejects with NOT_RESPONDING when it does not within `timeout_ms`, INTERNAL when the connection is closed. */
  ping(timeout_ms: number, clock: Clock): Promise<void>;
}

/** The end of a first process, as minit records it. */
export interface ExitRecord {
  readonly exit_code: number;
  readonly signal: number;
  readonly ended_at_ms: EpochMs;
  /** True if a signal or a shutdown requested the end. */
  readonly asked: boolean;
  readonly has_command: boolean;
  /** False where the main command could not be started. */
  readonly is_started: boolean;
}

/** The end of a container. */
export interface Ended extends ExitRecord {
  /** True if the kernel killed a process in it for memory. */
  readonly is_oom: boolean;
}

/** `minit`: a line about the command, that it could not be started or that lines were lost. */
export type LogStream = "minit" | "stdout" | "stderr";

export interface LogLine {
  readonly seq: number;
  readonly at_ms: EpochMs;
  readonly stream: LogStream;
  readonly message: string;
  /** True without a newline: the stream's next line continues it, or it is the last. */
  readonly partial: boolean;
  /** Present in a line of minit that says how many lines of the command are missing here. */
  readonly is_gap?: true;
}

export interface TailOptions {
  /** Number of the newest lines. */
  readonly limit: number;
  readonly since_ms?: EpochMs;
  readonly after_seq?: number;
  /** True for the command's lines alone, with those of minit that say what is missing. */
  readonly is_own?: boolean;
  /** Of the tenant that reads; absent: reading is not bounded. */
  readonly turn?: TransferTurn;
}

/** The log of a container's main command. It needs no daemon to be written. */
export interface ContainerLog {
  /** Returns the present lines, oldest first; none without files. */
  tail(options: TailOptions): Promise<LogLine[]>;
  /** Yields the same, a few at a time. */
  tailPieces(options: TailOptions): AsyncGenerator<readonly LogLine[], void, undefined>;
  /** Returns the number of the first of these lines; null: there is none. */
  firstSeq(options: TailOptions): Promise<number | null>;
  /**
   * Yields lines after `after_seq` as they are written, until `signal` is aborted or the log is removed. Ends at once
   * without files.
   */
  follow(after_seq: number, signal: AbortSignal, turn?: TransferTurn): AsyncGenerator<LogLine, void, undefined>;
}

export interface ContainerMetrics {
  readonly cpu_usage_usec: number;
  readonly cpu_user_usec: number;
  readonly cpu_system_usec: number;
  readonly cpu_throttled_usec: number;
  readonly memory_current_bytes: number;
  readonly memory_peak_bytes: number;
  readonly memory_limit_bytes: number;
  readonly memory_cache_bytes: number;
  readonly memory_rss_bytes: number;
  readonly network_rx_bytes: number;
  readonly network_tx_bytes: number;
  readonly network_rx_packets: number;
  readonly network_tx_packets: number;
  readonly network_rx_errors: number;
  readonly network_tx_errors: number;
  readonly disk_read_bytes: number;
  readonly disk_write_bytes: number;
  readonly disk_read_count: number;
  readonly disk_write_count: number;
  readonly processes_count: number;
}

export interface ContainerProcess {
  /** As seen inside. */
  readonly pid: number;
  /** As seen inside; 0: it came from outside. */
  readonly ppid: number;
  readonly command: string;
  /** One letter, as in proc_pid_stat(5). */
  readonly state: string;
  readonly memory_kb: number;
  /** Seconds since the machine's start. */
  readonly started_s: number;
}

/** The processes of a container. */
export interface ProcessList {
  /** By pid. */
  readonly processes: readonly ContainerProcess[];
  /** True if processes, or parts of long command lines, are left out. */
  readonly isTruncated: boolean;
}

/** A part of a container that its end or its deletion removes from this machine. */
export type RemovedResource = "container" | "cgroup" | "network" | "rootfs" | "logs";

/** Progress of the removal of one part of a container. */
export interface RemovalStep {
  readonly container_id: string;
  readonly tenant_id: string;
  readonly resource: RemovedResource;
  /** A name of this machine, or a path below the data directory. */
  readonly path: string;
  readonly status: "pending" | "in_progress" | "completed" | "failed";
  /** Of a failed step, which is retried. */
  readonly error: string | null;
}

/** API containers: root file system, start, end, and requests to one that runs. */
export interface Containers {
  /** Ids of those that run. */
  readonly ids: readonly string[];
  /** Makes the root file system of a container, at most `disk_mb` large, which counts for the tenant `owner`. Rejects with CAPACITY_FULL. Safe to repeat. */
  create(id: string, disk_mb: number | null, owner?: string | null): Promise<void>;
  /**
   * Starts a container and waits for its minit. Resolves to null, or to its end if its command exited before the daemon
   * had connected. Rejects with START_FAILED, CAPACITY_FULL, QUOTA_EXCEEDED (GPUs), NOT_FOUND (the image); then no process, group, slot,
   * mount or bundle is left, and the root file system and the log stay.
   */
  start(spec: ContainerSpec): Promise<Ended | null>;
  /**
   * Asks a container to end by `signal`, ends it by force after `grace_ms`, and resolves when nothing of it is left.
   * Resolves at once when it does not run. Rejects with NOT_RESPONDING when it is not gone in time.
   */
  stop(id: string, signal: number, grace_ms: number): Promise<void>;
  /** Ends a container by force. Resolves when nothing of it is left. Rejects with NOT_RESPONDING as `stop` does. */
  kill(id: string): Promise<void>;
  /** Removes a container's file system, log and exit. It must not be live. Safe to repeat. `owner`: for `onRemoval`. */
  remove(id: string, owner?: string | null): Promise<void>;
  /** One listener, told of each step of a removal: of a run that ended, and of a container of an owner. */
  onRemoval(listener: (step: RemovalStep) => void): void;
  /** Returns null for a container that does not run. */
  live(id: string): LiveContainer | null;
  /** Gives a container another name in name queries. Returns true if it runs and has names: then the next query gets it. */
  rename(id: string, new_name: string): boolean;
  /** The running containers of a tenant that have names. */
  names(tenant_id: string): readonly NamedContainer[];
  /**
   * Sets the one listener on the sockets of containers with `has_socket`. A container of an earlier version of the daemon has
   * none, nor has one whose root or volumes have something else in the place of /run/hearth.
   */
  serveSockets(listener: SocketListener): void;
  /** One listener, told of every end of a container that was live. */
  onEnded(listener: (id: string, ended: Ended) => void): void;
  /** Returns the end of a container that ended without a daemon. Null: unknown, as after a reboot of the machine. */
  exit(id: string): Promise<Ended | null>;
  /** Returns the ids of all containers with a file system or a log here. */
  kept(): Promise<readonly string[]>;
  /** Begins a command in a container that runs, on a connection of its own. */
  exec(id: string, request: RunRequest, listener: ExecListener): Exec;
  /**
   * Attaches to the main command of a container that runs: its output as it is written, `exited` at the container's end. Write
   * no input before `started`. `started` rejects with IN_USE while another client is attached, WRONG_STATE where there is no main
   * command. Its end leaves the command running, without input.
   */
  attach(id: string, request: AttachRequest, listener: ExecListener): Exec;
  /** Runs a command to its end and keeps its output, of each stream at most the request's cap. */
  run(id: string, request: RunRequest & { readonly output_bytes_max: number }): Gathering;
  /** Signals a process by its pid inside. Rejects with NOT_FOUND when there is none, INVALID_ARGUMENT for the first one. */
  signalPid(id: string, pid: number, signal: number): Promise<void>;
  log(id: string): ContainerLog;
  metrics(id: string): ContainerMetrics;
  /** Number of processes in a container that runs; 0: it does not run. */
  processesIn(id: string): number;
  /** The processes of a container, by pid as seen inside. Rejects with CAPACITY_FULL when too many ask. */
  processes(id: string): Promise<ProcessList>;
  /**
   * Opens a container's file system as it is now; of a running one as its first process sees it, volumes and /tmp too. A
   * stopped one cannot start before `close`. Rejects with WRONG_STATE while it starts or ends, and as
   * `Files.open` does.
   */
  openFiles(spec: Pick<ContainerSpec, "id" | "tenant_id" | "image_id">): Promise<OpenFiles>;
  /**
   * Writes a tar of what the root of a container that does not run differs in from its image: deletions are character devices
   * 0:0, replaced directories have the attribute `trusted.overlay.opaque`, ids are those inside. Rejects with CAPACITY_FULL
   * above `bytes_max`, TIMEOUT, INTERNAL.
   */
  difference(request: DifferenceRequest): Promise<void>;
  /**
   * Takes snapshots of a container's own files, as `to`, and of other subvolumes, at one moment, while the container is
   * frozen; of one that does not run without that. With a `to` of the kind `containers`, the files of a copy, all
   * can be written to; otherwise all are read-only. Rejects as `Storage.snapshots`.
   */
  snapshot(
    id: string,
    to: SubvolumeName,
    others: readonly SnapshotPair[],
    owner: string | null,
  ): Promise<SnapshotPause>;
  /**
   * Gives the files of a copy of a container an identity of their own, before its first start: /etc/machine-id, the one of
   * D-Bus and the random seed, where the container wrote them.
   */
  renew(tenant_id: string, id: string): Promise<void>;
  /** Resolves when the root of a container that does not run is unmounted after the last session on its files. */
  left(id: string): Promise<void>;
  /** True while a session on the files of a stopped container is open: it cannot start before that ends. */
  isLookedInto(id: string): boolean;
  /** True if a container that runs is connected to the gateway. */
  isLinked(id: string): boolean;
  /** Ports of this machine that lead into containers, those of other daemons too. */
  publications(): Promise<readonly Publication[]>;
  /** Sets the function that returns the maximum of processes and threads of a tenant's containers; null: no limit. */
  boundProcesses(processesMax: (tenant_id: string) => number | null): void;
  /** Returns the present number of processes and threads of a tenant's containers. */
  processCount(tenant_id: string): number;
  /** Resolves when no probe for user namespaces runs: the result is known, or no probe is possible now. */
  userNamespacesTried(): Promise<void>;
}
