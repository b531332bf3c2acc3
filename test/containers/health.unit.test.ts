/** Health checks on a clock that moves by hand, in containers whose commands end as the test says. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { HealthChecks } from "../../src/containers/health/checks.ts";
import type { HealthCheck } from "../../src/containers/health/schema.ts";
import { PROFILE_SETTINGS } from "../../src/containers/image-settings.ts";
import type { ContainerRow } from "../../src/containers/rows.ts";
import type { Engine, GatheredExit, RunRequest } from "../../src/engine/ports.ts";
import { HandClock, settled } from "../pool/hand-clock.ts";
import { quietLog } from "../store/scratch.ts";

const HEALTH: HealthCheck = {
  command: ["check"],
  interval_seconds: 10,
  timeout_seconds: 3,
  start_period_seconds: 0,
  retries: 3,
  on_unhealthy: "none",
};

interface Running {
  readonly id: string;
  readonly request: RunRequest;
  isClosed: boolean;
  end(exit: Partial<GatheredExit>): Promise<void>;
  fail(error: Error): Promise<void>;
}

function ground(more: Partial<HealthCheck> = {}) {
  const clock = new HandClock();
  const running: Running[] = [];
  const events: string[] = [];
  const restarts: string[] = [];
  const rows = new Map<string, ContainerRow>();
  const engine = {
    containers: {
      live: (id: string) => (rows.has(id) ? { id, gpus: { gpu_ids: [], environment: {} } } : null),
      run: (id: string, request: RunRequest) => {
        const exited = Promise.withResolvers<GatheredExit>();
        const exit = { stdout: Buffer.from("out"), stderr: Buffer.from("err"), timed_out: false, exit_code: 0 };
        const one: Running = {
          id,
          request,
          isClosed: false,
          end: async (how) => {
            exited.resolve({ ...exit, ...how } as GatheredExit);
            await settled();
          },
          fail: async (error) => {
            exited.reject(error);
            await settled();
          },
        };
        running.push(one);
        const close = () => {
          one.isClosed = true;
          exited.reject(new AppError("INTERNAL", "closed"));
        };
        return { started: Promise.resolve({ pid: 1 }), exited: exited.promise, close };
      },
    },
  } as unknown as Engine;
  const checks = new HealthChecks({
    engine,
    clock,
    log: quietLog,
    read: async (id) => rows.get(id) ?? null,
    emit: async (_, status, failing_streak) => void events.push(`${status} ${failing_streak}`),
    restart: async (id, reason) => void restarts.push(`${id}: ${reason}`),
  });
  const row = (id: string, tenant_id = "a") =>
    ({
      ...PROFILE_SETTINGS,
      id,
      tenant_id,
      name: id,
      state: "running",
      is_wanted: true,
      environment: { A: "b" },
      working_directory: "/w",
      started_at_ms: clock.epochMs(),
      health: { ...HEALTH, ...more },
    }) as unknown as ContainerRow;
  const watch = (id = "c", tenant_id = "a", isAdopted = false) => {
    const one = row(id, tenant_id);
    rows.set(id, one);
    checks.watch(one, isAdopted);
    return one;
  };
  /** Lets the next check begin and end. */
  const next = async (exit: Partial<GatheredExit>) => {
    const before = running.length;
    while (running.length === before) await clock.pass(1_000);
    await running.at(-1)?.end(exit);
  };
  return { clock, running, events, restarts, rows, checks, watch, next };
}

describe("a health check", () => {
  it("runs the command as the container's others, after each interval, and never twice at a time", async () => {
    const { clock, running, checks, watch } = ground();
    const row = watch();
    expect(checks.recordOf(row)).toMatchObject({ status: "starting", failing_streak: 0, last_check: null });
    await clock.pass(9_999);
    expect(running).toHaveLength(0);
    await clock.pass(1);
    expect(running[0]?.request).toMatchObject({
      argv: ["check"],
      working_directory: "/w",
      timeout_ms: 3_000,
      grace_ms: 0,
      environment: expect.arrayContaining(["A=b", "HOME=/root"]),
    });
    await clock.pass(60_000);
    expect(running).toHaveLength(1);
    await running[0]?.end({});
    expect(checks.recordOf(row)).toMatchObject({
      status: "healthy",
      last_check: { exit_code: 0, output: "outerr", duration_ms: 60_000 },
    });
    await clock.pass(10_000);
    expect(running).toHaveLength(2);
  });

  it("makes a container unhealthy after so many failures in a row, and healthy after one success", async () => {
    const { events, checks, watch, next } = ground();
    const row = watch();
    const statuses: string[] = [];
    for (const exit_code of [0, 1, 1, 0, 127, 1, 2, 1, 0]) {
      await next({ exit_code });
      const { status, failing_streak } = checks.recordOf(row) ?? {};
      statuses.push(`${status} ${failing_streak}`);
    }
    expect(statuses).toEqual([
      "healthy 0",
      "healthy 1",
      "healthy 2",
      "healthy 0",
      "healthy 1",
      "healthy 2",
      "unhealthy 3",
      "unhealthy 4",
      "healthy 0",
    ]);
    expect(events).toEqual(["healthy 0", "unhealthy 3", "healthy 0"]);
  });

  it("fails at its timeout, and if minit does not answer", async () => {
    const { clock, running, checks, watch, next } = ground({ retries: 2 });
    const row = watch();
    await next({ exit_code: 143, timed_out: true });
    expect(checks.recordOf(row)?.last_check).toMatchObject({ exit_code: null, timed_out: true });
    await clock.pass(10_000);
    await running.at(-1)?.fail(new AppError("START_FAILED", "minit did not respond within 5000 ms"));
    expect(checks.recordOf(row)).toMatchObject({
      status: "unhealthy",
      last_check: { exit_code: null, output: "minit did not respond within 5000 ms" },
    });
  });

  it("says nothing if the container has as many commands as it may", async () => {
    const { clock, running, checks, watch } = ground({ retries: 1 });
    const row = watch();
    await clock.pass(10_000);
    await running[0]?.fail(new AppError("CAPACITY_FULL", "too many commands"));
    expect(checks.recordOf(row)).toMatchObject({ status: "starting", failing_streak: 0 });
    await clock.pass(LIMITS.health_postponed_ms);
    expect(running).toHaveLength(2);
  });

  it("does not count failures in the start period, in which it runs more often", async () => {
    const { clock, running, checks, watch } = ground({ start_period_seconds: 60, interval_seconds: 30, retries: 1 });
    const row = watch();
    for (let i = 0; i < 5; i++) {
      await clock.pass(LIMITS.health_start_interval_ms);
      await running[i]?.end({ exit_code: 1 });
    }
    expect(running).toHaveLength(5);
    expect(checks.recordOf(row)).toMatchObject({ status: "starting", failing_streak: 0 });
    await clock.pass(60_000);
    await running.at(-1)?.end({ exit_code: 1 });
    expect(checks.recordOf(row)).toMatchObject({ status: "unhealthy", failing_streak: 1 });
  });

  it("counts failures in the start period once it has succeeded", async () => {
    const { checks, watch, next } = ground({ start_period_seconds: 600, retries: 1 });
    const row = watch();
    await next({ exit_code: 0 });
    await next({ exit_code: 1 });
    expect(checks.recordOf(row)).toMatchObject({ status: "unhealthy" });
  });

  it("stops an unhealthy container only if that was asked for, and with the reason", async () => {
    for (const on_unhealthy of ["none", "restart"] as const) {
      const { restarts, watch, next } = ground({ retries: 2, on_unhealthy });
      watch();
      await next({ exit_code: 1 });
      expect(restarts).toEqual([]);
      await next({ exit_code: 3 });
      const reason = "c: unhealthy: 2 failed health checks in a row, the last one with exit code 3";
      expect(restarts).toEqual(on_unhealthy === "none" ? [] : [reason]);
    }
  });

  it("ends with the container, with its command", async () => {
    const { clock, running, checks, watch, rows } = ground();
    const row = watch();
    await clock.pass(10_000);
    rows.delete("c");
    checks.forget("c");
    await settled();
    expect([running[0]?.isClosed, checks.recordOf(row)?.status, clock.timer_count]).toEqual([true, null, 0]);
  });

  it("runs soon in a container that an earlier daemon started", async () => {
    const { clock, running, watch } = ground({ interval_seconds: 3_600 });
    watch("c", "a", true);
    await clock.pass(LIMITS.health_adopted_ms);
    expect(running).toHaveLength(1);
  });

  it("emits an event of a container that flaps at most every ten seconds, and the last status", async () => {
    const { events, watch, next } = ground({ interval_seconds: 1, retries: 1 });
    watch();
    for (let i = 0; i < 60; i++) await next({ exit_code: i % 2 });
    expect(events.length).toBeLessThanOrEqual(7);
    for (let i = 0; i < 12; i++) await next({ exit_code: 1 });
    expect(events.at(-1)).toMatch(/^unhealthy/);
  });

  it("of a tenant with many slow checks waits, and not those of others", async () => {
    const { clock, running, watch } = ground();
    for (let i = 0; i < 20; i++) watch(`a${i}`);
    watch("b", "b");
    await clock.pass(20_000);
    expect(running.filter(({ id }) => id !== "b")).toHaveLength(LIMITS.health_checks_per_tenant_max);
    expect(running.filter(({ id }) => id === "b")).toHaveLength(1);
    await running[0]?.end({});
    await clock.pass(LIMITS.health_postponed_ms);
    expect(running).toHaveLength(LIMITS.health_checks_per_tenant_max + 2);
  });
});
