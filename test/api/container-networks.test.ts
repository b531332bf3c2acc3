/**
 * What the API says of the networks of containers, compared with the kernel: addresses, links, counters, checks, egress. What
 * is broken by hand is found and mended.
 */
import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { askingOf } from "../support/asking.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon } from "../support/daemon.ts";
import { ask, at, Publisher } from "../support/services.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const { makeTenant, ok, refusal } = askingOf(daemon);
type Json = Answer["body"];

const ip = (...args: string[]): Json => JSON.parse(execFileSync("ip", ["-j", ...args]).toString() || "[]");
const inside = (pid: number, ...args: string[]): string =>
  execFileSync("nsenter", ["-t", String(pid), "-n", ...args]).toString();
const checksOf = (body: Json): Record<string, boolean> =>
  Object.fromEntries(body.checks.map(({ name, ok }: { name: string; ok: boolean }) => [name, ok]));

const made: { box: Json; other: Json; key: string } = { box: null, other: null, key: "" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  made.key = await makeTenant("other");
  made.box = await user.create({ name: "box", ports: [{ container_port: 80 }] });
  made.other = await ok("POST", "/api/containers", { name: "theirs", egress: "off" }, made.key);
});
afterAll(() => daemon.dispose());

describe("the network of a container", () => {
  it("is that of the kernel", async () => {
    const { container_id, pid, ip_address } = made.box;
    const network = await ok("GET", `/api/containers/${container_id}/network`);
    const [link] = JSON.parse(inside(pid, "ip", "-j", "address", "show", "dev", "eth0"));
    const [host] = ip("link", "show", "dev", network.veth_host);
    const route = JSON.parse(inside(pid, "ip", "-j", "route", "show", "default"));
    expect(network).toMatchObject({
      container_id,
      container_name: "box",
      state: "running",
      status: "active",
      ip_address,
      reserved_address: null,
      addresses: [`${ip_address}/32`],
      veth_container: "eth0",
      setup_completed: true,
      mac_address: link.address,
      mtu: link.mtu,
      gateway: route[0].gateway,
      egress: "on",
      ports: made.box.ports,
    });
    expect(link.addr_info.map(({ local }: Json) => local)).toEqual([ip_address]);
    expect(host.flags).toContain("UP");
    expect(ip("route", "get", ip_address)[0].dev).toBe(network.veth_host);
    expect(ip("address", "show", "dev", network.bridge_interface)[0].addr_info[0]).toMatchObject({
      local: network.gateway,
      prefixlen: network.prefix_length,
    });
  });

  it("counts what the container sends and receives", async () => {
    const path = `/api/containers/${made.box.container_id}/network`;
    const { counters: before, gateway } = await ok("GET", path);
    await user.python(
      made.box.container_id,
      `import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nfor i in range(10): s.sendto(b'x'*1000,('${gateway}',9))`,
    );
    const { counters: after } = await ok("GET", path);
    expect(after.tx_bytes - before.tx_bytes).toBeGreaterThanOrEqual(10_000);
    expect(after.tx_packets - before.tx_packets).toBeGreaterThanOrEqual(10);
  });

  it("has no link once the container is stopped, and no address unless one is reserved", async () => {
    const { container_id } = await user.create({ name: "stopped" });
    await ok("POST", `/api/containers/${container_id}/kill`);
    expect(await ok("GET", `/api/containers/${container_id}/network`)).toMatchObject({
      state: "exited",
      status: null,
      ip_address: null,
      addresses: [],
      veth_host: null,
      mac_address: null,
      mtu: null,
      setup_completed: false,
      counters: null,
    });
    await user.delete(container_id);
  });

  it("is listed for its own tenant alone", async () => {
    const mine = (await ok("GET", "/api/network/allocations")).allocations;
    const theirs = (await ok("GET", "/api/network/allocations", undefined, made.key)).allocations;
    expect(mine.map(({ container_id }: Json) => container_id)).toEqual([made.box.container_id]);
    expect(theirs).toEqual([
      {
        container_id: made.other.container_id,
        container_name: "theirs",
        ip_address: made.other.ip_address,
        bridge_interface: daemon.bridge,
        veth_host: expect.stringMatching(/^h/),
        veth_container: "eth0",
        setup_completed: true,
        allocation_time: expect.any(Number),
        status: "active",
      },
    ]);
    for (const path of ["network", "network/diagnostics", "egress", "cleanup/tasks"]) {
      expect(await refusal("GET", `/api/containers/${made.box.container_id}/${path}`, undefined, made.key)).toEqual([
        404,
        "NOT_FOUND",
      ]);
    }
  });

  it("is paged", async () => {
    const more = await user.create({ name: "more" });
    const first = await ok("GET", "/api/network/allocations?limit=1");
    expect(first.allocations).toHaveLength(1);
    const second = await ok("GET", `/api/network/allocations?limit=1&cursor=${first.next_cursor}`);
    expect([...first.allocations, ...second.allocations].map(({ container_name }: Json) => container_name)).toEqual([
      "more",
      "box",
    ]);
    expect(second.next_cursor).toBeNull();
    await user.delete(more.container_id);
  });
});

describe("the ten reads of existing clients", () => {
  it("answer 200 for a running container", async () => {
    const { container_id } = made.box;
    const paths = [
      "/api/network/allocations",
      `/api/containers/${container_id}/network`,
      `/api/containers/${container_id}/network/diagnostics`,
      `/api/containers/${container_id}/egress`,
      "/api/activity?limit=10",
      "/api/monitors",
      "/api/monitors/processes",
      "/api/monitors/profile",
      `/api/monitors/${container_id}`,
      "/api/cleanup/status",
      "/api/cleanup/tasks",
      `/api/containers/${container_id}/cleanup/tasks`,
    ];
    const statuses = await Promise.all(paths.map(async (path) => (await daemon.call("GET", path)).status));
    expect(statuses).toEqual(paths.map(() => 200));
  });
});

describe("diagnostics", () => {
  const path = (verb: string) => `/api/containers/${made.box.container_id}/network/${verb}`;
  const failing = async () => {
    const body = await ok("GET", path("diagnostics"));
    const names = Object.entries(checksOf(body)).flatMap(([name, isOk]) => (isOk ? [] : [name]));
    expect(body.ok).toBe(names.length === 0);
    return names;
  };
  const link = async () => (await ok("GET", path("").replace(/\/$/, ""))).veth_host as string;
  const nft = (...args: string[]) => execFileSync("nft", args);

  it("pass for a container that is as it was made, and setup finds nothing", async () => {
    const body = await ok("GET", path("diagnostics"));
    expect(body.checks.map(({ name }: Json) => name)).toEqual([
      "running",
      "link",
      "address",
      "route",
      "neighbour",
      "gateway",
      "forwarding",
      "rules",
      "egress",
      "dns",
    ]);
    // A machine without a name server is the machine's matter.
    expect(await failing()).toEqual(checksOf(body).dns ? [] : ["dns"]);
    const setup = await ok("POST", path("setup"));
    expect(setup).toMatchObject({ found: checksOf(body).dns ? [] : ["dns"], mended: [] });
  });

  const breaks: readonly (readonly [string, readonly string[], () => Promise<unknown>])[] = [
    [
      "the link is down on the host",
      ["link", "route", "gateway"],
      async () => execFileSync("ip", ["link", "set", await link(), "down"]),
    ],
    [
      "the link is down in the container",
      ["link", "route", "gateway"],
      async () => inside(made.box.pid, "ip", "link", "set", "eth0", "down"),
    ],
    [
      "the neighbour entry of the host is gone",
      ["neighbour", "gateway"],
      async () => execFileSync("ip", ["neigh", "del", made.box.ip_address, "dev", await link()]),
    ],
    [
      "the neighbour entry of the container is gone",
      ["neighbour", "gateway"],
      async () =>
        inside(made.box.pid, "ip", "neigh", "del", (await ok("GET", path("").slice(0, -1))).gateway, "dev", "eth0"),
    ],
    ["the default route is gone", ["route"], async () => inside(made.box.pid, "ip", "route", "del", "default")],
    [
      "the route of the host is gone",
      ["route", "gateway"],
      async () => execFileSync("ip", ["route", "del", made.box.ip_address]),
    ],
    [
      "the address is gone",
      ["address"],
      async () => inside(made.box.pid, "ip", "address", "del", `${made.box.ip_address}/32`, "dev", "eth0"),
    ],
    ["the link is deleted", ["link", "address"], async () => execFileSync("ip", ["link", "delete", await link()])],
    ["a chain is empty", ["rules"], async () => nft("flush", "chain", "inet", `hearth_${daemon.tag}`, "forward")],
    ["the table is gone", ["rules"], async () => nft("delete", "table", "inet", `hearth_${daemon.tag}`)],
    [
      "the entries of published ports are gone",
      ["rules"],
      async () => nft("flush", "set", "inet", `hearth_${daemon.tag}`, "published"),
    ],
  ];
  for (const [what, names, breakIt] of breaks) {
    it(`fail where ${what}, and setup mends it`, async () => {
      await breakIt();
      expect(await failing()).toEqual(expect.arrayContaining([...names]));
      const setup = await ok("POST", path("setup"));
      expect(setup.found).toEqual(expect.arrayContaining([...names]));
      expect(setup.found.filter((name: string) => !setup.mended.includes(name) && name !== "dns")).toEqual([]);
      expect((await failing()).filter((name) => name !== "dns")).toEqual([]);
      const { gateway } = await ok("GET", path("").slice(0, -1));
      const reached = inside(made.box.pid, "sh", "-c", `ip route get ${gateway}`);
      expect(reached).toContain("dev eth0");
    });
  }

  it.each([
    ["link", async () => execFileSync("ip", ["link", "delete", await link()])],
    ["table", async () => nft("delete", "table", "inet", `hearth_${daemon.tag}`)],
  ] as const)(
    "let a published port and a service answer at the same address after a %s was made again",
    async (what, breakIt) => {
      const publisher = new Publisher(daemon);
      const command = ["python3", "-m", "http.server", "8080"];
      const box = await user.create({ name: `serves-${what}`, command, ports: [{ container_port: 8_080 }] });
      const [before, service] = [made.box, await publisher.publish(box.container_id, { enable_websockets: true })];
      made.box = box;
      const port_url = `http://127.0.0.1:${box.ports[0].host_port}/`;
      const statuses = async () => [(await ask(port_url)).status, (await ask(service.public_url)).status];
      try {
        // It leaves an idle connection to the container, which the proxy would use again.
        expect(await statuses()).toEqual([200, 200]);
        await breakIt();
        const setup = await ok("POST", path("setup"));
        expect(setup.mended.length).toBeGreaterThan(0);
        expect((await ok("GET", path("").slice(0, -1))).ip_address).toBe(box.ip_address);
        expect(await publisher.ready(service.service_id)).toMatchObject({ public_url: service.public_url });
        expect(await statuses()).toEqual([200, 200]);
        expect((await ask(at(service.public_url, "/etc/hostname"))).text).toBe(`serves-${what}\n`);
      } finally {
        made.box = before;
      }
      // The entries are the same as before: nothing of them stays.
      await user.delete(box.container_id);
      await expect(ask(port_url)).rejects.toThrow();
      await expect(ask(service.public_url)).rejects.toThrow();
    },
  );

  it("say that a stopped container does not run, and setup refuses it", async () => {
    const { container_id } = await user.create({ name: "resting" });
    await ok("POST", `/api/containers/${container_id}/kill`);
    const body = await ok("GET", `/api/containers/${container_id}/network/diagnostics`);
    expect(body).toMatchObject({ ok: false, state: "exited" });
    expect(checksOf(body)).toEqual({ running: false });
    expect(await refusal("POST", `/api/containers/${container_id}/network/setup`)).toEqual([409, "NOT_RUNNING"]);
    await user.delete(container_id);
  });
});
