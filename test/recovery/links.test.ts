/** Links of containers that run on while their daemon is replaced by one that makes links otherwise. */
import { execFileSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { ownSubnet } from "../support/networks.ts";

const SETTINGS = { HEARTH_CELLS: "0" };
const TOLD = "running containers have no network until they are restarted";
const daemon = new Daemon();
const user = new ContainerUser(daemon);
beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

const gateway = (subnet: string) => subnet.replace(/0\/\d+$/, "1");

/** True if a packet that the container sends to the machine arrives there. */
async function reachesMachine(id: string): Promise<boolean> {
  const socket = createSocket("udp4").bind(0);
  await once(socket, "listening");
  let isHeard = false;
  socket.on("message", () => {
    isHeard = true;
  });
  const { port } = socket.address();
  const send = `s.sendto(b"x", ("${gateway(daemon.subnet)}", ${port}))`;
  await user.python(
    id,
    `import socket, time\ns = socket.socket(2, 2)\n${send}\ntime.sleep(0.3)\n${send}\ntime.sleep(0.3)`,
  );
  socket.close();
  return isHeard;
}

async function restarted(id: string): Promise<unknown> {
  await daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
  await daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
  return (await user.get(id)).network_ready;
}

describe("a container that runs with a link that is not as the daemon makes them", () => {
  it("is cut off and reported, and has a network after a restart", async () => {
    const { container_id: id } = await user.create({ name: "box", egress: "off" });
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect((await user.get(id)).network_ready).toBe(true);
    expect(daemon.output).not.toContain(TOLD);

    // As an earlier version left it: in no group.
    await daemon.stop("SIGTERM");
    const [link = ""] = daemon.leftovers().links.filter((name) => name !== daemon.bridge);
    execFileSync("ip", ["link", "set", link, "group", "default"]);
    await daemon.start(SETTINGS);
    expect((await user.get(id)).network_ready).toBe(false);
    expect(daemon.output).toContain(`"message":"${TOLD}","links":"${link}"`);
    expect(await reachesMachine(id)).toBe(false);
    expect(await restarted(id)).toBe(true);

    // Routed for addresses that are no longer the daemon's.
    await daemon.stop("SIGTERM");
    daemon.output = "";
    await daemon.start({ ...SETTINGS, HEARTH_SUBNET: ownSubnet() });
    expect((await user.get(id)).network_ready).toBe(false);
    expect(daemon.output).toContain(TOLD);
    expect(await restarted(id)).toBe(true);
    await user.delete(id);
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
