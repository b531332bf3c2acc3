/** Users of a real daemon: they register, sign in, refresh, change passwords and sign out; and who attacks them. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { userDefaults } from "../../src/base/tenant-classes.ts";
import { LIMIT_NAMES } from "../../src/base/tenant-limits.ts";
import { Daemon, KEY } from "../support/daemon.ts";
import { bearer, PASSWORD, Person } from "../support/people.ts";
import { StoreRows } from "../support/rows.ts";

const daemon = new Daemon();
const USERS_MAX = 25;
const PROXY = "127.0.9.9";
const SETTINGS = {
  HEARTH_CELLS: "0",
  HEARTH_LOG_LEVEL: "info",
  HEARTH_USERS: "on",
  HEARTH_USERS_MAX: String(USERS_MAX),
  HEARTH_TRUSTED_PROXIES: `${PROXY}/32`,
};
const hosts = { next: 2 };
/** Somebody whose address nobody has had before. */
const somebody = () => new Person(daemon, hosts.next++);
const codeOf = ({ status, body }: { status: number; body: { error_code: string } }) => [status, body.error_code];

beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

describe("a user", () => {
  it("registers, and owns a tenant with the smaller limits of users, which the operator may raise", async () => {
    const ada = somebody();
    const { status, body } = await ada.register("ada@example.com", { name: "Ada" });
    expect(status).toBe(201);
    expect(body).toMatchObject({
      user: { email: "ada@example.com", name: "Ada", tenant_id: body.tenant_id },
      token_type: "Bearer",
      expires_in: 3_600,
      refresh_expires_in: 604_800,
    });
    const own = bearer(body.access_token);
    const { body: tenant } = await ada.call("GET", "/api/tenant", undefined, own);
    const made = (await daemon.call("POST", "/api/tenants", { name: "beside" })).body;
    expect(tenant.tenant_id).toBe(body.tenant_id);
    expect(tenant.limits).toEqual(userDefaults(made.limits, LIMITS.user_limits_percent_default));
    const whole = LIMIT_NAMES.filter((name) => (made.limits[name] ?? Infinity) >= 10 && tenant.limits[name] !== null);
    expect(whole.length).toBeGreaterThan(10);
    for (const name of whole)
      expect([name, tenant.limits[name] < (made.limits[name] ?? Infinity)]).toEqual([name, true]);
    const set = async (functions_max: number | "default") =>
      (await daemon.call("PATCH", `/api/tenants/${body.tenant_id}`, { limits: { functions_max } })).body;
    expect((await set(5_000)).limits.functions_max).toBe(5_000);
    expect((await set("default")).limits).toEqual(tenant.limits);
    expect((await daemon.call("GET", `/api/tenants/${body.tenant_id}`)).body.limits).toEqual(tenant.limits);
    expect((await ada.call("GET", "/api/auth/me", undefined, own)).body).toMatchObject({
      tenant_id: body.tenant_id,
      credential: "user",
      scopes: ["read", "invoke", "write", "admin"],
      user: body.user,
    });
    const key = await ada.call("POST", "/api/api-keys", { name: "ci" }, own);
    expect(key.status).toBe(201);
    const me = await ada.call("GET", "/api/auth/me", undefined, { "x-api-key": key.body.key });
    expect(me.body).toMatchObject({ credential: "key", key_id: key.body.id, user: null });
    // The tenant of the operator stays the operator's.
    expect(await ada.status(body.access_token, "/api/tenants")).toBe(403);
    expect(await ada.status(body.access_token, "/api/users")).toBe(403);
  });

  it("signs in with another spelling of the address, and gets a token that X-Api-Key takes as well", async () => {
    const ada = somebody();
    const { status, body } = await ada.login("ADA@Example.COM");
    expect(status).toBe(200);
    const asKey = await ada.call("GET", "/api/tenant", undefined, { "x-api-key": body.access_token });
    expect(asKey.body.tenant_id).toBe(body.tenant_id);
  });

  it("makes short tokens of fewer scopes, of which no further ones can be made", async () => {
    const ada = somebody();
    const { body } = await ada.login("ada@example.com");
    const made = await ada.call("POST", "/api/auth/token", { scopes: ["read"] }, bearer(body.access_token));
    expect(made.body).toMatchObject({ scopes: ["read"], expires_in: LIMITS.access_token_seconds_default });
    const { access_token } = made.body;
    expect(await ada.status(access_token)).toBe(200);
    for (const path of ["/api/auth/token", "/api/auth/logout"]) {
      expect(codeOf(await ada.call("POST", path, {}, bearer(access_token)))).toEqual([403, "FORBIDDEN"]);
    }
    await ada.call("POST", "/api/auth/logout", {}, bearer(body.access_token));
    expect(await ada.status(access_token)).toBe(401);
  });

  it("refreshes, each token once; the second use of one ends the login with all its tokens", async () => {
    const ada = somebody();
    const first = (await ada.login("ada@example.com")).body;
    const second = (await ada.refresh(first.refresh_token)).body;
    expect(second.refresh_token).not.toBe(first.refresh_token);
    const third = (await ada.refresh(second.refresh_token)).body;
    const tokens = [first, second, third].map(({ access_token }) => access_token);
    const statuses = () => Promise.all(tokens.map((token) => ada.status(token)));
    expect(await statuses()).toEqual([200, 200, 200]);
    const other = (await ada.login("ada@example.com")).body;
    const reused = await ada.refresh(first.refresh_token);
    expect([...codeOf(reused), reused.body.reason_code]).toEqual([401, "UNAUTHORIZED", "REFRESH_TOKEN_REUSED"]);
    expect(await statuses()).toEqual([401, 401, 401]);
    expect((await ada.refresh(third.refresh_token)).status).toBe(401);
    // Another login of the user stands.
    expect(await ada.status(other.access_token)).toBe(200);
  });

  it("spends one refresh token once, whoever of many is first", async () => {
    const ada = somebody();
    const { refresh_token } = (await ada.login("ada@example.com")).body;
    const answers = await Promise.all(Array.from({ length: 8 }, () => ada.refresh(refresh_token)));
    const won = answers.filter(({ status }) => status === 200);
    expect(won.length).toBeLessThanOrEqual(1);
    for (const { body } of won) {
      expect([await ada.status(body.access_token), (await ada.refresh(body.refresh_token)).status]).toEqual([401, 401]);
    }
  });

  it("signs out, and the access token is void at once, also after kill -9", async () => {
    const ada = somebody();
    const [gone, kept] = [(await ada.login("ada@example.com")).body, (await ada.login("ada@example.com")).body];
    expect(await ada.status(gone.access_token)).toBe(200);
    const answer = await ada.call("POST", "/api/auth/logout", { refresh_token: "x" }, bearer(gone.access_token));
    expect(answer.body).toEqual({ success: true, message: "signed out" });
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    expect([await ada.status(gone.access_token), await ada.status(kept.access_token)]).toEqual([401, 200]);
    expect((await ada.refresh(gone.refresh_token)).status).toBe(401);
    const next = await ada.refresh(kept.refresh_token);
    expect([next.status, await ada.status(next.body.access_token)]).toEqual([200, 200]);
  });

  it("changes the password, which ends all other logins and leaves API keys", async () => {
    const bob = somebody();
    const own = (await bob.register("bob@example.com")).body;
    const { key } = (await bob.call("POST", "/api/api-keys", { name: "ci" }, bearer(own.access_token))).body;
    const other = (await bob.login("bob@example.com")).body;
    const change = (current_password: string, new_password: string) =>
      bob.call("POST", "/api/auth/password", { current_password, new_password }, bearer(own.access_token));
    const wrong = await change("wrong horse battery", "another horse battery");
    expect([...codeOf(wrong), wrong.body.error]).toEqual([403, "FORBIDDEN", "current_password: wrong password"]);
    expect((await change(PASSWORD, "short")).status).toBe(400);
    const changed = await change(PASSWORD, "another horse battery");
    expect(changed.body).toMatchObject({ success: true, api_keys_revoked: 0, api_keys_remaining: 1 });
    expect(await Promise.all([own.access_token, other.access_token, key].map((one) => bob.status(one)))).toEqual([
      200, 401, 200,
    ]);
    expect((await bob.refresh(other.refresh_token)).status).toBe(401);
    expect((await bob.refresh(own.refresh_token)).status).toBe(200);
    expect((await bob.login("bob@example.com")).status).toBe(401);
    expect((await bob.login("bob@example.com", "another horse battery")).status).toBe(200);
  });

  it("gets another password from the operator, which ends every login", async () => {
    const bob = somebody();
    const { body } = await bob.login("bob@example.com", "another horse battery");
    const reset = (email: string) =>
      daemon.call("POST", "/api/users/password", { email, new_password: "third horse battery" });
    expect(codeOf(await reset("nobody@example.com"))).toEqual([404, "NOT_FOUND"]);
    expect((await reset("BOB@example.com")).body).toEqual({ ...body.user, api_keys_revoked: 0, api_keys_remaining: 1 });
    expect(await bob.status(body.access_token)).toBe(401);
    expect((await bob.login("bob@example.com", "third horse battery")).status).toBe(200);
    const { body: list } = await daemon.call("GET", "/api/users");
    expect(list.users.map(({ email }: { email: string }) => email)).toEqual(["bob@example.com", "ada@example.com"]);
  });

  it("revokes all API keys with the password if it is asked to, of containers too, and no others", async () => {
    const [dora, other] = [somebody(), somebody()];
    const { access_token, tenant_id } = (await dora.register("dora@example.com")).body;
    const login = bearer(access_token);
    const { container_id } = (await dora.call("POST", "/api/containers", { name: "box" }, login)).body;
    const made = await dora.call("POST", "/api/api-keys", { name: "ci" }, login);
    const ofBox = await dora.call("POST", `/api/containers/${container_id}/api-keys`, { name: "agent" }, login);
    const byOperator = await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "given" });
    const keys = [made, ofBox, byOperator].map(({ body }) => body.key as string);
    const token = (await dora.call("POST", "/api/auth/token", {}, bearer(keys[0] ?? ""))).body.access_token;
    const theirs = (await other.register("others@example.com")).body;
    const { key: foreign } = (await other.call("POST", "/api/api-keys", { name: "ci" }, bearer(theirs.access_token)))
      .body;
    // The route is beyond the reach of a key of a container.
    const BEFORE = [200, 403, 200, 200];
    const statuses = () => Promise.all([...keys, token].map((one) => dora.status(one)));
    expect(await statuses()).toEqual(BEFORE);
    const change = (fields: object) => dora.call("POST", "/api/auth/password", fields, login);
    const asked = { new_password: "another horse battery", revoke_api_keys: true };
    // A refused change revokes nothing.
    expect((await change({ ...asked, current_password: "wrong horse battery" })).status).toBe(403);
    expect((await change({ ...asked, current_password: PASSWORD, revoke_api_keys: "yes" })).status).toBe(422);
    expect(await statuses()).toEqual(BEFORE);
    const { body } = await change({ ...asked, current_password: PASSWORD });
    expect(body).toEqual({ success: true, message: "password changed", api_keys_revoked: 3, api_keys_remaining: 0 });
    expect(await statuses()).toEqual([401, 401, 401, 401]);
    expect([await dora.status(access_token), await other.status(foreign)]).toEqual([200, 200]);
    const { body: log } = await dora.call("GET", "/api/api-keys", undefined, login);
    expect(log.api_keys).toEqual([]);
    // The operator may ask for the same, and keeps the own key.
    const next = (await dora.call("POST", "/api/api-keys", { name: "next" }, login)).body.key;
    const reset = { email: "dora@example.com", new_password: "third horse battery", revoke_api_keys: true };
    const answer = (await daemon.call("POST", "/api/users/password", reset)).body;
    expect(answer).toMatchObject({ email: "dora@example.com", api_keys_revoked: 1, api_keys_remaining: 0 });
    expect(await Promise.all([next, access_token].map((one) => dora.status(one)))).toEqual([401, 401]);
    expect((await daemon.call("GET", "/api/users")).status).toBe(200);
    for (const id of [tenant_id, theirs.tenant_id]) await daemon.call("DELETE", `/api/tenants/${id}?force=true`);
  });

  it("has a bounded number of logins: a further one ends the oldest", async () => {
    const eve = somebody();
    const { access_token } = (await eve.register("eve@example.com")).body;
    for (let i = 0; i < LIMITS.logins_per_user_max; i++) {
      expect(await eve.status(access_token), String(i)).toBe(200);
      expect((await eve.login("eve@example.com")).status).toBe(200);
    }
    expect(await eve.status(access_token)).toBe(401);
  });

  it("is gone with the tenant, at once, and the address may register again", async () => {
    const old = somebody();
    const { body } = await old.register("old@example.com");
    const { refresh_token, access_token, tenant_id } = body;
    expect(await old.status(access_token)).toBe(200);
    expect((await daemon.call("DELETE", `/api/tenants/${tenant_id}`)).status).toBe(200);
    expect(await old.status(access_token)).toBe(401);
    expect([(await old.refresh(refresh_token)).status, (await old.login("old@example.com")).status]).toEqual([
      401, 401,
    ]);
    const again = await old.register("old@example.com");
    expect([again.status, again.body.tenant_id === tenant_id]).toEqual([201, false]);
    expect(await old.status(access_token)).toBe(401);
    const rows = new StoreRows(daemon);
    expect(rows.read("SELECT id FROM user_logins WHERE tenant_id = ?", [tenant_id])).toEqual([]);
    rows.close();
  });
});

describe("what a user sends", () => {
  it.each([
    ["no @", "ada.example.com"],
    ["two @", "ada@b@example.com"],
    ["a space", "ada @example.com"],
    ["a new line", "ada@example.com\r\nBcc: all@example.com"],
    ["a NUL", "ada\u0000@example.com"],
    ["an invisible letter", "ada\u200b@example.com"],
    ["a comma", "ada,bob@example.com"],
    ["more characters than an address has", `${"a".repeat(64)}@${"b".repeat(200)}.com`],
    ["half a surrogate pair", "ad\ud800a@example.com"],
  ])("is refused with 400 where an address has %s", async (_, email) => {
    const person = new Person(daemon, 250);
    expect(codeOf(await person.register(email))).toEqual([400, "INVALID_ARGUMENT"]);
    expect(codeOf(await person.login(email))).toEqual([400, "INVALID_ARGUMENT"]);
  });

  it("is refused with 400 where a password or a name is too short, too long or dangerous, before it counts", async () => {
    const person = new Person(daemon, 250);
    const email = "weak@example.com";
    const wrong = [
      { password: "short" },
      { password: "a".repeat(8) },
      { password: "WEAK@example.com" },
      { password: "ä".repeat(600) },
      { password: `${"x".repeat(9)}\u0000` },
      { name: "" },
      { name: " ada" },
      { name: "ada\r\nX-Injected: 1" },
      { name: "a".repeat(200) },
    ];
    for (const more of wrong) {
      expect([more, ...codeOf(await person.register(email, more))]).toEqual([more, 400, "INVALID_ARGUMENT"]);
    }
    expect(codeOf(await person.call("POST", "/api/auth/register", { email }))).toEqual([422, "UNPROCESSABLE_ENTITY"]);
    expect(codeOf(await person.register(email, { admin: true }))).toEqual([422, "UNPROCESSABLE_ENTITY"]);
    const huge = await person.register(email, { password: "x".repeat(LIMITS.public_body_bytes_max) });
    expect(codeOf(huge)).toEqual([413, "BODY_TOO_LARGE"]);
    expect(codeOf(await person.refresh("hr_x"))).toEqual([401, "UNAUTHORIZED"]);
  });

  it("is one address in each spelling and Unicode form, and one password", async () => {
    const person = somebody();
    const composed = "jos\u00e9@m\u00fcnchen.example";
    expect((await person.register(composed, { password: "caf\u00e9 caf\u00e9 caf\u00e9" })).status).toBe(201);
    for (const email of ["JOSE\u0301@MU\u0308NCHEN.example", "Jos\u00c9@M\u00dcnchen.EXAMPLE"]) {
      expect(codeOf(await somebody().register(email))).toEqual([409, "NAME_TAKEN"]);
      expect((await person.login(email, "cafe\u0301 cafe\u0301 cafe\u0301")).status).toBe(200);
    }
  });
});

describe("an attacker", () => {
  it("registers one address once, however many try at a time", async () => {
    const answers = await Promise.all(Array.from({ length: 5 }, () => somebody().register("race@example.com")));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409, 409]);
    const { tenants } = (await daemon.call("GET", "/api/tenants")).body;
    const { users } = (await daemon.call("GET", "/api/users")).body;
    const owned = users.map(({ tenant_id }: { tenant_id: string }) => tenant_id).sort();
    const made = tenants.filter(({ name }: { name: string }) => name.startsWith("user-"));
    expect(made.map(({ tenant_id }: { tenant_id: string }) => tenant_id).sort()).toEqual(owned);
  });

  it("sees no difference between an unknown address and a wrong password", async () => {
    const [a, b] = [somebody(), somebody()];
    const id = { "x-request-id": "same" };
    const known = await a.login("ada@example.com", "wrong horse battery", id);
    const unknown = await b.login("nobody@example.com", "wrong horse battery", id);
    expect(known.body).toEqual(unknown.body);
    expect(codeOf(known)).toEqual([401, "UNAUTHORIZED"]);
    expect([...known.headers.keys()].sort()).toEqual([...unknown.headers.keys()].sort());
  });

  it("guesses a few times, then waits; the owner signs in from elsewhere meanwhile", async () => {
    const [guesser, owner] = [somebody(), somebody()];
    for (const email of ["eve@example.com", "ghost@example.com"]) {
      const tried = await Promise.all(
        Array.from({ length: LIMITS.login_pair_burst + 2 }, (_, i) => guesser.login(email, `wrong horse ${i}`)),
      );
      const statuses = tried.map(({ status }) => status);
      expect(statuses.filter((status) => status === 401).length).toBe(LIMITS.login_pair_burst);
      expect(statuses.filter((status) => status === 429).length).toBe(2);
      const refused = tried.find(({ status }) => status === 429);
      expect(codeOf(refused as never)).toEqual([429, "RATE_LIMITED"]);
      expect(Number(refused?.headers.get("retry-after"))).toBeGreaterThan(0);
    }
    // The right password is not tried either.
    expect((await guesser.login("eve@example.com")).status).toBe(429);
    expect((await owner.login("eve@example.com")).status).toBe(200);
  });

  it("with many addresses guesses as often as one address is tried in all, and where its user is known it signs in", async () => {
    const owner = somebody();
    expect((await owner.register("carol@example.com")).status).toBe(201);
    const guess = async (i: number) => {
      const { status } = await new Person(daemon, 2 + (i % 200), 2).login("carol@example.com", "wrong horse battery");
      return status;
    };
    const statuses: number[] = [];
    for (let i = 0; i < LIMITS.login_email_burst + 30; i += 10) {
      statuses.push(...(await Promise.all(Array.from({ length: 10 }, (_, j) => guess(i + j)))));
    }
    const tried = statuses.filter((status) => status === 401).length;
    expect(tried).toBeGreaterThanOrEqual(LIMITS.login_email_burst);
    expect(tried).toBeLessThan(statuses.length);
    expect((await somebody().login("carol@example.com")).status).toBe(429);
    expect((await owner.login("carol@example.com")).status).toBe(200);
  });

  it("does not escape its rate by a header, and behind a trusted proxy each client has one of its own", async () => {
    const proxy = new Person(daemon, 9, 9);
    expect(proxy.address).toBe(PROXY);
    const liar = somebody();
    const from = (person: Person, i: number, address: string) =>
      person.login(`x${i}@example.com`, "wrong horse battery", { "x-forwarded-for": address });
    const count = LIMITS.login_source_burst + 10;
    const refused = async (asked: (i: number) => Promise<{ status: number }>) => {
      const statuses: number[] = [];
      for (let i = 0; i < count; i++) statuses.push((await asked(i)).status);
      return statuses.filter((status) => status === 429).length;
    };
    expect(await refused((i) => from(liar, i, `203.0.113.${i}`))).toBeGreaterThan(0);
    // A client behind the proxy may write what it wants before the address that the proxy adds.
    expect(await refused((i) => from(proxy, i, `198.51.100.${i}, 203.0.113.200`))).toBeGreaterThan(0);
    expect((await from(proxy, 1_000, "203.0.113.201")).status).toBe(401);
  });

  it("does not stop the daemon with a flood of sign-ins: some are refused, and other requests go on", async () => {
    const flood = Array.from({ length: 200 }, (_, i) =>
      new Person(daemon, 2 + i, 3).login(`flood${i}@example.com`, "wrong horse battery"),
    );
    const begun = performance.now();
    expect((await daemon.call("GET", "/api/tenants")).status).toBe(200);
    const waited_ms = performance.now() - begun;
    const statuses = (await Promise.all(flood)).map(({ status }) => status);
    expect([...new Set(statuses)].sort()).toEqual([401, 503]);
    expect(waited_ms).toBeLessThan(5_000);
  });

  it("ends no login by a refresh token that it makes up", async () => {
    const ada = somebody();
    const { refresh_token, access_token } = (await ada.login("ada@example.com")).body;
    const made_up = refresh_token.replace(/.{4}$/, refresh_token.endsWith("0000") ? "1111" : "0000");
    expect(codeOf(await ada.refresh(made_up))).toEqual([401, "UNAUTHORIZED"]);
    expect(await ada.status(access_token)).toBe(200);
    expect((await ada.call("GET", "/api/functions", undefined, bearer(refresh_token))).status).toBe(401);
  });

  it("finds no password and no token in the store, the log or the audit log", async () => {
    const ada = somebody();
    const secret = "a very secret horse battery";
    const { body } = await ada.register("secret@example.com", { password: secret });
    const rows = new StoreRows(daemon);
    const tables = ["users", "user_logins", "audit", "events"].map((table) => rows.read(`SELECT * FROM ${table}`));
    rows.close();
    const text = JSON.stringify(tables) + daemon.output;
    for (const one of [secret, body.refresh_token, body.access_token, body.refresh_token.slice(-32)]) {
      expect(text).not.toContain(one);
    }
    expect(text).toContain("$argon2id$v=19$m=19456,t=2,p=1$");
    const { entries } = (await daemon.call("GET", `/api/audit?target=${body.tenant_id}`)).body;
    expect(entries.map(({ operation }: { operation: string }) => operation)).toContain("registerUser");
  });

  it("makes a few tenants and no more: of one address, and of this node", async () => {
    const one = somebody();
    const statuses: number[] = [];
    for (let i = 0; i < LIMITS.register_source_burst + 3; i++) {
      statuses.push((await one.register(`many${i}@example.com`)).status);
    }
    expect(statuses.filter((status) => status === 429).length).toBe(3);
    const registered = async () => (await daemon.call("GET", "/api/users")).body.users.length;
    const seen = new Set<string>();
    for (let i = 0; i < 60; i++) {
      const { status, body } = await new Person(daemon, 2 + i, 4).register(`node${i}@example.com`);
      seen.add(`${status} ${body.error_code ?? ""}`);
    }
    expect(await registered()).toBe(USERS_MAX);
    expect([...seen].sort()).toEqual(["201 ", "429 RATE_LIMITED", "503 CAPACITY_FULL"]);
    const { tenants } = (await daemon.call("GET", "/api/tenants?limit=1000")).body;
    expect(tenants.filter(({ name }: { name: string }) => name.startsWith("user-")).length).toBe(USERS_MAX);
  });
});

describe("HEARTH_USERS", () => {
  it("login keeps registration closed, off closes all of it and ends access tokens; /health tells", async () => {
    const ada = somebody();
    const health = async () =>
      (await fetch(`${daemon.url}/health`).then((answer) => answer.json())) as { users: string };
    expect((await health()).users).toBe("on");
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_USERS: "login" });
    expect((await health()).users).toBe("login");
    expect(codeOf(await ada.register("late@example.com"))).toEqual([403, "FORBIDDEN"]);
    const { body } = await ada.login("ada@example.com");
    expect(await ada.status(body.access_token)).toBe(200);
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_USERS: "off" });
    expect((await health()).users).toBe("off");
    for (const answer of [
      await ada.register("late@example.com"),
      await ada.login("ada@example.com"),
      await ada.refresh(body.refresh_token),
    ]) {
      expect([...codeOf(answer), answer.body.error]).toEqual([403, "FORBIDDEN", "users are off on this node"]);
    }
    expect(await ada.status(body.access_token)).toBe(401);
    expect((await ada.call("GET", "/api/auth/me", undefined, { "x-api-key": KEY })).body).toMatchObject({
      credential: "key",
      tenant_id: "default",
    });
  });
});
