/** A daemon with HEARTH_NATS_URL: messages through the API on a real nats-server, which is killed and comes again. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon } from "../support/daemon.ts";
import { scrape } from "../support/metrics.ts";
import { TestNatsServer } from "../support/nats-server.ts";

const PASSWORD = "nats-password-1";
const daemon = new Daemon();
const servers: TestNatsServer[] = [];
const settings = () => {
  const { host } = new URL(servers[0]?.url ?? "");
  return { HEARTH_CELLS: "0", HEARTH_NATS_URL: `nats://hearth:${PASSWORD}@${host}` };
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

  it("names its password nowhere", async () => {
    for (const path of ["/api/system/info", "/api/icc/health", "/openapi.json", "/metrics"]) {
      expect(JSON.stringify((await daemon.call("GET", path)).body), path).not.toContain(PASSWORD);
    }
    expect(daemon.output).not.toContain(PASSWORD);
  });
});
