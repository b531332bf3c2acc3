/**
 * 10,000 requests (50,000 in `npm run fuzz`) that a schema, or nobody, made, against one daemon: none is answered with a fault, all answers are
 * those that the description of the API names, a refused one changes nothing, and nothing of them is left.
 *
 * `HEARTH_FUZZ_SEED` plays the requests of a run again, with `HEARTH_FUZZ_PATH` the one that failed alone;
 * `HEARTH_FUZZ_COUNT` sets how many there are.
 */
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ERRORS, type ErrorCode } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { errorSchema, errorsOf } from "../../src/docs/openapi.ts";
import { type Counts, countAtRest, expectAtRest } from "../recovery/rest.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { nameOf, ROUTES } from "../support/routes.ts";
import { StoreRows, type Table } from "../support/rows.ts";
import { SnapshotUser } from "../support/snapshots.ts";
import { connections } from "./bytes.ts";
import { bytesOf, type FuzzRequest, isPlain, request, routeOf, type There, type Who } from "./requests.ts";
import { LOCAL_IMAGE } from "./values.ts";
import { throwBytes, Wire, type WireAnswer } from "./wire.ts";

const SEED = Number(process.env.HEARTH_FUZZ_SEED ?? randomInt(1_000_000));
const PATH = process.env.HEARTH_FUZZ_PATH;
const COUNT = Number(process.env.HEARTH_FUZZ_COUNT ?? 10_000);
/** One after the other, so that what one changes is known; then so many at the same time; then bytes. */
const ALONE_COUNT = Math.ceil(COUNT * 0.16);
const RAW_COUNT = Math.ceil(COUNT * 0.1);
const AT_ONCE = 16;
/** Of the requests alone, one in so many is watched for what it changes. */
const WATCHED_PER = 5;
/** What has piled up is deleted after so many requests. */
const TIDY_PER = 500;
const KNOWN_MAX = 8;
const CELLS = 2;
const TABLES: readonly Table[] = ["tenants", "api_keys", "functions", "function_versions", "invocations"];
const CODES: readonly ErrorCode[] = [
  ...(["INVALID_JSON", "INVALID_ARGUMENT", "UNPROCESSABLE_ENTITY", "TWO_CREDENTIALS", "UNAUTHORIZED"] as const),
  ...(["FORBIDDEN", "NOT_FOUND", "METHOD_NOT_ALLOWED", "WRONG_STATE", "NAME_TAKEN", "BODY_TOO_LARGE"] as const),
];
const PARAMETERS = { seed: SEED, endOnFailure: true, ...(PATH === undefined ? {} : { path: PATH }) };

const daemon = new Daemon();
const keys = { tenant: "", reader: "", token: "", kept_ids: new Set<string>(), tenant_id: "" };
const state: { there: There; count: number; codes: Map<string, number>; before: Counts } = {
  there: {},
  count: 0,
  /** How often each operation was answered with each code. */
  codes: new Map(),
  before: {},
};

function credentialOf(who: Who): string[] {
  switch (who) {
    case "operator":
      return [`X-Api-Key: ${KEY}`];
    case "tenant":
      return [`Authorization: Bearer ${keys.tenant}`];
    case "reader":
      return [`X-Api-Key: ${keys.reader}`];
    case "token":
      return [`Authorization: Bearer ${keys.token}`];
    case "both":
      return [`X-Api-Key: ${keys.tenant}`, `Authorization: Bearer ${keys.tenant}`];
    case "stranger":
      return ["X-Api-Key: hk_000000000000_00000000000000000000000000000000"];
    case "nobody":
      return [];
  }
}

const asKey = (key: string) => ({ "x-api-key": key });
const tenantOf = (key: string) => (key === KEY ? "default" : keys.tenant_id);

/** Throws with the request and its answer where the answer is none that the description names. */
function check(asked: FuzzRequest, bytes: Buffer, answer: WireAnswer): void {
  const { method } = asked;
  const route = routeOf(asked);
  const shown = `${bytes.toString("latin1").slice(0, 1_000)}\n→ ${answer.status} ${answer.text.slice(0, 1_000)}`;
  const must = (isSo: boolean, what: string): void => {
    if (!isSo) throw new Error(`${what}\n${shown}`);
  };
  state.count++;
  must(/^[\x21-\x7e]{1,128}$/.test(answer.headers.get("x-request-id") ?? ""), "no request id");
  must(answer.status !== 500, "a fault");
  if (method === "HEAD") return;
  const isJson = answer.headers.get("content-type")?.startsWith("application/json") ?? false;
  const note = (code: string): void => {
    const key = `${isPlain(asked) ? route.operation : "-"} ${code}`;
    state.codes.set(key, (state.codes.get(key) ?? 0) + 1);
  };
  if (answer.status < 400) {
    note("served");
    if (!isPlain(asked)) return;
    const isOther = answer.status === route.other?.status;
    must(isOther || answer.status === route.status, `not the status ${route.status} of ${nameOf(route)}`);
    const schema = isOther ? route.other.response : route.response;
    // Headers that left early: a stream counts as complete with its headers.
    const isStream = answer.headers.has("transfer-encoding");
    if (!isJson || isStream || schema === null) return;
    const { error } = schema.safeParse(JSON.parse(answer.text));
    must(error === undefined, `not the answer of ${nameOf(route)}: ${error}`);
    return;
  }
  must(isJson, "a refusal that is no JSON");
  const { data, error } = errorSchema.safeParse(JSON.parse(answer.text));
  must(data !== undefined, `not the body of a refusal: ${error}`);
  const code = data?.error_code as ErrorCode;
  note(code);
  must(ERRORS[code].status === answer.status, `${code} is not ${answer.status}`);
  // Said before any route is looked for.
  if (code === "HEADERS_TOO_LARGE") must(bytes.length > LIMITS.header_bytes_max, "headers that are not too large");
  else if (isPlain(asked)) must(errorsOf(route).includes(code), `${nameOf(route)} does not say ${code}`);
}

async function ask(wire: Wire, asked: FuzzRequest): Promise<WireAnswer> {
  const tenant_id = asked.who === "operator" ? "default" : keys.tenant_id;
  const bytes = bytesOf(asked, state.there, { credential: credentialOf(asked.who), tenant_id });
  const answer = await wire.send(bytes, asked.method === "HEAD").catch((error) => {
    throw new Error(`${error.message}\n${bytes.toString("latin1").slice(0, 1_000)}`);
  });
  check(asked, bytes, answer);
  if (answer.status < 300 && asked.who === "tenant") learn(answer.text);
  return answer;
}

const LEARNT = [
  "function_id",
  "name",
  "invocation_id",
  "container_id",
  "context_id",
  "job_id",
  "operation_id",
  "session_id",
  "snapshot_id",
  "binding_id",
  "service_id",
] as const;

/** What the tenant has made may be asked for by the next request. */
function learn(text: string): void {
  const made = text.startsWith("{") && !text.includes("}\n{") ? JSON.parse(text) : {};
  const add = (parameter: string, value: unknown): void => {
    const known = state.there[parameter] ?? [];
    if (typeof value !== "string" || known.includes(value)) return;
    state.there = { ...state.there, [parameter]: [...known.slice(-KNOWN_MAX), value] };
  };
  for (const parameter of LEARNT) add(parameter, made[parameter]);
  add("other_id", made.snapshot_id);
}

const callers = () => [KEY, keys.tenant];
const containersOf = async (key: string): Promise<{ container_id: string }[]> =>
  (await daemon.call("GET", "/api/containers?limit=1000", undefined, asKey(key))).body.containers;
const functionsOf = async (key: string): Promise<{ id: string; name: string }[]> =>
  (await daemon.call("GET", "/api/functions?limit=1000", undefined, asKey(key))).body.functions;

const contextsOf = async (key: string): Promise<string[]> =>
  (await daemon.call("GET", "/api/build-contexts?limit=1000", undefined, asKey(key))).body.build_contexts.map(
    ({ context_id }: { context_id: string }) => context_id,
  );

const snapshotsOf = async (user: SnapshotUser): Promise<string[]> =>
  (await user.ok("GET", "/api/snapshots?limit=1000")).snapshots.map(({ id }: { id: string }) => id);

/** Deletes all but the `kept` newest snapshots, and those that are being taken. */
async function deleteSnapshots(key: string, kept: number): Promise<void> {
  const user = new SnapshotUser(daemon, tenantOf(key), asKey(key));
  for (const id of (await snapshotsOf(user)).slice(kept)) {
    await user.call("POST", `/api/snapshots/${id}/unpin`);
    const path = `/api/snapshots/${id}`;
    expect([200, 404, 409]).toContain((await user.call("DELETE", path)).status);
  }
}

/** Waits until all accepted operations have ended, so that they create nothing more. */
async function allEnded(): Promise<void> {
  await eventually(
    "operations have ended",
    async () => {
      const open = callers().flatMap((key) =>
        ["accepted", "queued", "running"].map(async (status) => {
          const path = `/api/operations?status=${status}&limit=1`;
          return (await daemon.call("GET", path, undefined, asKey(key))).body.operations.length;
        }),
      );
      return (await Promise.all(open)).every((count) => count === 0);
    },
    200_000,
  );
}

/** Deletes all but the `kept` newest functions, and what else requests have made. */
async function deleteAllBut(kept: number): Promise<void> {
  if (kept === 0) await allEnded();
  for (const key of callers()) {
    await deleteSnapshots(key, kept);
    for (const { id } of (await functionsOf(key)).slice(kept)) {
      await daemon.call("DELETE", `/api/functions/${id}`, undefined, asKey(key));
    }
    for (const { container_id } of (await containersOf(key)).slice(Math.min(kept, 4))) {
      await daemon.call("DELETE", `/api/containers/${container_id}`, undefined, asKey(key));
    }
    const { volumes } = (await daemon.call("GET", "/api/volumes?limit=1000", undefined, asKey(key))).body;
    for (const { name } of volumes.slice(kept)) {
      const path = `/api/volumes/${encodeURIComponent(name)}?execution=sync`;
      // Refused (409) while one of the containers above is kept and has it; gone (404) where a request deleted it before.
      expect([200, 404, 409]).toContain((await daemon.call("DELETE", path, undefined, asKey(key))).status);
    }
    for (const context_id of (await contextsOf(key)).slice(kept)) {
      await daemon.call("DELETE", `/api/build-contexts/${context_id}`, undefined, asKey(key));
    }
    const { body } = await daemon.call("GET", "/api/api-keys", undefined, asKey(key));
    const made = body.api_keys.filter(({ id }: { id: string }) => id !== "bootstrap" && !keys.kept_ids.has(id));
    for (const { id } of made.slice(kept)) await daemon.call("DELETE", `/api/api-keys/${id}`, undefined, asKey(key));
  }
  const { body } = await daemon.call("GET", "/api/tenants?limit=1000");
  const made = body.tenants.filter(
    ({ tenant_id }: { tenant_id: string }) => !["default", keys.tenant_id].includes(tenant_id),
  );
  for (const { tenant_id } of made.slice(kept)) await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
}

/** Makes a key of each tenant, and returns their ids. */
async function keysOf(tenants: readonly { readonly tenant_id: string }[]): Promise<string[]> {
  const made = tenants.map(({ tenant_id }) => daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" }));
  return (await Promise.all(made)).flatMap(({ body }) => body.id ?? []);
}

/** Learns what there is, after some of it was deleted. Of tenants and keys only those that requests have made. */
async function tidy(kept = 8): Promise<void> {
  await deleteAllBut(kept);
  const own = await functionsOf(keys.tenant);
  const invocations = await Promise.all(
    own.map(({ id }) => daemon.call("GET", `/api/functions/${id}/invocations?limit=5`, undefined, asKey(keys.tenant))),
  );
  const made = (await daemon.call("GET", "/api/api-keys", undefined, asKey(keys.tenant))).body.api_keys;
  const tenants: { tenant_id: string }[] = (await daemon.call("GET", "/api/tenants?limit=1000")).body.tenants;
  const others = tenants.filter(({ tenant_id }) => !["default", keys.tenant_id].includes(tenant_id)).slice(-2);
  const [{ version: release }] = (await daemon.call("GET", "/api/nightly/profiles/prod/releases")).body.releases;
  const own_snapshots = await snapshotsOf(new SnapshotUser(daemon, keys.tenant_id, asKey(keys.tenant)));
  const ids = (list: { id?: string; tenant_id?: string; invocation_id?: string }[]) =>
    list.map(({ id, tenant_id, invocation_id }) => invocation_id ?? id ?? tenant_id ?? "");
  state.there = {
    function_id: own.map(({ id }) => id),
    name: [...own.map(({ name }) => name), "n1", "n2"],
    path: ["f", "d"],
    registry: ["n1.example", "n2.example:5000"],
    version: ["1", "2", "3", release],
    other_version: ["1", "2", "3"],
    profile: ["prod"],
    other: ["1", release],
    pid: state.there.pid ?? [],
    container_id: ["n1", ...(await containersOf(keys.tenant)).map(({ container_id }) => container_id)],
    context_id: await contextsOf(keys.tenant),
    job_id: state.there.job_id ?? [],
    operation_id: state.there.operation_id ?? [],
    session_id: state.there.session_id ?? [],
    binding_id: state.there.binding_id ?? [],
    code_sha256: [await uploaded()],
    service_id: state.there.service_id ?? [],
    snapshot_id: own_snapshots,
    other_id: own_snapshots,
    invocation_id: invocations.flatMap(({ body }) => ids(body.invocations ?? [])),
    msg_id: ["fuzz-1", "fuzz-2"],
    stream_seq: ["1"],
    // Those of other tenants that may be there.
    key_id: [...ids(made).filter((id) => !keys.kept_ids.has(id)), ...(await keysOf(others))],
    tenant_id: ids(others),
  };
  expect(daemon.output).not.toMatch(/"level":("error"|50)/);
}

/** Uploads code of the tenant, the same each time, and returns its digest. */
async function uploaded(): Promise<string> {
  const response = await fetch(`${daemon.url}/api/functions/code`, {
    method: "POST",
    headers: { ...asKey(keys.tenant), "content-type": "application/x-tar" },
    body: new Uint8Array(archive({ name: "f", content: "1\n" })),
  });
  expect(response.status).toBe(201);
  return ((await response.json()) as { code_sha256: string }).code_sha256;
}

/** A few functions with code that can be called, and tenants that can be changed. */
async function furnish(): Promise<void> {
  for (const name of ["n1", "n2", "n3"]) {
    const made = { name, handler: "cat", code_sha256: await uploaded() };
    const { body } = await daemon.call("POST", "/api/functions", made, asKey(keys.tenant));
    if (body.id !== undefined)
      await daemon.call("POST", `/api/functions/${body.id}/deploy`, undefined, asKey(keys.tenant));
  }
  const make = (path: string, body: object) => daemon.call("POST", path, body, asKey(keys.tenant));
  const stored = { username: "ada", password: "t0ken" };
  await daemon.call("PUT", "/api/oci/registries/n1.example", stored, asKey(keys.tenant));
  await make("/api/volumes", { name: "n1" });
  await make("/api/volumes/n1/files", { path: "f", content: "eA==" });
  await make("/api/icc/messages", { to: "queue:n1", type: "fuzz", msg_id: "fuzz-2" });
  await make("/api/icc/ack", { container_id: "queue:n1", msg_id: "fuzz-2", action: "nack" });
  for (const name of ["n1", "n2"]) {
    await make("/api/containers", {
      name,
      ...(name === "n2" ? { dns: true, egress: ["203.0.113.0/24:443/tcp"] } : {}),
    });
    await make("/api/icc/messages", { to: name, type: "fuzz", msg_id: "fuzz-1" });
    const started = await daemon.call(
      "POST",
      `/api/containers/${name}/start?execution=sync`,
      undefined,
      asKey(keys.tenant),
    );
    expect([200, 404, 409, 503]).toContain(started.status);
    await make(`/api/containers/${name}/exec`, { command: ["sh", "-c", "sleep 1000 >/dev/null 2>&1 &"] });
    const { body } = await make(`/api/containers/${name}/exec?execution=async`, { command: ["true"] });
    if (body.job_id !== undefined) learn(JSON.stringify(body));
    const session = await make("/api/terminal/sessions", { container_id: name });
    if (session.body.session_id !== undefined) learn(JSON.stringify({ session_id: session.body.session_id }));
    const user = new SnapshotUser(daemon, keys.tenant_id, asKey(keys.tenant));
    // Its container may have been deleted or stopped, or its operation not have been queued.
    const taken = await user.call("POST", `/api/containers/${name}/snapshot?execution=sync`, {});
    expect([200, 202, 404, 409, 503]).toContain(taken.status);
    const { processes = [] } = (
      await daemon.call("GET", `/api/containers/${name}/processes`, undefined, asKey(keys.tenant))
    ).body;
    state.there = { ...state.there, pid: processes.map(({ pid }: { pid: number }) => String(pid)) };
  }
  await daemon.call("POST", "/api/oci/images/pull", { reference: `containers-storage:${LOCAL_IMAGE}` });
  await daemon.call("PATCH", "/api/oci/images", { reference: LOCAL_IMAGE, is_shared: true });
  await make("/api/oci/images/tag", { reference: LOCAL_IMAGE, target: LOCAL_IMAGE });
  for (const name of ["first", "second"]) {
    await daemon.call("POST", "/api/tenants", { name });
  }
}

/** Megabytes of memory and the descriptors of the daemon but those of clients. */
function held(): { readonly memory_mb: number; readonly descriptors: Record<string, number> } {
  const status = readFileSync(`/proc/${daemon.pid}/status`, "utf8");
  const tcp = readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => `socket:[${line.trim().split(/\s+/)[9]}]`);
  const descriptors: Record<string, number> = {};
  for (const link of daemon.descriptors().filter((one) => !tcp.includes(one))) {
    const kind = link.replace(/\d+/g, "0");
    descriptors[kind] = (descriptors[kind] ?? 0) + 1;
  }
  return { memory_mb: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024, descriptors };
}

let port = 0;
let at_first = { memory_mb: 0, descriptors: {} as Record<string, number> };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: String(CELLS), HEARTH_INSTANCES_MAX: "10", HEARTH_LOG_LEVEL: "warn" });
  port = Number(new URL(daemon.url).port);
  keys.tenant_id = (await daemon.call("POST", "/api/tenants", { name: "fuzz" })).body.tenant_id;
  const make = async (fields: object) => {
    const { body } = await daemon.call("POST", `/api/tenants/${keys.tenant_id}/api-keys`, { name: "k", ...fields });
    keys.kept_ids.add(body.id);
    return body.key;
  };
  keys.tenant = await make({});
  keys.reader = await make({ scopes: ["read"] });
  keys.token = (
    await daemon.call("POST", "/api/auth/token", { expires_in: 3_600 }, asKey(keys.tenant))
  ).body.access_token;
  await furnish();
  // What is made once and kept is there before the counting: threads, caches, connections, the log's files.
  const wire = new Wire(port);
  for (const one of fc.sample(request, { seed: SEED + 1, numRuns: 1_000 })) await ask(wire, one);
  wire.close();
  const large = await daemon.deploy({ name: "large", handler: "cat" });
  for (let n = 0; n < 8; n++) await daemon.invoke("large", { payload: "x".repeat(1_000_000) });
  await daemon.call("DELETE", `/api/functions/${large.id}`);
  await deleteAllBut(0);
  state.before = await countAtRest(daemon, CELLS);
  at_first = held();
  await furnish();
  await tidy();
});
afterAll(() => daemon.dispose());

describe(`of ${COUNT} requests with seed ${SEED}`, () => {
  it("each alone is answered as the description says, and changes nothing where it is refused", {
    timeout: 1_200_000,
  }, async () => {
    const [wire, store] = [new Wire(port), new StoreRows(daemon)];
    const turn = { n: 0, watched: 0 };
    const one = fc.asyncProperty(request, async (asked) => {
      if (turn.n++ % TIDY_PER === TIDY_PER - 1) {
        await furnish();
        await tidy();
      }
      const isWatched = turn.n % WATCHED_PER === 0;
      const before = isWatched ? store.digest(TABLES) : "";
      const { status, text } = await ask(wire, asked);
      // A deployment whose handler failed has run: the function was deploying meanwhile.
      if (!isWatched || status < 400 || text.includes('"error_code":"HANDLER_FAILED"')) return;
      turn.watched++;
      if (store.digest(TABLES) !== before)
        throw new Error(`${asked.operation} answered ${status} and changed something`);
    });
    await fc.assert(one, { ...PARAMETERS, numRuns: ALONE_COUNT });
    if (PATH === undefined) expect(turn.watched).toBeGreaterThan(ALONE_COUNT / WATCHED_PER / 10);
    wire.close();
    store.close();
  });

  it("those at the same time are answered as the description says", { timeout: 1_200_000 }, async () => {
    const wires = Array.from({ length: AT_ONCE }, () => new Wire(port));
    const turn = { n: 0 };
    const batches = fc.array(request, { minLength: AT_ONCE, maxLength: AT_ONCE });
    const one = fc.asyncProperty(batches, async (all) => {
      turn.n += all.length;
      if (turn.n % TIDY_PER < AT_ONCE) {
        await furnish();
        await tidy();
      }
      const ends = await Promise.allSettled(all.map((asked, i) => ask(wires[i] as Wire, asked)));
      for (const end of ends) if (end.status === "rejected") throw end.reason;
    });
    const numRuns = Math.ceil((COUNT - ALONE_COUNT - RAW_COUNT) / AT_ONCE);
    await fc.assert(one, { ...PARAMETERS, numRuns });
    for (const wire of wires) wire.close();
  });

  it("what is no request, or was one, ends with a refusal or the connection, and never with a fault", async () => {
    const batches = fc.array(connections(keys.tenant), { minLength: AT_ONCE, maxLength: AT_ONCE });
    const one = fc.asyncProperty(batches, async (all) => {
      const texts = await Promise.all(all.map((pieces) => throwBytes(port, pieces)));
      for (const [i, text] of texts.entries()) {
        state.count++;
        const statuses = [...text.matchAll(/^HTTP\/1\.[01] (\d+)/gm)].map(([, status]) => Number(status));
        if (statuses.some((status) => status >= 500)) {
          throw new Error(
            `${Buffer.concat(all[i] ?? [])
              .toString("latin1")
              .slice(0, 1_000)}\n→ ${text.slice(0, 1_000)}`,
          );
        }
      }
    });
    await fc.assert(one, { ...PARAMETERS, numRuns: Math.ceil(RAW_COUNT / AT_ONCE) });
    expect((await fetch(`${daemon.url}/health`)).status).toBe(200);
  });

  const areMany = PATH === undefined && COUNT >= 40_000;
  it.skipIf(!areMany)("some of every operation were served, and some refused with every code of input alone", () => {
    if (process.env.HEARTH_FUZZ_SHOW === "1")
      process.stdout.write(`${[...state.codes].map(String).sort().join("\n")}\n`);
    expect(state.count).toBeGreaterThanOrEqual(COUNT);
    // Nothing runs for long enough to be cancelled, a key of the settings is not rotated, and a WebSocket is no answer.
    // A build needs a context with a build file, a context or a load an archive as its body, a push a registry that takes it.
    const never = [
      ...["cancelOperation", "rotateOperatorKey", "pushImage"],
      // The channels of a profile are those of all daemons of the machine. No container of the tenant has a desktop.
      ...["promoteProfile", "rollbackProfile", "getGuiUrl", "desktopViewer", "takeScreenshot", "sendInput"],
      // Nobody replies. Bodies of a message are valid by chance: with an address in more of them, requests would wait for replies.
      ...["requestReply", "publishMessage", "publishContainerEnvelope"],
      ...["buildImage", "loadImage", "createBuildContext", "deleteBuildContext"],
      // This daemon has no users.
      ...["registerUser", "loginUser", "refreshLogin", "logoutUser", "changePassword", "resetPassword"],
    ];
    const served = ROUTES.filter(({ operation, socket }) => !never.includes(operation) && socket === null);
    expect(served.filter(({ operation }) => !state.codes.has(`${operation} served`)).map(nameOf)).toEqual([]);
    const refused = new Set([...state.codes.keys()].map((key) => key.split(" ")[1]));
    expect(CODES.filter((code) => !refused.has(code))).toEqual([]);
  });

  it("nothing is left but what was asked for: the daemon serves, and is at its counts again", async () => {
    await furnish();
    const called = await daemon.call("POST", "/api/functions/invoke/n1", { payload: "x" }, asKey(keys.tenant));
    expect([200, 404, 409]).toContain(called.status);
    const { id } = await daemon.deploy({ name: "after-all", handler: "cat" });
    expect(await daemon.invoke("after-all", { payload: "still here" })).toMatchObject({ stdout: "still here" });
    await daemon.call("DELETE", `/api/functions/${id}`);
    await deleteAllBut(0);
    await expectAtRest(daemon, state.before, CELLS);
    // Threads that had nothing to do have ended since.
    const grown = () =>
      Object.entries(held().descriptors).filter(([kind, count]) => count > (at_first.descriptors[kind] ?? 0));
    await eventually("it has no more descriptors than before", () => grown().length === 0).catch(() => {});
    expect(grown()).toEqual([]);
    // The heap grows before it is swept; what is kept of each request would be far more.
    expect(held().memory_mb).toBeLessThan(at_first.memory_mb + 200);
    expect(daemon.output).not.toMatch(/"level":("error"|50)/);
  });
});
