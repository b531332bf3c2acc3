/**
 * The peer of the warm bench: a plain node:http server that spawns /bin/cat for each request, the body as its standard
 * input, and answers what it wrote. No isolation, no record, no limits, no authentication: what a shell handler costs
 * when a platform adds nothing. `node bench/spawn-server.ts` prints its port and serves until its standard input ends.
 */
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const server = createServer((request, response) => {
  const child = spawn("/bin/cat", [], { stdio: ["pipe", "pipe", "ignore"] });
  const output: Buffer[] = [];
  child.once("error", () => response.writeHead(500).end());
  child.stdout.on("data", (chunk: Buffer) => output.push(chunk));
  child.once("close", (code) => {
    const body = Buffer.concat(output);
    response.writeHead(code === 0 ? 200 : 500, { "content-length": body.length }).end(body);
  });
  request.pipe(child.stdin);
});

server.listen(0, "127.0.0.1", () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
process.stdin.resume().once("end", () => process.exit(0));
