/**
 * Networks that no request to the outside has as its destination: those of the special-purpose registries of IANA
 * (iana-ipv4-special-registry, iana-ipv6-special-registry, RFC 6890), and the services that clouds offer each machine at
 * addresses of their own.
 */
import { contains, type Network, network } from "./addresses.ts";

/** IPv4 networks that are not globally reachable, or not as unicast. */
const IPV4 = [
  // This network (RFC 791).
  "0.0.0.0/8",
  // Private use (RFC 1918).
  "10.0.0.0/8",
  "172.16.0.0/12",
  "192.168.0.0/16",
  // Shared address space of carriers (RFC 6598); Alibaba Cloud's metadata at 100.100.100.200.
  "100.64.0.0/10",
  // Loopback (RFC 1122).
  "127.0.0.0/8",
  // Link-local (RFC 3927), with the metadata of most clouds at 169.254.169.254.
  "169.254.0.0/16",
  // IETF protocol assignments (RFC 6890); Oracle Cloud's metadata at 192.0.0.192.
  "192.0.0.0/24",
  // Documentation (RFC 5737).
  "192.0.2.0/24",
  "198.51.100.0/24",
  "203.0.113.0/24",
  // Relays of 6to4, deprecated (RFC 7526).
  "192.88.99.0/24",
  // Benchmarks (RFC 2544).
  "198.18.0.0/15",
  // Multicast (RFC 5771), reserved (RFC 1112), broadcast (RFC 919).
  "224.0.0.0/3",
];

/**
 * All of IPv6 but global unicast, 2000::/3 (RFC 4291, section 2.4), and of that what is special. Outside it are loopback, the
 * unspecified, IPv4-compatible and IPv4-translated addresses, local translation 64:ff9b:1::/48, discard 100::/64, segment
 * routing 5f00::/16, unique local fc00::/7 with the metadata of AWS and Google, link-local fe80::/10, and multicast ff00::/8.
 */
const IPV6 = [
  "::/3",
  "4000::/2",
  "8000::/1",
  // IETF protocol assignments (RFC 2928), with Teredo, benchmarks and ORCHID: none is a server's.
  "2001::/23",
  // Documentation (RFC 3849, RFC 9637).
  "2001:db8::/32",
  "3fff::/20",
];

/**
 * Services that a cloud offers each machine at a single address. Azure's agent and name server has one that no registry lists
 * (learn.microsoft.com, "What is IP address 168.63.129.16?"); those of Alibaba Cloud and Oracle Cloud are in networks above.
 */
export const CLOUD_SERVICES = ["100.100.100.200", "192.0.0.192", "168.63.129.16"] as const;

const SPECIAL = [...IPV4, ...IPV6, ...CLOUD_SERVICES].map(network);

/** IPv6 addresses that stand for an IPv4 address, and where it begins in them: NAT64 (RFC 6052), 6to4 (RFC 3056). */
const EMBEDDING = [
  { within: network("64:ff9b::/96"), offset: 12 },
  { within: network("2002::/16"), offset: 2 },
];

/** Returns the IPv4 address that an IPv6 address stands for, else the address itself. */
export function meantAddress(bytes: Uint8Array): Uint8Array {
  const { offset } = EMBEDDING.find(({ within }) => contains(within, bytes)) ?? {};
  return offset === undefined ? bytes : bytes.subarray(offset, offset + 4);
}

/** True for an address that no server on the Internet has. */
export function isSpecial(address: Uint8Array): boolean {
  return SPECIAL.some((one: Network) => contains(one, address));
}
