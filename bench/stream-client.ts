/**
 * Reads a stream of command output as a program would: `node bench/stream-client.ts` reads one `StreamJob` from standard
 * input, sends its request, takes the answer apart (HTTP chunks, lines, base64) and prints one `StreamResult`. A process
 * of its own, so that client and server are two on the machine as they are in life.
 */
import { request } from "node:http";
import { text } from "node:stream/consumers";

export interface StreamJob {
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: object;
}

export interface StreamResult {
  /** Of the command's output, decoded. */
  readonly byte_count: number;
  readonly line_count: number;
  /** From the request's first byte to the end of the answer. */
  readonly duration_ms: number;
  /** Null: no frame told it. */
  readonly exit_code: number | null;
}

const LF = 10;
const OUTPUT_HEAD = '{"type":"stdout","data_b64":"';
const OUTPUT_TAIL = '"}';

/** Counts what the lines hold. Throws on a line that is no frame. */
class Lines {
  byte_count = 0;
  line_count = 0;
  exit_code: number | null = null;
  #parts: Buffer[] = [];

  push(chunk: Buffer): void {
    let at = 0;
    for (let end = chunk.indexOf(LF, at); end >= 0; end = chunk.indexOf(LF, at)) {
      this.#parts.push(chunk.subarray(at, end));
      this.#line(this.#parts.length === 1 ? chunk.subarray(at, end) : Buffer.concat(this.#parts));
      this.#parts = [];
      at = end + 1;
    }
    if (at < chunk.length) this.#parts.push(chunk.subarray(at));
  }

  #line(line: Buffer): void {
    this.line_count += 1;
    if (line.toString("latin1", 0, OUTPUT_HEAD.length) === OUTPUT_HEAD) {
      const data = line.toString("latin1", OUTPUT_HEAD.length, line.length - OUTPUT_TAIL.length);
      this.byte_count += Buffer.from(data, "base64").length;
      return;
    }
    const frame = JSON.parse(line.toString()) as { type: string; code?: number; message?: string };
    if (frame.type === "exit") this.exit_code = frame.code ?? null;
    else if (frame.type !== "started") throw new Error(`a frame '${frame.type}': ${frame.message}`);
  }
}

function read({ port, path, headers, body }: StreamJob): Promise<StreamResult> {
  const content = JSON.stringify(body);
  const lines = new Lines();
  return new Promise((resolve, reject) => {
    const begun_ms = performance.now();
    const sent = request({ host: "127.0.0.1", port, path, method: "POST", headers }, (response) => {
      if (response.statusCode !== 200) {
        text(response).then((words) => reject(new Error(`status ${response.statusCode}: ${words}`)), reject);
        return;
      }
      response.on("data", (chunk: Buffer) => lines.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        const { byte_count, line_count, exit_code } = lines;
        resolve({ byte_count, line_count, exit_code, duration_ms: performance.now() - begun_ms });
      });
    });
    sent.on("error", reject);
    sent.end(content);
  });
}

const job = JSON.parse(await text(process.stdin)) as StreamJob;
process.stdout.write(JSON.stringify(await read(job)));
