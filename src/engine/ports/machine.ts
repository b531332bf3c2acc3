/** The engine's port: facts of the machine that all containers share. */

/** A resource of this machine's kernel that containers share, and whether one of them can use up all of it. */
export interface Budget {
  readonly name: "terminals" | "open_files" | "socket_memory" | "disk_io" | "uplink" | "tracked_connections";
  readonly is_bounded: boolean;
  /** The bound, or the reason why there is none. */
  readonly note: string;
}

/** `v1` and `hybrid` limit through the v1 controllers; hybrid has a cgroup2 tree mounted beside them. */
export type CgroupMode = "v1" | "hybrid" | "v2";

export interface UserNamespaceInfo {
  /** `unknown` until it is decided. */
  readonly mode: "on" | "off" | "unknown";
  /** Reason why there are none; null otherwise. */
  readonly reason: string | null;
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
  /** User namespaces of API containers; function instances have none. */
  readonly user_namespaces: UserNamespaceInfo;
  readonly budgets: readonly Budget[];
}
