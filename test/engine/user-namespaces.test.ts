/** The decision whether containers have user namespaces. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { UserNamespaces } from "../../src/engine/kernel/user-namespaces.ts";

describe("user namespaces", () => {
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const refused = new AppError("START_FAILED", "crun says no");
  const full = new AppError("CAPACITY_FULL", "no room on the disk");
  /** Fails with each of these in turn, then does not. */
  const failing = (...errors: readonly AppError[]) => {
    const left = [...errors];
    return async () => {
      const error = left.shift();
      if (error !== undefined) throw error;
    };
  };

  it("are decided once, for all who ask meanwhile, and that is not taken back", async () => {
    const users = new UserNamespaces("auto", log);
    expect([users.info.mode, users.areWanted]).toEqual(["unknown", true]);
    const tries = { count: 0 };
    const probe = async () => {
      tries.count++;
    };
    expect(await Promise.all([users.decide(probe), users.decide(probe)])).toEqual([true, true]);
    expect(await users.decide(failing(refused))).toBe(true);
    expect([tries.count, users.goOnWithout(refused), users.info]).toEqual([1, false, { mode: "on", reason: null }]);
  });

  it("are there after a failure that does not come again, and not after one that does", async () => {
    const busy = new UserNamespaces("auto", log);
    expect(await busy.decide(failing(refused, refused))).toBe(true);
    const lacking = new UserNamespaces("auto", log);
    expect(await lacking.decide(failing(...Array(LIMITS.user_namespace_probes_max).fill(refused)))).toBe(false);
    expect([lacking.areWanted, lacking.info]).toEqual([false, { mode: "off", reason: "crun says no" }]);
    expect(await lacking.decide(failing())).toBe(false);
  });

  it("stay undecided where the machine has no room to find out, and are found out about when it has", async () => {
    for (const choice of ["auto", "on"] as const) {
      const users = new UserNamespaces(choice, log);
      await expect(users.decide(failing(full))).rejects.toThrow("no room");
      await users.settled();
      expect([users.areWanted, users.info]).toEqual([true, { mode: "unknown", reason: "no room on the disk" }]);
      expect(await users.decide(failing())).toBe(true);
    }
  });

  it("that have to be there are not gone without, and those that must not are not looked for", async () => {
    const needed = new UserNamespaces("on", log);
    const probe = failing(...Array(LIMITS.user_namespace_probes_max).fill(refused));
    await expect(needed.decide(probe)).rejects.toThrow("HEARTH_USER_NAMESPACES is on, and they do not work here: crun");
    expect([needed.areWanted, needed.goOnWithout(refused)]).toEqual([true, false]);
    const unwanted = new UserNamespaces("off", log);
    expect([await unwanted.decide(failing(refused)), unwanted.areWanted]).toEqual([false, false]);
  });

  it("have ranges that are apart, and end before what systemd leaves to containers does", () => {
    const slots_max = LIMITS.instances_max + LIMITS.containers_max + 64;
    const [first, second, last] = [0, 1, slots_max - 1].map((index) => UserNamespaces.firstId(index));
    expect([first, second]).toEqual([720_044_032, 720_044_032 + 65_536]);
    expect(first).toBeGreaterThan(LIMITS.instance_uid_base + slots_max);
    expect((last ?? 0) + 65_535).toBeLessThan(1_879_048_191);
  });
});
