/**
 * /etc/hosts, /etc/hostname and /etc/resolv.conf of a container: files of its own, which it may write, and which every start
 * replaces, because address and name servers may be others by then. They are mounts, so no part of snapshots, copies or images.
 */
import { existsSync } from "node:fs";
import { bind } from "./instance.ts";
import type { OciMount } from "./mounts.ts";

/** Names of the files below /etc, and in the directory in which they lie on this machine. */
export const ETC_FILES = ["hosts", "hostname", "resolv.conf"] as const;

export type EtcFiles = Readonly<Record<(typeof ETC_FILES)[number], string>>;

/** A kernel without IPv6 has no such file, and lo no ::1 (netns.c of the helper). */
const IPV6_ON_LOOPBACK = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";

/**
 * Returns the texts of the files. `resolv_conf`: text of resolv.conf(5). `localhost` has one address, as on Ubuntu: without
 * another IPv6 address the C library answers 127.0.0.1 for ::1 as well, and a server that listens on both fails (nginx).
 */
export function etcFiles(hostname: string, address: string, resolv_conf: string): EtcFiles {
  const hosts = [
    "127.0.0.1\tlocalhost",
    ...(existsSync(IPV6_ON_LOOPBACK) ? ["::1\tip6-localhost ip6-loopback"] : []),
    `${address}\t${hostname}`,
  ];
  return { hosts: `${hosts.join("\n")}\n`, hostname: `${hostname}\n`, "resolv.conf": resolv_conf };
}

/** Mounts of the files that lie in `directory`. As with podman they are read-only where the root is. */
export const etcMounts = (directory: string, isReadonly: boolean): readonly OciMount[] =>
  ETC_FILES.map((name) => bind(`${directory}/${name}`, `/etc/${name}`, isReadonly ? "ro" : "rw", "noexec"));
