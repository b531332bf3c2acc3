/** The removal of containers: it runs its steps in order, and calls `hidden` before the container ends. */
import { expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { firstPage } from "../../src/base/paging.ts";
import { CleanupTasks } from "../../src/containers/cleanup/tasks.ts";
import { Removals, type RemovalsOptions } from "../../src/containers/removals.ts";
import type { ContainerRow } from "../../src/containers/rows.ts";

function made(more: object = {}) {
  const steps: string[] = [];
  const step = (name: string) => async () => {
    steps.push(name);
    return null;
  };
  const options = {
    engine: { containers: { kill: step("kill"), remove: step("remove") } },
    store: { write: step("delete row") },
    ports: { release: () => steps.push("release ports") },
    addresses: { release: () => steps.push("release address") },
    rows: { hide: () => ({ sql: "" }), delete: () => ({ sql: "" }), ownerOf: async () => "default" },
    changes: { write: step("hide row") },
    hidden: (id: string) => steps.push(`hidden ${id}`),
    forget: () => {},
    ...more,
  };
  return { steps, removals: new Removals(options as unknown as RemovalsOptions) };
}

it("tells that a container whose start failed is hidden, before it ends", async () => {
  const { steps, removals } = made();
  const row = { id: "ctr_1", tenant_id: "default", name: "web", state: "starting" } as ContainerRow;
  await removals.discard(row);
  expect(steps).toEqual([
    ...["hide row", "hidden ctr_1", "kill", "remove", "delete row"],
    ...["release ports", "release address"],
  ]);
});

it("forgets the clean-up tasks of a tenant that is deleted", async () => {
  const tasks = new CleanupTasks({ clock: systemClock, ids: randomIds() });
  const subject = { container_id: "ctr_1", tenant_id: "a", resource: "logs", path: "x" } as const;
  for (const tenant_id of ["a", "b"]) tasks.note({ ...subject, tenant_id }, "completed", null);
  await made({ tasks, rows: { ofTenant: async () => [] } }).removals.eraseAll("a");
  const count = (tenant_id: string) => tasks.list(tenant_id, null, firstPage()).items.length;
  expect([count("a"), count("b")]).toEqual([0, 1]);
});
