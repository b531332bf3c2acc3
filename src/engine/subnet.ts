/** The network of which each instance has one address. */
import { AppError } from "../base/errors.ts";

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
  return { base: number, prefix_length, size: block - 3 };
}

export function formatAddress(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 255).join(".");
}

/** An address as /proc/net/route has it. */
export function hexOf(address: number): string {
  const octets = [0, 8, 16, 24].map((shift) => ((address >>> shift) & 255).toString(16).padStart(2, "0"));
  return octets.join("").toUpperCase();
}
