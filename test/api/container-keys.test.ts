/**
 * Keys that reach one container, against a real daemon. What they reach is tried on every route of the table: a new route
 * refuses them until it is listed here and in src/http/confinement.ts.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { EventReader } from "../support/event-stream.ts";
import { bodyOf, nameOf, parametersOf, pathOf, ROUTES } from "../support/routes.ts";
import { refusalOf, TerminalTab } from "../support/socket.ts";
import {
  type Ids,
  makeTenant,
  missing,
  type Request,
  type Seen,
  send,
  type Tenant,
  worldOf,
} from "../support/tenancy.ts";

const daemon = new Daemon();
const SETTINGS = { HEARTH_CELLS: "0" };
const asKey = (key: string) => ({ "x-api-key": key });

/** Operations that a key of a container may ask for about its container. */
const NAMED = new Set([
  ...["getContainer", "containerReady", "startContainer", "resumeContainer", "stopContainer", "killContainer"],
  ...["deleteContainer", "getContainerEnvironment", "patchContainerEnvironment", "putContainerEnvironment"],
  ...["execInContainer", "streamFromContainer", "listJobs", "getJob", "listProcesses", "signalProcess"],
  ...["containerMetrics", "containerLogs", "listContainerFiles", "uploadContainerArchive", "downloadContainerArchive"],
  ...["getOperation", "cancelOperation", "createTerminalSession", "getTerminalSession", "resizeTerminalSession"],
  ...[
    "endTerminalSession",
    "attachTerminal",
    "attachContainer",
    "execInContainerSocket",
    "getContainerNetwork",
    "setUpContainerNetwork",
    "getMonitor",
  ],
  ...["diagnoseContainerNetwork", "getContainerEgress", "listContainerCleanupTasks"],
  ...["containerMessaging", "stateVersion", "messagePermission", "readInbox", "readContainerInbox"],
  ...["listContainerMessages", "receiveMessages", "ackInboxMessage", "ackContainerMessage", "replayMessages"],
  ...["replayInbox", "replayContainerInbox", "publishContainerEnvelope"],
]);
/** Operations whose answer leaves out what is not of its container. */
const FILTERED = new Set([
  ...["listContainers", "findContainer", "listOperations", "listTerminalSessions", "streamEvents"],
]);
/** Operations with the same answer for everybody, or about the credential alone. */
const STATIC = new Set([
  ...["containersHelp", "containersExamples", "identity", "requestToken", "revokeKey", "iccHelp", "iccExamples"],
  ...["messagingOverview", "messageSchema", "messageTypes", "messageProto", "messageDescriptor"],
]);

const ofTenants = ROUTES.filter(({ auth }) => auth !== "public");
const rows = (routes: typeof ROUTES) => routes.map((route) => [nameOf(route), route] as const);

interface World {
  /** All of it is foreign to the key, but for its tenant. */
  readonly tenant: Tenant;
  readonly own: { readonly container_id: string; readonly name: string; readonly key: string; readonly key_id: string };
  readonly token: string;
  readonly none: Ids;
  readonly before: unknown;
}
const state: { world: World | null } = { world: null };
const world = (): World => {
  if (state.world === null) throw new Error("not there yet");
  return state.world;
};
const made: string[] = [];

async function ok(key: string, method: string, path: string, body?: unknown) {
  const answer = await daemon.call(method, path, body, asKey(key));
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** A container with a key of its own. */
async function makeOwn(tenant_key: string, name: string, fields: object = {}) {
  const { container_id } = await ok(tenant_key, "POST", "/api/containers", { name });
  made.push(container_id);
  const asked = { name: `${name}-key`, scopes: ["read", "invoke", "write"], ...fields };
  const { key, id } = await ok(tenant_key, "POST", `/api/containers/${container_id}/api-keys`, asked);
  return { container_id, name, key, key_id: id };
}

const codeOf = ({ status, text }: Seen) => [status, (JSON.parse(text) as { error_code: string }).error_code];

const requestOf = (route: (typeof ROUTES)[number], ids: Ids): Request => ({
  method: route.method,
  path: pathOf(route, ids),
  body: bodyOf(route, ids),
  headers: { "x-tenant-id": ids.tenant_id },
});

beforeAll(async () => {
  await daemon.start(SETTINGS);
  const tenant = await makeTenant(daemon, "qzalpha");
  const own = await makeOwn(tenant.key, "qzown");
  const { access_token: token } = await ok(own.key, "POST", "/api/auth/token", {});
  const before = await worldOf(daemon, tenant);
  state.world = { tenant, own, token, none: missing(tenant.ids), before };
});
afterAll(async () => {
  await daemon.dispose();
});

describe("a key of a container", () => {
  it("is made with at most the scopes read, invoke and write, and is listed under its container", async () => {
    const { tenant, own } = world();
    const path = `/api/containers/${own.container_id}/api-keys`;
    const { api_keys } = await ok(tenant.key, "GET", path);
    expect(api_keys).toMatchObject([
      {
        id: own.key_id,
        scopes: ["read", "invoke", "write"],
        permissions: ["read", "invoke", "write"],
        scope_type: "container",
        scope_resource_ids: [own.container_id],
      },
    ]);
    expect((await ok(tenant.key, "GET", "/api/containers/qzalpha-function/api-keys")).api_keys).toEqual([]);
    const rest = await ok(tenant.key, "POST", path, { name: "rest" });
    expect(rest.scopes).toEqual(["read", "invoke", "write"]);
    await ok(tenant.key, "DELETE", `${path}/${rest.id}`);
    for (const fields of [{ scopes: ["admin"] }, { permissions: ["*"] }]) {
      const { status, body } = await daemon.call("POST", path, { name: "x", ...fields }, asKey(tenant.key));
      expect([status, body.error]).toEqual([400, "scopes: a container's key cannot have the scope 'admin'"]);
    }
    const other = `/api/containers/${tenant.ids.container_id}/api-keys/${own.key_id}`;
    expect((await daemon.call("DELETE", other, undefined, asKey(tenant.key))).status).toBe(404);
  });

  it("is made by POST /api/api-keys too; the fields of existing clients mean what they say", async () => {
    const { tenant, own } = world();
    const { container_id } = own;
    const make = (fields: object) => daemon.call("POST", "/api/api-keys", { name: "x", ...fields }, asKey(tenant.key));
    const both = { scope_type: "container", scope_resource_ids: [container_id, tenant.ids.container_id] };
    const key = await make({ ...both, permissions: ["read"] });
    expect([key.status, key.body.scopes, key.body.scope_resource_ids]).toEqual([
      201,
      ["read"],
      both.scope_resource_ids,
    ]);
    const { containers } = await ok(key.body.key, "GET", "/api/containers");
    expect(containers.length).toBe(2);
    await ok(tenant.key, "DELETE", `/api/api-keys/${key.body.id}`);
    const all = await make({ permissions: ["*"], scope_type: "full" });
    expect(all.body).toMatchObject({ scopes: ["read", "invoke", "write", "admin"], scope_type: "full" });
    await ok(tenant.key, "DELETE", `/api/api-keys/${all.body.id}`);
    const many = Array.from({ length: LIMITS.key_containers_max + 1 }, (_, i) => `ctr_${i}`);
    for (const [fields, status] of [
      [{ scope_type: "project", scope_resource_ids: ["p"] }, 400],
      [{ scope_type: "container" }, 400],
      [{ scope_type: "container", scope_resource_ids: [] }, 400],
      [{ scope_type: "container", scope_resource_ids: many }, 400],
      [{ scope_type: "container", scope_resource_ids: [container_id, container_id] }, 400],
      [{ scope_resource_ids: [container_id] }, 400],
      [{ scopes: ["read"], permissions: ["write"] }, 400],
      [{ permissions: ["fly"] }, 400],
      [{ scope_type: "container", scope_resource_ids: [world().none.container_id] }, 404],
      [{ scope_type: "container", scope_resource_ids: "x" }, 422],
    ] as const) {
      expect([fields, (await make(fields)).status]).toEqual([fields, status]);
    }
  });

  it("is not made for a container of another tenant", async () => {
    const { own } = world();
    const other = await daemon.call("POST", "/api/tenants", { name: "other" });
    const { key } = (await daemon.call("POST", `/api/tenants/${other.body.tenant_id}/api-keys`, { name: "k" })).body;
    const fields = { name: "x", scope_type: "container", scope_resource_ids: [own.container_id] };
    expect((await daemon.call("POST", "/api/api-keys", fields, asKey(key))).status).toBe(404);
    const path = `/api/containers/${own.container_id}/api-keys`;
    expect((await daemon.call("POST", path, { name: "x" }, asKey(key))).status).toBe(404);
    await daemon.call("DELETE", `/api/tenants/${other.body.tenant_id}`);
  });

  it("tells what it is", async () => {
    const { own, token, tenant } = world();
    for (const credential of [own.key, token]) {
      expect(await ok(credential, "GET", "/api/auth/me")).toMatchObject({
        tenant_id: tenant.ids.tenant_id,
        key_id: own.key_id,
        scope_type: "container",
        scope_resource_ids: [own.container_id],
      });
    }
  });
});

describe("every route", () => {
  it("that this suite lets a key of a container use is a route", () => {
    const names = new Set(ROUTES.map(({ operation }) => operation));
    expect([...NAMED, ...FILTERED, ...STATIC].filter((operation) => !names.has(operation))).toEqual([]);
  });

  const isListed = ({ operation }: (typeof ROUTES)[number]) =>
    NAMED.has(operation) || FILTERED.has(operation) || STATIC.has(operation);

  it.each(rows(ofTenants.filter((route) => !isListed(route))))(
    "refuses a key of a container with 403, whatever it names: %s",
    async (_, route) => {
      const { tenant, own, token, none } = world();
      const mine = { ...tenant.ids, container_id: own.container_id };
      for (const credential of [own.key, token]) {
        for (const ids of [mine, tenant.ids, none]) {
          const request = { ...requestOf(route, ids), headers: { "x-tenant-id": tenant.ids.tenant_id } };
          expect(codeOf(await send(daemon, request, asKey(credential)))).toEqual([403, "FORBIDDEN"]);
        }
      }
    },
  );

  it.each(rows(ROUTES.filter(({ operation, socket }) => NAMED.has(operation) && socket === null)))(
    "answers another container like a missing one: %s",
    async (_, route) => {
      const { tenant, own, token, none } = world();
      const { name } = tenant.ids;
      for (const credential of [own.key, token]) {
        const cut = ({ status, text, headers }: Seen, ids: Ids) => ({
          status,
          headers: { ...headers, "content-length": "" },
          text: [ids.container_id, ids.operation_id, ids.session_id, name].reduce(
            (left, id) => left.replaceAll(id, "<id>"),
            text,
          ),
        });
        const tenant_id = tenant.ids.tenant_id;
        const seen = await send(daemon, requestOf(route, tenant.ids), asKey(credential));
        const nobodys = await send(daemon, requestOf(route, { ...none, tenant_id }), asKey(credential));
        expect(codeOf(seen)).toEqual([404, "NOT_FOUND"]);
        expect(cut(seen, tenant.ids)).toEqual(cut(nobodys, none));
        if (!parametersOf(route).includes("container_id")) continue;
        const byName = await send(daemon, requestOf(route, { ...tenant.ids, container_id: name }), asKey(credential));
        expect(codeOf(byName)).toEqual([404, "NOT_FOUND"]);
        // With its own container in the path, and a foreign thing behind it.
        if (parametersOf(route).length < 2) continue;
        const mixed = { ...tenant.ids, container_id: own.container_id };
        expect(codeOf(await send(daemon, requestOf(route, mixed), asKey(credential)))[0]).toBe(404);
      }
    },
  );

  it("has changed nothing of what is foreign", async () => {
    const { tenant, before } = world();
    expect(await worldOf(daemon, tenant)).toEqual(before);
  });
});

describe("what a key of a container reaches", () => {
  it("is its container, by id and by name", async () => {
    const { own, token } = world();
    for (const credential of [own.key, token]) {
      for (const id of [own.container_id, own.name]) {
        const path = `/api/containers/${id}`;
        expect((await ok(credential, "GET", path)).container_id).toBe(own.container_id);
        const run = await ok(credential, "POST", `${path}/exec`, { command: ["echo", "hello"] });
        expect(run.stdout).toBe("hello\n");
        expect((await ok(credential, "GET", `${path}/jobs/${run.job_id}?include_output=true`)).stdout).toBe("hello\n");
        await ok(credential, "GET", `${path}/logs`);
        await ok(credential, "PATCH", `${path}/env`, { environment: { A: "1" } });
      }
    }
    const { status } = await daemon.call("POST", `/api/containers/${own.container_id}/stop`, {}, asKey(own.key));
    expect(status).toBe(200);
    const started = await ok(own.key, "POST", `/api/containers/${own.name}/start`);
    const path = `/api/operations/${started.operation_id}`;
    expect(await ok(own.key, "GET", `${path}?wait_seconds=20`)).toMatchObject({ status: "succeeded" });
    expect((await daemon.call("POST", `${path}/cancel`, undefined, asKey(own.key))).status).toBe(409);
    const { operations } = await ok(own.key, "GET", "/api/operations");
    expect(operations.map(({ operation_id }: { operation_id: string }) => operation_id)).toEqual([
      started.operation_id,
    ]);
  });

  it("is what it may do: a key that only reads changes nothing", async () => {
    const { tenant, own } = world();
    const path = `/api/containers/${own.container_id}`;
    const { key, id } = await ok(tenant.key, "POST", `${path}/api-keys`, { name: "eyes", scopes: ["read"] });
    expect((await ok(key, "GET", path)).state).toBe("running");
    for (const verb of ["exec", "stop", "kill"]) {
      expect((await daemon.call("POST", `${path}/${verb}`, { command: ["true"] }, asKey(key))).status).toBe(403);
    }
    // It may end itself, and no other key.
    expect((await daemon.call("DELETE", `/api/api-keys/${own.key_id}`, undefined, asKey(key))).status).toBe(403);
    await ok(key, "DELETE", `/api/api-keys/${id}`);
    expect((await daemon.call("GET", path, undefined, asKey(key))).status).toBe(401);
  });

  it("is in lists what is its own, and nothing else", async () => {
    const { tenant, own } = world();
    const { session_id } = await ok(own.key, "POST", "/api/terminal/sessions", { container_id: own.name });
    const sessions = (await ok(own.key, "GET", "/api/terminal/sessions")).sessions;
    expect(sessions.map(({ session_id: id }: { session_id: string }) => id)).toEqual([session_id]);
    expect((await ok(tenant.key, "GET", "/api/terminal/sessions")).sessions.length).toBe(2);
    const { containers } = await ok(own.key, "GET", "/api/containers?limit=1");
    expect(containers.map(({ name }: { name: string }) => name)).toEqual([own.name]);
    expect((await ok(tenant.key, "GET", "/api/containers")).containers.length).toBe(2);
    const find = async (name: string) => (await ok(own.key, "GET", `/api/containers/by-name/${name}`)).found;
    expect([await find(own.name), await find(tenant.ids.name), await find("nobody")]).toEqual([true, false, false]);
    for (const query of [`container_id=${tenant.ids.container_id}`, `target_resource_id=${tenant.ids.name}`]) {
      expect((await ok(own.key, "GET", `/api/operations?${query}`)).operations).toEqual([]);
    }
    await ok(own.key, "DELETE", `/api/terminal/sessions/${session_id}`);
  });

  it("is no answer that the Idempotency-Key of another key recorded", async () => {
    const { tenant, own } = world();
    const ask = (key: string, container_id: string) =>
      daemon.call("POST", "/api/terminal/sessions", { container_id }, { ...asKey(key), "idempotency-key": "same" });
    const first = await ask(tenant.key, tenant.ids.container_id);
    expect(first.status).toBe(201);
    const { status, body } = await ask(own.key, tenant.ids.container_id);
    expect([status, JSON.stringify(body).includes(first.body.session_id)]).toEqual([404, false]);
    await ok(tenant.key, "DELETE", `/api/terminal/sessions/${first.body.session_id}`);
  });

  it("is events of its container and its operations, and no others", async () => {
    const { tenant, own } = world();
    const reader = await EventReader.open(daemon.url, "?last_event_id=0", asKey(own.key));
    await ok(tenant.key, "PUT", "/api/secrets/qzother", { value: "x" });
    await ok(tenant.key, "POST", `/api/containers/${tenant.ids.container_id}/exec`, { command: ["sleep", "1.2"] });
    await ok(tenant.key, "POST", "/api/volumes", { name: "qzlast" });
    await ok(own.key, "POST", `/api/containers/${own.container_id}/stop`, {});
    await eventually("its container has died", () => reader.types("container_update").includes("died"));
    const told = reader.events.filter(({ name }) => !["ready", "heartbeat"].includes(name));
    expect(told.filter(({ data }) => data.container_id !== own.container_id)).toEqual([]);
    expect(new Set(told.map(({ name }) => name))).toEqual(
      new Set(["container_update", "operation_update", "terminal_update"]),
    );
    expect(JSON.stringify(told)).not.toContain("qzalpha");
    reader.close();
    await ok(own.key, "POST", `/api/containers/${own.container_id}/start?execution=sync`);
    await ok(tenant.key, "DELETE", "/api/secrets/qzother");
    await ok(tenant.key, "DELETE", "/api/volumes/qzlast");
  });

  it("runs commands as its container's own user alone", async () => {
    const { own, token } = world();
    const body = { command: ["id", "-u"], user: "root" };
    const refusal = { status: 403, body: { error_code: "FORBIDDEN" } };
    for (const verb of ["exec", "stream"]) {
      const path = `/api/containers/${own.container_id}/${verb}`;
      expect(await daemon.call("POST", path, body, asKey(own.key)), verb).toMatchObject(refusal);
    }
    const terminal = { container_id: own.container_id, user: "0:0" };
    expect(await daemon.call("POST", "/api/terminal/sessions", terminal, asKey(own.key))).toMatchObject(refusal);
    const url = `${daemon.url}/ws/containers/${own.name}/exec?token=${token}`;
    const tab = await TerminalTab.open(url, null, undefined, "command");
    tab.socket.send(JSON.stringify({ ...body, type: "start" }));
    await eventually("it is refused", () => tab.code !== null);
    expect(tab.frames).toEqual([expect.objectContaining({ type: "error", code: "FORBIDDEN" })]);
    const allowed = await TerminalTab.open(url, null, undefined, "command");
    allowed.socket.send(JSON.stringify({ type: "start", command: ["echo", "mine"] }));
    await eventually("it has run", () => allowed.code !== null);
    expect(allowed.output).toBe("\x01mine\n");
  });

  it("is the terminal of its container alone", async () => {
    const { tenant, own, token } = world();
    const url = (query: Record<string, string>) =>
      `${daemon.url}/ws/terminal/attach?${new URLSearchParams({ token, ...query })}`;
    const tab = await TerminalTab.open(url({ container_id: own.name }), null);
    tab.type("echo mine-$((1+1))\n");
    await tab.shows(/mine-2/);
    tab.socket.terminate();
    const refused = async (query: Record<string, string>) => {
      const { status, body } = await refusalOf(url(query).replace(/^http/, "ws"));
      return [status, body.error_code];
    };
    expect(await refused({ session_id: tenant.ids.session_id })).toEqual([404, "NOT_FOUND"]);
    expect(await refused({ container_id: tenant.ids.container_id })).toEqual([404, "NOT_FOUND"]);
    expect(await refused({})).toEqual([403, "FORBIDDEN"]);
  });
});

describe("the end of a key of a container", () => {
  it("is the end of its container, also for one that takes its name, and no cache keeps it", async () => {
    const { tenant } = world();
    const old = await makeOwn(tenant.key, "qzgone");
    const { access_token } = await ok(old.key, "POST", "/api/auth/token", {});
    expect((await ok(old.key, "GET", "/api/containers/qzgone")).container_id).toBe(old.container_id);
    const reader = await EventReader.open(daemon.url, "", asKey(old.key));
    await ok(tenant.key, "DELETE", `/api/containers/${old.container_id}`);
    const { container_id } = await ok(tenant.key, "POST", "/api/containers", { name: "qzgone" });
    made.push(container_id);
    for (const credential of [old.key, access_token]) {
      for (const path of [
        "/api/containers",
        "/api/containers/qzgone",
        `/api/containers/${container_id}`,
        "/api/auth/me",
      ]) {
        expect((await daemon.call("GET", path, undefined, asKey(credential))).status).toBe(401);
      }
    }
    await eventually("its stream of events ends", () => reader.isOver, 30_000);
    const { api_keys } = await ok(tenant.key, "GET", "/api/api-keys");
    expect(api_keys.map(({ id }: { id: string }) => id)).not.toContain(old.key_id);
  });

  it("of several containers is the end of the last of them", async () => {
    const { tenant } = world();
    const [one, two] = [await makeOwn(tenant.key, "qzone"), await makeOwn(tenant.key, "qztwo")];
    const fields = { name: "both", scope_type: "container", scope_resource_ids: [one.container_id, two.container_id] };
    const { key } = await ok(tenant.key, "POST", "/api/api-keys", fields);
    expect((await ok(key, "GET", "/api/containers")).containers.length).toBe(2);
    await ok(tenant.key, "DELETE", `/api/containers/${one.container_id}`);
    expect((await ok(key, "GET", "/api/containers")).containers.length).toBe(1);
    expect((await daemon.call("GET", "/api/containers/qzone", undefined, asKey(key))).status).toBe(404);
    await ok(key, "DELETE", `/api/containers/${two.container_id}`);
    expect((await daemon.call("GET", "/api/containers", undefined, asKey(key))).status).toBe(401);
  });

  it("does not follow a name: a container that takes it from the key's container is another one", async () => {
    const { tenant } = world();
    const own = await makeOwn(tenant.key, "qzbefore");
    await ok(tenant.key, "POST", `/api/containers/${own.container_id}/rename`, { new_name: "qzafter" });
    const { container_id } = await ok(tenant.key, "POST", "/api/containers", { name: "qzbefore" });
    made.push(container_id);
    expect((await daemon.call("GET", "/api/containers/qzbefore", undefined, asKey(own.key))).status).toBe(404);
    expect((await ok(own.key, "GET", "/api/containers/qzafter")).container_id).toBe(own.container_id);
  });

  it("comes with kill -9 as well: neither keys nor their containers are lost, and ended ones stay ended", async () => {
    const { tenant, own } = world();
    const gone = await makeOwn(tenant.key, "qzkilled");
    await ok(tenant.key, "DELETE", `/api/containers/${gone.container_id}`);
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect((await daemon.call("GET", "/api/containers", undefined, asKey(gone.key))).status).toBe(401);
    const { containers } = await ok(own.key, "GET", "/api/containers");
    expect(containers.map(({ container_id }: { container_id: string }) => container_id)).toEqual([own.container_id]);
  });
});

describe("keys", () => {
  it("of one container are bounded", async () => {
    const { tenant, own } = world();
    const path = `/api/containers/${own.container_id}/api-keys`;
    const statuses: number[] = [];
    for (let i = 0; i < LIMITS.keys_per_container_max; i++) {
      statuses.push((await daemon.call("POST", path, { name: `k${i}` }, asKey(tenant.key))).status);
    }
    expect(statuses.filter((status) => status === 201).length).toBe(LIMITS.keys_per_container_max - 1);
    expect(statuses.at(-1)).toBe(403);
  });

  it("tell when they were used last, also after a restart", async () => {
    const { tenant } = world();
    const { key, id } = await ok(tenant.key, "POST", "/api/api-keys", { name: "used", scopes: ["read"] });
    const used = async () => {
      const { api_keys } = await ok(tenant.key, "GET", "/api/api-keys");
      return api_keys.find((one: { id: string }) => one.id === id).last_used_at;
    };
    expect(await used()).toBe(null);
    const before = Math.floor(Date.now() / 1000);
    await ok(key, "GET", "/api/functions");
    const at = await used();
    expect(at).toBeGreaterThanOrEqual(before);
    await daemon.stop();
    await daemon.start(SETTINGS);
    expect(await used()).toBe(at);
    const { api_keys } = (await daemon.call("GET", "/api/api-keys", undefined, asKey(KEY))).body;
    expect(api_keys[0]).toMatchObject({ id: "bootstrap", last_used_at: expect.any(Number) });
  });
});
