/** The promises of `Containers.serveSockets`: each container reaches its own socket at /run/hearth, and changes nothing there. */
import { existsSync, statSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { dirname } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { ContainerSocket, ContainerSpec, SocketListener } from "../../../src/engine/ports.ts";
import { containerSpec } from "../../support/engine.ts";
import type { BootedEngine } from "./booted-engine.ts";

const REQUEST = {
  argv: [],
  environment: ["PATH=/usr/bin:/bin"],
  working_directory: "/",
  timeout_ms: 20_000,
  grace_ms: 0,
  output_bytes_max: 65_536,
  is_stream: false,
};

/** Answers each connection with the id of the container. */
class Echo implements SocketListener {
  readonly servers = new Map<string, Server>();
  readonly sockets = new Map<string, ContainerSocket>();

  open(socket: ContainerSocket): void {
    this.sockets.set(socket.container_id, socket);
    const server = createServer((connection) => connection.end(`${socket.container_id} of ${socket.tenant_id}`));
    server.listen({ path: socket.path, readableAll: true, writableAll: true });
    this.servers.set(socket.container_id, server);
  }

  close(container_id: string): void {
    this.servers.get(container_id)?.close();
    this.servers.delete(container_id);
  }
}

const ASK = `python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(5)
try:
    s.connect("/run/hearth/icc.sock")
    print(s.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
'`;

export function socketsContract({ engine }: BootedEngine): void {
  const { containers } = engine;
  let echo = new Echo();

  beforeEach(() => {
    echo = new Echo();
    containers.serveSockets(echo);
  });

  const start = async (id: string, more: Partial<ContainerSpec> = {}) => {
    await containers.create(id, 32);
    return containers.start(containerSpec(id, { disk_limit_mb: 32, has_socket: true, ...more }));
  };
  const said = async (id: string, script: string) => {
    const { stdout, stderr } = await containers.run(id, { ...REQUEST, argv: ["sh", "-c", script] }).exited;
    return `${stdout}${stderr}`.trim();
  };

  afterEach(async () => {
    for (const id of containers.ids) await containers.kill(id);
    for (const id of await containers.kept()) await containers.remove(id);
    expect([...echo.servers.keys()]).toEqual([]);
    for (const { path } of echo.sockets.values()) expect(existsSync(dirname(path))).toBe(false);
  });

  it.each<[string, Partial<ContainerSpec>]>([
    ["a container", {}],
    ["a strict one", { strict: true }],
    ["one with a read-only root", { read_only_root: true }],
    ["a strict one with a user and a read-only root", { strict: true, read_only_root: true, user: "nobody" }],
    ["one with a tmpfs on /run", { tmpfs: [{ target: "/run" }] }],
    ["one with a writable /run", { read_only_root: true, writable_paths: ["/run"] }],
  ])("gives %s a socket that its users connect to, and nothing there that they change", async (_, more) => {
    expect(await start("own", more)).toBeNull();
    expect(await said("own", ASK)).toBe("own of default");
    const games = [
      ...["touch /run/hearth/new", "rm -f /run/hearth/icc.sock", "mv /run/hearth/icc.sock /tmp/moved"],
      ...["ln -s /etc /run/hearth/link", "ln /run/hearth/icc.sock /tmp/hard", "mkdir /run/hearth/d"],
      ...["chmod 600 /run/hearth/icc.sock", "chown 1:1 /run/hearth", "rmdir /run/hearth", "mv /run/hearth /run/other"],
      ...["umount /run/hearth", "mount -o remount,rw /run/hearth", "mount -t tmpfs tmpfs /run/hearth"],
    ];
    expect(await said("own", games.map((game) => `(${game}) 2>/dev/null && echo "did ${game}"`).join("; "))).toBe("");
    expect(await said("own", ASK)).toBe("own of default");
    const mount = await said("own", "grep ' /run/hearth ' /proc/self/mounts");
    for (const option of ["ro", "nosuid", "nodev", "noexec"]) expect(mount.split(/[ ,]/)).toContain(option);
  });

  it("gives each container its own, at which no other user of this machine arrives", async () => {
    await start("one", { tenant_id: "a" });
    await start("two", { tenant_id: "b" });
    expect([await said("one", ASK), await said("two", ASK)]).toEqual(["one of a", "two of b"]);
    expect(await said("one", "ls -A /run/hearth; find / -xdev -type s 2>/dev/null")).toBe("icc.sock");
    const { path = "" } = echo.sockets.get("one") ?? {};
    const above = dirname(dirname(path));
    expect([statSync(above).mode & 0o007, statSync(dirname(above)).mode & 0o006]).toEqual([0, 0]);
  });

  it("listens before the first process starts", async () => {
    const command = ["sh", "-c", `${ASK}; sleep 100`];
    await start("first", { command });
    await expect
      .poll(async () => (await containers.log("first").tail({ limit: 1 })).map(({ message }) => message))
      .toEqual(["first of default"]);
  });

  it("makes no socket for a container without one, nor below a volume or something else at its place", async () => {
    await start("none", { has_socket: false });
    expect(await said("none", ASK)).toBe("FileNotFoundError");
    await engine.storage.create("volumes", "v", 16);
    for (const target of ["/run", "/run/hearth", "/run/hearth/below"]) {
      const id = `volume${target.replaceAll("/", "-")}`;
      await start(id, { volumes: [{ id: "v", target }] });
      expect(await said(id, ASK)).toBe("FileNotFoundError");
      await containers.kill(id);
    }
    await engine.storage.remove("volumes", "v");
    await start("games");
    for (const game of [
      "rm -rf /run; echo > /run",
      "rm -rf /run; ln -s /proc /run",
      "rm -rf /run; mkdir /run; ln -s /dev /run/hearth",
      "rm -rf /run; mkdir /run; echo > /run/hearth",
      "rm -rf /run; ln -s loop /loop; ln -s /loop /run",
      "rm -rf /run; ln -s /etc/hostname /run",
    ]) {
      // Its mount point cannot be removed while it is mounted.
      await containers.kill("games");
      await containers.start(containerSpec("games", { disk_limit_mb: 32 }));
      await said("games", game);
      await containers.kill("games");
      expect(await containers.start(containerSpec("games", { disk_limit_mb: 32, has_socket: true }))).toBeNull();
      expect([game, await said("games", ASK)]).toEqual([
        game,
        expect.stringMatching(/^(NotADirectory|FileNotFound|OS)/),
      ]);
      expect(await said("games", "test -c /dev/null && test -d /proc/self && echo whole")).toBe("whole");
    }
    expect([...echo.servers.keys()]).toEqual([]);
  });

  it("starts without one where the disk is too full for the mount point", async () => {
    await start("full", { has_socket: false, disk_limit_mb: 16 });
    await said(
      "full",
      "rm -rf /run; mkdir /run; head -c 40M /dev/urandom > /a; for i in $(seq 3000); do echo > /f$i; done",
    );
    await containers.kill("full");
    expect(await start("full", { disk_limit_mb: 16 })).toBeNull();
    expect(await said("full", ASK)).toBe("FileNotFoundError");
    await said("full", "rm /a /f*");
    await containers.kill("full");
    await start("full", { disk_limit_mb: 16 });
    expect(await said("full", ASK)).toBe("full of default");
  });

  it("follows a link in the place of /run, inside of the container", async () => {
    await start("linked", { has_socket: false });
    await said("linked", "rm -rf /run; mkdir -p /var/real; ln -s ../var/real /run");
    await containers.kill("linked");
    await start("linked");
    expect(await said("linked", `${ASK}; ls /var/real`)).toBe("linked of default\nhearth");
  });
}
