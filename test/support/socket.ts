/** WebSockets as a client of a test sees them. */
import WebSocket from "ws";

export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

/** Asks for a WebSocket that is refused. Rejects when it is not. */
export function refusalOf(url: string, headers: Readonly<Record<string, string>> = {}): Promise<Refusal> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, ["terminal"], { headers });
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
