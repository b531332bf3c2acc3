/** What happens to containers by themselves, on a clock that moves by hand. */
import { expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import type { ContainerRow } from "../../src/containers/rows.ts";
import { Supervisor, type SupervisorOptions } from "../../src/containers/supervisor.ts";
import { HandClock, settled } from "../pool/hand-clock.ts";
import { quietLog } from "../store/scratch.ts";

const ENDED = {
  exit_code: 1,
  signal: 0,
  ended_at_ms: 1,
  asked: false,
  has_command: true,
  is_started: true,
  is_oom: false,
};
const ROW = {
  id: "c",
  state: "exited",
  is_wanted: true,
  exit_code: 1,
  error_message: null,
  started_at_ms: 0,
  exited_at_ms: 1,
  created_at_ms: 0,
  restart: "always",
  ttl_seconds: null,
  idle_seconds: null,
} as ContainerRow;

function watching(ended: SupervisorOptions["ended"]) {
  const clock = new HandClock();
  const restarted: string[] = [];
  const nothing = async () => {};
  const restart = async (id: string) => void restarted.push(id);
  const supervisor = new Supervisor({ clock, log: quietLog, ended, restart, expire: nothing, idle: nothing });
  supervisor.watch({ ...ROW, state: "running" });
  return { clock, supervisor, restarted };
}

it("an end that the store does not take is noted later, and then the policy decides", async () => {
  const noted: string[] = [];
  const { clock, supervisor, restarted } = watching(async (id) => {
    noted.push(id);
    if (noted.length < 3) throw new Error("the disk is full");
    return ROW;
  });
  supervisor.ended("c", ENDED);
  await settled();
  expect([noted.length, restarted]).toEqual([1, []]);
  await clock.pass(2 * LIMITS.operation_end_retry_ms);
  expect([noted.length, restarted]).toEqual([3, []]);
  await clock.pass(LIMITS.restart_backoff_ms_min);
  expect(restarted).toEqual(["c"]);
});

it("a lifetime and an idle time end when they are over, not at the next look", async () => {
  const ended: string[] = [];
  const clock = new HandClock();
  const note = (what: string) => async (id: string) => void ended.push(`${what} ${id}`);
  const none = async () => {};
  const supervisor = new Supervisor({
    ...{ clock, log: quietLog, ended: async () => null, restart: none },
    ...{ expire: note("expired"), idle: note("idle") },
  });
  const row = { ...ROW, state: "running" } as ContainerRow;
  supervisor.begin();
  await clock.pass(300);
  supervisor.watch({ ...row, id: "a", created_at_ms: clock.epochMs(), ttl_seconds: 1 });
  supervisor.watch({ ...row, id: "b", idle_seconds: 1 });
  const unuse = supervisor.use("b");
  await clock.pass(999);
  expect(ended).toEqual([]);
  await clock.pass(LIMITS.container_look_ms_min);
  expect(ended).toEqual(["expired a"]);
  unuse();
  await clock.pass(1_000 + LIMITS.container_look_ms_min);
  expect(ended.at(-1)).toBe("idle b");
  supervisor.close();
});

it("an end that the store never takes is given up, and so is one of a daemon that ends", async () => {
  const noted: string[] = [];
  const { clock, supervisor } = watching(async (id) => {
    noted.push(id);
    throw new Error("the disk is full");
  });
  supervisor.ended("c", ENDED);
  await settled();
  await clock.pass(2 * LIMITS.operation_end_attempts_max * LIMITS.operation_end_retry_ms);
  expect(noted.length).toBe(LIMITS.operation_end_attempts_max);
  supervisor.ended("c", ENDED);
  supervisor.close();
  await settled();
  await clock.pass(10 * LIMITS.operation_end_retry_ms);
  expect(noted.length).toBe(LIMITS.operation_end_attempts_max + 1);
});

it.each([
  [null, []],
  ["unhealthy: 3 failed health checks in a row", ["c"]],
])("an exit with 0 and the reason %j restarts %j by the policy on-failure", async (error_message, expected) => {
  const { clock, supervisor, restarted } = watching(async () => {
    return { ...ROW, restart: "on-failure", exit_code: 0, error_message };
  });
  supervisor.ended("c", { ...ENDED, exit_code: 0 });
  await settled();
  await clock.pass(LIMITS.restart_backoff_ms_min);
  expect(restarted).toEqual(expected);
});
