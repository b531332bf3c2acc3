/** A web server and Debian's redis-server in one private network, for each of two tenants. Downloads packages. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually, KEY } from "../support/daemon.ts";

type Json = Answer["body"];

const daemon = new Daemon();
/** redis-server with what it needs beyond the image `prod`. */
const PACKAGES = "redis-server redis-tools libjemalloc2 liblua5.1-0 liblzf1 libatomic1 lua-bitop lua-cjson".split(" ");
const state = { archive: Buffer.alloc(0), keys: { mine: KEY, theirs: "" } };

beforeAll(async () => {
  const folder = mkdtempSync("/var/tmp/hearth-redis-");
  const run = (command: string, ...args: string[]) => execFileSync(command, args, { cwd: folder, stdio: "ignore" });
  run("apt-get", "download", ...PACKAGES);
  mkdirSync(`${folder}/tree`);
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".deb"))) run("dpkg-deb", "-x", file, "tree");
  run("tar", "-cf", "redis.tar", "-C", "tree", "usr");
  state.archive = readFileSync(`${folder}/redis.tar`);
  rmSync(folder, { recursive: true });
  await daemon.start({ HEARTH_CELLS: "0" });
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "theirs" })).body;
  state.keys.theirs = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body.key;
}, 300_000);
afterAll(() => daemon.dispose());

/** Begins when the program is there, and keeps its data in the container. */
const REDIS = `until redis-server --version > /dev/null 2>&1; do sleep 0.05; done
mkdir -p /data; cd /data; exec redis-server --bind 0.0.0.0 --protected-mode no --appendonly yes --appendfsync always`;

/** Counts its visits in redis, which it finds by name, on a connection of each visit. */
const WEB = `import http.server, socket
class Visits(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with socket.create_connection(("redis", 6379), 3) as s:
            s.sendall(b"INCR visits\\r\\n"); count = s.recv(100).decode().strip().lstrip(":")
        self.send_response(200); self.end_headers(); self.wfile.write(count.encode())
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Visits).serve_forever()`;

async function create(key: string, fields: Json): Promise<Json> {
  const answer = await daemon.call("POST", "/api/containers", { ...fields, network: "shop" }, { "x-api-key": key });
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  return answer.body;
}

async function shop(key: string): Promise<number> {
  const redis = await create(key, { name: "redis", command: ["sh", "-c", REDIS], egress: "off" });
  const sent = await fetch(`${daemon.url}/api/containers/${redis.container_id}/archive?execution=sync&path=/`, {
    method: "POST",
    headers: { "x-api-key": key, "content-type": "application/x-tar" },
    body: new Uint8Array(state.archive),
  });
  expect(sent.status, await sent.text()).toBe(200);
  const web = await create(key, {
    ...{ name: "web", command: ["python3", "-c", WEB] },
    ports: [{ container_port: 8_000 }],
  });
  return web.ports[0].host_port;
}

const visit = (port: number): Promise<number> =>
  eventually("the shop answers", async () => {
    const response = await fetch(`http://127.0.0.1:${port}/`).catch(() => null);
    return response?.ok === true ? Number(await response.text()) : null;
  });

describe("a web server and redis in a private network", () => {
  it("count visits by name, each tenant its own, also after redis starts again with another address", async () => {
    const mine = await shop(state.keys.mine);
    const theirs = await shop(state.keys.theirs);
    for (const count of [1, 2, 3]) expect(await visit(mine)).toBe(count);
    expect(await visit(theirs)).toBe(1);
    const before = (await daemon.call("GET", "/api/containers/redis")).body.ip_address;
    await daemon.call("POST", "/api/containers/redis/stop", { timeout_ms: 5_000 });
    const { body } = await daemon.call("POST", "/api/containers/redis/start?execution=sync");
    expect(body.ip_address).not.toBe(before);
    expect(await visit(mine)).toBe(4);
    await daemon.stop("SIGKILL");
    await daemon.start({ HEARTH_CELLS: "0" });
    expect([await visit(mine), await visit(theirs)]).toEqual([5, 2]);
    const back = await daemon.call("POST", "/api/containers/redis/exec", {
      command: ["curl", "-s", "http://web:8000/"],
    });
    expect(back.body.stdout).toBe("6");
  }, 120_000);
});
