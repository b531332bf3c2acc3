/** Passwords, rates and logins, with the time held by hand. */
import { describe, expect, it } from "vitest";
import { network } from "../../src/base/addresses.ts";
import type { Clock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { Guard } from "../../src/store/store.ts";
import { Attempts } from "../../src/users/attempts.ts";
import { Logins } from "../../src/users/logins.ts";
import { Passwords } from "../../src/users/passwords.ts";
import { attemptSource } from "../../src/users/routes.ts";
import { Users } from "../../src/users/service.ts";
import { scratchStores } from "../store/scratch.ts";

const handClock = () => {
  const time = { now_ms: 1_000_000_000 };
  const clock: Clock = { epochMs: () => time.now_ms, monotonicMs: () => time.now_ms, after: () => () => {} };
  return { time, clock };
};
const CHEAP = { memory_kib: 64, passes: 1, lanes: 1 };

describe("a password", () => {
  it("is right in each Unicode form, and a hash with other parameters is outdated", async () => {
    const [old, now] = [new Passwords({ ...CHEAP, memory_kib: 32 }), new Passwords(CHEAP)];
    const stored = await old.hash("caf\u00e9 caf\u00e9");
    expect(stored).toMatch(/^\$argon2id\$v=19\$m=32,t=1,p=1\$[\w+/]{22}\$[\w+/]{43}$/);
    expect(await now.verify("cafe\u0301 cafe\u0301", stored)).toEqual({ isRight: true, isOutdated: true });
    expect(await old.verify("cafe\u0301 cafe\u0301", stored)).toEqual({ isRight: true, isOutdated: false });
    expect((await now.verify("cafe cafe", stored)).isRight).toBe(false);
    expect(await old.hash("caf\u00e9 caf\u00e9")).not.toBe(stored);
  });

  it("of an unknown user is wrong after the same work", async () => {
    const passwords = new Passwords(CHEAP);
    expect(await passwords.verify("anything", null)).toEqual({ isRight: false, isOutdated: false });
  });

  it("waits for its turn, and is refused with 503 where too many wait", async () => {
    const passwords = new Passwords(CHEAP);
    const count = LIMITS.password_hashes_max + LIMITS.password_hashes_waiting_max + 3;
    const results = await Promise.allSettled(Array.from({ length: count }, () => passwords.hash("x".repeat(9))));
    const refused = results.filter(({ status }) => status === "rejected");
    expect(refused.length).toBe(3);
    const waiting = Array.from({ length: count - 3 }, () => passwords.hash("y".repeat(9)));
    expect(() => passwords.check()).toThrow(expect.objectContaining({ code: "CAPACITY_FULL" }));
    await Promise.all(waiting);
    passwords.check();
    expect(refused[0]).toMatchObject({ reason: { code: "CAPACITY_FULL", retry_after: expect.any(Number) } });
    await passwords.hash("again");
  });
});

describe("attempts", () => {
  const limited = expect.objectContaining({ code: "RATE_LIMITED" });

  it("of a source at one address end after a burst, and come back one by one", () => {
    const { time, clock } = handClock();
    const attempts = new Attempts(clock);
    for (let i = 0; i < LIMITS.login_pair_burst; i++) attempts.login("s", "a@x", false);
    expect(() => attempts.login("s", "a@x", false)).toThrow(limited);
    // Neither another address nor another source is concerned.
    attempts.login("s", "b@x", false);
    attempts.login("t", "a@x", false);
    time.now_ms += 1_000 / LIMITS.login_pair_per_second + 1;
    attempts.login("s", "a@x", false);
    expect(() => attempts.login("s", "a@x", false)).toThrow(limited);
  });

  it("that succeed do not count for their address", () => {
    const attempts = new Attempts(handClock().clock);
    for (let i = 0; i < LIMITS.login_source_burst; i++) {
      attempts.login("s", "a@x", false);
      attempts.succeeded("s", "a@x", false);
    }
    expect(() => attempts.login("s", "a@x", false)).toThrow(limited);
  });

  it("take nothing where they are refused: waiting is as long for one who keeps asking", () => {
    const { time, clock } = handClock();
    const attempts = new Attempts(clock);
    for (let i = 0; i < LIMITS.register_source_burst; i++) attempts.register("s");
    for (let i = 0; i < 1_000; i++) expect(() => attempts.register("s")).toThrow(limited);
    for (let i = LIMITS.register_source_burst; i < LIMITS.register_all_burst; i++) attempts.register(`other ${i}`);
    expect(() => attempts.register("new")).toThrow(limited);
    time.now_ms += 1_000 / LIMITS.register_source_per_second + 1;
    attempts.register("s");
  });

  it("that are refused do not make room for more guesses at an address", () => {
    const attempts = new Attempts(handClock().clock);
    for (let i = 0; i < LIMITS.login_email_burst; i++) attempts.login(`source ${i}`, "victim@x", false);
    for (let i = 0; i < LIMITS.login_source_burst; i++) attempts.login("flood", `first${i}@x`, false);
    for (let i = 0; i <= LIMITS.attempt_buckets_max; i++) {
      expect(() => attempts.login("flood", `more${i}@x`, false)).toThrow(limited);
    }
    expect(() => attempts.login("source 0", "victim@x", false)).toThrow(limited);
    expect(() => attempts.login("new", "victim@x", false)).toThrow(limited);
  });

  it("of ten thousand registrations let through what the rate of all allows", () => {
    const { time, clock } = handClock();
    const attempts = new Attempts(clock);
    let made = 0;
    for (let i = 0; i < 10_000; i++) {
      time.now_ms += 100;
      try {
        attempts.register(`source ${i}`);
        made++;
      } catch (error) {
        expect(error).toEqual(limited);
      }
    }
    expect(made).toBeLessThanOrEqual(LIMITS.register_all_burst + 1_000 * LIMITS.register_all_per_second + 1);
  });
});

describe("the source of an attempt", () => {
  const from = (address: string, forwarded: string | null, trusted: readonly string[]) =>
    attemptSource({ address, header: () => forwarded }, trusted.map(network));

  it("is the connection's unless a trusted proxy names another", () => {
    expect(from("192.0.2.1", "203.0.113.7", [])).toBe("192.0.2.1");
    expect(from("192.0.2.1", "203.0.113.7", ["192.0.2.2"])).toBe("192.0.2.1");
    expect(from("192.0.2.1", "203.0.113.7", ["192.0.2.0/24"])).toBe("203.0.113.7");
    expect(from("192.0.2.1", "1.1.1.1, 203.0.113.7, 192.0.2.9", ["192.0.2.0/24"])).toBe("203.0.113.7");
    for (const nonsense of [null, "", "192.0.2.3", "unknown", "x, ,"]) {
      expect(from("192.0.2.1", nonsense, ["192.0.2.0/24"])).toBe("192.0.2.1");
    }
    expect(from("::1", "2001:db8:1:2:3::4", ["::1"])).toBe("20010db800010002/64");
  });
});

describe("a sign-in", () => {
  const scratch = scratchStores();

  it("replaces a hash with earlier parameters, and none while too many passwords wait", async () => {
    const { clock } = handClock();
    const store = scratch().open();
    const ids = randomIds();
    const tenants = {
      createWith: (tenant_id: string, name: string, guards: readonly Guard[]) => {
        const sql = "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 1)";
        return store.write([{ sql, args: [tenant_id, name] }, ...guards.map(({ statement }) => statement)]);
      },
    };
    const usersWith = (passwords: Passwords) =>
      new Users({
        ...{ store, clock, ids, tenants, passwords, choice: "on", users_max: 10 },
        keys: {
          loginToken: async () => "token",
          forget: () => {},
          revokeAll: async () => ({ conflict: null, revoked_count: 0 }),
          count: async () => 0,
        },
        logins: new Logins({ store, clock, ids }),
        attempts: new Attempts(clock),
      });
    const asked = { email: "a@x", password: "correct horse" };
    await usersWith(new Passwords({ ...CHEAP, memory_kib: 32 })).register({ ...asked, name: "A" }, "s");
    const stored = async () => String((await store.readOne("SELECT password FROM users"))?.password);
    expect(await stored()).toContain("m=32,");
    const busy = new Passwords(CHEAP);
    busy.hash = () => Promise.reject(new AppError("CAPACITY_FULL", "too many"));
    expect((await usersWith(busy).login(asked, "s")).access_token).toBe("token");
    expect(await stored()).toContain("m=32,");
    await usersWith(new Passwords(CHEAP)).login(asked, "s");
    expect(await stored()).toContain("m=64,");
    await usersWith(new Passwords(CHEAP)).login(asked, "s");
  });
});

describe("a login", () => {
  const scratch = scratchStores();
  const open = async () => {
    const { time, clock } = handClock();
    const store = scratch().open();
    await store.write([{ sql: "INSERT INTO tenants (id, name, created_at) VALUES ('ten_a', 'a', 1)" }]);
    const logins = new Logins({ store, clock, ids: randomIds() });
    const begin = async () => {
      const { login, statements } = logins.begin({ user_id: "usr_a", tenant_id: "ten_a" }, "source");
      await store.write(statements);
      return login;
    };
    return { time, store, logins, begin };
  };
  const refused = expect.objectContaining({ code: "UNAUTHORIZED" });
  const nothing = () => {};

  it("ends seven days after its last refresh, and its row is deleted", async () => {
    const { time, store, logins, begin } = await open();
    const login = await begin();
    time.now_ms += (LIMITS.refresh_token_seconds - 1) * 1_000;
    const next = await logins.refresh(login.refresh_token, nothing);
    time.now_ms += (LIMITS.refresh_token_seconds - 1) * 1_000;
    await logins.prune();
    expect(await logins.find(login.login_id)).toMatchObject({ user_id: "usr_a" });
    time.now_ms += 1_000;
    expect(await logins.find(login.login_id)).toBe(null);
    await expect(logins.refresh(next.refresh_token, nothing)).rejects.toEqual(refused);
    await logins.prune();
    expect(await store.read("SELECT id FROM user_logins")).toEqual([]);
  });

  it("ends when any of its newest spent tokens is used; an older one is just refused", async () => {
    const { logins, begin } = await open();
    const login = await begin();
    const tokens = [login.refresh_token];
    for (let i = 0; i <= LIMITS.spent_refresh_tokens_max; i++) {
      tokens.push((await logins.refresh(tokens[i] ?? "", nothing)).refresh_token);
    }
    const ended: string[] = [];
    const end = (id: string) => void ended.push(id);
    await expect(logins.refresh(tokens[0] ?? "", end)).rejects.toEqual(refused);
    expect([ended, await logins.find(login.login_id)]).toEqual([[], expect.anything()]);
    await expect(logins.refresh(tokens[1] ?? "", end)).rejects.toMatchObject({ reason_code: "REFRESH_TOKEN_REUSED" });
    expect([ended, await logins.find(login.login_id)]).toEqual([[login.login_id], null]);
    await expect(logins.refresh(tokens.at(-1) ?? "", end)).rejects.toEqual(refused);
  });

  it("is none of a tenant that is being deleted", async () => {
    const { store, logins, begin } = await open();
    const login = await begin();
    await store.write([{ sql: "UPDATE tenants SET state = 'deleting'" }]);
    expect(await logins.find(login.login_id)).toBe(null);
    await expect(logins.refresh(login.refresh_token, nothing)).rejects.toEqual(refused);
  });
});
