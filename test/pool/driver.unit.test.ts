import { describe, expect, test } from "vitest";
import type { Invoked } from "../../pool/index.ts";
import { AppError, InvariantError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { type Desk, desk, F, POLICY } from "./desk.ts";
import { settled } from "./hand-clock.ts";
import { ROOMY } from "./scene.ts";

describe("submit", () => {
  test("has invoked the launcher before it returns when an instance is ready", async () => {
    const { launcher, submit, ready, pool } = desk();
    await ready();
    const answer = submit("a");
    expect(launcher.invocations).toMatchObject([
      { instance: "i1", group: F, call: "a", info: { cold: false, specialise: false, cell_hit: false, waited_ms: 0 } },
    ]);
    const { idle } = launcher.invocation("a").finish("done");
    expect(await answer).toBe("done");
    expect(pool.status(F)).toMatchObject({ recycling_count: 1, ready_count: 0 });
    idle();
    await settled();
    expect(pool.status(F)).toMatchObject({ recycling_count: 0, ready_count: 1 });
  });

  test("starts an instance for the first call and tells how long it waited", async () => {
    const { clock, launcher, pool, submit } = desk();
    pool.setGroup(F, POLICY);
    const answer = submit("a");
    await clock.pass(12);
    launcher.starts.get("i1")?.resolve();
    await settled();
    expect(launcher.invocation("a").info).toEqual({ cold: true, specialise: true, cell_hit: false, waited_ms: 12 });
    launcher.invocation("a").finish("done");
    expect(await answer).toBe("done");
  });

  test("is rejected with the refusal's code and the seconds to the next try", async () => {
    const { clock, pool, submit } = desk();
    pool.setGroup(F, { ...POLICY, max_instances: 1, queue_max: 1 });
    const first = submit("a", 100);
    const second = submit("b");
    await expect(second).rejects.toMatchObject({ code: "QUEUE_FULL", retry_after: 1 });
    const late = expect(first).rejects.toMatchObject({ code: "QUEUE_TIMEOUT" });
    await clock.pass(100);
    await late;
    await expect(pool.submit("fn_x@1", "c", { deadline_ms: 1e9 })).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  test("is rejected with the launcher's error, and the instance removed, when the instance is lost", async () => {
    const { launcher, pool, submit, ready } = desk();
    await ready();
    const answer = submit("a");
    launcher.invocation("a").fail(new AppError("INTERNAL", "socket closed"));
    await expect(answer).rejects.toThrow("socket closed");
    expect(launcher.removes.get("i1")?.reason).toBe("crashed");
    expect(pool.totals()).toMatchObject({ crashed_count: 1, terminating_count: 1 });
  });

  test("is rejected when the launcher throws at once", async () => {
    const { launcher, submit, ready } = desk();
    await ready();
    launcher.invoke = () => {
      throw new AppError("INTERNAL", "no socket");
    };
    await expect(submit("a")).rejects.toThrow("no socket");
  });

  test("leaves the queue when its signal is aborted, and not any more when it runs", async () => {
    const { launcher, pool, submit } = desk();
    pool.setGroup(F, { ...POLICY, max_instances: 1 });
    const running = new AbortController();
    const waiting = new AbortController();
    const first = submit("a", 30_000, running.signal);
    const second = submit("b", 30_000, waiting.signal);
    launcher.starts.get("i1")?.resolve();
    await settled();
    waiting.abort(new AppError("INTERNAL", "caller gone"));
    running.abort();
    await expect(second).rejects.toThrow("caller gone");
    expect(pool.totals().queued).toBe(0);
    launcher.invocation("a").finish("done").idle();
    expect(await first).toBe("done");
    await settled();
    expect(launcher.invocations).toHaveLength(1);
    await expect(submit("c", 1, waiting.signal)).rejects.toThrow("caller gone");
  });

  test("loses an instance that cannot be cleaned up", async () => {
    const { launcher, submit, ready } = desk();
    await ready();
    const answer = submit("a");
    const { spoil } = launcher.invocation("a").finish("done");
    spoil(new AppError("INTERNAL", "kill failed"));
    expect(await answer).toBe("done");
    await settled();
    expect(launcher.removes.get("i1")?.reason).toBe("crashed");
  });
});

describe("the dispatch gate", () => {
  async function withReady(count: number, gate: number): Promise<Desk> {
    const made = desk(gate);
    const { launcher, pool, submit, clock } = made;
    pool.setGroup(F, POLICY);
    const answers = Array.from({ length: count }, (_, i) => submit(`warm ${i}`));
    for (const { resolve } of launcher.starts.values()) resolve();
    await settled();
    await clock.pass(count * 5);
    for (let i = 0; i < count; i++) launcher.invocation(`warm ${i}`).finish("warm").idle();
    await Promise.all(answers);
    await settled();
    launcher.invocations.length = 0;
    return made;
  }

  test("lets the next call through when an outcome is there", async () => {
    const { launcher, submit } = await withReady(2, 1);
    const answers = [submit("a"), submit("b")];
    expect(launcher.invocations.map(({ call }) => call)).toEqual(["a"]);
    launcher.invocation("a").finish("A").idle();
    await settled();
    expect(launcher.invocations.map(({ call }) => call)).toEqual(["a", "b"]);
    launcher.invocation("b").finish("B").idle();
    expect(await Promise.all(answers)).toEqual(["A", "B"]);
  });

  test("lets the next call through after five milliseconds, and counts them as waiting", async () => {
    const { clock, launcher, submit } = await withReady(2, 1);
    const answers = [submit("a"), submit("b")];
    await clock.pass(4);
    expect(launcher.invocations).toHaveLength(1);
    await clock.pass(1);
    expect(launcher.invocation("b").info).toMatchObject({ waited_ms: 5, cold: false });
    for (const { finish } of launcher.invocations) finish("done");
    await Promise.all(answers);
  });

  test("lets the next call through when the one before fails", async () => {
    const { launcher, submit } = await withReady(2, 1);
    const failed = expect(submit("a")).rejects.toThrow("lost");
    const answer = submit("b");
    launcher.invocation("a").fail(new AppError("INTERNAL", "lost"));
    await failed;
    launcher.invocation("b").finish("B");
    expect(await answer).toBe("B");
  });

  test("gives a call whose instance is lost while it waits there to another instance", async () => {
    const { clock, launcher, submit } = await withReady(3, 1);
    const answers = [submit("a"), submit("b")];
    launcher.crash("i2", "lost");
    expect(launcher.removes.has("i2")).toBe(true);
    await clock.pass(5);
    expect(launcher.invocation("b").instance).not.toBe("i2");
    for (const { finish } of launcher.invocations) finish("done").idle();
    expect(await Promise.all(answers)).toEqual(["done", "done"]);
  });

  test("is passed by for groups that spawn nothing", async () => {
    const { launcher, pool, submit } = await withReady(3, 1);
    pool.setGroup(F, { ...POLICY, is_ungated: true });
    const answers = [submit("a"), submit("b"), submit("c")];
    expect(launcher.invocations).toHaveLength(3);
    for (const { finish } of launcher.invocations) finish("done");
    await Promise.all(answers);
  });
});

describe("warm", () => {
  test("resolves when the minimum is ready", async () => {
    const { launcher, pool, clock } = desk();
    pool.setGroup(F, { ...POLICY, min_instances: 2 });
    let isWarm = false;
    const warm = pool.warm(F, 60_000).then(() => {
      isWarm = true;
    });
    for (const { resolve } of launcher.starts.values()) resolve();
    await settled();
    launcher.specialises.get("i1")?.resolve();
    await settled();
    expect(isWarm).toBe(false);
    launcher.specialises.get("i2")?.resolve();
    await warm;
    // No keep-alive and no deadline is left; the timer of the demand for cells ends after three halvings.
    await clock.pass(3 * LIMITS.cell_demand_ms);
    expect(clock.timer_count).toBe(0);
  });

  test("resolves at once without a minimum", async () => {
    const { pool } = desk();
    pool.setGroup(F, POLICY);
    await pool.warm(F, 1);
  });

  test("rejects with START_FAILED when every attempt failed", async () => {
    const { launcher, pool, clock } = desk();
    pool.setGroup(F, { ...POLICY, min_instances: 1 });
    const warm = expect(pool.warm(F, 60_000)).rejects.toMatchObject({
      code: "START_FAILED",
      message: "cannot start an instance of fn_a@1: no image",
    });
    for (const name of ["i1", "i2", "i3"]) {
      launcher.starts.get(name)?.reject(new AppError("INTERNAL", "no image"));
      await settled();
      launcher.removes.get(name)?.resolve();
      await clock.pass(5_000);
    }
    await warm;
  });

  test("rejects with START_FAILED at its deadline, and with the drop's refusal when the group is dropped", async () => {
    const { launcher, pool, clock } = desk();
    pool.setGroup(F, { ...POLICY, min_instances: 1 });
    const late = expect(pool.warm(F, 50)).rejects.toMatchObject({ code: "START_FAILED" });
    await clock.pass(50);
    await late;
    launcher.starts.get("i1")?.resolve();
    await settled();
    const dropped = expect(pool.warm(F, 50)).rejects.toMatchObject({ code: "WRONG_STATE" });
    const gone = pool.dropGroup(F, "paused", { deadline_ms: 1_000 });
    await dropped;
    launcher.removeAll();
    await gone;
    await expect(pool.warm(F, 50)).rejects.toMatchObject({ code: "NOT_FOUND" });
  });
});

describe("the limits of an owner", () => {
  const OWNED = { ...POLICY, owner: "ten_a", memory_mb: 512 };

  test("refuse a call that no instance within them could serve", async () => {
    const { pool, submit } = desk();
    pool.setGroup(F, OWNED);
    pool.setOwner("ten_a", { instances_max: null, memory_mb_max: 256 });
    const message = "memory_mb_max of the tenant exceeded: one instance of this function needs 512 MiB (limit 256 MiB)";
    await expect(submit("a")).rejects.toMatchObject({ code: "QUOTA_EXCEEDED", message, retry_after: null });
  });

  test("let a deploy fail at once that needs more than they can ever hold", async () => {
    const { pool } = desk();
    pool.setOwner("ten_a", { instances_max: 1, memory_mb_max: null });
    pool.setGroup(F, { ...OWNED, min_instances: 2 });
    await expect(pool.warm(F, 60_000)).rejects.toMatchObject({
      code: "QUOTA_EXCEEDED",
      message: "instances_max of the tenant exceeded: this function needs 2 instances (limit 1)",
    });
  });

  test("let a deploy fail at its deadline when others hold what it needs, and name the limit", async () => {
    const { pool, launcher, clock, submit } = desk();
    pool.setOwner("ten_a", { instances_max: null, memory_mb_max: 768 });
    pool.setGroup(F, OWNED);
    const answer = submit("a");
    launcher.starts.get("i1")?.resolve();
    await settled();
    pool.setGroup("fn_b@1", { ...OWNED, min_instances: 1 });
    const late = expect(pool.warm("fn_b@1", 50)).rejects.toMatchObject({
      code: "START_FAILED",
      message: "fn_b@1 not warm after 50 ms: memory_mb_max of the tenant reached: 512 MiB in use (limit 768 MiB)",
    });
    await clock.pass(50);
    await late;
    launcher.invocation("a").finish("done");
    await answer;
  });
});

describe("dropping a group", () => {
  test("resolves when its last instance is gone", async () => {
    const { launcher, pool, ready, clock } = desk();
    await ready();
    const gone = pool.dropGroup(F, "deleted", { deadline_ms: 1_000 });
    expect(launcher.removes.get("i1")?.reason).toBe("dropped");
    launcher.removes.get("i1")?.resolve();
    await gone;
    expect(pool.status(F).total_count).toBe(0);
    await clock.pass(3 * LIMITS.cell_demand_ms);
    expect(clock.timer_count).toBe(0);
  });

  test("does not make the launcher forget a group that is set again in the step that forgets it", async () => {
    const { clock, launcher, pool, submit } = desk(4, { ...ROOMY, instances_max: 0 });
    pool.setGroup(F, POLICY);
    const late = expect(submit("a", 100)).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    pool.retireGroup(F);
    // The clock moves and its timers have not fired yet.
    clock.now_ms += 100;
    pool.setGroup(F, { ...POLICY, is_ungated: true });
    await late;
    expect(launcher.forgotten).toEqual([]);
  });

  test("lets the launcher forget the group with its last instance, and not when it is set again before", async () => {
    const { launcher, pool, ready } = desk();
    await ready();
    const first = expect(pool.dropGroup(F, "paused", { deadline_ms: 1_000 })).rejects.toThrow("set again");
    pool.setGroup(F, POLICY);
    launcher.removes.get("i1")?.resolve();
    await first;
    await settled();
    expect(launcher.forgotten).toEqual([]);
    await pool.dropGroup(F, "paused", { deadline_ms: 1_000 });
    expect(launcher.forgotten).toEqual([F]);
  });

  test("rejects when a call runs longer, and ends it with force", async () => {
    const { clock, launcher, pool, submit, ready } = desk();
    await ready();
    const answer = submit("a");
    const late = expect(pool.dropGroup(F, "deleted", { deadline_ms: 100 })).rejects.toThrow("still has 1 instances");
    await clock.pass(100);
    await late;
    const gone = pool.dropGroup(F, "deleted", { deadline_ms: 100, force: true });
    expect(launcher.removes.get("i1")?.reason).toBe("dropped");
    launcher.invocation("a").fail(new AppError("INTERNAL", "killed"));
    await expect(answer).rejects.toThrow("killed");
    launcher.removes.get("i1")?.resolve();
    await gone;
  });

  test("rejects when the group is set again meanwhile", async () => {
    const { pool, ready } = desk();
    await ready();
    const gone = expect(pool.dropGroup(F, "paused", { deadline_ms: 100 })).rejects.toThrow("set again");
    pool.setGroup(F, POLICY);
    await gone;
  });
});

describe("draining", () => {
  test("waits for running calls and then for the removal of everything", async () => {
    const { launcher, pool, submit, ready } = desk();
    await ready();
    pool.setCells(1);
    launcher.starts.get("i2")?.resolve();
    await settled();
    const answer = submit("a");
    const drained = pool.drain(20_000);
    await expect(submit("b")).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
    launcher.invocation("a").finish("done").idle();
    expect(await answer).toBe("done");
    await settled();
    expect([...launcher.removes.keys()].sort()).toEqual(["i1", "i2"]);
    launcher.removeAll();
    expect(await drained).toBe(true);
    expect(pool.totals()).toMatchObject({ total_count: 0, cells: 0 });
  });

  test("ends running calls at its deadline", async () => {
    const { clock, launcher, pool, submit, ready } = desk();
    await ready();
    const answer = expect(submit("a")).rejects.toThrow("killed");
    const drained = pool.drain(20_000);
    await clock.pass(20_000);
    expect(launcher.removes.get("i1")?.reason).toBe("dropped");
    launcher.invocation("a").fail(new AppError("INTERNAL", "killed"));
    launcher.removeAll();
    await answer;
    expect(await drained).toBe(true);
  });

  test("does not wait for ever for a launcher that cannot remove", async () => {
    const { clock, pool, ready } = desk();
    await ready();
    const drained = pool.drain(1_000);
    await clock.pass(600_000);
    // The launcher never removed it; the pool stopped waiting and counted that.
    expect(await drained).toBe(true);
    expect(pool.totals().remove_failed_count).toBe(1);
  });
});

describe("a launcher that never answers", () => {
  test("costs a start its instance after the start's deadline", async () => {
    const { clock, launcher, pool, submit } = desk();
    pool.setGroup(F, POLICY);
    const answer = submit("a", 60_000);
    await clock.pass(11_000);
    expect(launcher.removes.get("i1")?.reason).toBe("start_failed");
    expect(pool.status(F).last_error).toContain("start has not ended after 11000 ms");
    launcher.starts.get("i2")?.resolve();
    await settled();
    launcher.invocation("a").finish("done");
    expect(await answer).toBe("done");
    // The first one comes up after all: it is on its way out and serves nobody.
    launcher.starts.get("i1")?.resolve();
    await settled();
    expect(pool.status(F).warming_count).toBe(0);
  });
});

test("a crash that is reported while effects are carried out waits its turn", async () => {
  const { launcher, pool, submit, ready, faults } = desk();
  await ready();
  const invoke = launcher.invoke.bind(launcher);
  launcher.invoke = (instance, group, call, info) => {
    launcher.crash(instance, "gone before it began");
    return invoke(instance, group, call, info);
  };
  const answer = expect(submit("a")).rejects.toThrow("lost");
  expect(pool.status(F)).toMatchObject({ terminating_count: 1, busy_count: 0 });
  launcher.invocation("a").fail(new AppError("INTERNAL", "lost"));
  await answer;
  expect(faults).toEqual([]);
});

test("what a launcher or a listener throws out of turn is reported once and stops nothing", async () => {
  const { launcher, pool, submit, ready, faults } = desk();
  await ready();
  launcher.forget = () => {
    throw new InvariantError("forgetful");
  };
  await pool.dropGroup("fn_other@1", "paused", { deadline_ms: 1_000 });
  const invoke = launcher.invoke.bind(launcher);
  // An outcome without its promise of an idle instance: the pool's own handler throws.
  launcher.invoke = async () => ({ outcome: "done", reuse: true }) as unknown as Invoked<string>;
  expect(await submit("a")).toBe("done");
  await settled();
  expect(faults.map(String)).toEqual([expect.stringContaining("forgetful"), expect.stringContaining("TypeError")]);
  launcher.invoke = invoke;
  launcher.crash("i1", "lost");
  const answer = submit("b");
  launcher.starts.get("i2")?.resolve();
  await settled();
  launcher.invocation("b").finish("done");
  expect(await answer).toBe("done");
});

test("a fault is reported with the last events, and the call is rejected instead of lost", async () => {
  let isBroken = false;
  const settings = {
    ...ROOMY,
    get starts_max(): number {
      if (isBroken) throw new InvariantError("broken on purpose");
      return ROOMY.starts_max;
    },
  };
  const { launcher, pool, submit, faults } = desk(4, settings);
  pool.setGroup(F, { ...POLICY, max_instances: 1 });
  isBroken = true;
  await expect(submit("a")).rejects.toThrow("broken on purpose");
  expect(faults).toHaveLength(1);
  expect(pool.recent().at(-1)).toMatchObject({ type: "call_arrived", group: F });
  isBroken = false;
  // The scheduler still holds the first call: the instance that it gets for nobody is removed, the next one serves.
  const answer = submit("b");
  launcher.starts.get("i1")?.resolve();
  await settled();
  expect(launcher.removes.get("i1")?.reason).toBe("used_up");
  launcher.starts.get("i2")?.resolve();
  await settled();
  launcher.invocation("b").finish("done");
  expect(await answer).toBe("done");
});
