/**
 * Asks the name servers of this machine for names that are no container's. Each query has a socket and an id of its own, so
 * a forged answer has to guess both.
 */
import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect, isIP, isIPv6 } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../base/limits.ts";
import { composeForward, isReplyTo, type Query } from "./message.ts";
import { readMachineResolvConf } from "./resolv-conf.ts";

export type Transport = "udp" | "tcp";

export interface NameServer {
  readonly address: string;
  readonly port: number;
}

/** Reads the name servers of the machine's resolv.conf(5), none if it cannot be read. */
export const readNameServers = (): readonly NameServer[] => nameServersOf(readMachineResolvConf());

export function nameServersOf(text: string): readonly NameServer[] {
  return text
    .split("\n")
    .map((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? "")
    .filter((address) => isIP(address.replace(/%.*$/, "")) !== 0)
    .slice(0, LIMITS.dns_servers_max)
    .map((address) => ({ address, port: 53 }));
}

/** Asks one name server after the other. Resolves to null when none of them answers in time. */
export async function askServers(
  clock: Clock,
  servers: readonly NameServer[],
  query: Query,
  transport: Transport,
): Promise<Buffer | null> {
  for (const server of servers) {
    const answer = await (transport === "udp" ? askByUdp : askByTcp)(clock, server, query).catch(() => null);
    if (answer !== null) return answer;
  }
  return null;
}

function askByUdp(clock: Clock, { address, port }: NameServer, query: Query): Promise<Buffer | null> {
  const id = randomInt(0x1_0000);
  const { promise, resolve } = Promise.withResolvers<Buffer | null>();
  const socket = createSocket(isIPv6(address) ? "udp6" : "udp4");
  socket.on("error", () => resolve(null));
  socket.on("message", (bytes) => {
    if (isReplyTo(query, id, bytes)) resolve(bytes);
  });
  const cancel = clock.after(LIMITS.dns_forward_ms, () => resolve(null));
  // Connected: the kernel drops what others send.
  socket.connect(port, address, () => socket.send(composeForward(query, id)));
  return promise.finally(() => {
    cancel();
    socket.close();
  });
}

function askByTcp(clock: Clock, { address, port }: NameServer, query: Query): Promise<Buffer | null> {
  const id = randomInt(0x1_0000);
  const { promise, resolve } = Promise.withResolvers<Buffer | null>();
  const socket = connect({ host: address, port });
  let received = Buffer.alloc(0);
  socket.on("error", () => resolve(null));
  socket.on("close", () => resolve(null));
  socket.on("connect", () => socket.write(framed(composeForward(query, id))));
  socket.on("data", (bytes: Buffer) => {
    received = Buffer.concat([received, bytes]);
    const length = received.length < 2 ? Number.POSITIVE_INFINITY : received.readUInt16BE(0);
    if (received.length < 2 + length) return;
    const answer = received.subarray(2, 2 + length);
    resolve(isReplyTo(query, id, answer) ? answer : null);
  });
  const cancel = clock.after(LIMITS.dns_forward_ms, () => resolve(null));
  return promise.finally(() => {
    cancel();
    socket.destroy();
  });
}

/** A message as a TCP connection carries it (RFC 1035, section 4.2.2). */
export function framed(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}
