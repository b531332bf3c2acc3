/**
 * Network namespaces for tests of what reaches what: each a machine of its own, with a link to another, a shell's worth
 * of commands, and servers that say who they are and by which address they see their caller. Everything goes with
 * `close`. Nothing here touches the machine's own network but for links that are asked for there.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { NODE_PATH } from "../../src/installation/paths.js";

/** Serves TCP and UDP on the ports of its arguments, and prints what came by UDP. */
const SERVER = `
const [name, ...ports] = process.argv.slice(1);
const seen = (address) => address.replace("::ffff:", "");
let open = 0;
const ready = () => { if (++open === 2 * ports.length) console.log("ready"); };
for (const port of ports.map(Number)) {
  require("net").createServer((s) => {
    s.on("error", () => {});
    s.write(name + " sees " + seen(s.remoteAddress) + "\\n");
    s.on("data", (d) => s.write(d));
  }).listen(port, "0.0.0.0", ready);
  const u = require("dgram").createSocket("udp4");
  u.on("message", (d, from) => {
    console.log("got " + d + " from " + from.address);
    u.send(name + " sees " + from.address, from.port, from.address);
  });
  u.on("error", () => {});
  u.bind(port, "0.0.0.0", ready);
}`;

/** Says the first line that comes back, or why none does. */
const CLIENT = `
const [protocol, host, port, source] = process.argv.slice(1);
const [address, own] = source.split(":");
const end = (said) => { console.log(said); process.exit(0); };
setTimeout(() => end("silence"), 1500);
if (protocol === "tcp") {
  const s = require("net").connect({ host, port: Number(port), ...(address && { localAddress: address }) });
  s.on("data", (d) => end(d.toString().trim()));
  s.on("error", (e) => end(e.code));
} else {
  const u = require("dgram").createSocket("udp4");
  u.on("message", (d) => end(d.toString()));
  u.on("error", (e) => end(e.code));
  u.bind({ address: address || "0.0.0.0", port: Number(own ?? 0) }, () => u.connect(Number(port), host, () => u.send(protocol.slice(4) || "hello")));
}`;

/** Holds one TCP connection; each line of its input goes out, and what comes back is printed. */
const HOLDER = `
const [host, port] = process.argv.slice(1);
const s = require("net").connect({ host, port: Number(port) });
s.once("data", (greeting) => {
  console.log(greeting.toString().trim());
  s.on("data", (d) => console.log(d.toString().trim()));
  process.stdin.on("data", (d) => s.write(d));
});
s.on("error", (e) => console.log(e.code));`;

/** A connection that stays open. */
export interface HeldConnection {
  /** Sends a line. Resolves to the line that comes back, or to "silence". */
  echo(line: string): Promise<string>;
  close(): void;
}

export type Protocol = "tcp" | "udp";

export class Namespace {
  readonly name: string;
  readonly #children: ChildProcess[] = [];
  output = "";

  /** `name` has to be unique on the machine. */
  constructor(name: string) {
    this.name = name;
    execFileSync("ip", ["netns", "add", name]);
    this.ip("link", "set", "lo", "up");
  }

  ip(...args: string[]): void {
    execFileSync("ip", ["-n", this.name, ...args]);
  }

  run(...argv: string[]): string {
    return execFileSync("ip", ["netns", "exec", this.name, ...argv]).toString();
  }

  setting(path: string, value: string): void {
    this.run("sh", "-c", `echo ${value} > /proc/sys/net/${path}`);
  }

  /** Resolves when it serves. */
  async serve(...ports: number[]): Promise<void> {
    const argv = ["netns", "exec", this.name, NODE_PATH, "-e", SERVER, this.name, ...ports.map(String)];
    const child = spawn("ip", argv, { stdio: ["ignore", "pipe", "inherit"] });
    this.#children.push(child);
    await new Promise<void>((resolve, reject) => {
      child.once("exit", (code) => reject(new Error(`the server of ${this.name} ended with ${code}`)));
      child.stdout?.on("data", (data) => {
        this.output += data;
        if (this.output.startsWith("ready")) resolve();
      });
    });
  }

  /**
   * What a client in this namespace is told: a line of the server, an error's code, or "silence". `source` is an
   * address to ask from, by UDP also `address:port`.
   */
  ask(protocol: Protocol, host: string, port: number, source = ""): Promise<string> {
    return ask(["ip", "netns", "exec", this.name], protocol, host, port, source);
  }

  /** Sends one datagram with this text. */
  async send(text: string, host: string, port: number, source = ""): Promise<void> {
    await ask(["ip", "netns", "exec", this.name], `udp:${text}`, host, port, source);
  }

  /** Opens a TCP connection from this namespace to an echo server. */
  async hold(host: string, port: number): Promise<HeldConnection> {
    const argv = ["netns", "exec", this.name, NODE_PATH, "-e", HOLDER, host, String(port)];
    const child = spawn("ip", argv, { stdio: ["pipe", "pipe", "inherit"] });
    this.#children.push(child);
    const next = () =>
      new Promise<string>((resolve) => {
        const cancel = setTimeout(() => resolve("silence"), 1500);
        child.stdout?.once("data", (data) => {
          clearTimeout(cancel);
          resolve(data.toString().trim());
        });
      });
    await next();
    return {
      echo: (line) => {
        const answer = next();
        child.stdin?.write(line);
        return answer;
      },
      close: () => child.kill("SIGKILL"),
    };
  }

  close(): void {
    for (const child of this.#children) child.kill("SIGKILL");
    execFileSync("ip", ["netns", "delete", this.name]);
  }
}

/** The same on the machine itself. */
export function askHere(protocol: Protocol, host: string, port: number): Promise<string> {
  return ask([], protocol, host, port, "");
}

function ask(before: readonly string[], protocol: string, host: string, port: number, source: string) {
  const [file = "", ...argv] = [...before, NODE_PATH, "-e", CLIENT, protocol, host, String(port), source];
  const child = spawn(file, argv, { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout?.on("data", (data) => {
    said += data;
  });
  return new Promise<string>((resolve) => child.once("close", () => resolve(said.trim())));
}
