/**
 * Who is kept from what, generated from the table of routes: whatever belongs to another tenant is answered as what is
 * not there, bad credentials 401, missing scopes 403; none of it changes anything, and no answer tells. A route that is
 * added is covered as it stands; one that this cannot ask for fails here.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SCOPES } from "../../src/base/caller.ts";
import type { Row } from "../../src/store/store.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { bodyOf, nameOf, parametersOf, pathOf, ROUTES } from "../support/routes.ts";
import { StoreRows } from "../support/rows.ts";
import {
  type Ids,
  makeTenant,
  missing,
  namesOf,
  type Request,
  type Seen,
  send,
  type Tenant,
  without,
  worldOf,
} from "../support/tenancy.ts";

const daemon = new Daemon();
const guarded = ROUTES.filter(({ auth }) => auth !== "public");
const ofTenants = guarded.filter(({ auth }) => auth === "tenant");
const ofOperator = guarded.filter(({ auth }) => auth === "operator");
const rows = (routes: typeof ROUTES) => routes.map((route) => [nameOf(route), route] as const);

/** A is the one that others are kept from, B a stranger with everything of its own, C asks from inside of a call. */
interface World {
  readonly a: Tenant;
  readonly b: Tenant;
  readonly none: Ids;
  /** A bearer token of B's key. */
  readonly token: string;
  /** C's function that sends what it is given. */
  readonly prober: { readonly tenant_id: string; readonly key: string };
  readonly store: StoreRows;
  readonly before: { readonly world: unknown; readonly rows: Record<string, Row[]> };
}
const state: { world: World | null } = { world: null };
const world = (): World => {
  if (state.world === null) throw new Error("not there yet");
  return state.world;
};

/** Sends the requests on its standard input with its own token, or with the credentials that they name. */
const PROBE = `
import http.client, json, os, sys
host, port = os.environ["HEARTH_URL"].split("/")[2].split(":")
answers = []
for asked in json.load(sys.stdin):
  connection = http.client.HTTPConnection(host, int(port), timeout=10)
  credential = asked["credential"] or {"X-Api-Key": os.environ["HEARTH_KEY"]}
  headers = {"X-Request-Id": "same-for-all", **asked["headers"], **credential}
  connection.request(asked["method"], asked["path"], asked["body"], headers)
  answer = connection.getresponse()
  kept = {name.lower(): value for name, value in answer.getheaders() if name.lower() != "date"}
  answers.append({"status": answer.status, "headers": kept, "text": answer.read().decode()})
  connection.close()
print(json.dumps(answers))
`;

const asKey = (key: string) => ({ "x-api-key": key });
/** Routes of one image, which go by a reference in the query. */
const BY_REFERENCE = ["inspectImage", "imageHistory", "saveImage", "deleteImage"];
const isByReference = ({ operation }: (typeof ROUTES)[number]) => BY_REFERENCE.includes(operation);
const queryOf = (route: (typeof ROUTES)[number], ids: Ids): string => {
  if (isByReference(route)) return `?reference=${ids.name}`;
  if (route.operation === "listMessages") return `?container_id=${ids.container_id}`;
  // A whole file system takes a while.
  return route.path.endsWith(":container_id/archive") ? "?path=/root" : "";
};
const isForTenant = ({ headers }: (typeof ROUTES)[number]) => headers.includes("X-Tenant-Id");
const asTenant = (tenant_id: string) => ({ "x-tenant-id": tenant_id });
/** `caller`: the tenant of the credential, which some routes want to be named. */
const requestOf = (route: (typeof ROUTES)[number], ids: Ids, caller = ids.tenant_id): Request => ({
  method: route.method,
  path: pathOf(route, ids) + queryOf(route, ids),
  body: bodyOf(route, ids),
  headers: isForTenant(route) ? asTenant(caller) : {},
});
const codeOf = ({ status, text }: Seen) => [status, (JSON.parse(text) as { error_code: string }).error_code];

/**
 * Answers an unknown thing as every route does, but for the one that resolves names (found: false) and for WebSockets, which say
 * first that they are no requests.
 */
const unknownOf = ({ operation, socket }: (typeof ROUTES)[number]) => {
  if (socket !== null) return [426, "UPGRADE_REQUIRED"];
  return operation === "findContainer" ? [200, undefined] : [404, "NOT_FOUND"];
};

/** Asked from inside of a call of C, in one go. `credential` null: with the token of that call. */
async function probe(asked: readonly (Request & { credential: Record<string, string> | null })[]): Promise<Seen[]> {
  const { prober } = world();
  const answer = await daemon.call(
    "POST",
    "/api/functions/invoke/prober",
    { payload: JSON.stringify(asked) },
    asKey(prober.key),
  );
  expect([answer.status, answer.body.stderr]).toEqual([200, ""]);
  return JSON.parse(answer.body.stdout);
}

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1" });
  const [a, b] = [await makeTenant(daemon, "qzalpha"), await makeTenant(daemon, "qzbravo")];
  const made = await daemon.call("POST", "/api/tenants", { name: "charlie" });
  const { tenant_id } = made.body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "c" })).body;
  const handler = { handler: 'python3 -c "$PROBE"', environment: { PROBE }, api_access: true };
  const { id } = (await daemon.call("POST", "/api/functions", { name: "prober", ...handler }, asKey(key))).body;
  await daemon.call("POST", `/api/functions/${id}/deploy`, undefined, asKey(key));
  const token = (await daemon.call("POST", "/api/auth/token", {}, asKey(b.key))).body.access_token;
  const store = new StoreRows(daemon);
  const before = { world: await worldOf(daemon, a), rows: store.allBut(tenant_id) };
  state.world = { a, b, none: missing(a.ids), token, prober: { tenant_id, key }, store, before };
});
afterAll(async () => {
  state.world?.store.close();
  await daemon.dispose();
});

/** Of all that the requests before it could have changed, C's own calls apart. */
async function expectUnchanged(): Promise<void> {
  const { a, store, before, prober } = world();
  expect(await worldOf(daemon, a)).toEqual(before.world);
  expect(store.allBut(prober.tenant_id)).toEqual(before.rows);
}

function expectSilent(seen: Seen): void {
  const text = JSON.stringify(seen);
  expect(world().a.marks.filter((mark) => text.includes(mark))).toEqual([]);
}

/** The same answer for ids that are somebody's and for ids that are nobody's, and nothing else of his in it. */
function expectSame(theirs: Seen, nobodys: Seen, ids: Ids): Seen {
  const seen = without(namesOf(ids), theirs);
  expect(seen).toEqual(without(namesOf(world().none), nobodys));
  expectSilent(seen);
  return seen;
}

describe("what the suite is generated from", () => {
  it("has a value for every path parameter and a body for every route that needs one", () => {
    const { a } = world();
    for (const route of ROUTES) {
      expect(() => pathOf(route, a.ids)).not.toThrow();
      const body = bodyOf(route, a.ids);
      if (body !== null)
        expect([nameOf(route), route.body?.safeParse(JSON.parse(body)).error]).toEqual([nameOf(route), undefined]);
    }
  });

  // The image of a tenant here is a row without content in the store: registry-pushes.test.ts saves one.
  // Profiles are the node's, and the ids here name none: profiles.test.ts reads them.
  // No container here has a desktop: desktop.test.ts asks for their URLs.
  const UNANSWERED = ["saveImage", "getGuiUrl"];
  const isAnswered = ({ method, socket, operation, path }: (typeof ROUTES)[number]) =>
    method === "GET" && socket === null && !UNANSWERED.includes(operation) && !path.includes(":profile");
  it.each(rows(guarded.filter(isAnswered)))(
    "answers %s to whom it belongs, and tells nothing of others",
    async (_, route) => {
      const { a, b } = world();
      const as = route.auth === "operator" ? KEY : b.key;
      const own = await send(daemon, requestOf(route, b.ids), asKey(as));
      expect([own.status, own.text]).toEqual([200, own.text]);
      for (const path of [daemon.data_dir, daemon.run_dir]) expect(own.text).not.toContain(path);
      if (route.auth === "tenant") expectSilent(own);
      else if (route.path === "/api/tenants") expect(own.text).toContain(a.ids.tenant_id);
    },
  );
});

describe("what all tenants share", () => {
  it("tells one that has nothing neither of others' things nor how many there are", async () => {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "delta" })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "d" })).body;
    const get = async (path: string, as = key) =>
      (await send(daemon, { method: "GET", path, body: null }, asKey(as))).text;
    const counts = { warming_count: 0, ready_count: 0, busy_count: 0, recycling_count: 0, terminating_count: 0 };
    const none = { ...counts, total_count: 0, calls_running: 0, queued: 0 };
    expect(JSON.parse(await get("/api/functions/pool/stats"))).toEqual(none);
    expect(JSON.parse(await get("/api/functions/health")).pool).toEqual(none);
    expect(JSON.parse(await get("/api/containers/health")).running_count).toBe(0);
    expect((await get("/metrics")).replace(/^#.*\n/gm, "").trim()).toBe("");
    const everything = JSON.parse(await get("/api/functions/pool/stats", KEY));
    expect(everything.total_count).toBeGreaterThan(0);
    expect(everything).toHaveProperty("cells");
    expect(await get("/metrics", KEY)).toContain("hearth_event_loop_lag_seconds");
    const abort = new AbortController();
    const events = await fetch(`${daemon.url}/api/events`, { headers: asKey(key), signal: abort.signal });
    const { value } = (await events.body?.getReader().read()) ?? {};
    abort.abort();
    // Its own making, and that of its key.
    expect(Buffer.from(value ?? []).toString()).toContain('"newest_event_id":"2"');
    await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
  });
});

describe("what is another tenant's", () => {
  // What it names is made where it is missing: a test of its own below.
  const isMaking = ({ operation }: (typeof ROUTES)[number]) =>
    ["setSecret", "setRegistry", "putState"].includes(operation);
  const withIds = ofTenants.filter(
    (route) => (parametersOf(route).length > 0 || isByReference(route)) && !isMaking(route),
  );
  /** A key with all scopes, a bearer token and the operator's key, each with its tenant. */
  const strangers = (): readonly (readonly [tenant_id: string, credential: Record<string, string>])[] => {
    const { b, token } = world();
    const { tenant_id } = b.ids;
    return [
      [tenant_id, asKey(b.key)],
      [tenant_id, { authorization: `Bearer ${token}` }],
      ["default", asKey(KEY)],
    ];
  };

  it.each(rows(withIds))("is answered as what is not there: %s", async (_, route) => {
    const { a, none } = world();
    for (const [caller, credential] of strangers()) {
      const theirs = await send(daemon, requestOf(route, a.ids, caller), credential);
      const nobodys = await send(daemon, requestOf(route, none, caller), credential);
      const seen = expectSame(theirs, nobodys, a.ids);
      expect(codeOf(seen)).toEqual(unknownOf(route));
    }
    if (route.method !== "GET") return;
    const [caller = "", credential = {}] = strangers()[0] ?? [];
    const heads = await Promise.all(
      [a.ids, none].map((ids) => send(daemon, { ...requestOf(route, ids, caller), method: "HEAD" }, credential)),
    );
    expect(heads[0]).toEqual(heads[1]);
  });

  /** Returns the parameters of a route beside its first path parameter: the others of its path, and those in its body. */
  const furtherOf = (route: (typeof ROUTES)[number]): string[] => {
    const inBody = [...JSON.stringify(route.example.body ?? {}).matchAll(/"\{(\w+)\}"/g)].map(([, name = ""]) => name);
    const further = [...parametersOf(route), ...inBody].slice(parametersOf(route).length === 0 ? 0 : 1);
    return further.filter((one) => !/version/.test(one));
  };
  it.each(rows(guarded.filter((route) => furtherOf(route).length > 0)))(
    "is not reached by way of what is one's own: %s",
    async (_, route) => {
      const { a, b, none } = world();
      const headers = asKey(route.auth === "operator" ? KEY : b.key);
      for (const parameter of furtherOf(route)) {
        const mixed = (ids: Ids): Ids => ({ ...b.ids, [parameter]: ids[parameter as keyof Ids] });
        const theirs = await send(daemon, requestOf(route, mixed(a.ids)), headers);
        const nobodys = await send(daemon, requestOf(route, mixed(none)), headers);
        // A target that fails is among the results.
        const told = route.operation === "broadcastCommand" ? [200, undefined] : [404, "NOT_FOUND"];
        expect(codeOf(expectSame(theirs, nobodys, a.ids))).toEqual(told);
        if (route.operation === "broadcastCommand")
          expect(JSON.parse(theirs.text).results[0].error).toMatch(/not found$/);
      }
    },
  );

  it.each(rows(ofTenants.filter((route) => !isMaking(route))))(
    "is not reached under the name of its tenant: %s",
    async (_, route) => {
      const { a, b, none } = world();
      for (const named of [a.ids, none]) {
        for (const ids of [a.ids, b.ids, none]) {
          const seen = await send(
            daemon,
            { ...requestOf(route, ids), headers: asTenant(named.tenant_id) },
            asKey(b.key),
          );
          expect(codeOf(seen)).toEqual([403, "FORBIDDEN"]);
          expectSilent(seen);
        }
      }
    },
  );

  it.each(rows(ofTenants.filter(isForTenant)))("is not reached without the name of a tenant: %s", async (_, route) => {
    const { a, b, none } = world();
    for (const ids of [a.ids, b.ids, none]) {
      const seen = await send(daemon, { ...requestOf(route, ids), headers: {} }, asKey(b.key));
      expect(codeOf(seen)).toEqual([400, "INVALID_ARGUMENT"]);
      expectSilent(seen);
    }
  });

  it("is answered the same from inside of a call, which may do no more than read, invoke and write", async () => {
    const { a, none, prober } = world();
    const asked = [...withIds, ...ofOperator, ...ofTenants.filter(({ scope }) => scope === "admin")];
    const seen = await probe(
      asked.flatMap((route) =>
        [a.ids, none].map((ids) => ({ ...requestOf(route, ids, prober.tenant_id), credential: null })),
      ),
    );
    const codes = asked.map((route, i) => {
      const [theirs, nobodys] = seen.slice(i * 2, i * 2 + 2);
      if (theirs === undefined || nobodys === undefined) throw new Error("not answered");
      return [nameOf(route), ...codeOf(expectSame(theirs, nobodys, a.ids))];
    });
    const isManaging = ({ auth, scope }: (typeof ROUTES)[number]) =>
      auth === "operator" || scope === "admin" || scope === null;
    expect(codes).toEqual(
      asked.map((route) => [nameOf(route), ...(isManaging(route) ? [403, "FORBIDDEN"] : unknownOf(route))]),
    );
  });

  it("keeps its secret if a stranger sets one of the same name", async () => {
    const { a } = world();
    for (const [, credential] of strangers()) {
      for (const route of ofTenants.filter(isMaking)) {
        const made = await send(daemon, requestOf(route, a.ids), credential);
        expectSilent(without(namesOf(a.ids), made));
        const again = await send(daemon, { ...requestOf(route, a.ids), method: "DELETE", body: null }, credential);
        expect([made.status, again.status]).toEqual([route.operation === "putState" ? 200 : 201, 200]);
      }
    }
    await expectUnchanged();
  });

  it("gets no token from inside of a call", async () => {
    const [seen] = await probe([
      { method: "POST", path: "/api/auth/token", body: "{}", headers: {}, credential: null },
    ]);
    expect(seen?.status).toBe(403);
  });

  it("is as it was after all of this", expectUnchanged);
});

describe("a bad credential", () => {
  const bad: { readonly [kind: string]: Record<string, string> } = {};
  const absent = { none: {}, "another scheme": { authorization: "Basic eDp5" }, "an empty key": asKey("") };

  beforeAll(async () => {
    const { b, prober } = world();
    const make = async (fields: object = {}) =>
      (await daemon.call("POST", "/api/api-keys", { name: "k", ...fields }, asKey(prober.key))).body;
    const tokenOf = async (key: string, expires_in = 900) =>
      (await daemon.call("POST", "/api/auth/token", { expires_in }, asKey(key))).body.access_token;
    const [revoked, behind, short] = [
      await make(),
      await make(),
      await make({ expires_at: Math.ceil(Date.now() / 1000) + 3 }),
    ];
    const [orphan, brief] = [await tokenOf(behind.key), await tokenOf(prober.key, 1)];
    const gone = await makeTenant(daemon, "delta");
    for (const key of [revoked.key, short.key, gone.key])
      expect((await daemon.call("GET", "/api/functions", undefined, asKey(key))).status).toBe(200);
    for (const { id } of [revoked, behind])
      await daemon.call("DELETE", `/api/api-keys/${id}`, undefined, asKey(prober.key));
    await daemon.call("DELETE", `/api/tenants/${gone.ids.tenant_id}?force=true`);
    Object.assign(bad, {
      "an unknown key": asKey(b.key.replace(/.$/, (last) => (last === "0" ? "1" : "0"))),
      "a malformed key": asKey("'; --"),
      "a revoked key": asKey(revoked.key),
      "an expired key": asKey(short.key),
      "an expired token": { authorization: `Bearer ${brief}` },
      "a token of a revoked key": { authorization: `Bearer ${orphan}` },
      "a forged token": { authorization: `Bearer ${orphan.slice(0, -4)}AAAA` },
      "a key of a deleted tenant": asKey(gone.key),
    });
    for (const kind of ["an expired key", "an expired token"]) {
      const { status } = await eventually(`${kind} is one`, async () => {
        const seen = await send(daemon, { method: "GET", path: "/api/functions", body: null }, bad[kind] ?? {});
        return seen.status === 401 ? seen : null;
      });
      expect(status).toBe(401);
    }
  });

  it.each(rows(guarded))("gets the same 401 whatever is wrong with it: %s", async (_, route) => {
    const { a, none } = world();
    for (const kinds of [absent, bad]) {
      const seen: Seen[] = [];
      for (const headers of Object.values(kinds)) {
        for (const ids of [a.ids, none]) seen.push(await send(daemon, requestOf(route, ids), headers));
      }
      for (const one of seen) expect(one).toEqual(seen[0]);
      expect(codeOf(seen[0] as Seen)).toEqual([401, "UNAUTHORIZED"]);
      expectSilent(seen[0] as Seen);
    }
  });

  it.each(rows(guarded))("is also one too many: %s", async (_, route) => {
    const { a, none } = world();
    const headers = { ...asKey(a.key), authorization: `Bearer ${a.key}` };
    const seen = await Promise.all([a.ids, none].map((ids) => send(daemon, requestOf(route, ids), headers)));
    expect(seen[0]).toEqual(seen[1]);
    expect(codeOf(seen[0] as Seen)).toEqual([400, "TWO_CREDENTIALS"]);
  });

  it("is one from inside of a call too, API keys among them", async () => {
    const { a, prober } = world();
    const wrong = [...Object.values(bad), asKey(prober.key), asKey(KEY), asKey("hi_00000000000000000000000000000000")];
    const seen: Seen[] = [];
    // The output of one call has a bound.
    for (let first = 0; first < guarded.length; first += 100) {
      const routes = guarded.slice(first, first + 100);
      seen.push(
        ...(await probe(
          routes.flatMap((route) => wrong.map((credential) => ({ ...requestOf(route, a.ids), credential }))),
        )),
      );
    }
    for (const one of seen) expect(one).toEqual(seen[0]);
    expect(codeOf(seen[0] as Seen)).toEqual([401, "UNAUTHORIZED"]);
  });

  it("has changed nothing", expectUnchanged);
});

describe("a key without the scope", () => {
  const keys = new Map<string, string>();
  beforeAll(async () => {
    // Of A's own tenant, so that nothing but the scope stands between. Made by the operator, and gone before the count.
    const { a } = world();
    for (const scope of SCOPES) {
      const scopes = SCOPES.filter((other) => other !== scope);
      const made = await daemon.call("POST", `/api/tenants/${a.ids.tenant_id}/api-keys`, { name: scope, scopes });
      keys.set(scope, made.body.key);
      keys.set(`${scope} id`, made.body.id);
    }
  });

  it.each(rows(ofTenants.filter(({ scope }) => scope !== null)))("gets 403, there or not: %s", async (_, route) => {
    const { a, none } = world();
    const headers = asKey(keys.get(route.scope ?? "") ?? "");
    const theirs = await send(daemon, requestOf(route, a.ids), headers);
    const nobodys = await send(daemon, requestOf(route, none), headers);
    expect(codeOf(expectSame(theirs, nobodys, a.ids))).toEqual([403, "FORBIDDEN"]);
  });

  it("revokes no key but itself", async () => {
    const { a, none } = world();
    const headers = asKey(keys.get("admin") ?? "");
    const revoke = (key_id: string) =>
      send(daemon, { method: "DELETE", path: `/api/api-keys/${key_id}`, body: null }, headers);
    const seen = expectSame(await revoke(a.ids.key_id), await revoke(none.key_id), a.ids);
    expect(codeOf(seen)).toEqual([403, "FORBIDDEN"]);
  });

  it.each(rows(ofOperator))("does nothing of the operator's, nor does one with all scopes: %s", async (_, route) => {
    const { a, b, none, token } = world();
    const wrong = [asKey(b.key), asKey(a.key), { authorization: `Bearer ${token}` }];
    for (const headers of wrong) {
      const theirs = await send(daemon, requestOf(route, a.ids), headers);
      const nobodys = await send(daemon, requestOf(route, none), headers);
      expect(codeOf(expectSame(theirs, nobodys, a.ids))).toEqual([403, "FORBIDDEN"]);
    }
  });

  it("has changed nothing", async () => {
    const { a } = world();
    for (const scope of SCOPES) {
      await daemon.call("DELETE", `/api/tenants/${a.ids.tenant_id}/api-keys/${keys.get(`${scope} id`)}`);
    }
    await expectUnchanged();
  });
});
