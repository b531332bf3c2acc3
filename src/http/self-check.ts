/**
 * The check that connections to a listener's address arrive at this very process. A rule of the packet filter may lead
 * them elsewhere, and whoever receives them receives the keys of clients.
 */
import { connect, type DropArgument, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import type { Clock } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";

export interface Unreached {
  readonly address: string;
  /** elsewhere: another process or container accepted; refused: nobody did in time. */
  readonly outcome: "elsewhere" | "refused";
}

/** Addresses behind which clients find the listener, at most `self_check_addresses_max`. */
function addressesOf(host: string): readonly string[] {
  if (host !== "0.0.0.0" && host !== "::") return [host];
  const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const others = own.filter(({ family, internal }) => family === "IPv4" && !internal).map(({ address }) => address);
  return ["127.0.0.1", ...others].slice(0, LIMITS.self_check_addresses_max);
}

/** Connects to each address of the listener. Returns the first that does not lead to it, or null. */
export async function firstUnreached(
  server: Server,
  host: string,
  port: number,
  clock: Clock,
): Promise<Unreached | null> {
  const arrived = new Set<number>();
  const note = ({ remotePort }: Socket) => arrived.add(remotePort ?? 0);
  const noteDrop = (dropped?: DropArgument) => arrived.add(dropped?.remotePort ?? 0);
  // Before other listeners, which may close the connection; and above its bound, where there is no other event.
  server.prependListener("connection", note);
  server.on("drop", noteDrop);
  try {
    for (const address of addressesOf(host)) {
      const outcome = await probe(address, port, (own_port) => arrived.has(own_port), clock);
      if (outcome !== "here") return { address, outcome };
    }
    return null;
  } finally {
    server.off("connection", note).off("drop", noteDrop);
  }
}

type Outcome = Unreached["outcome"] | "here";

function probe(host: string, port: number, hasArrived: (own_port: number) => boolean, clock: Clock): Promise<Outcome> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (outcome: Outcome) => {
      for (const cancel of cancels) cancel();
      socket.destroy();
      resolve(outcome);
    };
    const look = () => {
      if (hasArrived(socket.localPort ?? -1)) end("here");
      else cancels.push(clock.after(LIMITS.self_check_look_ms, look));
    };
    const cancels = [clock.after(LIMITS.self_check_ms, () => end(socket.connecting ? "refused" : "elsewhere"))];
    socket.on("connect", look);
    socket.on("error", () => end("refused"));
  });
}
