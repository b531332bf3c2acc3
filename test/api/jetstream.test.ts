/** A daemon with HEARTH_NATS_URL: messages through the API on a real nats-server, which is killed and comes again. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually } from "../support/daemon.ts";
import { scrape } from "../support/metrics.ts";
import { TestNatsServer } from "../support/nats-server.ts";

const PASSWORD = "nats-password-1";
const daemon = new Daemon();
const servers: TestNatsServer[] = [];
const settings = () => {
  const { host } = new URL(servers[0]?.url ?? "");
  return { HEARTH_CELLS: "1", HEARTH_NATS_URL: `nats://hearth:${PASSWORD}@${host}` };
};
beforeAll(async () => {
  servers.push(
    await TestNatsServer.start({ configuration: `authorization: { user: "hearth", password: "${PASSWORD}" }` }),
  );
  await daemon.start(settings());
});
afterAll(async () => {
  await daemon.dispose();
  await servers[0]?.stop();
});

const send = (msg_id: string) =>
  daemon.call("POST", "/api/icc/messages", { to: "queue:jobs", type: "job", payload: { msg_id }, msg_id });
const receive = () => daemon.call("POST", "/api/icc/inbox/queue:jobs/receive", { max: 10, lease_ms: 60_000 });
interface Entry {
  readonly state: string;
}
const readiness = async () => (await daemon.call("GET", "/api/icc/health")).body;
const idsOf = ({ body }: { body: { messages: { envelope_summary: { msg_id: string } }[] } }) =>
  body.messages.map(({ envelope_summary }) => envelope_summary.msg_id);

describe("a daemon with HEARTH_NATS_URL", () => {
  it("keeps messages on the server, over a kill of the server and of itself", async () => {
    expect(await readiness()).toMatchObject({ status: "ok", backend: "jetstream", reason: null });
    for (const id of ["j1", "j2", "j3"]) expect((await send(id)).status).toBe(200);
    const received = await receive();
    expect(idsOf(received)).toEqual(["j1", "j2", "j3"]);
    const ack = { container_id: "queue:jobs", msg_id: "j1", action: "ack" };
    expect((await daemon.call("POST", "/api/icc/ack", ack)).status).toBe(200);

    await servers[0]?.kill();
    await expect.poll(async () => (await readiness()).status).toBe("unavailable");
    expect((await readiness()).reason).toContain("127.0.0.1");
    const refused = await send("j4");
    expect(refused).toMatchObject({ status: 503, body: { error_code: "SERVICE_UNAVAILABLE" } });
    // Other concerns work on.
    const info = await daemon.call("GET", "/api/system/info");
    expect(info).toMatchObject({ status: 200, body: { messages: { backend: "jetstream", is_ready: false } } });
    const metrics = await scrape(daemon);
    expect(metrics.of("hearth_message_bus_ready", { backend: "jetstream" })).toBe(0);
    expect(metrics.of("hearth_messages_refused_total", { error_code: "SERVICE_UNAVAILABLE" })).toBe(1);

    await daemon.stop("SIGKILL");
    await daemon.start(settings());
    expect((await readiness()).status).toBe("unavailable");
    await servers[0]?.start();
    await expect.poll(async () => (await readiness()).status).toBe("ok");
    expect(await send("j4")).toMatchObject({ status: 200, body: { duplicate: false } });
    expect(await send("j2")).toMatchObject({ status: 200, body: { duplicate: true, stream_seq: 2 } });
    expect(idsOf(await receive())).toEqual(["j4"]);
    const { body } = await daemon.call("GET", "/api/icc/inbox/queue:jobs");
    expect(body.messages.map(({ state }: { state: string }) => state)).toEqual(["acked", "unread", "unread", "unread"]);
  });

  const post = (path: string, body: unknown) => daemon.call("POST", path, body);
  const shell = (command: string) => ({ argv: ["sh", "-c", command] });
  const read = async (container_id: string, path: string): Promise<string> =>
    (await post(`/api/containers/${container_id}/exec`, { command: ["cat", path] })).body.stdout;
  const statesOf = async (inbox: string): Promise<string[]> =>
    ((await daemon.call("GET", `/api/icc/inbox/${inbox}`)).body.messages ?? []).map(({ state }: Entry) => state);

  it("applies actions in their order, over a kill of the server and of itself", async () => {
    const { container_id } = (await post("/api/containers", { name: "acting" })).body;
    const command = { to: "acting", type: "exec_command", from: "queue:outcomes" };
    const asked = { to: "acting", type: "env_patch", payload: { set: { A: "1" } }, timeout_ms: 20_000 };
    expect((await post("/api/icc/request", asked)).body.reply.payload).toMatchObject({
      ...{ status: "APPLIED", previous_version: 0, result_version: 1 },
    });
    const payload = shell("echo $A >> /tmp/ran; sleep 2");
    for (const msg_id of ["act-1", "act-2"]) await post("/api/icc/messages", { ...command, payload, msg_id });
    await eventually("the first runs", async () => (await read(container_id, "/tmp/ran")) !== "");
    await servers[0]?.kill();
    await expect.poll(async () => (await readiness()).status).toBe("unavailable");
    // The first one ends while nothing can be published: its outcome waits for the server.
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    await servers[0]?.start();
    await eventually("both have ended", async () => (await statesOf("acting")).join() === "acked,acked,acked", 60_000);
    const told = await post("/api/icc/inbox/queue:outcomes/receive", { max: 10 });
    expect(idsOf(told)).toEqual(["act-1-ack", "act-2-ack"]);
    expect(await read(container_id, "/tmp/ran")).toBe("1\n1\n");

    const last = {
      ...command,
      payload: shell("test -e /tmp/once || { touch /tmp/once; sleep 600; }"),
      msg_id: "act-3",
    };
    await post("/api/icc/messages", last);
    const look = { command: ["ls", "/tmp/once"] };
    const isBegun = async () => (await post(`/api/containers/${container_id}/exec`, look)).body.exit_code === 0;
    await eventually("the third runs", isBegun);
    await Promise.all([servers[0]?.kill(), daemon.stop("SIGKILL")]);
    await daemon.start(settings());
    await servers[0]?.start();
    await eventually("it has ended", async () => (await statesOf("acting")).at(-1) === "acked", 90_000);
    expect(idsOf(await post("/api/icc/inbox/queue:outcomes/receive", { max: 10 }))).toEqual(["act-3-ack"]);
    const { body } = await daemon.call("GET", "/api/icc/containers/acting/state-version");
    expect(body.state_version).toBe(4);
  });

  it("calls functions for messages, over a kill of the server and of itself", async () => {
    const { id } = await daemon.deploy({ name: "bound", handler: "cat; sleep 0.2" });
    const bindings = { queue: { subject: "queue:bound" }, topic: { subject: "topic:bound", ordered: true } };
    for (const fields of Object.values(bindings)) {
      expect((await post("/api/icc/bindings", { function: id, ...fields, reply: true })).status).toBe(201);
    }
    const asked = { to: "queue:bound", type: "t", payload: "first", timeout_ms: 30_000 };
    expect((await post("/api/icc/request", asked)).body.reply.payload).toContain("first");
    const sent: string[] = [];
    const publish = async (to: string, count: number) => {
      for (let n = 0; n < count; n++) {
        const msg_id = `${to.replace(":", "-")}-${sent.length}`;
        const { status } = await post("/api/icc/messages", { to, type: "t", payload: n, msg_id });
        if (status === 200) sent.push(msg_id);
      }
    };
    const handled = async (): Promise<string[]> =>
      (await daemon.call("GET", `/api/functions/${id}/invocations?limit=500`)).body.invocations
        .filter(({ status }: { status: string }) => status === "success")
        .map(({ stdout }: { stdout: string }) => JSON.parse(stdout).message.msg_id);
    const isDone = async () => {
      const ids = await handled();
      return sent.every((msg_id) => ids.includes(msg_id));
    };
    for (const to of ["queue:bound", "topic:bound"]) await publish(to, 10);
    await servers[0]?.kill();
    await expect.poll(async () => (await readiness()).status).toBe("unavailable");
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await servers[0]?.start();
    await eventually("all are handled", isDone, 90_000);
    for (const to of ["queue:bound", "topic:bound"]) await publish(to, 10);
    await Promise.all([servers[0]?.kill(), daemon.stop("SIGKILL")]);
    await daemon.start(settings());
    await servers[0]?.start();
    await eventually("all are handled", isDone, 90_000);
    await eventually("all are acked", async () => !(await statesOf("queue:bound")).includes("unread"), 60_000);
    expect((await daemon.call("GET", "/api/icc/dlq")).body.messages).toEqual([]);
    const ordered = (await handled()).reverse().filter((msg_id) => msg_id.startsWith("topic"));
    // A repeated call comes at the place of its message.
    expect([...new Set(ordered)]).toEqual(sent.filter((msg_id) => msg_id.startsWith("topic")));
    expect(ordered).toEqual([...ordered].sort((one, other) => sent.indexOf(one) - sent.indexOf(other)));
  });

  it("names its password nowhere", async () => {
    for (const path of ["/api/system/info", "/api/icc/health", "/openapi.json", "/metrics"]) {
      expect(JSON.stringify((await daemon.call("GET", path)).body), path).not.toContain(PASSWORD);
    }
    expect(daemon.output).not.toContain(PASSWORD);
  });
});
