/** What a hostile handler can do to the daemon through the API that it finds inside. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" }));
afterAll(() => daemon.dispose());

const CONNECT = `
import os, socket
gateway, port = os.environ["HEARTH_URL"].split("/")[2].split(":")
def request(line, length=0):
  return ("%s HTTP/1.1\\r\\nHost: x\\r\\nX-Api-Key: %s\\r\\nContent-Length: %d\\r\\n\\r\\n" % (line, os.environ["HEARTH_KEY"], length)).encode()
def connect():
  s = socket.create_connection((gateway, int(port)), 5); s.settimeout(5); return s
`;

async function attack(name: string, code: string): Promise<string> {
  const handler = `python3 - <<'EOF'\n${CONNECT}${code}\nEOF`;
  await daemon.deploy({ name, handler, api_access: true });
  const { stdout, stderr } = await daemon.invoke(name);
  return stdout + stderr;
}

describe("a handler with api_access", () => {
  it("cannot have more answers made than it reads", async () => {
    const large = "head -c 1000000 /dev/zero | tr '\\0' x | tee /dev/stderr";
    const { id } = await daemon.deploy({ name: "large", handler: large });
    for (let i = 0; i < 8; i++) await daemon.invoke("large");
    const pid = daemon.pid;
    // Each of these answers has 16 MB, and hundreds of such requests fit into one packet.
    const said = await attack(
      "asks",
      `
s = connect(); s.sendall(request("GET /api/functions/${id}/invocations") * 300)
try:
  while s.recv(65536): pass
  print("closed")
except ConnectionError: print("closed")
ahead = [connect() for i in range(30)]
for s in ahead: s.sendall(request("GET /api/functions/${id}/invocations"))
# All have an answer begun, and none is read to its end.
print(sorted({s.recv(12).decode() for s in ahead}))
`,
    );
    expect(said).toBe("closed\n['HTTP/1.1 200', 'HTTP/1.1 503']\n");
    expect(await daemon.invoke("large")).toMatchObject({ status: "success" });
    expect(daemon.pid).toBe(pid);
  });

  it("cannot fill the daemon with bodies that wait, and shuts out no small one", async () => {
    await daemon.deploy({ name: "slow", handler: "sleep 5", max_instances: 1, timeout_seconds: 8 });
    await daemon.deploy({ name: "quick", handler: "cat" });
    const said = await attack(
      "sends",
      `
body = b'{"payload":"' + b"x" * (8 * 1024 * 1024 - 20) + b'"}'
busy = [connect() for i in range(28)]
refused = 0
for s in busy:
  s.sendall(request("POST /api/functions/invoke/slow", len(body)) + body)
  s.settimeout(0.02)
  try: refused += s.recv(12) == b"HTTP/1.1 503"
  except TimeoutError: pass
print("refused", refused > 0)
s = connect(); small = b'{"payload":"x"}'
s.sendall(request("POST /api/functions/invoke/quick", len(small)) + small); print(s.recv(12).decode())
`,
    );
    expect(said).toBe("refused True\nHTTP/1.1 200\n");
  });
});

describe("the API as seen from inside", () => {
  const PROBE = `import socket, sys
host, port = sys.argv[1].split(":")
try:
  s = socket.create_connection((host, int(port)), 5); s.settimeout(5)
  s.sendall(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
  print(s.recv(12).decode() or "closed")
except ConnectionError: print("closed")
except TimeoutError: print("nothing")`;

  it("is open to the calls of functions with api_access alone", async () => {
    await daemon.deploy({ name: "asks-where", handler: "echo $HEARTH_URL", api_access: true });
    const where = (await daemon.invoke("asks-where")).stdout.trim().replace("http://", "");
    const handler = `python3 -c '${PROBE}' ${where}`;
    await daemon.deploy({ name: "with", handler, api_access: true });
    await daemon.deploy({ name: "without", handler });
    expect((await daemon.invoke("with")).stdout).toBe("HTTP/1.1 200\n");
    expect((await daemon.invoke("without")).stdout).toBe("closed\n");
    const { body: made } = await daemon.call("POST", "/api/containers", { name: "probes", image: "prod" });
    const { body: ended } = await daemon.call("POST", `/api/containers/${made.container_id}/exec`, {
      command: ["python3", "-c", PROBE, where],
    });
    expect(ended.stdout).toMatch(/^(closed|nothing)\n$/);
    await daemon.call("DELETE", `/api/containers/${made.container_id}`);
  });
});
