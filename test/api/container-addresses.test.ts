/** Addresses that containers reserve, and destinations of their egress lists: attacked, raced, and over ends of the daemon. */
import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { askingOf } from "../support/asking.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const { makeTenant, ok } = askingOf(daemon);
type Json = Answer["body"];

const made: { box: Json; other: Json; key: string } = { box: null, other: null, key: "" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  made.key = await makeTenant("other");
  made.box = await user.create({ name: "box", ports: [{ container_port: 80 }] });
  made.other = await ok("POST", "/api/containers", { name: "theirs", egress: "off" }, made.key);
});
afterAll(() => daemon.dispose());

describe("an address of one's own", () => {
  const put = (id: string, ip_address: unknown, key = KEY) =>
    daemon.call("PUT", `/api/containers/${id}/network`, { ip_address }, { "x-api-key": key });
  const seen = ({ status, body }: Answer) => [status, body.error_code ?? null];
  const stop = (id: string) => ok("POST", `/api/containers/${id}/kill`);
  const start = (id: string) => ok("POST", `/api/containers/${id}/start?execution=sync`);
  const addressOf = async (id: string): Promise<string> => (await user.get(id)).ip_address;
  const shift = (address: string, by: number): string => {
    const number = address.split(".").reduce((sum, octet) => sum * 256 + Number(octet), 0) + by;
    return [24, 16, 8, 0].map((bits) => (number >>> bits) & 255).join(".");
  };
  const base = () => daemon.subnet.split("/")[0] ?? "";
  /** Far from those that starts take. */
  const free = (i: number) => shift(base(), 300 + i);

  it("is had at the next start and every later one, with a network that works", async () => {
    const { container_id } = await user.create({ name: "keeper", ports: [{ container_port: 80 }] });
    await stop(container_id);
    const answer = await put(container_id, free(0));
    expect([answer.status, answer.body]).toEqual([
      200,
      expect.objectContaining({ success: true, ip_address: null, reserved_address: free(0), status: "allocated" }),
    ]);
    for (let i = 0; i < 3; i++) {
      expect((await start(container_id)).ip_address).toBe(free(0));
      const { checks } = await ok("GET", `/api/containers/${container_id}/network/diagnostics`);
      expect(checks.filter(({ ok, name }: Json) => !ok && name !== "dns")).toEqual([]);
      expect(await user.shell(container_id, "cat /etc/hosts")).toContain(free(0));
      await stop(container_id);
    }
    expect((await ok("GET", "/api/network/allocations")).allocations[0]).toMatchObject({
      container_id,
      ip_address: free(0),
      status: "allocated",
      setup_completed: false,
      veth_host: null,
    });
    await user.delete(container_id);
  });

  it("is refused unless it is an address that containers may have", async () => {
    const { container_id } = await user.create({ name: "picky" });
    await stop(container_id);
    const [network, gateway] = [base(), shift(base(), 1)];
    const broadcast = shift(base(), 4_095);
    const before = await user.get(container_id);
    for (const address of [network, gateway, broadcast, "127.0.0.1", "192.0.2.1", "10.42", "x", "010.1.1.1", ""]) {
      expect([address, ...seen(await put(container_id, address))]).toEqual([address, 400, "INVALID_ARGUMENT"]);
    }
    expect(seen(await put(container_id, 7))).toEqual([422, "UNPROCESSABLE_ENTITY"]);
    expect(seen(await put(container_id, undefined))).toEqual([422, "UNPROCESSABLE_ENTITY"]);
    expect(await user.get(container_id)).toEqual(before);
    await user.delete(container_id);
  });

  it("is never another's: of a container that runs, of one that reserved it, of another tenant", async () => {
    const one = await user.create({ name: "one" });
    const two = await user.create({ name: "two" });
    await stop(two.container_id);
    for (const address of [one.ip_address, made.other.ip_address]) {
      expect(seen(await put(two.container_id, address))).toEqual([409, "ADDRESS_TAKEN"]);
    }
    await stop(one.container_id);
    expect(seen(await put(one.container_id, free(1)))).toEqual([200, null]);
    expect(seen(await put(two.container_id, free(1)))).toEqual([409, "ADDRESS_TAKEN"]);
    expect(seen(await put(made.other.container_id, free(2)))).toEqual([404, "NOT_FOUND"]);
    await ok("POST", `/api/containers/${made.other.container_id}/kill`, undefined, made.key);
    expect(seen(await put(made.other.container_id, free(1), made.key))).toEqual([409, "ADDRESS_TAKEN"]);
    await ok("POST", `/api/containers/${made.other.container_id}/start?execution=sync`, undefined, made.key);
    // Ended, it is free for all.
    expect(seen(await put(one.container_id, null))).toEqual([200, null]);
    expect(seen(await put(two.container_id, free(1)))).toEqual([200, null]);
    expect((await start(two.container_id)).ip_address).toBe(free(1));
    await user.delete(one.container_id, two.container_id);
  });

  it("cannot change while the container runs, but the present one can be kept", async () => {
    const { container_id, ip_address } = await user.create({ name: "runner" });
    const refused = await put(container_id, free(3));
    expect([...seen(refused), refused.body.details.state]).toEqual([409, "WRONG_STATE", "running"]);
    expect(await addressOf(container_id)).toBe(ip_address);
    expect(seen(await put(container_id, ip_address))).toEqual([200, null]);
    await stop(container_id);
    // All that start meanwhile take others, however many.
    const more = await Promise.all(Array.from({ length: 20 }, (_, i) => user.create({ name: `more-${i}` })));
    expect(more.map((one) => one.ip_address)).not.toContain(ip_address);
    expect((await start(container_id)).ip_address).toBe(ip_address);
    await user.delete(container_id, ...more.map((one) => one.container_id));
  });

  it("may be one that a ready slot holds: the slot gives way", async () => {
    const { container_id } = await user.create({ name: "taker" });
    await stop(container_id);
    // Ready slots hold the next addresses: whichever is not in use is free to take.
    const lowest = Array.from({ length: 60 }, (_, i) => shift(base(), 2 + i));
    const used = new Set((await ok("GET", "/api/network/allocations")).allocations.map((one: Json) => one.ip_address));
    const theirs = (await ok("GET", "/api/network/allocations", undefined, made.key)).allocations;
    for (const { ip_address } of theirs) used.add(ip_address);
    let count = 0;
    for (const address of lowest.filter((one) => !used.has(one)).slice(0, 30)) {
      expect([address, ...seen(await put(container_id, address))]).toEqual([address, 200, null]);
      if (count++ % 10 !== 0) continue;
      expect((await start(container_id)).ip_address).toBe(address);
      await stop(container_id);
    }
    await user.delete(container_id);
  });

  it("goes to one of two who ask at once", async () => {
    const made = await Promise.all(["left", "right"].map((name) => user.create({ name })));
    const ids = made.map(({ container_id }) => container_id);
    await Promise.all(ids.map(stop));
    for (let round = 0; round < 5; round++) {
      const answers = await Promise.all(ids.map((id) => put(id, free(10 + round))));
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    }
    // Of many requests for one container the last one holds.
    const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => put(ids[0] ?? "", free(30 + i))));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    const { reserved_address } = await ok("GET", `/api/containers/${ids[0]}/network`);
    expect((await start(ids[0] ?? "")).ip_address).toBe(reserved_address);
    await user.delete(...ids);
    // Nothing is left reserved: another may have them all.
    const last = await user.create({ name: "last" });
    await stop(last.container_id);
    for (const i of [10, 14, 30, 39]) expect(seen(await put(last.container_id, free(i)))).toEqual([200, null]);
    await user.delete(last.container_id);
  });

  it("outlives the daemon, killed or stopped, and is nobody's meanwhile", async () => {
    const [first, second] = await Promise.all(["first", "second"].map((name) => user.create({ name })));
    await stop(first.container_id);
    // The lowest addresses are those that the next daemon gives first.
    const address = first.ip_address;
    expect(seen(await put(first.container_id, address))).toEqual([200, null]);
    expect(seen(await put(second.container_id, second.ip_address))).toEqual([200, null]);
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      await daemon.stop(signal);
      await daemon.start({ HEARTH_CELLS: "0" });
      const more = await Promise.all(Array.from({ length: 20 }, (_, i) => user.create({ name: `more-${i}` })));
      expect(more.map((one) => one.ip_address)).not.toContain(address);
      expect(seen(await put(more[0].container_id, null))).toEqual([200, null]);
      await user.delete(...more.map((one) => one.container_id));
      expect(await addressOf(second.container_id)).toBe(second.ip_address);
      expect((await start(first.container_id)).ip_address).toBe(address);
      await stop(first.container_id);
    }
    await stop(second.container_id);
    expect((await start(second.container_id)).ip_address).toBe(second.ip_address);
    await user.delete(first.container_id, second.container_id);
  });

  it("is bounded for each tenant", async () => {
    // A sixteenth of the 4,093 addresses of the subnet would be more than the limit of a tenant.
    const made = await Promise.all(
      Array.from({ length: 3 }, (_, i) => user.create({ name: `bound-${i}`, memory_limit_mb: 256 })),
    );
    await Promise.all(made.map(({ container_id }) => stop(container_id)));
    for (const [i, { container_id }] of made.entries()) {
      expect(seen(await put(container_id, free(50 + i)))).toEqual([200, null]);
      // In place of its own, not beside it.
      expect(seen(await put(container_id, free(60 + i)))).toEqual([200, null]);
    }
    await user.delete(...made.map(({ container_id }) => container_id));
  });
});

describe("routes of a container", () => {
  const route = (method: string, id: string, destination: unknown, key = KEY) =>
    daemon.call(method, `/api/containers/${id}/routes`, { destination }, { "x-api-key": key });
  const seen = ({ status, body }: Answer) => [status, body.error_code ?? null];
  /** The rules that the packet filter has for a container. */
  const rulesOf = (address: string): string => {
    const table = `hearth_${daemon.tag}`;
    const egress = execFileSync("nft", ["list", "map", "inet", table, "egress"]).toString().replace(/\s+/g, " ");
    const chain = new RegExp(`${address.replaceAll(".", "\\.")} : goto (\\w+)`).exec(egress)?.[1];
    return chain === undefined ? "" : execFileSync("nft", ["list", "chain", "inet", table, chain]).toString();
  };
  /** Returns the end of a connection from inside: refused at once by the filter, or not answered. */
  const attempt = (id: string, address: string) =>
    user.python(
      id,
      `import socket\ns=socket.socket();s.settimeout(1)\ntry: s.connect(('${address}',81));print('open')\nexcept OSError as e: print(type(e).__name__, e.errno)`,
    );

  it("are destinations of its egress list: in force at once, kept over restarts, and gone when removed", async () => {
    const { container_id, ip_address } = await user.create({ name: "list", egress: ["203.0.113.1:443/tcp"] });
    expect(rulesOf(ip_address)).toContain("203.0.113.1");
    expect(await attempt(container_id, "203.0.113.9")).toContain("113");
    expect((await route("POST", container_id, "203.0.113.8/29")).body).toEqual({
      success: true,
      message: "203.0.113.8/29 is allowed",
    });
    expect(rulesOf(ip_address)).toContain("203.0.113.8/29");
    // No host is there: nothing refuses.
    expect(await attempt(container_id, "203.0.113.9")).not.toContain("113");
    expect((await route("POST", container_id, "203.0.113.8/29")).body.message).toContain("already");
    const egress = await ok("GET", `/api/containers/${container_id}/egress`);
    expect(egress).toMatchObject({
      mode: "list",
      in_force: true,
      destinations: ["203.0.113.1:443/tcp", "203.0.113.8/29"],
    });
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      await daemon.stop(signal);
      await daemon.start({ HEARTH_CELLS: "0" });
      expect(rulesOf(ip_address)).toContain("203.0.113.8/29");
      expect(await ok("GET", `/api/containers/${container_id}/egress`)).toMatchObject({ in_force: true });
    }
    expect(seen(await route("DELETE", container_id, "203.0.113.8/29"))).toEqual([200, null]);
    expect(rulesOf(ip_address)).not.toContain("203.0.113.8");
    expect(await attempt(container_id, "203.0.113.9")).toContain("113");
    expect(seen(await route("DELETE", container_id, "203.0.113.8/29"))).toEqual([404, "NOT_FOUND"]);
    await daemon.stop("SIGKILL");
    await daemon.start({ HEARTH_CELLS: "0" });
    expect(rulesOf(ip_address)).not.toContain("203.0.113.8");
    // The last one removed, nothing is allowed.
    expect(seen(await route("DELETE", container_id, "203.0.113.1:443/tcp"))).toEqual([200, null]);
    expect((await user.get(container_id)).egress).toEqual([]);
    expect(await attempt(container_id, "203.0.113.1")).toContain("113");
    await ok("POST", `/api/containers/${container_id}/kill`);
    expect(seen(await route("POST", container_id, "203.0.113.2"))).toEqual([200, null]);
    const { ip_address: next } = await ok("POST", `/api/containers/${container_id}/start?execution=sync`);
    expect(rulesOf(next)).toContain("203.0.113.2");
    await user.delete(container_id);
  });

  it("changed while their container ends are kept for its next start, and leave no rule at its address", async () => {
    const { container_id } = await user.create({ name: "ending", egress: [], command: ["sleep", "0.3"] });
    const ended = () => user.until(container_id, "has ended", ({ state }) => state !== "running");
    for (let round = 0; round < 5; round++) {
      await ended();
      const { ip_address } = await ok("POST", `/api/containers/${container_id}/start?execution=sync`);
      const asked: Answer[] = [];
      const state = async () => (await user.get(container_id)).state;
      for (let n = 0; (await state()) === "running"; n++) {
        asked.push(...(await Promise.all([0, 1, 2, 3].map((i) => route("POST", container_id, `203.0.${n % 8}.${i}`)))));
        asked.push(
          ...(await Promise.all([0, 1, 2, 3].map((i) => route("DELETE", container_id, `203.0.${n % 8}.${i}`)))),
        );
      }
      expect(new Set(asked.map(({ status }) => status))).toEqual(new Set([200]));
      await expect.poll(() => rulesOf(ip_address)).toBe("");
    }
    await user.delete(container_id);
  });

  it("never open what the policy or the node forbids", async () => {
    expect(seen(await route("POST", made.box.container_id, "203.0.113.1"))).toEqual([409, "WRONG_STATE"]);
    expect(seen(await route("DELETE", made.box.container_id, "203.0.113.1"))).toEqual([409, "WRONG_STATE"]);
    expect(seen(await route("POST", made.other.container_id, "203.0.113.1", made.key))).toEqual([409, "WRONG_STATE"]);
    expect(seen(await route("POST", made.other.container_id, "203.0.113.1"))).toEqual([404, "NOT_FOUND"]);
    const { container_id } = await user.create({ name: "closed", egress: [] });
    const inSubnet = made.other.ip_address;
    for (const destination of ["127.0.0.1", "169.254.169.254:80", "0.0.0.0", "224.0.0.1", inSubnet, daemon.subnet]) {
      expect([destination, ...seen(await route("POST", container_id, destination))]).toEqual([
        destination,
        400,
        "INVALID_ARGUMENT",
      ]);
    }
    for (const destination of ["", "example.org", "203.0.113.1/24", "203.0.113.1:0", "::1", "1.2.3.4/33"]) {
      expect([destination, ...seen(await route("POST", container_id, destination))]).toEqual([
        destination,
        400,
        "INVALID_ARGUMENT",
      ]);
    }
    expect(seen(await route("POST", container_id, 7))).toEqual([422, "UNPROCESSABLE_ENTITY"]);
    // A wider one opens no neighbour either.
    expect(seen(await route("POST", container_id, "0.0.0.0/0"))).toEqual([200, null]);
    expect(await attempt(container_id, inSubnet)).not.toContain("open");
    await user.delete(container_id);
  });

  it("are bounded", async () => {
    const { container_id } = await user.create({ name: "many", egress: [] });
    const answers = await Promise.all(
      Array.from({ length: 70 }, (_, i) => route("POST", container_id, `198.51.100.${i}`)),
    );
    const counts = [200, 403].map((status) => answers.filter((one) => one.status === status).length);
    expect(counts).toEqual([64, 6]);
    expect((await user.get(container_id)).egress).toHaveLength(64);
    await user.delete(container_id);
  });
});
