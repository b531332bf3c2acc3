/** The network of which each instance has one address. */
import { AppError } from "../../base/errors.ts";

export interface Subnet {
  readonly base: number;
  readonly prefix_length: number;
  /** Addresses for instances: all but network, gateway and broadcast. */
  readonly size: number;
}

export function parseSubnet(text: string): Subnet {
  const [address = "", prefix = ""] = text.split("/");
  const octets = address.split(".").map(Number);
  const prefix_length = Number(prefix);
  const number = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  const block = 2 ** (32 - prefix_length);
  if (octets.some((octet) => octet > 255) || number % block !== 0) {
    throw new AppError("INVALID_ARGUMENT", `HEARTH_SUBNET is '${text}', expected a network's base address`);
  }
  if (isReserved(octets)) {
    throw new AppError(
      "INVALID_ARGUMENT",
      `HEARTH_SUBNET is '${text}', expected a network whose addresses hosts may have`,
    );
  }
  return { base: number, prefix_length, size: block - 3 };
}

/** True for "this network", loopback, link-local, multicast and above (RFC 6890), which no bridge may take. */
function isReserved([first = 0, second = 0]: readonly number[]): boolean {
  return first === 0 || first === 127 || first >= 224 || (first === 169 && second === 254);
}

export function formatAddress(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 255).join(".");
}

/** Parses an IPv4 address in its one canonical form; null for any other text. */
export function parseAddress(text: string): number | null {
  const octets = text.split(".").map(Number);
  const number = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  const isAddress =
    octets.length === 4 && octets.every((octet) => Number.isInteger(octet) && octet >= 0 && octet <= 255);
  return isAddress && formatAddress(number) === text ? number : null;
}

/** An address as /proc/net/route has it. */
export function hexOf(address: number): string {
  const octets = [0, 8, 16, 24].map((shift) => ((address >>> shift) & 255).toString(16).padStart(2, "0"));
  return octets.join("").toUpperCase();
}

/** The link by which a network in the subnet is reached at once, unless it is one's own. `routes`: /proc/net/route. */
export function foreignLink(routes: string, subnet: Subnet, isOwn: (link: string) => boolean): string | null {
  const block = 2 ** (32 - subnet.prefix_length);
  const numberOf = (hex = "") => Buffer.from(hex, "hex").readUInt32LE();
  for (const line of routes.trimEnd().split("\n").slice(1)) {
    const [link = "", destination, gateway, , , , , mask] = line.trimEnd().split("\t");
    const base = numberOf(destination);
    const isInside = base >= subnet.base && base < subnet.base + block && 2 ** 32 - numberOf(mask) <= block;
    if (isInside && numberOf(gateway) === 0 && !isOwn(link)) return link;
  }
  return null;
}

/** True if the subnet contains the address. */
export function contains({ base, prefix_length }: Subnet, address: number): boolean {
  return address >= base && address < base + 2 ** (32 - prefix_length);
}
