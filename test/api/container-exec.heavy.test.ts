/** Execs that take longer than a default deadline, through the real API. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

it("a detached exec has no deadline unless it is given one", async () => {
  const { container_id } = await containers.create({ name: "box" });
  const begin = async (more: object) => {
    const body = { command: ["sleep", "300"], detach: true, ...more };
    return (await daemon.call("POST", `/api/containers/${container_id}/exec`, body)).body.job_id;
  };
  const job = async (id: string) => (await daemon.call("GET", `/api/containers/${container_id}/jobs/${id}`)).body;
  const free = await begin({});
  const bound = await begin({ timeout_ms: LIMITS.exec_timeout_ms_default });
  const deadline_ms = LIMITS.exec_timeout_ms_default + 30_000;
  await eventually("the deadline that was given", async () => (await job(bound)).timed_out, deadline_ms);
  // It began before the other one, so the default deadline would have ended it first.
  expect(await job(free)).toMatchObject({ status: "running", exit_code: null, timed_out: false });
});
