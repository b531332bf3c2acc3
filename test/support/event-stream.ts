/** A reader of a daemon's events over a connection of its own. */
import { Agent, type ClientRequest, type IncomingMessage, request } from "node:http";
import { KEY } from "./daemon.ts";

export interface StreamedEvent {
  readonly name: string;
  readonly id: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: what it holds is the event's.
  readonly data: any;
}

export class EventReader {
  readonly events: StreamedEvent[] = [];
  readonly response: IncomingMessage;
  readonly #request: ClientRequest;
  #text = "";
  isOver = false;

  private constructor(sent: ClientRequest, response: IncomingMessage) {
    this.#request = sent;
    this.response = response;
    response.setEncoding("utf8");
    response.on("data", (chunk: string) => this.#take(chunk));
    const over = () => {
      this.isOver = true;
    };
    response.on("end", over).on("error", over).on("close", over);
  }

  /** Resolves when the headers are there. */
  static open(url: string, query = "", headers: Record<string, string> = { "x-api-key": KEY }): Promise<EventReader> {
    return new Promise((resolve, reject) => {
      const sent = request(`${url}/api/events${query}`, { headers, agent: false });
      sent.on("response", (response) => resolve(new EventReader(sent, response))).on("error", reject);
      sent.end();
    });
  }

  /** `event_type` of those of a name. */
  types(name: string): string[] {
    return this.events.filter((one) => one.name === name).map(({ data }) => data.event_type);
  }

  get last_id(): string | null {
    return this.events.findLast(({ id }) => id !== null)?.id ?? null;
  }

  /** Reads no more, and stays. */
  pause(): void {
    this.response.pause();
  }

  resume(): void {
    this.response.resume();
  }

  close(): void {
    this.#request.destroy();
  }

  #take(chunk: string): void {
    this.#text += chunk;
    for (;;) {
      const end = this.#text.indexOf("\n\n");
      if (end < 0) return;
      const block = this.#text.slice(0, end);
      this.#text = this.#text.slice(end + 2);
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? null;
      this.events.push({ name: field("event") ?? "", id: field("id"), data: JSON.parse(field("data") ?? "null") });
    }
  }
}

/**
 * A client as browsers have one (HTML, 9.2.3): it comes back by itself with the last id, over the connections that it
 * keeps, and fails for good at an answer other than 200.
 */
export class EventSource {
  readonly ids: string[] = [];
  readonly datas: string[] = [];
  state: "open" | "waiting" | "failed" | "closed" = "waiting";
  #last_id = "";
  readonly #url: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });

  constructor(url: string) {
    this.#url = url;
    this.#connect();
  }

  close(): void {
    this.state = "closed";
    this.#agent.destroy();
  }

  #connect(): void {
    if (this.state === "closed") return;
    const headers = { "x-api-key": KEY, ...(this.#last_id !== "" && { "last-event-id": this.#last_id }) };
    const again = (): void => {
      if (this.state === "failed" || this.state === "closed") return;
      this.state = "waiting";
      setTimeout(() => this.#connect(), 50);
    };
    const sent = request(`${this.#url}/api/events`, { agent: this.#agent, headers });
    sent.once("error", again).once("response", (response) => {
      this.state = response.statusCode === 200 ? "open" : "failed";
      response.setEncoding("utf8");
      const state = { text: "" };
      response.on("data", (chunk: string) => {
        const blocks = (state.text + chunk).split("\n\n");
        state.text = blocks.pop() ?? "";
        for (const block of blocks) this.#take(block);
      });
      response.once("error", () => {}).once("close", again);
    });
    sent.end();
  }

  #take(block: string): void {
    const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1];
    const [id, data] = [field("id"), field("data")];
    if (id !== undefined) this.#last_id = id;
    if (field("event") !== "function_update") return;
    this.ids.push(id ?? "");
    this.datas.push(data ?? "");
  }
}
