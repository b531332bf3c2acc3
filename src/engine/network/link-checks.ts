/**
 * The link of one slot as the kernel has it: its end on this machine and the `eth0` in its namespace, with addresses,
 * routes and neighbours. Checks compare it with what netns.c of minit makes; mending makes the same again, with commands
 * that leave what is right as it is. Everything is read through ip(8), whose netlink no process inside can influence.
 *
 * K1 A namespace is named by a descriptor (`/proc/<pid>/fd/<n>`), never by the pid of a process in it: the pid may become
 *    another container's while the commands run.
 */
import { LIMITS } from "../../base/limits.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { NetworkCheck } from "../ports/networks.ts";
import type { Place } from "./policies.ts";

/** The name of the link inside. */
export const INSIDE_INTERFACE = "eth0";

/** Inputs that the checks of all links share. */
export interface LinkNames {
  readonly bridge: string;
  readonly gateway: string;
  /** Group of links in use. */
  readonly live_group: number;
}

interface Link {
  readonly ifname: string;
  readonly flags: readonly string[];
  readonly mtu: number;
  readonly operstate: string;
  readonly group: string;
  readonly address: string;
  readonly addr_info?: readonly { readonly local: string; readonly prefixlen: number }[];
}
interface Route {
  readonly dst: string;
  readonly gateway?: string;
  readonly dev: string;
}
interface Neighbour {
  readonly dst: string;
  readonly lladdr?: string;
  readonly state: readonly string[];
}

/** One end of a link. */
export interface LinkEnd {
  /** Null: there is no such link. */
  readonly link: Link | null;
  readonly routes: readonly Route[];
  readonly neighbours: readonly Neighbour[];
}

export interface LinkEnds {
  readonly inside: LinkEnd;
  readonly outside: LinkEnd;
}

const SEPARATOR = "--";
/** Prints what `$1` has. Without a link ip(8) prints nothing. */
const SHOW = `ip -j address show dev "$1" 2>/dev/null; echo ${SEPARATOR}
  ip -j route show dev "$1" 2>/dev/null; echo ${SEPARATOR}
  ip -j neighbour show dev "$1" nud permanent 2>/dev/null; true`;
/** bash opens the connection; a machine may have no ping(8). */
const REACH = `timeout 1 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$2"`;
const MEND_INSIDE = `set -e
  ip link set dev eth0 up arp off
  ip address replace "$1/32" dev eth0
  ip neighbour replace "$2" lladdr "$3" nud permanent dev eth0
  ip route replace "$2" dev eth0 scope link
  ip route replace default via "$2" dev eth0`;
const MEND_OUTSIDE = `set -e
  ip link set dev "$1" up arp off
  ip neighbour replace "$2" lladdr "$3" nud permanent dev "$1"
  ip route replace "$2" dev "$1" scope link src "$4"`;
const MAKE = `set -e
  ip link add "$1" group "$2" address "$3" numtxqueues 1 numrxqueues 1 type veth \\
    peer name eth0 address "$4" numtxqueues 1 numrxqueues 1 netns "$5"
  ip link set dev "$1" addrgenmode none || true`;

/** Hardware addresses of both ends, which follow from the IP address (hardware_of in netns.c of minit). */
function hardwareOf(address: string): { readonly inside: string; readonly outside: string } {
  const hex = address.split(".").map((octet) => Number(octet).toString(16).padStart(2, "0"));
  return { inside: ["02", "01", ...hex].join(":"), outside: ["02", "02", ...hex].join(":") };
}

export class LinkChecks {
  readonly #client: () => Promise<LauncherClient>;
  readonly #names: LinkNames;

  constructor(client: () => Promise<LauncherClient>, names: LinkNames) {
    this.#client = client;
    this.#names = names;
  }

  /** Reads both ends of a link. `netns`: path of its namespace (K1). */
  async read({ host_interface }: Place, netns: string): Promise<LinkEnds> {
    const [inside, outside] = await Promise.all([
      this.#run(["nsenter", `--net=${netns}`, "sh", "-c", SHOW, "sh", INSIDE_INTERFACE]),
      this.#run(["sh", "-c", SHOW, "sh", host_interface]),
    ]);
    return { inside: endOf(inside), outside: endOf(outside) };
  }

  /**
   * Checks that a TCP connection from inside to a port of the gateway, which all may reach, is accepted or refused by this
   * machine: either answer proves the way there and back.
   */
  async reachGateway(netns: string, port: number): Promise<NetworkCheck> {
    const { gateway } = this.#names;
    const client = await this.#client();
    const argv = ["nsenter", `--net=${netns}`, "sh", "-c", REACH, "sh", gateway, String(port)];
    const { exit_code, stderr } = await client.spawn({ argv, timeout_ms: LIMITS.network_check_ms });
    const isReached = exit_code === 0 || stderr.includes("refused");
    const why = stderr.includes("unreachable") ? "no route leads to it" : "it does not answer";
    return {
      name: "gateway",
      ok: isReached,
      message: isReached ? `the gateway ${gateway} answers` : `the gateway ${gateway} is not reached: ${why}`,
    };
  }

  /** Makes a link as it was made: anew where both ends are gone, else what differs. Rejects with INTERNAL. */
  async mend({ address, host_interface }: Place, netns: string, { inside, outside }: LinkEnds): Promise<void> {
    const { gateway, live_group } = this.#names;
    const hardware = hardwareOf(address);
    if (inside.link === null && outside.link === null) {
      const argv = [host_interface, String(live_group), hardware.outside, hardware.inside, netns];
      await this.#run(["sh", "-c", MAKE, "sh", ...argv]);
    }
    const within = ["nsenter", `--net=${netns}`, "sh", "-c", MEND_INSIDE, "sh"];
    await this.#run([...within, address, gateway, hardware.outside]);
    await this.#run(["sh", "-c", MEND_OUTSIDE, "sh", host_interface, address, hardware.inside, gateway]);
  }

  /** Removes a link that was made for a container that ended meanwhile. */
  async remove({ host_interface }: Place): Promise<void> {
    await this.#run(["sh", "-c", `ip link delete "$1" 2>/dev/null || true`, "sh", host_interface]);
  }

  async #run(argv: readonly string[]): Promise<string> {
    return (await this.#client()).run(argv, LIMITS.network_check_ms);
  }
}

function endOf(text: string): LinkEnd {
  const [links = [], routes = [], neighbours = []] = text.split(`${SEPARATOR}\n`).map((part) => listIn(part));
  return {
    link: (links[0] as Link | undefined) ?? null,
    routes: routes as Route[],
    neighbours: neighbours as Neighbour[],
  };
}

function listIn(text: string): readonly unknown[] {
  return text.trim() === "" ? [] : (JSON.parse(text) as readonly unknown[]);
}

/** Checks of both ends, without sending a packet. */
export function checksOf(
  { address, host_interface }: Place,
  ends: LinkEnds,
  names: LinkNames,
): readonly NetworkCheck[] {
  const { inside, outside } = ends;
  const { gateway } = names;
  const hardware = hardwareOf(address);
  const has = (end: LinkEnd, dst: string, lladdr: string) =>
    end.neighbours.some((one) => one.dst === dst && one.lladdr === lladdr);
  const check = (name: NetworkCheck["name"], problems: readonly (readonly [boolean, string])[], good: string) => {
    const found = problems.filter(([isBad]) => isBad).map(([, message]) => message);
    return { name, ok: found.length === 0, message: found.length === 0 ? good : found.join("; ") };
  };
  const isRoutedIn = inside.routes.some(({ dst, gateway: via }) => dst === "default" && via === gateway);
  const isGatewayIn = inside.routes.some(({ dst }) => dst === gateway);
  const own = inside.link?.addr_info?.find(({ local }) => local === address);
  return [
    check(
      "link",
      [
        [outside.link === null, `the link ${host_interface} is missing on the host`],
        [isDown(outside), `the link ${host_interface} is down on the host`],
        [isStrange(outside, names), `the link ${host_interface} is disconnected`],
        [inside.link === null, `${INSIDE_INTERFACE} is missing in the container`],
        [isDown(inside), `${INSIDE_INTERFACE} is down in the container`],
      ],
      `${INSIDE_INTERFACE} and ${host_interface} are up`,
    ),
    check("address", [[own === undefined, `${INSIDE_INTERFACE} lacks the address ${address}`]], `${address} is set`),
    check(
      "route",
      [
        [!isGatewayIn || !isRoutedIn, `the container has no default route through ${gateway}`],
        [!outside.routes.some(({ dst }) => dst === address), `the host has no route to ${address}`],
      ],
      `the default route leads to ${gateway}, and the host's route back`,
    ),
    check(
      "neighbour",
      [
        [!has(inside, gateway, hardware.outside), `the container has no neighbour entry of ${gateway}`],
        [!has(outside, address, hardware.inside), `the host has no neighbour entry of ${address}`],
      ],
      "both ends know each other's hardware address",
    ),
  ];
}

const isDown = ({ link }: LinkEnd): boolean => link !== null && !link.flags.includes("UP");

/** True for a link that was cut: its container is being removed, or it belongs to an earlier subnet. */
export const isStrange = ({ link }: LinkEnd, { live_group }: LinkNames): boolean =>
  link !== null && link.group !== String(live_group);
