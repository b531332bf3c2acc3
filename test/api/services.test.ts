/** Published services as their owner sees them: made, shown, rotated, expired, deleted; whose they are and how many. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually } from "../support/daemon.ts";
import { StoreRows } from "../support/rows.ts";
import { ask, at, Publisher, tenantOf, tokenIn } from "../support/services.ts";

const daemon = new Daemon();
const own = new Publisher(daemon);
const refusal = ({ status, body }: Answer) => [status, body.error_code];
const PYTHON = ["python3", "-m", "http.server", "8080"];

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await own.container("web", PYTHON);
});
afterAll(() => daemon.dispose());

describe("a published service", () => {
  it("answers a URL with a token, on a loopback address of its own, that clients append paths to", async () => {
    const made = await own.call("POST", "/api/containers/web/services", { name: "site", target_port: 8_080 });
    expect(made.status).toBe(201);
    const service = await own.ready(made.body.service_id);
    expect(service).toMatchObject({
      ...{ name: "site", target_port: 8_080, protocol: "http", auth_mode: "service_token", status: "ready" },
      ...{ enable_websockets: false, websocket_url: null, hostname: null, expires_at: null, status_message: null },
    });
    expect(service.public_url).toBe(made.body.public_url);
    expect(service.public_url).toMatch(/^http:\/\/127\.(?!0\.)\d+\.\d+\.\d+:\d+\/\?service_token=hst_[\w-]{43}$/);
    expect((await ask(service.public_url)).text).toContain("Directory listing");
    expect((await ask(at(service.public_url, "/etc/hostname"))).status).toBe(200);
    const listed = await own.ok("GET", "/api/services");
    expect(listed.services.map((one: { service_id: string }) => one.service_id)).toContain(service.service_id);
    expect((await own.ok("GET", "/api/containers/web/services")).services[0]).toEqual(service);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
    expect(refusal(await own.call("GET", `/api/services/${service.service_id}`))).toEqual([404, "NOT_FOUND"]);
    await expect(ask(service.public_url)).rejects.toThrow(/ECONNREFUSED/);
  });

  it("shows its token to keys that may use or change it, and to no others", async () => {
    const { service_id, public_url } = await own.publish("web", { name: "shown", enable_websockets: true });
    const { websocket_url } = await own.ok("GET", `/api/services/${service_id}`);
    const token = tokenIn(public_url);
    expect(websocket_url).toContain(token);
    const seenBy = async (scopes: readonly string[]) => {
      const { key } = (await daemon.call("POST", "/api/api-keys", { name: scopes.join(), scopes })).body;
      // A token has no more than its key.
      const credential = (await daemon.call("POST", "/api/auth/token", { scopes }, { "x-api-key": key })).body;
      const paths = [`/api/services/${service_id}`, "/api/services", "/api/containers/web/services"];
      const asked = paths.flatMap((path) => [
        daemon.call("GET", path, undefined, { "x-api-key": key }),
        daemon.call("GET", path, undefined, { "x-api-key": credential.access_token }),
      ]);
      return (await Promise.all(asked)).map(({ status, body }) => {
        expect(status).toBe(200);
        return "services" in body ? body.services.find((one: typeof body) => one.service_id === service_id) : body;
      });
    };
    for (const record of await seenBy(["read"])) {
      expect(record).toMatchObject({
        public_url: public_url.split("?")[0],
        websocket_url: websocket_url.split("?")[0],
      });
      expect(JSON.stringify(record)).not.toContain(token);
      expect((await ask(record.public_url)).status).toBe(401);
    }
    for (const scopes of [
      ["read", "invoke"],
      ["read", "write"],
    ]) {
      for (const record of await seenBy(scopes)) expect(record).toMatchObject({ public_url, websocket_url });
    }
    await own.ok("DELETE", `/api/services/${service_id}`);
  });

  it("is pending until a process listens, unavailable while its container is stopped, and ready after a start", async () => {
    const { container_id } = await own.ok("POST", "/api/containers", { name: "late", memory_limit_mb: 256 });
    const publish = { name: "a", target_port: 7_000 };
    const { service_id, public_url } = await own.ok("POST", `/api/containers/${container_id}/services`, publish);
    const status = async () => (await own.ok("GET", `/api/services/${service_id}`)).status;
    expect(await status()).toBe("pending");
    const refused = await ask(public_url);
    expect([refused.status, JSON.parse(refused.text).error_code]).toEqual([503, "SERVICE_UNAVAILABLE"]);
    const serve = { command: ["sh", "-c", "cd / && python3 -m http.server 7000 >/dev/null 2>&1 &"] };
    await own.ok("POST", `/api/containers/${container_id}/exec`, serve);
    await own.ready(service_id);
    expect((await ask(public_url)).status).toBe(200);
    await own.ok("POST", `/api/containers/${container_id}/stop?execution=sync`);
    expect(await status()).toBe("unavailable");
    expect((await ask(public_url)).status).toBe(503);
    await own.ok("POST", `/api/containers/${container_id}/start?execution=sync`);
    await own.ok("POST", `/api/containers/${container_id}/exec`, serve);
    expect((await own.ready(service_id)).public_url).toBe(public_url);
    expect((await ask(public_url)).status).toBe(200);
    await own.ok("DELETE", `/api/containers/${container_id}`);
  });

  it("ends with its container, and its clones and forks have none", async () => {
    const { container_id, tenant_id } = await own.container("short", PYTHON);
    const { service_id, public_url } = await own.publish(container_id);
    const header = { "x-tenant-id": tenant_id };
    const forked = await own.call("POST", `/api/containers/${container_id}/fork?execution=sync`, {}, header);
    const copy_id = forked.body.result_container_id;
    expect(copy_id).not.toBe(container_id);
    const { services } = await own.ok("GET", `/api/containers/${copy_id}/services`);
    expect(services).toEqual([]);
    await own.ok("DELETE", `/api/containers/${container_id}?execution=sync`);
    expect(refusal(await own.call("GET", `/api/services/${service_id}`))).toEqual([404, "NOT_FOUND"]);
    await expect(ask(public_url)).rejects.toThrow(/ECONNREFUSED/);
    const rows = new StoreRows(daemon);
    expect(JSON.stringify(rows.allBut("none"))).not.toContain(service_id.slice(4, 12));
    rows.close();
  });

  it("expires: the URL is refused at once, the record says so, and its name is free", async () => {
    const service = await own.publish("web", { name: "soon", ttl_seconds: 2 });
    expect(service.expires_at - service.created_at).toBe(2);
    expect((await ask(service.public_url)).status).toBe(200);
    const record = await eventually("it expires", async () => {
      const one = await own.ok("GET", `/api/services/${service.service_id}`);
      return one.status === "expired" ? one : null;
    });
    expect(record.expires_at).toBe(service.expires_at);
    await eventually("its address is free", () =>
      ask(service.public_url).then(
        () => false,
        () => true,
      ),
    );
    const again = await own.publish("web", { name: "soon", ttl_seconds: 60 });
    expect(again.service_id).not.toBe(service.service_id);
    expect(refusal(await own.call("GET", `/api/services/${service.service_id}`))).toEqual([404, "NOT_FOUND"]);
    await own.ok("DELETE", `/api/services/${again.service_id}`);
  });

  it("frees its host name when it expires", async () => {
    const host = { hostname: "soon.example" };
    const wanted = { ...host, name: "short-lived", target_port: 8_080, ttl_seconds: 1 };
    const { service_id } = await own.ok("POST", "/api/containers/web/services", wanted);
    await eventually("it expires", async () => {
      return (await own.ok("GET", `/api/services/${service_id}`)).status === "expired";
    });
    const again = await own.publish("web", { ...host, name: "successor" });
    expect(refusal(await own.call("GET", `/api/services/${service_id}`))).toEqual([404, "NOT_FOUND"]);
    const headers = { host: host.hostname };
    const path = `/?service_token=${tokenIn(again.public_url)}`;
    const { status } = await ask(`http://127.0.0.1:${new URL(again.public_url).port}${path}`, { headers });
    expect(status).toBe(200);
    await own.ok("DELETE", `/api/services/${again.service_id}`);
  });

  it("gets another token by a rotation, at the same address", async () => {
    const service = await own.publish("web", { name: "turned" });
    const rotated = await own.ok("POST", `/api/services/${service.service_id}/rotate`);
    expect(rotated.rotated_at).toBeGreaterThanOrEqual(service.created_at);
    expect(tokenIn(rotated.public_url)).not.toBe(tokenIn(service.public_url));
    expect(new URL(rotated.public_url).host).toBe(new URL(service.public_url).host);
    expect((await ask(service.public_url)).status).toBe(401);
    expect((await ask(rotated.public_url)).status).toBe(200);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
  });

  it("may be public: nobody needs a token, and there is none to rotate", async () => {
    const service = await own.publish("web", { name: "open", auth_mode: "public", enable_websockets: true });
    expect(service.public_url).toMatch(/^http:\/\/[\d.:]+\/$/);
    expect(service.websocket_url).toBe(service.public_url.replace("http", "ws"));
    expect((await ask(service.public_url)).status).toBe(200);
    expect(refusal(await own.call("POST", `/api/services/${service.service_id}/rotate`))).toEqual([409, "WRONG_STATE"]);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
  });

  it("is made once for an Idempotency-Key, whose record has no token", async () => {
    const key = { "idempotency-key": "publish-once" };
    const body = { name: "once", target_port: 8_080 };
    const first = await own.call("POST", "/api/containers/web/services", body, key);
    const second = await own.call("POST", "/api/containers/web/services", body, key);
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    expect(second.body.public_url).toBe(first.body.public_url);
    const rows = new StoreRows(daemon);
    const [record] = rows.read("SELECT body FROM idempotency_keys WHERE key = 'publish-once'");
    rows.close();
    expect(record?.body).toBe(JSON.stringify({ service_id: first.body.service_id }));
    await own.ok("DELETE", `/api/services/${first.body.service_id}`);
    expect(refusal(await own.call("POST", "/api/containers/web/services", body, key))).toEqual([404, "NOT_FOUND"]);
  });

  it("refuses bad fields and changes nothing", async () => {
    const publish = (fields: object) =>
      own.call("POST", "/api/containers/web/services", { name: "x", target_port: 80, ...fields });
    const before = (await own.ok("GET", "/api/services")).services.length;
    expect(refusal(await publish({ target_port: 0 }))).toEqual([400, "INVALID_ARGUMENT"]);
    expect(refusal(await publish({ target_port: 65_536 }))).toEqual([400, "INVALID_ARGUMENT"]);
    expect(refusal(await publish({ protocol: "tcp" }))).toEqual([400, "INVALID_ARGUMENT"]);
    expect(refusal(await publish({ auth_mode: "none" }))).toEqual([400, "INVALID_ARGUMENT"]);
    expect(refusal(await publish({ ttl_seconds: 0 }))).toEqual([400, "INVALID_ARGUMENT"]);
    expect(refusal(await publish({ name: 7 }))).toEqual([422, "UNPROCESSABLE_ENTITY"]);
    for (const hostname of [
      "127.0.0.1",
      "localhost",
      "a.localhost",
      "a..b",
      "-a.example",
      "a.1",
      "a b.example",
      "A_B.example",
    ]) {
      expect([hostname, ...refusal(await publish({ hostname }))]).toEqual([hostname, 400, "INVALID_ARGUMENT"]);
    }
    expect(refusal(await own.call("POST", "/api/containers/none/services", { name: "x", target_port: 1 }))).toEqual([
      404,
      "NOT_FOUND",
    ]);
    expect((await own.ok("GET", "/api/services")).services.length).toBe(before);
  });

  it("has a name that is unique in its container", async () => {
    const service = await own.publish("web", { name: "twice" });
    const second = await own.call("POST", "/api/containers/web/services", { name: "twice", target_port: 1 });
    expect(refusal(second)).toEqual([409, "NAME_TAKEN"]);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
  });

  it("emits events and leaves entries in the audit log, without its token", async () => {
    const service = await own.publish("web", { name: "told" });
    await own.ok("POST", `/api/services/${service.service_id}/rotate`);
    await own.ok("DELETE", `/api/services/${service.service_id}`);
    const rows = new StoreRows(daemon);
    const sql = "SELECT event_type, data FROM events WHERE name = 'service_update' ORDER BY seq";
    const types = rows.read(sql).filter(({ data }) => String(data).includes(service.service_id));
    rows.close();
    expect(types.map(({ event_type }) => event_type)).toEqual(["created", "rotated", "removed"]);
    const { entries } = await own.ok("GET", "/api/audit?limit=20");
    const operations = entries.filter((one: { target: string | null }) => one.target?.includes(service.service_id));
    expect(operations.map((one: { operation: string }) => one.operation)).toEqual([
      "deleteService",
      "rotateService",
      "publishService",
    ]);
    expect(daemon.output).not.toContain("hst_");
  });
});

describe("services of a tenant", () => {
  it("are its own, and bounded by services_max", async () => {
    const [a, b] = [await tenantOf(daemon, "svc-a", { limits: { services_max: 1 } }), await tenantOf(daemon, "svc-b")];
    await a.container("web", PYTHON);
    const service = await a.publish("web");
    const path = `/api/services/${service.service_id}`;
    for (const [method, rest] of [
      ["GET", ""],
      ["DELETE", ""],
      ["POST", "/rotate"],
    ] as const) {
      expect(refusal(await b.call(method, path + rest))).toEqual([404, "NOT_FOUND"]);
    }
    expect((await b.ok("GET", "/api/services")).services).toEqual([]);
    const second = await a.call("POST", "/api/containers/web/services", { name: "more", target_port: 1 });
    expect(refusal(second)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect((await a.ok("GET", "/api/tenant")).usage).toMatchObject({ services: 1, secrets: 0 });
    await daemon.call("DELETE", `/api/tenants/${a.tenant_id}?force=true`);
    await expect(ask(service.public_url)).rejects.toThrow(/ECONNREFUSED/);
    const rows = new StoreRows(daemon);
    expect(JSON.stringify(rows.allBut("none"))).not.toContain(service.service_id);
    rows.close();
  });

  it("have host names that the operator granted, and no two the same", async () => {
    const a = await tenantOf(daemon, "names-a", { service_hostnames: ["*.acme.example", "acme.test"] });
    const b = await tenantOf(daemon, "names-b");
    for (const one of [a, b]) await one.container("web", PYTHON);
    const publish = (one: Publisher, hostname: string, name = hostname) =>
      one.call("POST", "/api/containers/web/services", { name, target_port: 8_080, hostname });
    expect(refusal(await publish(a, "acme.example"))).toEqual([403, "FORBIDDEN"]);
    expect(refusal(await publish(a, "evil-acme.example"))).toEqual([403, "FORBIDDEN"]);
    expect(refusal(await publish(b, "shop.acme.example"))).toEqual([403, "FORBIDDEN"]);
    const made = await publish(a, "Shop.Acme.Example");
    expect([made.status, made.body.hostname]).toEqual([201, "shop.acme.example"]);
    expect(refusal(await publish(a, "shop.acme.example", "second"))).toEqual([409, "NAME_TAKEN"]);
    expect(refusal(await publish(own, "shop.acme.example"))).toEqual([409, "NAME_TAKEN"]);
    const base = `http://127.0.0.1:${new URL(made.body.public_url).port}/?service_token=${tokenIn(made.body.public_url)}`;
    await a.ready(made.body.service_id);
    expect((await ask(base, { headers: { host: "shop.acme.example" } })).status).toBe(200);
    expect((await ask(base)).status).toBe(404);
    const granted = { service_hostnames: ["shop.acme.example"] };
    const changed = await daemon.call("PATCH", `/api/tenants/${b.tenant_id}`, granted);
    expect([changed.status, changed.body.service_hostnames]).toEqual([200, ["shop.acme.example"]]);
    await a.ok("DELETE", `/api/services/${made.body.service_id}`);
    expect((await publish(b, "shop.acme.example")).status).toBe(201);
    for (const wrong of ["*", "*.", "a b", "http://a.example", "*.*.example", "10.0.0.1"]) {
      const refused = await daemon.call("PATCH", `/api/tenants/${b.tenant_id}`, { service_hostnames: [wrong] });
      expect([wrong, ...refusal(refused)]).toEqual([wrong, 400, "INVALID_ARGUMENT"]);
    }
  });
});
