/** The promises of the `HostPorts` port: which ports of a machine containers get, and who has them. */
import { once } from "node:events";
import { createServer } from "node:net";
import { expect, it } from "vitest";
import { DEFAULT_TENANT_ID } from "../../../src/base/tenant-limits.ts";
import type { HostPorts, PortsOptions } from "../../../src/containers/network/ports.ts";
import type { WantedPort } from "../../../src/containers/network/schema.ts";

const RANGE = { first: 20_801, last: 20_804 };
const BELOW = RANGE.first - 1;

/** A port that is asked for; null: whichever is free. */
const asked = (host_port: number | null, protocol: "tcp" | "udp" = "tcp"): WantedPort => ({
  container_port: 80,
  host_port,
  host_address: "127.0.0.1",
  protocol,
});

export function hostPortsContract(make: (options: Omit<PortsOptions, "ids">) => HostPorts): void {
  const onRange = (more: Partial<PortsOptions> = {}) =>
    make({ range: RANGE, own: [], publications: async () => [], ...more });

  it("gives the port that is asked for, to one container, for each protocol of its own", async () => {
    const ports = onRange();
    const port = asked(RANGE.first);
    expect(await ports.claim("t", "a", [port])).toEqual([port]);
    await expect(ports.claim("t", "b", [port])).rejects.toMatchObject({ code: "PORT_TAKEN" });
    await expect(ports.claim("t", "b", [{ ...port, host_address: "0.0.0.0" }])).rejects.toMatchObject({
      code: "PORT_TAKEN",
    });
    await ports.claim("t", "b", [asked(RANGE.first, "udp")]);
    const owner = (protocol: "tcp" | "udp") => ports.ownerOf({ protocol, host_port: RANGE.first });
    expect([owner("tcp"), owner("udp")]).toEqual(["a", "b"]);
    ports.release("a");
    expect([owner("tcp"), owner("udp")]).toEqual([null, "b"]);
    await ports.claim("t", "c", [port]);
    expect(owner("tcp")).toBe("c");
  });

  it("chooses what nobody has, never a port that is asked for beside it, until there is none", async () => {
    const ports = onRange();
    const given = await ports.claim("t", "a", [asked(null), asked(RANGE.first), asked(null), asked(null)]);
    const numbers = given.map(({ host_port }) => host_port);
    expect(numbers[1]).toBe(RANGE.first);
    expect(numbers.toSorted()).toEqual([RANGE.first, RANGE.first + 1, RANGE.first + 2, RANGE.last]);
    await expect(ports.claim("t", "b", [asked(null)])).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    expect(await ports.claim("t", "b", [])).toEqual([]);
  });

  it("gives all or none", async () => {
    const ports = onRange({ own: [RANGE.last] });
    const both = [asked(RANGE.first), asked(RANGE.last)];
    await expect(ports.claim("t", "a", both)).rejects.toMatchObject({ code: "PORT_TAKEN" });
    expect(ports.ownerOf({ protocol: "tcp", host_port: RANGE.first })).toBeNull();
  });

  it("keeps a tenant in the range, and lets the operator's tenant out of it", async () => {
    const ports = onRange();
    await expect(ports.claim("t", "a", [asked(BELOW)])).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(await ports.claim(DEFAULT_TENANT_ID, "a", [asked(BELOW)])).toEqual([asked(BELOW)]);
  });

  it("gives none that the daemon has, that another daemon publishes, or that a process listens on", async () => {
    const elsewhere = { table: "hearth_other", protocol: "tcp", host_port: RANGE.first + 1, target: "10.0.0.2:80" };
    const ports = onRange({ own: [RANGE.first], publications: async () => [elsewhere] });
    ports.reserve(RANGE.first + 2);
    expect(await ports.publications()).toEqual([elsewhere]);
    const server = createServer().listen({ port: RANGE.last, host: "127.0.0.1", exclusive: true });
    await once(server, "listening");
    try {
      for (let port = RANGE.first; port <= RANGE.last; port++) {
        await expect(ports.claim("t", "a", [asked(port)])).rejects.toMatchObject({ code: "PORT_TAKEN" });
      }
      await expect(ports.claim("t", "a", [asked(null)])).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    } finally {
      server.close();
      await once(server, "close");
    }
    expect(await ports.claim("t", "a", [asked(null)])).toEqual([asked(RANGE.last)]);
  });

  it("knows what containers had before, whether or not it is free now", async () => {
    const ports = onRange();
    const port = { ...asked(null), host_port: RANGE.first };
    ports.keep("a", [port]);
    expect(ports.ownerOf(port)).toBe("a");
    await expect(ports.claim("t", "b", [port])).rejects.toMatchObject({ code: "PORT_TAKEN" });
  });
}
