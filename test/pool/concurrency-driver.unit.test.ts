/** Several calls in one instance, as the launcher sees them. */
import { describe, expect, test } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { type Desk, desk, F, POLICY } from "./desk.ts";
import { settled } from "./hand-clock.ts";

describe("a group with concurrency", () => {
  const SHARED = { ...POLICY, concurrency: 3, max_instances: 1, is_ungated: true };

  /** An instance that runs three calls. */
  async function shared(gate = 4, policy = SHARED): Promise<Desk & { readonly answers: Promise<string>[] }> {
    const made = desk(gate);
    made.pool.setGroup(F, policy);
    const answers = ["a", "b", "c"].map((call) => made.submit(call));
    made.launcher.starts.get("i1")?.resolve();
    await settled();
    return { ...made, answers };
  }

  test("has several calls of one instance in the launcher, and binds it with the first", async () => {
    const { launcher, pool, answers } = await shared();
    expect(launcher.invocations.map(({ instance, call, info }) => [instance, call, info.specialise])).toEqual([
      ["i1", "a", true],
      ["i1", "b", false],
      ["i1", "c", false],
    ]);
    expect(pool.status(F)).toMatchObject({ busy_count: 1, calls_running: 3 });
    for (const call of ["c", "a", "b"]) launcher.invocation(call).finish(call.toUpperCase()).idle();
    expect(await Promise.all(answers)).toEqual(["A", "B", "C"]);
    await settled();
    expect(pool.status(F)).toMatchObject({ ready_count: 1, calls_running: 0 });
    expect(pool.totals().calls_running).toBe(0);
  });

  test("gives the place of a call to the next one while the others run", async () => {
    const { launcher, submit } = await shared();
    const next = submit("d");
    launcher.invocation("b").finish("B").idle();
    await settled();
    expect(launcher.invocation("d")).toMatchObject({ instance: "i1", info: { cold: false, specialise: false } });
    launcher.invocation("d").finish("D");
    expect(await next).toBe("D");
  });

  test("answers each call of a lost instance once, and removes it once", async () => {
    const { launcher, pool, answers, faults } = await shared();
    const outcomes = Promise.allSettled(answers);
    launcher.invocation("b").finish("B", false);
    launcher.invocation("a").fail(new AppError("INTERNAL", "socket closed"));
    launcher.invocation("c").fail(new AppError("INTERNAL", "socket closed"));
    expect((await outcomes).map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected"]);
    expect([...launcher.removes.keys()]).toEqual(["i1"]);
    launcher.removeAll();
    await settled();
    expect(pool.status(F)).toMatchObject({ total_count: 0, calls_running: 0 });
    expect(faults).toEqual([]);
  });

  test("removes an instance that is not to be used again after its last call", async () => {
    const { launcher, pool, submit, answers } = await shared();
    launcher.invocation("a").finish("A", false);
    await settled();
    const next = submit("d");
    expect(launcher.removes.size).toBe(0);
    launcher.invocation("b").finish("B").idle();
    launcher.invocation("c").finish("C").idle();
    expect(await Promise.all(answers)).toEqual(["A", "B", "C"]);
    await settled();
    expect(launcher.removes.get("i1")?.reason).toBe("used_up");
    launcher.starts.get("i2")?.resolve();
    await settled();
    expect(launcher.invocation("d").instance).toBe("i2");
    launcher.invocation("d").finish("D");
    expect(await next).toBe("D");
    expect(pool.status(F).calls_running).toBe(0);
  });

  test("gives all calls that wait at the gate for a lost instance to another one", async () => {
    const { clock, launcher, answers } = await shared(1, { ...SHARED, is_ungated: false });
    expect(launcher.invocations.map(({ call }) => call)).toEqual(["a"]);
    const lost = expect(answers[0]).rejects.toThrow("lost");
    launcher.crash("i1", "lost");
    launcher.invocation("a").fail(new AppError("INTERNAL", "lost"));
    await lost;
    launcher.starts.get("i2")?.resolve();
    await settled();
    await clock.pass(10);
    expect(launcher.invocations.slice(1).map(({ instance, call }) => [instance, call])).toEqual([
      ["i2", "b"],
      ["i2", "c"],
    ]);
    for (const call of ["b", "c"]) launcher.invocation(call).finish("done");
    expect(await Promise.all(answers.slice(1))).toEqual(["done", "done"]);
  });

  test("reports a concurrency out of bounds as a fault and makes no group", () => {
    const { pool, faults } = desk();
    pool.setGroup(F, { ...SHARED, concurrency: 101 });
    expect(String(faults[0])).toContain("P2: fn_a@1 cannot have a concurrency of 101");
    expect(pool.status(F).total_count).toBe(0);
  });
});
