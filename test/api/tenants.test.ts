/** Tenants, keys, scopes, tokens and limits, through the real API. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually } from "../support/daemon.ts";

const ISSUER = "https://issuer.test";
const AUDIENCE = "hearth-test";

const SETTINGS: Record<string, string> = {
  HEARTH_CELLS: "1",
  HEARTH_JWT_ISSUER: ISSUER,
  HEARTH_JWT_AUDIENCE: AUDIENCE,
};
const daemon = new Daemon();
const issuer: { server: Server | null; sign: (claims: object, alg?: string, header?: object) => Promise<string> } = {
  server: null,
  sign: async () => "",
};

/** Answers with another credential than the operator's. */
const as = (key: string) => (method: string, path: string, body?: unknown) =>
  daemon.call(method, path, body, { "x-api-key": key });

async function makeTenant(name: string, limits: object = {}): Promise<{ tenant_id: string; key: string }> {
  const made = await daemon.call("POST", "/api/tenants", { name, limits });
  expect(made.status).toBe(201);
  const key = await daemon.call("POST", `/api/tenants/${made.body.tenant_id}/api-keys`, { name: "first" });
  expect(key.status).toBe(201);
  return { tenant_id: made.body.tenant_id, key: key.body.key };
}

const refusal = ({ status, body }: Answer) => [status, body.error_code];

beforeAll(async () => {
  const { publicKey, privateKey } = await generateKeyPair("ES256");
  const jwks = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256" }] });
  issuer.server = createServer((_, response) => response.end(jwks)).listen(0, "127.0.0.1");
  issuer.sign = (claims, alg = "ES256", header = {}) =>
    new SignJWT({ ...claims })
      .setProtectedHeader({ alg, kid: "k1", ...header })
      .sign(alg === "ES256" ? privateKey : new TextEncoder().encode(jwks));
  await eventually("the issuer listens", () => issuer.server?.listening);
  const { port } = issuer.server.address() as AddressInfo;
  SETTINGS.HEARTH_JWKS_URL = `http://127.0.0.1:${port}/jwks`;
  await daemon.start(SETTINGS);
});
afterAll(async () => {
  issuer.server?.close();
  await daemon.dispose();
});

describe("tenants", () => {
  it("are made, renamed, limited, listed and deleted by the operator alone", async () => {
    const { tenant_id, key } = await makeTenant("acme", { functions_max: 5 });
    expect((await daemon.call("GET", `/api/tenants/${tenant_id}`)).body).toMatchObject({
      tenant_id,
      name: "acme",
      state: "active",
      limits: { functions_max: 5, requests_per_second: null },
      usage: { api_keys: 1, functions: 0 },
    });
    const changed = await daemon.call("PATCH", `/api/tenants/${tenant_id}`, {
      name: "acme inc",
      limits: { functions_max: null, memory_mb_max: 1024 },
    });
    expect(changed.body).toMatchObject({ name: "acme inc", limits: { functions_max: null, memory_mb_max: 1024 } });
    expect((await daemon.call("GET", "/api/tenants")).body.tenants[0]).toEqual(changed.body);
    expect(refusal(await daemon.call("POST", "/api/tenants", { name: "acme inc" }))).toEqual([409, "NAME_TAKEN"]);
    expect(refusal(await daemon.call("PATCH", "/api/tenants/default", { name: "acme inc" }))).toEqual([
      409,
      "NAME_TAKEN",
    ]);
    for (const [method, path, body] of [
      ["POST", "/api/tenants", { name: "mine" }],
      ["GET", "/api/tenants"],
      ["GET", `/api/tenants/${tenant_id}`],
      ["DELETE", `/api/tenants/${tenant_id}`],
      ["POST", `/api/tenants/${tenant_id}/api-keys`, { name: "more" }],
    ] as const) {
      expect(refusal(await as(key)(method, path, body))).toEqual([403, "FORBIDDEN"]);
    }
    expect((await daemon.call("DELETE", `/api/tenants/${tenant_id}`)).status).toBe(200);
    expect((await as(key)("GET", "/api/functions")).status).toBe(401);
    expect(refusal(await daemon.call("GET", `/api/tenants/${tenant_id}`))).toEqual([404, "NOT_FOUND"]);
  });

  it("that own something are deleted with force only, and then with all of it", async () => {
    const { tenant_id, key } = await makeTenant("owner");
    const created = await as(key)("POST", "/api/functions", { name: "held", handler: "cat" });
    await as(key)("POST", `/api/functions/${created.body.id}/deploy`);
    expect((await as(key)("POST", "/api/functions/invoke/held", { payload: "x" })).body.stdout).toBe("x");
    expect(refusal(await daemon.call("DELETE", `/api/tenants/${tenant_id}`))).toEqual([409, "NOT_EMPTY"]);
    expect((await as(key)("POST", "/api/functions/invoke/held", { payload: "y" })).body.stdout).toBe("y");
    expect((await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
    expect((await as(key)("POST", "/api/functions/invoke/held")).status).toBe(401);
    expect((await daemon.call("GET", "/api/functions/pool/stats")).body.total_count).toBe(0);
    expect(refusal(await daemon.call("DELETE", "/api/tenants/default?force=true"))).toEqual([409, "WRONG_STATE"]);
  });

  it("see the instances of their own functions in one answer, and of no other tenant's", async () => {
    const [one, two] = [await makeTenant("pools-one"), await makeTenant("pools-two")];
    const ids: Record<string, string> = {};
    for (const { key } of [one, two]) {
      const { body } = await as(key)("POST", "/api/functions", { name: "warm", handler: "cat", min_instances: 1 });
      ids[key] = body.id;
      await as(key)("POST", "/api/functions", { name: "never-deployed", handler: "cat" });
      await as(key)("POST", `/api/functions/${body.id}/deploy`);
    }
    for (const { key } of [one, two]) {
      const { body } = await as(key)("GET", "/api/functions/pools");
      expect(body.pools).toMatchObject([{ function_id: ids[key], ready_count: 1, superseded_count: 0 }]);
      await as(key)("PUT", `/api/functions/${ids[key]}`, { handler: "cat -" });
      const { pools } = (await as(key)("GET", "/api/functions/pools")).body;
      expect(pools).toMatchObject([{ function_id: ids[key], ready_count: 1, superseded_count: 1 }]);
    }
    for (const { tenant_id, key } of [one, two]) {
      await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
      expect((await as(key)("GET", "/api/functions/pools")).status).toBe(401);
    }
  });

  it("that are deleted have no credential left, also inside of calls that still run", async () => {
    const { tenant_id, key } = await makeTenant("ended");
    const ask = 'curl -s -o /dev/null -w "%{http_code}" -H "X-Api-Key: $HEARTH_KEY" $HEARTH_URL/api/functions';
    const handler = `echo begun $(${ask}) >&2; until [ "$(${ask})" = 401 ]; do sleep 0.05; done; echo ended`;
    const { body } = await as(key)("POST", "/api/functions", { name: "asks", handler, api_access: true });
    await as(key)("POST", `/api/functions/${body.id}/deploy`);
    const call = as(key)("POST", "/api/functions/invoke/asks");
    await eventually("it asks", () => daemon.output.includes(`"tenant_id":"${tenant_id}","key_id":"inv_`));
    expect((await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
    expect((await call).body).toMatchObject({ status: "success", stdout: "ended\n", stderr: "begun 200\n" });
  });

  it("have functions of the same name side by side", async () => {
    const [one, two] = [await makeTenant("one"), await makeTenant("two")];
    for (const [{ key }, handler] of [
      [one, "echo 1"],
      [two, "echo 2"],
    ] as const) {
      const { body } = await as(key)("POST", "/api/functions", { name: "same", handler });
      await as(key)("POST", `/api/functions/${body.id}/deploy`);
    }
    expect((await as(one.key)("POST", "/api/functions/invoke/same")).body.stdout).toBe("1\n");
    expect((await as(two.key)("POST", "/api/functions/invoke/same")).body.stdout).toBe("2\n");
  });
});

describe("keys", () => {
  it("are shown once, kept as digests, listed without their text", async () => {
    const { key, tenant_id } = await makeTenant("keys");
    const made = await as(key)("POST", "/api/api-keys", { name: "ci", scopes: ["invoke", "read"] });
    expect(made.status).toBe(201);
    expect(made.body).toMatchObject({ tenant_id, name: "ci", scopes: ["read", "invoke"], expires_at: null });
    expect(made.body.key.startsWith(`${made.body.prefix}_`)).toBe(true);
    const { key: text, ...record } = made.body;
    const { body } = await as(key)("GET", "/api/api-keys");
    expect(body.api_keys[0]).toEqual(record);
    expect(JSON.stringify(body)).not.toContain(text.split("_")[2]);
    expect((await fetch(`${daemon.url}/api/functions`, { headers: { authorization: `Bearer ${text}` } })).status).toBe(
      200,
    );
  });

  it("that only invoke cannot do through a handler's variables what they may not do themselves", async () => {
    const { key } = await makeTenant("narrow");
    const invoke = as((await as(key)("POST", "/api/api-keys", { name: "i", scopes: ["invoke"] })).body.key);
    const handler = "bash -c 'echo ran'";
    for (const [name, api_access] of [
      ["trusted", true],
      ["plain", false],
    ]) {
      const { body } = await as(key)("POST", "/api/functions", { name, handler, api_access });
      await as(key)("POST", `/api/functions/${body.id}/deploy`);
    }
    const environment = {
      BASH_ENV: `$(curl -s -H "X-Api-Key: $HEARTH_KEY" $HEARTH_URL/api/functions -d '{"name":"made","handler":"cat"}')`,
    };
    const call = (by: typeof invoke, name: string, body: object) => by("POST", `/api/functions/invoke/${name}`, body);
    expect(refusal(await call(invoke, "trusted", { environment }))).toEqual([403, "FORBIDDEN"]);
    expect((await as(key)("GET", "/api/functions/by-name/made")).status).toBe(404);
    expect((await call(invoke, "trusted", { payload: "x" })).body.stdout).toBe("ran\n");
    expect((await call(invoke, "plain", { environment: { A: "1" } })).body.stdout).toBe("ran\n");
    // What would have happened.
    expect((await call(as(key), "trusted", { environment })).status).toBe(200);
    expect((await as(key)("GET", "/api/functions/by-name/made")).status).toBe(200);
  });

  it("do what their scopes say and nothing else, and give no more than they have", async () => {
    const { key } = await makeTenant("scopes");
    const of = async (...scopes: string[]) =>
      as((await as(key)("POST", "/api/api-keys", { name: scopes.join(), scopes })).body.key);
    const [read, invoke, write, admin] = [await of("read"), await of("invoke"), await of("write"), await of("admin")];
    const { body: made } = await write("POST", "/api/functions", { name: "f", handler: "cat" });
    expect((await write("POST", `/api/functions/${made.id}/deploy`)).status).toBe(200);
    expect((await read("GET", `/api/functions/${made.id}`)).status).toBe(200);
    expect((await invoke("POST", "/api/functions/invoke/f", { payload: "p" })).body.stdout).toBe("p");
    for (const [who, method, path] of [
      [read, "POST", "/api/functions/invoke/f"],
      [read, "DELETE", `/api/functions/${made.id}`],
      [invoke, "GET", `/api/functions/${made.id}`],
      [write, "GET", "/api/functions"],
      [write, "POST", "/api/functions/invoke/f"],
      [read, "GET", "/api/api-keys"],
      [admin, "GET", "/api/functions"],
    ] as const) {
      expect(refusal(await who(method, path))).toEqual([403, "FORBIDDEN"]);
    }
    const more = { name: "more", scopes: ["admin", "read"] };
    expect(refusal(await admin("POST", "/api/api-keys", more))).toEqual([403, "FORBIDDEN"]);
    expect((await admin("POST", "/api/api-keys", { name: "same" })).body).toMatchObject({ scopes: ["admin"] });
    for (const scopes of [[], ["root"], ["read", "read"]]) {
      expect((await as(key)("POST", "/api/api-keys", { name: "bad", scopes })).status).toBe(400);
    }
    expect((await as(key)("POST", "/api/api-keys", { name: "bad", expires_at: 1 })).status).toBe(400);
  });

  it("end at once when they are revoked, by an admin or by themselves", async () => {
    const { key } = await makeTenant("revoked");
    const make = async (scopes: string[]) => (await as(key)("POST", "/api/api-keys", { name: "k", scopes })).body;
    const [leaked, own] = [await make(["read"]), await make(["read"])];
    expect((await as(leaked.key)("GET", "/api/functions")).status).toBe(200);
    expect(refusal(await as(own.key)("DELETE", `/api/api-keys/${leaked.id}`))).toEqual([403, "FORBIDDEN"]);
    expect((await as(key)("DELETE", `/api/api-keys/${leaked.id}`)).status).toBe(200);
    expect(refusal(await as(leaked.key)("GET", "/api/functions"))).toEqual([401, "UNAUTHORIZED"]);
    expect((await as(own.key)("DELETE", `/api/api-keys/${own.id}`)).status).toBe(200);
    expect((await as(own.key)("GET", "/api/functions")).status).toBe(401);
    expect(refusal(await as(key)("DELETE", `/api/api-keys/${own.id}`))).toEqual([404, "NOT_FOUND"]);
    expect(refusal(await daemon.call("DELETE", "/api/api-keys/bootstrap"))).toEqual([409, "WRONG_STATE"]);
  });

  it("have a bound in number", async () => {
    const { key } = await makeTenant("many");
    const answers: Answer[] = [];
    for (let i = 0; i < 100; i++) answers.push(await as(key)("POST", "/api/api-keys", { name: `k${i}` }));
    expect(answers.map(({ status }) => status).filter((status) => status !== 201)).toEqual([403]);
    expect(answers.at(-1)?.body.error_code).toBe("QUOTA_EXCEEDED");
  });
});

describe("access tokens", () => {
  const bearer = (token: string, path = "/api/functions", method = "GET") =>
    fetch(`${daemon.url}${path}`, { method, headers: { authorization: `Bearer ${token}` } }).then(
      ({ status }) => status,
    );

  it("are made from a key, with its scopes or fewer, and end with it", async () => {
    const { key } = await makeTenant("tokens");
    const made = await as(key)("POST", "/api/auth/token", { scopes: ["read"], expires_in: 60 });
    expect(made.body).toMatchObject({ token_type: "Bearer", expires_in: 60, scopes: ["read"] });
    const token = made.body.access_token;
    expect(await bearer(token)).toBe(200);
    expect(await bearer(token, "/api/api-keys")).toBe(403);
    expect(await bearer(token, "/api/auth/token", "POST")).toBe(403);
    const reader = await as(key)("POST", "/api/api-keys", { name: "r", scopes: ["read"] });
    expect((await as(reader.body.key)("POST", "/api/auth/token", { scopes: ["write"] })).status).toBe(403);
    const derived = await as(reader.body.key)("POST", "/api/auth/token");
    expect(await bearer(derived.body.access_token)).toBe(200);
    await as(key)("DELETE", `/api/api-keys/${reader.body.id}`);
    expect(await bearer(derived.body.access_token)).toBe(401);
    // Of the operator's key too: a token is never the operator's.
    const operator = await daemon.call("POST", "/api/auth/token");
    expect(await bearer(operator.body.access_token, "/api/tenants")).toBe(403);
  });

  it("are refused when a bit of them is another", async () => {
    const { key } = await makeTenant("forged");
    const { access_token } = (await as(key)("POST", "/api/auth/token")).body as { access_token: string };
    const [head, body = "", signature] = access_token.split(".");
    const claims = JSON.parse(Buffer.from(body, "base64url").toString());
    const forged = Buffer.from(JSON.stringify({ ...claims, tenant_id: "default" })).toString("base64url");
    expect(await bearer(`${head}.${forged}.${signature}`)).toBe(401);
    const none = Buffer.from(JSON.stringify({ alg: "none" })).toString("base64url");
    expect(await bearer(`${none}.${body}.AAAA`)).toBe(401);
    expect(await bearer(access_token)).toBe(200);
  });

  it("of an outside issuer are held to its algorithm, issuer, audience, expiry and to a tenant that exists", async () => {
    const { tenant_id } = await makeTenant("outside");
    const now = Math.floor(Date.now() / 1000);
    const good = { iss: ISSUER, aud: AUDIENCE, sub: "someone", exp: now + 600, tenant_id, scope: "read write other" };
    expect(await bearer(await issuer.sign(good))).toBe(200);
    expect(await bearer(await issuer.sign(good), "/api/api-keys")).toBe(403);
    for (const wrong of [
      { iss: "https://other.test" },
      { iss: "hearth" },
      { aud: "other" },
      { exp: now - 60 },
      { exp: now + 100_000 },
      { exp: undefined },
      { sub: undefined },
      { tenant_id: "ten_0000000000000000" },
      { tenant_id: undefined },
      { scope: undefined },
    ]) {
      expect([wrong, await bearer(await issuer.sign({ ...good, ...wrong }))]).toEqual([wrong, 401]);
    }
    // The public key taken for a shared secret.
    expect(await bearer(await issuer.sign(good, "HS256"))).toBe(401);
    expect(await bearer(await issuer.sign({ ...good, iss: "hearth", aud: "hearth" }, "HS256"))).toBe(401);
  });
});

describe("limits of a tenant", () => {
  it("on requests are told in every answer, and refuse with Retry-After", async () => {
    const { key } = await makeTenant("hasty", { requests_per_second: 0.5 });
    const first = await as(key)("GET", "/api/functions");
    expect(first.status).toBe(200);
    expect(first.headers.get("ratelimit-policy")).toBe('"tenant";q=1;w=2');
    expect(first.headers.get("ratelimit")).toMatch(/^"tenant";r=0;t=2$/);
    const second = await as(key)("GET", "/api/functions");
    expect(refusal(second)).toEqual([429, "RATE_LIMITED"]);
    expect(Number(second.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(second.headers.get("ratelimit")).toMatch(/^"tenant";r=0;t=/);
    expect((await daemon.call("GET", "/api/functions")).headers.get("ratelimit")).toBeNull();
  });

  it("on functions hold for requests at the same time", async () => {
    const { key, tenant_id } = await makeTenant("few", { functions_max: 3 });
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) => as(key)("POST", "/api/functions", { name: `f${i}`, handler: "cat" })),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(3);
    expect(answers.filter(({ status }) => status !== 201).map(refusal)).toEqual(Array(7).fill([403, "QUOTA_EXCEEDED"]));
    await daemon.call("PATCH", `/api/tenants/${tenant_id}`, { limits: { functions_max: 4 } });
    expect((await as(key)("POST", "/api/functions", { name: "more", handler: "cat" })).status).toBe(201);
  });

  it("on storage count what is kept, and refuse new functions and versions", async () => {
    const { key, tenant_id } = await makeTenant("full", { storage_mb_max: 1 });
    const { body: made } = await as(key)("POST", "/api/functions", {
      name: "big",
      handler: "head -c 600000 /dev/zero | tr '\\0' x",
    });
    await as(key)("POST", `/api/functions/${made.id}/deploy`);
    for (let i = 0; i < 2; i++) await as(key)("POST", "/api/functions/invoke/big");
    const { body: tenant } = await daemon.call("GET", `/api/tenants/${tenant_id}`);
    expect(tenant.usage.storage_bytes).toBeGreaterThan(1_200_000);
    expect(refusal(await as(key)("POST", "/api/functions", { name: "more", handler: "cat" }))).toEqual([
      403,
      "QUOTA_EXCEEDED",
    ]);
    expect(refusal(await as(key)("PUT", `/api/functions/${made.id}`, { handler: "cat" }))).toEqual([
      403,
      "QUOTA_EXCEEDED",
    ]);
    expect((await as(key)("POST", "/api/functions/invoke/big")).status).toBe(200);
    expect((await as(key)("DELETE", `/api/functions/${made.id}`)).status).toBe(200);
    expect((await daemon.call("GET", `/api/tenants/${tenant_id}`)).body.usage.storage_bytes).toBe(0);
    expect((await as(key)("POST", "/api/functions", { name: "more", handler: "cat" })).status).toBe(201);
  });

  it("on instances are shared by its functions, and a call that can never be served is refused at once", async () => {
    const { key, tenant_id } = await makeTenant("small", { instances_max: 2, memory_mb_max: 768 });
    const make = async (name: string, handler: string, fields: object = {}) => {
      const { body } = await as(key)("POST", "/api/functions", { name, handler, ...fields });
      await as(key)("POST", `/api/functions/${body.id}/deploy`);
    };
    for (const name of ["a", "b", "c"]) await make(name, "sleep 0.2");
    const seen: number[] = [];
    // Of all tenants, in one look.
    const alive = async () => {
      const { body } = await daemon.call("GET", "/api/functions/pool/stats");
      return body.warming_count + body.ready_count + body.busy_count + body.recycling_count;
    };
    const others = await alive();
    const calls = ["a", "b", "c", "a", "b", "c"].map((name) => as(key)("POST", `/api/functions/invoke/${name}`));
    const all = Promise.all(calls);
    const isDone = { yes: false };
    void all.finally(() => {
      isDone.yes = true;
    });
    while (!isDone.yes) seen.push((await alive()) - others);
    expect((await all).map(({ body }) => body.status)).toEqual(Array(6).fill("success"));
    expect(Math.max(...seen)).toBe(2);
    await make("large", "true", { memory_limit_mb: 1024 });
    const refused = await as(key)("POST", "/api/functions/invoke/large");
    expect(refusal(refused)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect(refused.body.error).toContain("768 MiB");
    const { body: many } = await as(key)("POST", "/api/functions", { name: "many", handler: "cat", min_instances: 3 });
    expect(refusal(await as(key)("POST", `/api/functions/${many.id}/deploy`))).toEqual([403, "QUOTA_EXCEEDED"]);
    expect((await as(key)("GET", `/api/functions/${many.id}`)).body).toMatchObject({
      state: "error",
      error_message: "instances_max of the tenant exceeded: this function needs 3 instances (limit 2)",
    });
    await daemon.call("PATCH", `/api/tenants/${tenant_id}`, { limits: { memory_mb_max: null } });
    expect((await as(key)("POST", "/api/functions/invoke/large")).body.status).toBe("success");
  });

  it("hold again after a restart", async () => {
    const { key } = await makeTenant("lasting", { instances_max: 0, requests_per_second: 1000 });
    const { body } = await as(key)("POST", "/api/functions", { name: "f", handler: "cat" });
    await as(key)("POST", `/api/functions/${body.id}/deploy`);
    await daemon.stop();
    await daemon.start(SETTINGS);
    const answer = await as(key)("POST", "/api/functions/invoke/f");
    expect(refusal(answer)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect(answer.headers.get("ratelimit-policy")).toBe('"tenant";q=1000;w=1');
  });
});
