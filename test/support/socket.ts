/** WebSockets as a client of a test sees them. */
import WebSocket from "ws";
import { eventually } from "./daemon.ts";

export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

/** Asks for a WebSocket that is refused. Rejects when it is not. */
export function refusalOf(
  url: string,
  headers: Readonly<Record<string, string>> = {},
  protocol = "terminal",
): Promise<Refusal> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, [protocol], { headers });
    socket.on("open", () => {
      socket.terminate();
      reject(new Error(`${url} was not refused`));
    });
    socket.on("error", reject);
    socket.on("unexpected-response", (_, response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => {
        const type = response.headers["content-type"];
        const body = type === "application/json" ? JSON.parse(text) : text;
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body });
      });
    });
  });
}

/** A client of a terminal that keeps all that it was sent. */
export class TerminalTab {
  readonly socket: WebSocket;
  /** What the terminal shows. */
  output = "";
  /** Bytes of it. */
  bytes = 0;
  // biome-ignore lint/suspicious/noExplicitAny: frames as they came.
  readonly frames: any[] = [];
  /** The code that it was closed with, once it was. */
  code: number | null = null;
  reason = "";

  private constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on("message", (data: Buffer, isBinary) => {
      if (isBinary) {
        this.bytes += data.length;
        this.output = (this.output + data.toString("latin1")).slice(-1_000_000);
      } else this.frames.push(JSON.parse(data.toString()));
    });
    socket.on("error", () => {});
    socket.on("close", (code, reason) => {
      this.code = code;
      this.reason = reason.toString();
    });
  }

  /**
   * Resolves when the socket is open, and does not wait for `ready`; rejects where it is refused. `key` null: what is in
   * the query.
   */
  static open(
    url: string,
    key: string | null,
    onOpen: (socket: WebSocket) => void = () => {},
    protocol = "terminal",
  ): Promise<TerminalTab> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url.replace(/^http/, "ws"), protocol, {
        headers: key === null ? {} : { "x-api-key": key },
      });
      const tab = new TerminalTab(socket);
      socket.once("open", () => {
        onOpen(socket);
        resolve(tab);
      });
      socket.once("error", reject);
    });
  }

  type(text: string): void {
    this.socket.send(Buffer.from(text));
  }

  say(frame: object): void {
    this.socket.send(JSON.stringify(frame));
  }

  /** Waits until what was shown since the last call matches, and forgets it. */
  async shows(pattern: RegExp): Promise<string> {
    await eventually(`${pattern} on the terminal`, () => pattern.test(this.output)).catch((error) => {
      throw new Error(`${error.message}: ${JSON.stringify(this.output.slice(-1_000))}`);
    });
    const shown = this.output;
    this.output = "";
    return shown;
  }

  // biome-ignore lint/suspicious/noExplicitAny: the frame as it came.
  frame(type: string): Promise<any> {
    return eventually(`a frame ${type}`, () => this.frames.find((frame) => frame.type === type));
  }

  async closed(): Promise<number> {
    await eventually("the socket is closed", () => this.code !== null);
    return this.code ?? 0;
  }
}
