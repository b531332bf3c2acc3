/** Clean-up tasks in memory: their progress, their bounds, their pages. */
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { firstPage } from "../../src/base/paging.ts";
import { CleanupTasks } from "../../src/containers/cleanup/tasks.ts";

const make = () => new CleanupTasks({ clock: systemClock, ids: randomIds() });
const subject = (i: number, tenant_id = "a") =>
  ({ container_id: `ctr_${i}`, tenant_id, resource: "cgroup", path: `/c/${i}` }) as const;
const all = (tasks: CleanupTasks, tenant_id = "a") => tasks.list(tenant_id, null, firstPage()).items;

describe("clean-up tasks", () => {
  it("keep one task for a removal that is retried, and make another one for the next removal", async () => {
    const tasks = make();
    const failing = () => Promise.reject(new AppError("IN_USE", "volume in use"));
    await expect(tasks.run(subject(1), failing)).rejects.toThrow("volume in use");
    expect(all(tasks)).toMatchObject([{ status: "failed", error_message: "volume in use", completed_at: null }]);
    expect(tasks.status("a")).toMatchObject({ status: "failing", failed_count: 1 });
    const [{ task_id } = { task_id: "" }] = all(tasks);
    await tasks.run(subject(1), () => Promise.resolve());
    expect(all(tasks)).toMatchObject([{ task_id, status: "completed", error_message: null }]);
    await tasks.run(subject(1), () => Promise.resolve());
    expect(all(tasks).map((task) => task.task_id)).not.toContain(task_id);
    expect(tasks.status("a")).toMatchObject({ status: "clean", completed_count: 1 });
  });

  it("are bounded for each tenant: completed ones make room first", () => {
    const tasks = make();
    const max = LIMITS.cleanup_tasks_per_tenant_max;
    tasks.note(subject(0), "failed", "x");
    for (let i = 1; i <= 3 * max; i++) tasks.note(subject(i), "completed", null);
    expect(all(tasks)).toHaveLength(max);
    expect(all(tasks).at(-1)).toMatchObject({ container_id: "ctr_0", status: "failed" });
    for (let i = 0; i < 3 * max; i++) tasks.note(subject(i, "b"), "pending", null);
    expect(all(tasks, "b")).toHaveLength(max);
    expect(all(tasks)).toHaveLength(max);
  });

  it("are bounded in the number of tenants", () => {
    const tasks = make();
    for (let i = 0; i <= LIMITS.cleanup_tenants_max; i++) tasks.note(subject(i, `t${i}`), "completed", null);
    expect(all(tasks, "t0")).toEqual([]);
    expect(all(tasks, `t${LIMITS.cleanup_tenants_max}`)).toHaveLength(1);
  });

  it("are listed newest first, page by page, and of one container", () => {
    const tasks = make();
    for (let i = 0; i < 5; i++) tasks.note(subject(i), "completed", null);
    const first = tasks.list("a", null, firstPage(2));
    expect(first.items.map(({ container_id }) => container_id)).toEqual(["ctr_4", "ctr_3"]);
    const second = tasks.list("a", null, { limit: 10, below: first.last ?? 0 });
    expect(second.items.map(({ container_id }) => container_id)).toEqual(["ctr_2", "ctr_1", "ctr_0"]);
    expect(second.last).toBeNull();
    expect(tasks.list("a", "ctr_2", firstPage()).items).toHaveLength(1);
    expect(tasks.list("b", "ctr_2", firstPage()).items).toEqual([]);
  });
});
