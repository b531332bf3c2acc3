/**
 * WebSockets of clients to the containers behind services. The daemon passes the handshake on and then bytes in both
 * directions; it reads no frames.
 *
 * W1. A socket ends with either of its sides, with its service, its token or its container, or when no byte moved for long.
 * W2. A client that leaves before the handshake is answered ends it. What it sent until then is held within a bound.
 * W3. A container that refuses the handshake is heard: its response goes to the client, and the connection ends.
 */
import { type IncomingMessage, ServerResponse, request as send } from "node:http";
import type { Socket } from "node:net";
import { LIMITS } from "../base/limits.ts";
import { responseHeaders } from "./headers.ts";
import { failed, failureOf, type Passage, type ServiceProxy } from "./proxy.ts";

/** Node keeps the answer that a socket is in the middle of here. */
type Answering = Socket & { readonly _httpMessage?: object | null };

export class ServiceSockets {
  readonly #proxy: ServiceProxy;
  readonly #open = new Set<Socket>();

  constructor(proxy: ServiceProxy) {
    this.#proxy = proxy;
  }

  /** Ends all sockets. */
  close(): void {
    for (const socket of this.#open) socket.destroy();
  }

  /** True if a request is to become a WebSocket. Others that ask for another protocol are served without it. */
  isUpgrade(incoming: IncomingMessage): boolean {
    const { method, headers } = incoming;
    if (method !== "GET" || headers.upgrade?.toLowerCase() !== "websocket") return false;
    if (headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined) return false;
    return this.#proxy.access.serviceOf(incoming)?.row.enable_websockets === true;
  }

  /** Takes a connection over from the server. `head`: bytes behind the request. */
  open(incoming: IncomingMessage, socket: Answering, head: Buffer): void {
    socket.on("error", () => socket.destroy());
    // It came behind a request that is not answered yet.
    if (socket._httpMessage !== undefined && socket._httpMessage !== null) {
      socket.destroy();
      return;
    }
    const outgoing = new ServerResponse(incoming);
    outgoing.shouldKeepAlive = false;
    outgoing.assignSocket(socket);
    outgoing.once("finish", () => socket.destroySoon());
    let passage: Passage | null = null;
    try {
      const admitted = this.#proxy.access.admit(incoming);
      this.#proxy.options.authenticated(incoming, admitted.service.row.tenant_id);
      passage = this.#proxy.begin(admitted, () => socket.destroy());
      this.#shake(incoming, outgoing, socket, head, passage);
    } catch (thrown) {
      passage?.end();
      this.#proxy.refuse(thrown, incoming, outgoing);
    }
  }

  #shake(incoming: IncomingMessage, outgoing: ServerResponse, socket: Socket, head: Buffer, passage: Passage): void {
    const proxy = this.#proxy;
    const upstream = send(proxy.requestOptions(incoming, passage, true));
    const state = { isAccepted: false };
    const cancel = proxy.watch(upstream, () => {});
    const gone = () => upstream.destroy();
    socket.once("close", gone);
    const early = readEarly(socket, head);
    upstream.on("error", (error) => proxy.refuse(failureOf(error), incoming, outgoing));
    upstream.once("close", () => {
      cancel();
      socket.off("close", gone);
      if (state.isAccepted) return;
      if (!outgoing.headersSent) proxy.refuse(failed("the container answered with no response"), incoming, outgoing);
      passage.end();
    });
    upstream.once("response", (response) => {
      cancel();
      proxy.respond(response, incoming, outgoing);
    });
    upstream.once("upgrade", (response, backend, backend_head) => {
      cancel();
      state.isAccepted = true;
      socket.off("close", gone);
      const { statusMessage = "Switching Protocols", rawHeaders } = response;
      outgoing.detachSocket(socket);
      this.#open.add(socket);
      socket.once("close", () => this.#open.delete(socket));
      proxy.options.served(SWITCHING, null);
      const headers = responseHeaders(rawHeaders, proxy.options.origins.cookie, true);
      socket.write(headText(statusMessage, headers), "latin1");
      join(socket, backend as Socket, early(), backend_head, passage.end);
    });
    upstream.end();
  }
}

const SWITCHING = 101;

/** The first lines of an accepted handshake. Node's parser has checked each name and value. */
function headText(message: string, headers: readonly string[]): string {
  let text = `HTTP/1.1 ${SWITCHING} ${message}\r\n`;
  for (let i = 0; i + 1 < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return `${text}\r\n`;
}

/** Reads what comes before the handshake is answered (W2). Returns what ends that, and returns the bytes. */
function readEarly(socket: Socket, head: Buffer): () => Buffer {
  const chunks = [head];
  let bytes = head.length;
  const keep = (chunk: Buffer) => {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > LIMITS.service_early_bytes_max) socket.pause();
  };
  const leave = () => socket.destroy();
  socket.on("data", keep).once("end", leave);
  return () => {
    socket.off("data", keep).off("end", leave);
    return Buffer.concat(chunks);
  };
}

/** Lets a socket wait for its last bytes, and no longer. */
const hurry = (socket: Socket) => socket.setTimeout(LIMITS.service_half_closed_ms);

/** Passes bytes in both directions until one side ends (W1). */
function join(client: Socket, backend: Socket, head: Buffer, backend_head: Buffer, end: () => void): void {
  let open_count = 2;
  const pass = (socket: Socket, other: Socket) => {
    // Bytes in one direction pass both: a side that only listens is not idle.
    socket.setTimeout(LIMITS.service_idle_ms, () => socket.destroy());
    socket.on("error", () => socket.destroy());
    // No WebSocket is open in one direction alone: what is on its way arrives, and that was it.
    socket.once("end", () => {
      hurry(socket);
      hurry(other);
    });
    socket.once("close", () => {
      other.destroySoon();
      open_count--;
      if (open_count === 0) end();
    });
    socket.setNoDelay(true);
    socket.pipe(other);
  };
  pass(client, backend);
  pass(backend, client);
  if (head.length > 0) backend.write(head);
  if (backend_head.length > 0) client.write(backend_head);
}
