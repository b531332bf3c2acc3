/** The removal of containers: the order of its steps, and who is told. */
import { expect, it } from "vitest";
import { Removals, type RemovalsOptions } from "../../src/containers/removals.ts";
import type { ContainerRow } from "../../src/containers/rows.ts";

it("tells that a container whose start failed is hidden, before it ends", async () => {
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
  };
  const row = { id: "ctr_1", tenant_id: "default", name: "web", state: "starting" } as ContainerRow;
  await new Removals(options as unknown as RemovalsOptions).discard(row);
  expect(steps).toEqual([
    ...["hide row", "hidden ctr_1", "kill", "remove", "delete row"],
    ...["release ports", "release address"],
  ]);
});
