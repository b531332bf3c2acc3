/** Programs that containers of the tests of private networks run, and readings of the packet filter. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Daemon } from "./daemon.ts";

/** `<name>`: says over TCP and UDP on port 7000 who it is and whom it sees; over TCP then repeats all that it hears. */
export const SERVER = `import socket, sys, threading
def tcp():
    listener = socket.create_server(("0.0.0.0", 7000), backlog=64)
    def talk(s, peer):
        s.sendall(f"{sys.argv[1]} sees {peer[0]}\\n".encode())
        while data := s.recv(100): s.sendall(data)
    while True: threading.Thread(target=talk, args=listener.accept(), daemon=True).start()
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", 7000))
    while True:
        _, peer = s.recvfrom(100); s.sendto(f"{sys.argv[1]} sees {peer[0]}".encode(), peer)
threading.Thread(target=udp, daemon=True).start(); tcp()
`;

/** Asks each host over TCP and UDP at once. Prints a JSON object of `<protocol> <host>` and the first line of its answer, or null. */
export const ask = (hosts: readonly string[], wait_s = 1.5): string => `import json, socket, threading
hosts = ${JSON.stringify(hosts)}
answers = {f"{protocol} {host}": None for host in hosts for protocol in ("tcp", "udp")}
def ask(protocol, host):
    key = f"{protocol} {host}"
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    s.settimeout(${wait_s})
    try:
        s.connect((host, 7000))
        if protocol == "udp": s.send(b"hello")
        answers[key] = s.recv(100).decode().strip()
    except OSError: pass
threads = [threading.Thread(target=ask, args=(p, h)) for h in hosts for p in ("tcp", "udp")]
for one in threads: one.start()
for one in threads: one.join()
print(json.dumps(answers))
`;

/** Elements of the sets and maps of a daemon's packet filter that private networks and names fill. */
export function elementsOf(daemon: Daemon): Readonly<Record<"networks" | "members" | "named", number>> {
  const text = execFileSync("nft", ["-j", "list", "table", "inet", `hearth_${daemon.tag}`]).toString();
  const { nftables } = JSON.parse(text) as {
    readonly nftables: readonly Readonly<
      Record<string, { readonly name: string; readonly elem?: readonly unknown[] }>
    >[];
  };
  const count = (name: string) => {
    const found = nftables.find((one) => (one.map ?? one.set)?.name === name);
    return (found?.map ?? found?.set)?.elem?.length ?? 0;
  };
  return { networks: count("networks"), members: count("members"), named: count("named") };
}

/** Tracked connections of this machine from or to an address. */
export function trackedOf(address: string): string[] {
  return readFileSync("/proc/net/nf_conntrack", "utf8")
    .split("\n")
    .filter((line) => line.includes(`src=${address} `) || line.includes(`dst=${address} `));
}
