/**
 * Budgets of the machine's kernel that all containers draw on, and that the kernel counts once for all of them.
 * src/engine/README.md lists them all with their bounds. Those here are raised at startup, because each container has a
 * lower bound of its own.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Budget } from "../ports/machine.ts";
import type { SocketMemoryBound } from "./control-groups.ts";

const SYSCTLS = "/proc/sys";
/** LONG_MAX, as systemd sets it: each open file is charged to the memory of its control group. */
const FILES_MAX = "9223372036854775807";

/** The host's own terminals, beside those that containers may open. */
const HOST_TERMINALS = 1_024;

/** Raises a number of the kernel's to at least `value`. Returns why it could not, or null. */
function raise(name: string, value: string, root: string): string | null {
  const file = `${root}/${name}`;
  try {
    if (BigInt(readFileSync(file, "utf8").trim()) < BigInt(value)) writeFileSync(file, value);
    return null;
  } catch (error) {
    return `cannot raise ${name.replaceAll("/", ".")}: ${(error as NodeJS.ErrnoException).code ?? "unknown"}`;
  }
}

/** Raises the budgets that need it for so many containers. Never lowers one. Returns what holds from here on. */
export function raiseBudgets(containers_max: number, root = SYSCTLS): Budget[] {
  const terminals = HOST_TERMINALS * 2 + containers_max * LIMITS.container_terminals_max;
  const shared = (name: Budget["name"], reason: string | null, held: string): Budget => ({
    name,
    is_bounded: reason === null,
    note: reason === null ? held : `${reason}; one container can exhaust it for all`,
  });
  return [
    shared(
      "terminals",
      raise("kernel/pty/max", String(terminals), root),
      `${LIMITS.container_terminals_max} for each container`,
    ),
    shared("open_files", raise("fs/file-max", FILES_MAX, root), "charged to the memory limit"),
  ];
}

const SOCKET_NOTES: Record<SocketMemoryBound, string> = {
  memory: "charged to the memory limit",
  own: "memory_limit_mb again for TCP and UDP, and about 75 kB per connection; unix sockets count as memory",
  none: "this kernel's control groups do not count it; one container can exhaust net.ipv4.tcp_mem",
};

/** Buffers of sockets. */
export function socketBudget(bound: SocketMemoryBound): Budget {
  return { name: "socket_memory", is_bounded: bound !== "none", note: SOCKET_NOTES[bound] };
}

/** Entries of the kernel's table of connections. `refused_count`: packets dropped because of the bound. */
export function connectionBudget(flows_max: number, refused_count: number): Budget {
  const tenant_max = LIMITS.connection_buckets * flows_max;
  const note =
    `${flows_max} for each address, ${tenant_max} for a tenant with more than ${LIMITS.connection_buckets} addresses; ` +
    `${refused_count} packets dropped above that`;
  return { name: "tracked_connections", is_bounded: true, note };
}

/** Connections that the kernel tracks in the network namespace of the machine. Throws where it tracks none. */
export function readTrackedConnections(root = SYSCTLS): { readonly used_count: number; readonly count_max: number } {
  const read = (name: string) => Number(readFileSync(`${root}/net/netfilter/nf_conntrack_${name}`, "utf8"));
  return { used_count: read("count"), count_max: read("max") };
}

export interface SocketMemory {
  readonly tcp_bytes: number;
  readonly udp_bytes: number;
  /** The kernel's own bound for TCP, above which connections of all containers and of the host suffer. */
  readonly tcp_max_bytes: number;
}

const PAGE_BYTES = 4_096;

/** Buffers of all sockets of this machine, in whatever network namespace. Two small reads. */
export function readSocketMemory(root = "/proc"): SocketMemory {
  const sockets = readFileSync(`${root}/net/sockstat`, "utf8");
  const bytes = (protocol: string): number =>
    Number(new RegExp(`^${protocol}:.* mem (\\d+)`, "m").exec(sockets)?.[1] ?? 0) * PAGE_BYTES;
  const [, , tcp_pages_max] = readFileSync(`${root}/sys/net/ipv4/tcp_mem`, "utf8").trim().split(/\s+/);
  return { tcp_bytes: bytes("TCP"), udp_bytes: bytes("UDP"), tcp_max_bytes: Number(tcp_pages_max) * PAGE_BYTES };
}

/** Warns when buffers of sockets come near the kernel's bound, and again only after they were well below it. */
export class SocketMemoryWatch {
  readonly #log: Log;
  #isWarned = false;

  constructor(log: Log) {
    this.#log = log;
  }

  look({ tcp_bytes, tcp_max_bytes }: SocketMemory): void {
    const used_ratio = tcp_bytes / tcp_max_bytes;
    if (used_ratio >= LIMITS.socket_memory_warn_ratio && !this.#isWarned) {
      this.#log.warn("socket memory of this machine is nearly used up", { tcp_bytes, tcp_max_bytes });
      this.#isWarned = true;
    }
    if (used_ratio < LIMITS.socket_memory_warn_ratio / 2) this.#isWarned = false;
  }
}
