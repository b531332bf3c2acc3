/**
 * The name server of containers, on the gateway's address. rules.ts lets only containers reach it that are members, each at
 * its own address, and maps port 53 to its ports; so no other program of this machine can have taken them.
 *
 * S1 Only members are answered, each by what holds for it at that moment.
 * S2 Queries under way to the machine's name servers are bounded: of one container, of one tenant, of all. One beyond gets
 *    an answer at once. So are TCP connections, their age, and what waits on each.
 * S3 Queries in a second are bounded in the same way, whatever packets they come in: a datagram beyond gets no answer, a
 *    connection is not read until the next second. What comes while the daemon is busy waits in a buffer that holds seconds of a
 *    flood, so that queries of others are not lost there.
 * S4 An answer goes to the container that asked, not to one that has its address by then.
 */
import { createSocket, type Socket as DatagramSocket } from "node:dgram";
import { createServer, type Server, type Socket } from "node:net";
import { type Clock, sleep } from "../../base/clock.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { Shares } from "../../base/shares.ts";
import type { Members, PlacedMember } from "../network/members.ts";
import type { DnsPorts } from "../network/rules.ts";
import type { Subnet } from "../network/subnet.ts";
import { answerOf, hiddenName, mayAsk } from "./answers.ts";
import { composeReply, passedOn, type Query, RCODE, type Rcode, readQuery } from "./message.ts";
import { QueryRates } from "./query-rates.ts";
import { UnsettledNames } from "./unsettled.ts";
import { askServers, framed, type NameServer, readNameServers, type Transport } from "./upstream.ts";

export interface NameServerOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly members: Members;
  readonly subnet: Subnet;
  /** Address to listen on. */
  readonly address: string;
  /** Name servers of the machine; for tests. */
  readonly servers?: () => readonly NameServer[];
}

/** Bounds of one kind of work (S2). */
class Bounds {
  readonly #containers: Shares;
  readonly #tenants: Shares;

  constructor(container_max: number, tenant_max: number, all_max: number) {
    this.#containers = new Shares({ each_max: container_max, all_max });
    this.#tenants = new Shares({ each_max: tenant_max, all_max });
  }

  /** Takes a place until what is returned is called; null: there is none. */
  take({ id, tenant_id }: PlacedMember): (() => void) | null {
    const refused = () => new AppError("CAPACITY_FULL", "too many name queries");
    const left: (() => void)[] = [];
    try {
      left.push(this.#containers.take(id, refused), this.#tenants.take(tenant_id, refused));
    } catch {
      for (const leave of left) leave();
      return null;
    }
    return () => {
      for (const leave of left) leave();
    };
  }
}

export class NameServerOfContainers {
  readonly #options: NameServerOptions;
  readonly #forwards = new Bounds(
    LIMITS.dns_forwards_per_container_max,
    LIMITS.dns_forwards_per_tenant_max,
    LIMITS.dns_forwards_max,
  );
  readonly #connections = new Bounds(
    LIMITS.dns_connections_per_container_max,
    LIMITS.dns_connections_per_tenant_max,
    LIMITS.dns_connections_max,
  );
  readonly #open = new Set<Socket>();
  readonly #rates: QueryRates;
  readonly #unsettled: UnsettledNames;
  #udp: DatagramSocket | null = null;
  #tcp: Server | null = null;
  #servers: readonly NameServer[] = [];
  #servers_read_ms = Number.NEGATIVE_INFINITY;

  constructor(options: NameServerOptions) {
    this.#options = options;
    this.#rates = new QueryRates(options.clock);
    this.#unsettled = new UnsettledNames(options.clock);
  }

  /** Listens on two ports that the kernel chooses. */
  async open(): Promise<DnsPorts> {
    const { address, log } = this.#options;
    const udp = createSocket({ type: "udp4", recvBufferSize: LIMITS.dns_socket_buffer_bytes });
    this.#udp = udp;
    await new Promise<void>((resolve, reject) => {
      udp.once("error", reject);
      udp.bind({ address, port: 0, exclusive: true }, () => resolve());
    });
    udp.removeAllListeners("error");
    udp.on("error", (error) => log.warn("name server: error of its socket", { error: errorText(error) }));
    udp.on("message", (bytes, { address: from, port }) => this.#onDatagram(udp, bytes, from, port));
    const tcp = createServer((socket) => this.#onConnection(socket));
    this.#tcp = tcp;
    await new Promise<void>((resolve, reject) => {
      tcp.once("error", reject);
      tcp.listen({ host: address, port: 0, exclusive: true }, () => resolve());
    });
    tcp.removeAllListeners("error");
    tcp.on("error", (error) => log.warn("name server: error of its listener", { error: errorText(error) }));
    const bound = tcp.address();
    return { udp: udp.address().port, tcp: bound !== null && typeof bound === "object" ? bound.port : 0 };
  }

  close(): void {
    this.#udp?.close();
    this.#udp = null;
    this.#tcp?.close();
    for (const socket of this.#open) socket.destroy();
  }

  #onDatagram(udp: DatagramSocket, bytes: Buffer, from: string, port: number): void {
    const { members } = this.#options;
    const asker = members.at(from);
    if (asker === null || this.#rates.take(asker) > 0) return;
    void this.#answer(asker, bytes, "udp").then((answer) => {
      if (members.at(from)?.id !== asker.id) return;
      // Sending fails if the container has ended.
      if (answer !== null && udp === this.#udp) udp.send(answer, port, from, () => {});
    });
  }

  #onConnection(socket: Socket): void {
    const { clock, members } = this.#options;
    const from = socket.remoteAddress ?? "";
    const asker = members.at(from);
    const leave = asker === null ? null : this.#connections.take(asker);
    socket.on("error", () => socket.destroy());
    if (leave === null) {
      socket.destroy();
      return;
    }
    this.#open.add(socket);
    const cancel = clock.after(LIMITS.dns_connection_ms, () => socket.destroy());
    socket.setTimeout(LIMITS.dns_connection_idle_ms, () => socket.destroy());
    socket.on("close", () => {
      cancel();
      leave();
      this.#open.delete(socket);
    });
    this.#serve(socket, from).catch(() => socket.destroy());
  }

  /** Answers the queries of a connection one after the other; the client waits while one is under way. */
  async #serve(socket: Socket, from: string): Promise<void> {
    let received = Buffer.alloc(0);
    for await (const bytes of socket as AsyncIterable<Buffer>) {
      received = Buffer.concat([received, bytes]);
      while (received.length >= 2) {
        const length = received.readUInt16BE(0);
        if (length > LIMITS.dns_query_bytes_max) {
          socket.destroy();
          return;
        }
        if (received.length < 2 + length) break;
        const query = received.subarray(2, 2 + length);
        received = received.subarray(2 + length);
        const asker = await this.#inTurn(socket, from);
        const answer = asker === null ? null : await this.#answer(asker, query, "tcp");
        if (answer === null || socket.writableLength > LIMITS.dns_connection_bytes_max) {
          socket.destroy();
          return;
        }
        socket.write(framed(answer));
      }
    }
  }

  /** Waits until the member at an address may ask (S3). Null: there is none, or its connection has ended. */
  async #inTurn(socket: Socket, from: string): Promise<PlacedMember | null> {
    const { clock, members } = this.#options;
    for (;;) {
      const asker = socket.destroyed ? null : members.at(from);
      const wait_ms = asker === null ? 0 : this.#rates.take(asker);
      if (wait_ms === 0) return asker;
      await sleep(clock, wait_ms);
    }
  }

  /** Never rejects. Null: no answer. */
  async #answer(asker: PlacedMember, bytes: Buffer, transport: Transport): Promise<Buffer | null> {
    const query = readQuery(bytes);
    if (query === null || "answer" in query) return query?.answer ?? null;
    try {
      const { members, subnet } = this.#options;
      const reply = answerOf(members, subnet, asker, query);
      if (reply === null) return await this.#forward(asker, query, transport);
      const hidden = hiddenName(query.name);
      if (hidden !== null && this.#unsettled.has(asker, hidden)) return refusal(query, RCODE.failed);
      return composeReply(query, reply);
    } catch (error) {
      this.#options.log.warn("name server: query failed", { error: errorText(error) });
      return refusal(query, RCODE.failed);
    }
  }

  async #forward(asker: PlacedMember, query: Query, transport: Transport): Promise<Buffer> {
    const servers = this.#nameServers().filter(({ address }) => mayAsk(asker.egress, address, transport));
    if (servers.length === 0) {
      return refusal(query, asker.egress === "on" ? RCODE.failed : RCODE.refused);
    }
    this.#unsettled.begin(asker, query.name);
    const leave = this.#forwards.take(asker);
    if (leave === null) return refusal(query, RCODE.failed);
    try {
      const answer = await askServers(this.#options.clock, servers, query, transport);
      if (answer === null) return refusal(query, RCODE.failed);
      if (isSettled(answer)) this.#unsettled.settle(asker, query.name);
      return passedOn(query, answer, transport === "udp" ? query.udp_bytes_max : Number.POSITIVE_INFINITY);
    } finally {
      leave();
    }
  }

  #nameServers(): readonly NameServer[] {
    const { clock, address, servers = readNameServers } = this.#options;
    if (clock.monotonicMs() - this.#servers_read_ms > LIMITS.dns_servers_reread_ms) {
      this.#servers_read_ms = clock.monotonicMs();
      // Not this one itself.
      this.#servers = servers().filter((server) => server.address !== address);
    }
    return this.#servers;
  }
}

/** True for an answer that there is such a name, or that there is none. */
function isSettled(answer: Buffer): boolean {
  const rcode = (answer[3] ?? 0) & 0x0f;
  return rcode === RCODE.ok || rcode === RCODE.unknown_name;
}

const refusal = (query: Query, rcode: Rcode): Buffer => composeReply(query, { rcode, isAuthoritative: false });
