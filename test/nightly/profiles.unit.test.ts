/** Rebuilds by schedule and rollbacks of channels, by a clock and builds of this test. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { Log, LogFields } from "../../src/base/log.ts";
import { ProfileBuilds } from "../../src/nightly/builds.ts";
import { Profiles } from "../../src/nightly/service.ts";
import type { Operations } from "../../src/operations/service.ts";
import { HandClock, settled } from "../pool/hand-clock.ts";
import { FakeCatalog } from "../support/fake-catalog.ts";

const HOUR_MS = 3_600_000;
const UPDATE = { name: "bash", version: "1", new_version: "2", origin: "Debian:bookworm", is_security: true };

/** `upper` lies on `base`, `other` beside it, `absent` has no release. `outdated` names profiles with newer packages. */
function made(rebuild_hours: number, outdated: readonly string[] = []) {
  const [clock, catalog] = [new HandClock(), new FakeCatalog()];
  catalog.add("upper", "base");
  catalog.add("base");
  catalog.add("other");
  catalog.add("absent");
  for (const name of ["upper", "base", "other"]) catalog.release(name, "00000001", ["latest"]);
  const asked: string[] = [];
  const logged: [string, LogFields | undefined][] = [];
  const failing = new Set<string>();
  const note = (message: string, fields?: LogFields) => void logged.push([message, fields]);
  const log: Log = { debug: () => {}, info: note, warn: note, error: note };
  const builds = new ProfileBuilds({
    runSetup: async ([verb = "", name = "", ...flags]) => {
      asked.push([verb, name, ...flags].join(" "));
      if (failing.has(`${verb} ${name}`)) throw new AppError("START_FAILED", `no ${verb} of ${name}`);
      if (verb === "updates") return { updates: outdated.includes(name) ? [UPDATE] : [] };
      if (verb === "rebuild") catalog.release(name, "00000002", ["latest"]);
      if (verb === "rollback") {
        const value = (flag: string) => flags.find((one) => one.startsWith(flag))?.slice(flag.length + 1) ?? "";
        catalog.move(name, value("--channel") === "stable" ? "stable" : "latest", value("--version"));
      }
      return {};
    },
    clock,
    log,
    onEnd: () => {},
  });
  const operations = { register: () => {} } as unknown as Operations;
  const profiles = new Profiles({ catalog, builds, operations, clock, log, rebuild_hours });
  /** Lets periodic work run, and the rebuilds that it begins. */
  const prune = async () => {
    await profiles.prune();
    for (let i = 0; i < 50; i++) await settled();
  };
  return { clock, catalog, asked, logged, failing, profiles, prune };
}
type Made = ReturnType<typeof made>;
const latest = ({ profiles }: Made, name: string) => profiles.find(name, "latest")?.version.slice(-1);

/** Builds that a test ends. */
function byHand() {
  const clock = new HandClock();
  const begun: { readonly name: string; readonly end: () => void; readonly fail: (error: Error) => void }[] = [];
  const builds = new ProfileBuilds({
    runSetup: ([, name = ""], { signal }) => {
      const { promise, resolve, reject } = Promise.withResolvers<Record<string, unknown>>();
      begun.push({ name, end: () => resolve({}), fail: reject });
      signal.addEventListener("abort", () => reject(signal.reason));
      return promise;
    },
    clock,
    log: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
    onEnd: () => {},
  });
  /** One more request of a tenant waits for the first build of a profile. */
  const wait = (tenant_id: string, name: string, signal = new AbortController().signal) => {
    const waits = builds.ensure(tenant_id, name, { signal, timeout_ms: LIMITS.profile_wait_ms });
    const state = { is: "waiting" };
    const settle = (is: string) => () => void Object.assign(state, { is });
    waits.then(settle("built"), settle("refused"));
    return { state, waits };
  };
  return { clock, builds, begun, wait };
}

describe("a first use", () => {
  it("waits as long as its build, and the builds before it, take", async () => {
    const { clock, begun, wait } = byHand();
    const [first, second] = [wait("a", "one"), wait("a", "two")];
    await clock.pass(LIMITS.profile_build_ms);
    expect([first.state.is, second.state.is, begun.length]).toEqual(["waiting", "waiting", 1]);
    begun[0]?.end();
    await clock.pass(LIMITS.profile_build_ms);
    expect([first.state.is, second.state.is, begun.length]).toEqual(["built", "waiting", 2]);
    begun[1]?.end();
    await second.waits;
  });

  it("shares one build with all that wait for it, as many as there may be open operations", async () => {
    const { begun, wait } = byHand();
    const all = Array.from({ length: LIMITS.profile_waiters_per_tenant_max }, () => wait("a", "one"));
    await expect(wait("a", "one").waits).rejects.toMatchObject({ code: "QUEUE_FULL", retry_after: 10 });
    const other = wait("b", "one");
    await settled();
    expect([begun.length, other.state.is]).toEqual([1, "waiting"]);
    begun[0]?.end();
    await Promise.all([other.waits, ...all.map(({ waits }) => waits)]);
    // Their places are free again.
    const next = wait("a", "one");
    begun[1]?.end();
    await next.waits;
  });

  it("that is given up leaves the build to the next one, which joins it", async () => {
    const { builds, begun, wait } = byHand();
    const leaving = new AbortController();
    const left = wait("a", "one", leaving.signal);
    leaving.abort();
    await expect(left.waits).rejects.toMatchObject({ reason_code: "PROFILE_BUILDING" });
    expect(builds.running("one")).not.toBeNull();
    const joined = wait("a", "one");
    expect(begun.length).toBe(1);
    begun[0]?.end();
    await joined.waits;
  });
});

describe("a rebuild by schedule", () => {
  it("begins after its hours, again after as many, and rebuilds the lowest outdated profiles first", async () => {
    const own = made(24, ["upper", "base"]);
    const { clock, asked, prune, logged } = own;
    await clock.pass(24 * HOUR_MS - 1);
    await prune();
    expect(asked).toEqual([]);
    await clock.pass(1);
    await prune();
    expect(asked.map((one) => one.replace(/ --version=.*/, ""))).toEqual([
      "updates base",
      "rebuild base --only",
      "updates other",
      "updates upper",
      "rebuild upper --only",
    ]);
    expect(["base", "other", "upper"].map((name) => latest(own, name))).toEqual(["2", "1", "2"]);
    expect(logged.filter(([message]) => message === "profile rebuilt").map(([, fields]) => fields)).toMatchObject([
      { profile: "base", updates_count: 1 },
      { profile: "upper", updates_count: 1 },
    ]);
    asked.length = 0;
    await prune();
    await clock.pass(23 * HOUR_MS);
    await prune();
    expect(asked).toEqual([]);
    await clock.pass(HOUR_MS);
    await prune();
    expect(asked.filter((one) => one.startsWith("updates"))).toHaveLength(3);
  });

  it("never begins where the setting is 0", async () => {
    const { clock, asked, prune } = made(0, ["base"]);
    await clock.pass(1_000 * HOUR_MS);
    await prune();
    expect(asked).toEqual([]);
  });

  it("that fails is logged, keeps the release, and is tried again at the next time", async () => {
    const own = made(1, ["base"]);
    const { clock, failing, prune, logged } = own;
    failing.add("rebuild base");
    await clock.pass(HOUR_MS);
    await prune();
    expect(latest(own, "base")).toBe("1");
    expect(logged.map(([message]) => message)).toContain("profile not rebuilt");
    failing.clear();
    await clock.pass(Math.max(HOUR_MS, LIMITS.profile_backoff_ms_max));
    await prune();
    expect(latest(own, "base")).toBe("2");
  });
});

describe("a rollback", () => {
  it("returns a channel to the release before, release after release, until there is none", async () => {
    const { catalog, profiles } = made(0);
    const [first, second, third] = ["00000001", "00000002", "00000003"].map((suffix) =>
      catalog.release("other", suffix, ["latest"]),
    );
    expect(await profiles.rollback("other", "latest")).toEqual({
      ...{ version: second?.version, previous_version: third?.version },
    });
    expect(profiles.find("other", "latest")?.version).toBe(second?.version);
    expect(profiles.select("other").version).toBe(second?.version);
    expect(profiles.recordOf(second ?? profiles.select("other")).channels).toEqual(["latest"]);
    expect((await profiles.rollback("other", "latest")).version).toBe(first?.version);
    await expect(profiles.rollback("other", "latest")).rejects.toMatchObject({ code: "WRONG_STATE" });
    // Versions stay usable by name.
    expect(profiles.select(`other@${third?.version}`).version).toBe(third?.version);
  });

  it("passes over releases whose image is gone", async () => {
    const { catalog, profiles } = made(0);
    catalog.add("thin");
    const [kept, gone, last] = ["1", "2", "3"].map((one) => catalog.release("thin", `0000000${one}`, ["stable"]));
    if (kept === undefined || gone === undefined || last === undefined) throw new Error("no releases");
    catalog.lose(gone);
    expect(await profiles.rollback("thin", "stable")).toEqual({
      ...{ version: kept.version, previous_version: last.version },
    });
  });
});
