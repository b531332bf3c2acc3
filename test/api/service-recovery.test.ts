/** Published services over restarts and crashes of the daemon, and with another way to reach them. */
import { afterAll, describe, expect, it } from "vitest";
import { Daemon, freePort } from "../support/daemon.ts";
import { ask, Publisher } from "../support/services.ts";

const daemon = new Daemon();
const own = new Publisher(daemon);
afterAll(() => daemon.dispose());

describe("a published service", () => {
  it("keeps its URL after kill -9 of the daemon, and gets a name when a domain is set", async () => {
    const settings = { HEARTH_CELLS: "0", HEARTH_SERVICES_LISTEN: `127.0.0.1:${await freePort()}` };
    await daemon.start(settings);
    await own.container("web");
    const service = await own.publish("web");
    await daemon.stop("SIGKILL");
    await daemon.start(settings);
    expect((await own.ready(service.service_id)).public_url).toBe(service.public_url);
    expect((await ask(service.public_url)).status).toBe(200);
    await daemon.stop();
    await daemon.start({ ...settings, HEARTH_SERVICES_DOMAIN: "svc.example.com" });
    const { host, port, search } = new URL((await own.ready(service.service_id)).public_url);
    expect(host).toMatch(/^s[0-9a-z]{16}\.svc\.example\.com:\d+$/);
    expect((await ask(`http://127.0.0.1:${port}/${search}`, { headers: { host } })).status).toBe(200);
    expect(daemon.output).not.toContain("hst_");
  });
});
