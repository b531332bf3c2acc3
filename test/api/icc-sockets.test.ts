/** Messages from inside of containers through the real daemon: identity, tenants, restarts, ends, files. */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { MadeImages, pullLocal } from "../support/made-images.ts";

const daemon = new Daemon();
let other = "";

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  const tenant = await daemon.call("POST", "/api/tenants", { name: "other" });
  expect(tenant.status, JSON.stringify(tenant.body)).toBe(201);
  const key = await daemon.call("POST", `/api/tenants/${tenant.body.tenant_id}/api-keys`, { name: "first" });
  other = key.body.key;
});
afterAll(() => daemon.dispose());

const create = async (body: object, headers: Record<string, string> = {}) => {
  const { status, body: record } = await daemon.call("POST", "/api/containers", body, headers);
  expect(status, JSON.stringify(record)).toBe(201);
  return record.container_id as string;
};
const exec = async (id: string, command: readonly string[], more: object = {}, headers: Record<string, string> = {}) =>
  (await daemon.call("POST", `/api/containers/${id}/exec`, { command, ...more }, headers)).body;
const icc = async (id: string, words: readonly string[], headers: Record<string, string> = {}) => {
  const { stdout, stderr, exit_code } = await exec(id, ["hearth-icc", ...words], {}, headers);
  const lines = stdout.split("\n").filter((line: string) => line !== "");
  return { exit_code, stderr, sent: lines.map((line: string) => JSON.parse(line)) };
};
const sockets = () =>
  readdirSync(`${daemon.run_dir}/c`).filter((run) => existsSync(`${daemon.run_dir}/c/${run}/icc/icc.sock`));

const isOf = (inbox: string) => (letter: { readonly container_id: string }) => letter.container_id === inbox;

describe("a container", () => {
  it("sends and receives as itself, by name and id, and settles what it received", async () => {
    const [a, b] = [await create({ name: "alice" }), await create({ name: "bob" })];
    expect((await icc(a, ["self"])).sent).toEqual([
      { container_id: a, name: "alice", inbox: a, permission_level: "READ_ONLY" },
    ]);
    const [sent] = (await icc(a, ["send", "bob", '{"n":1}', "--type", "job"])).sent;
    expect(sent).toMatchObject({ inbox: b, stream_seq: 1, duplicate: false });
    const [got] = (await icc(b, ["receive", "--wait", "5"])).sent;
    expect(got).toMatchObject({ from: a, to: b, type: "job", payload: { n: 1 }, inbox: b, deliveries: 1 });
    const stale = await icc(b, ["ack", got.msg_id, "--lease", "other"]);
    expect([stale.exit_code, stale.stderr]).toEqual([1, expect.stringContaining("WRONG_STATE")]);
    expect((await icc(b, ["ack", got.msg_id, "--lease", got.lease])).sent).toMatchObject([{ new_state: "acked" }]);
    expect((await icc(b, ["receive"])).exit_code).toBe(4);
    // Its clients repeat a message under its id.
    const twice = ["send", "bob", "1", "--id", "once"];
    expect((await icc(a, twice)).sent).toMatchObject([{ duplicate: false }]);
    expect((await icc(a, twice)).sent).toMatchObject([{ duplicate: true, stream_seq: 2 }]);
    expect((await icc(b, ["receive", "--ack"])).sent).toMatchObject([{ msg_id: "once" }]);
    const asking = icc(a, ["request", "bob", '"2+2?"', "--timeout", "20"]);
    const [asked] = (await icc(b, ["receive", "--wait", "20", "--ack"])).sent;
    await icc(b, ["reply", asked.msg_id, "4"]);
    expect((await asking).sent).toMatchObject([{ payload: 4, from: b, correlation_id: asked.msg_id }]);
    expect((await icc(a, ["receive"])).exit_code).toBe(4);
    await icc(a, ["send", "queue:jobs", "1"]);
    const [job] = (await icc(b, ["receive", "--queue", "jobs"])).sent;
    const settle = ["--queue", "jobs", "--lease", job.lease];
    expect((await icc(b, ["ack", job.msg_id, ...settle])).sent).toMatchObject([{ new_state: "acked" }]);
    const { body } = await daemon.call("GET", `/api/icc/inbox/${b}`);
    expect(body.messages.map(({ state }: { state: string }) => state)).toEqual(["acked", "acked", "acked"]);
  });

  it("settles in a queue only what it holds itself", async () => {
    const { body: listed } = await daemon.call("GET", "/api/containers");
    const idOf = (name: string) =>
      listed.containers.find((one: { name: string; container_id: string }) => one.name === name).container_id;
    const [a, b] = [idOf("alice"), idOf("bob")];
    const ask = async (id: string, path: string, body: object) => {
      const url = `http://x${path}`;
      const args = ["-s", "--unix-socket", "/run/hearth/icc.sock", "-d", JSON.stringify(body), url];
      return JSON.parse((await exec(id, ["curl", ...args])).stdout);
    };
    const inbox = "queue:held";
    const send = (msg_id: string) =>
      daemon.call("POST", "/api/icc/messages", { to: inbox, type: "t", payload: 1, msg_id });
    const states = async () => {
      const { messages } = (await daemon.call("GET", `/api/icc/inbox/${inbox}`)).body;
      return messages.map(({ msg_id, state }: { msg_id: string; state: string }) => [msg_id, state]);
    };
    for (const msg_id of ["held", "free"]) await send(msg_id);
    const [held] = (await ask(b, "/v1/receive", { inbox })).messages;
    expect(held).toMatchObject({ msg_id: "held", deliveries: 1 });
    const ways = [{ action: "ack" }, { action: "nack" }, { action: "nack", requeue: true }];
    for (const way of ways) {
      for (const msg_id of ["held", "free"]) {
        const none = await ask(a, "/v1/ack", { inbox, msg_id, ...way });
        expect(none).toMatchObject({ error_code: "FORBIDDEN", hint: expect.stringContaining("lease") });
        // Leases of the bus are counted, and that of another receiver is not one's own.
        const [plain] = held.lease.split(".");
        for (const lease of ["lease_0", "lease_1", plain, held.lease, `${plain}.`, `${held.lease}A`]) {
          const guessed = await ask(a, "/v1/ack", { inbox, msg_id, lease, ...way });
          expect([msg_id, lease, guessed.error_code]).toEqual([msg_id, lease, "WRONG_STATE"]);
        }
      }
      // The receiver itself, with the lease of another message.
      const other = await ask(b, "/v1/ack", { inbox, msg_id: "free", lease: held.lease, ...way });
      expect(other.error_code).toBe("WRONG_STATE");
    }
    expect(await states()).toEqual([
      ["held", "unread"],
      ["free", "unread"],
    ]);
    expect((await daemon.call("GET", "/api/icc/dlq")).body.messages.filter(isOf(inbox))).toEqual([]);
    const { lease } = held;
    const given = await ask(b, "/v1/ack", { inbox, msg_id: "held", action: "nack", requeue: true, lease });
    expect(given.new_state).toBe("unread");
    // Its lease ended with that.
    expect((await ask(b, "/v1/ack", { inbox, msg_id: "held", lease })).error_code).toBe("WRONG_STATE");
    const [again] = (await ask(a, "/v1/receive", { inbox })).messages;
    expect(again).toMatchObject({ msg_id: "held", deliveries: 2 });
    expect((await ask(a, "/v1/ack", { inbox, msg_id: "held", lease: again.lease })).new_state).toBe("acked");
    // A key of the tenant owns all its inboxes, a container its own.
    expect((await daemon.call("POST", "/api/icc/ack", { msg_id: "free", container_id: inbox })).status).toBe(200);
    await daemon.call("POST", "/api/icc/messages", { to: a, type: "t", payload: 1, msg_id: "owned" });
    expect((await ask(a, "/v1/ack", { msg_id: "owned" })).new_state).toBe("acked");
  });

  it("answers a request of a key, and cannot be another container, tenant or level", async () => {
    const { body: listed } = await daemon.call("GET", "/api/containers");
    const idOf = (name: string) =>
      listed.containers.find((one: { name: string; container_id: string }) => one.name === name).container_id;
    const [a, b] = [idOf("alice"), idOf("bob")];
    const request = daemon.call("POST", "/api/icc/request", {
      to: "alice",
      type: "ask",
      payload: 1,
      timeout_ms: 20_000,
    });
    const [asked] = (await icc(a, ["receive", "--wait", "20", "--ack"])).sent;
    expect(asked.from).toBe("api");
    await icc(a, ["reply", asked.msg_id, "2"]);
    expect((await request).body.reply).toMatchObject({ payload: 2, from: a });
    const raw = async (body: object, path = "/v1/messages", more: readonly string[] = []) => {
      const url = `http://x${path}`;
      const args = ["-s", "--unix-socket", "/run/hearth/icc.sock", ...more, "-d", JSON.stringify(body), url];
      return JSON.parse((await exec(a, ["curl", ...args])).stdout);
    };
    const forged = ["-H", `x-container-id: ${b}`, "-H", "x-tenant-id: other", "-H", `x-api-key: ${other}`];
    expect(await raw({ to: b, type: "t", from: b }, "/v1/messages", forged)).toMatchObject({ error_code: "FORBIDDEN" });
    expect(await raw({ to: b, type: "exec_command", payload: { argv: ["id"] } })).toMatchObject({
      error_code: "FORBIDDEN",
    });
    for (const inbox of [b, "bob", "topic:x", "binding:x", "../x"]) {
      const asks = [raw({ inbox }, "/v1/receive"), raw({ inbox, msg_id: "once" }, "/v1/ack")];
      for (const answer of await Promise.all(asks)) {
        expect([inbox, answer.error_code]).toEqual([inbox, expect.stringMatching(/^(FORBIDDEN|INVALID_ARGUMENT)$/)]);
      }
    }
    expect(await raw({ msg_id: "once" }, "/v1/ack")).toMatchObject({ error_code: "NOT_FOUND" });
    const headers = { "x-api-key": other };
    const theirs = await create({ name: "alice" }, headers);
    expect((await icc(theirs, ["send", a, "1"], headers)).stderr).toContain("NOT_FOUND");
    expect((await icc(theirs, ["send", "alice", "1"], headers)).sent).toMatchObject([{ inbox: theirs }]);
    await icc(a, ["send", "queue:own", "1"]);
    expect((await icc(theirs, ["receive", "--queue", "own"], headers)).exit_code).toBe(4);
    await daemon.call("DELETE", `/api/containers/${theirs}`, undefined, headers);
  });

  it("finds its socket again after a kill of the daemon, with its stream and its messages", async () => {
    const id = await create({ name: "kept" });
    const socketless = await create({ name: "covered", volumes: [] });
    await daemon.call("DELETE", `/api/containers/${socketless}`);
    const script = [
      "import hearth_icc as icc",
      "for message in icc.stream():",
      '    icc.ack(message); open("/got", "a").write("%s\\n" % message["payload"])',
    ].join("\n");
    await exec(id, ["python3", "-c", script], { detach: true });
    const got = async () => (await exec(id, ["cat", "/got"])).stdout;
    await icc(id, ["send", "kept", "1"]);
    await eventually("the first", async () => (await got()) === "1\n");
    const before = sockets().length;
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      await daemon.stop(signal);
      await daemon.start({ HEARTH_CELLS: "0" });
      expect(sockets().length).toBe(before);
      await icc(id, ["send", "kept", signal === "SIGKILL" ? "2" : "3"]);
    }
    await eventually("all of them", async () => (await got()) === "1\n2\n3\n");
    await daemon.call("DELETE", `/api/containers/${id}`);
    expect(sockets().length).toBe(before - 1);
  });

  it("has no socket after its end, and its descriptors in the daemon are closed", async () => {
    const open = () => daemon.descriptors().filter((one) => one.startsWith("socket:")).length;
    const before = open();
    const id = await create({ name: "ended" });
    const script =
      "import socket, time\ns = [socket.socket(socket.AF_UNIX) for _ in range(20)]\n[one.connect('/run/hearth/icc.sock') for one in s]\ntime.sleep(1000)";
    await exec(id, ["python3", "-c", script], { detach: true });
    await eventually("connections", () => open() >= before + 20);
    await daemon.call("POST", `/api/containers/${id}/kill`, {});
    await eventually("all are closed", () => open() <= before);
    await daemon.call("DELETE", `/api/containers/${id}`);
  });

  it("shows the socket to nobody but itself: not in its files, archives, changes or copies", async () => {
    const id = await create({ name: "files" });
    const { body } = await daemon.call("GET", `/api/containers/${id}/changes`, undefined, {
      "x-tenant-id": "default",
    });
    expect(JSON.stringify(body)).not.toContain("hearth");
    const listed = await daemon.call("GET", `/api/containers/${id}/ls?path=/run/hearth`);
    expect(JSON.stringify(listed.body)).toContain("icc.sock");
    const archive = await fetch(`${daemon.url}/api/containers/${id}/archive?path=/run`, {
      headers: { "x-api-key": KEY },
    });
    const tar = Buffer.from(await archive.arrayBuffer());
    const names = execFileSync("tar", ["-t"], { input: tar }).toString();
    expect([archive.status, names.includes("hearth/"), names.includes("icc.sock")]).toEqual([200, true, false]);
    const into = await fetch(`${daemon.url}/api/containers/${id}/archive?path=/run/hearth&execution=sync`, {
      method: "POST",
      headers: { "x-api-key": KEY, "content-type": "application/x-tar" },
      body: tar,
    });
    expect(JSON.stringify(await into.json())).toMatch(/read-only/i);
    expect((await exec(id, ["ls", "-A", "/run/hearth"])).stdout).toBe("icc.sock\n");
    expect((await icc(id, ["self"])).exit_code).toBe(0);
    await daemon.call("DELETE", `/api/containers/${id}`);
  });

  it("lets no other user of this machine connect", async () => {
    const id = await create({ name: "private" });
    const [run = ""] = sockets().filter((name) => name.startsWith(id));
    const url = ["-s", "--unix-socket", `${daemon.run_dir}/c/${run}/icc/icc.sock`, "http://x/v1/self"];
    expect(execFileSync("curl", url).toString()).toContain(id);
    const nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "curl", ...url];
    expect(() => execFileSync("setpriv", nobody, { stdio: "ignore" })).toThrow();
    await daemon.call("DELETE", `/api/containers/${id}`);
  });

  it("of an image without the mount point has a socket, and changes nothing by it", async () => {
    const name = `localhost/hearth-test-socket-${process.pid}`;
    const images = new MadeImages(name);
    try {
      images.makeOf({ base: "prod", edit: (root) => rmSync(`${root}/run`, { recursive: true }), config: [[]] });
      await pullLocal(daemon, name);
      const id = await create({ name: "foreign", image: name, oci: true });
      expect((await icc(id, ["self"])).sent).toMatchObject([{ container_id: id }]);
      const { body } = await daemon.call("GET", `/api/containers/${id}/changes`, undefined, {
        "x-tenant-id": "default",
      });
      expect(JSON.stringify(body)).not.toContain("hearth");
      await daemon.call("DELETE", `/api/containers/${id}`);
      await daemon.call("DELETE", `/api/oci/images/${encodeURIComponent(name)}`).catch(() => {});
    } finally {
      images.remove();
    }
  });

  it("is the only kind with a socket: instances of functions have none", async () => {
    await daemon.deploy({
      name: "looks",
      runtime: "shell",
      handler: "ls -A /run/hearth; grep -c /run/hearth /proc/self/mounts",
    });
    expect((await daemon.invoke("looks")).stdout).toMatch(/^0\s*$/);
  });

  it("leaves nothing", async () => {
    const { body } = await daemon.call("GET", "/api/containers");
    for (const { container_id } of body.containers) await daemon.call("DELETE", `/api/containers/${container_id}`);
    expect(sockets()).toEqual([]);
    await daemon.stop();
    expect(daemon.leftovers()).toEqual({ ...NOTHING_LEFT, subvolumes: expect.anything() });
  });
});
