/** Bridges and subnets for tests: none is that of a test beside it or of one that was killed and left its own. */
import { createHash, randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";
import { foreignLink, parseSubnet } from "../../src/engine/network/subnet.ts";

/** Second octets, away from the default subnet. Tests in a thread run beside others and have octets of their own. */
const OCTETS = 50;
const OCTET_MIN = isMainThread ? 100 : 100 + OCTETS;
/** Subnets that this test file took. */
const subnets = new Set<string>();

/** Returns a subnet that no daemon of this file or of the tests beside it has, and that the machine does not reach. */
export function ownSubnet(): string {
  const routes = readFileSync("/proc/net/route", "utf8");
  for (;;) {
    const subnet = `10.${OCTET_MIN + randomInt(OCTETS)}.${randomInt(16) << 4}.0/20`;
    if (subnets.has(subnet) || foreignLink(routes, parseSubnet(subnet), () => false) !== null) continue;
    subnets.add(subnet);
    return subnet;
  }
}

/** The tag that a daemon with this data directory has on the host. */
export function tagOf(data_dir: string): string {
  return createHash("sha256").update(data_dir).digest("hex").slice(0, 8);
}

/** The bridge for a daemon or an engine with this data directory. */
export function bridgeOf(data_dir: string): string {
  return `ht${tagOf(data_dir)}`;
}

/** Flags for an engine that has this data directory: they name a network of its own. */
export function ownNetworkFlags(data_dir: string, subnet = ownSubnet()): string[] {
  return ["--data-dir", data_dir, "--bridge", bridgeOf(data_dir), "--subnet", subnet];
}
