/**
 * The peer of the stream bench: a plain node:http server that spawns the command of a request and answers its output in
 * the same frames, one object a line. No isolation, no container, no authentication: what the format and HTTP cost when
 * nothing else is done. `node bench/stream-server.ts` prints its port and serves until its standard input ends.
 */
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";

const server = createServer(async (request, response) => {
  const { command } = (await json(request)) as { command: string[] };
  const child = spawn(command[0] ?? "", command.slice(1), { stdio: ["ignore", "pipe", "ignore"] });
  child.once("error", () => response.destroy());
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  response.on("drain", () => child.stdout.resume());
  child.stdout.on("data", (chunk: Buffer) => {
    const isTaken = response.write(`{"type":"stdout","data_b64":"${chunk.toString("base64")}"}\n`, "latin1");
    if (!isTaken) child.stdout.pause();
  });
  child.once("close", (code) => response.end(`${JSON.stringify({ type: "exit", code })}\n`));
});

server.listen(0, "127.0.0.1", () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
process.stdin.resume().once("end", () => process.exit(0));
