/** What is said about one API container: what it is started from, what it is while it runs, how it ended. */
import type { ContainerSpec } from "./container-bundle.ts";
import type { ContainerControl } from "./container-client.ts";
import type { ExitRecord } from "./container-log.ts";

/** What a start needs to know. */
export interface ContainerPlan
  extends Omit<
    ContainerSpec,
    | "image_id"
    | "rootfs"
    | "minit"
    | "resolv_conf"
    | "slot_index"
    | "address"
    | "netns"
    | "user"
    | "cgroup"
    | "filter"
    | "mounts"
    | "has_socket_limit"
  > {
  readonly tenant_id: string;
  readonly image: string;
  readonly disk_limit_mb: number | null;
  /** Volumes by id, each mounted at a path inside. */
  readonly volumes: readonly { readonly id: string; readonly target: string }[];
}

/** A container that runs. */
export interface LiveContainer {
  readonly id: string;
  /** Of its first process, on this machine. */
  readonly pid: number;
  readonly address: string;
  /** What its ids are outside less what they are inside: 0 without a user namespace. */
  readonly first_id: number;
  /** Where its minit listens. */
  readonly socket_path: string;
  readonly control: ContainerControl;
}

/** Of one whose first process was killed before it could say. */
export const KILLED: Omit<ExitRecord, "ended_at_ms"> = {
  exit_code: 137,
  signal: 9,
  asked: false,
  has_command: true,
  is_started: true,
};

/** How a container ended. */
export interface Ended extends ExitRecord {
  /** The kernel ended something in it for want of memory. */
  readonly is_oom: boolean;
}
