/** Whose operation begins next where more wait than may run. */
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import type { Runner } from "../../src/operations/service.ts";
import { scratchStores } from "../store/scratch.ts";
import { byHand, makeOperations } from "./made.ts";

describe("operations that wait", () => {
  const scratch = scratchStores();

  it("take turns between tenants, however many one of them has enqueued before", async () => {
    const { operations } = await makeOperations(scratch().open(), undefined, ["a", "b", "c"]);
    const { runner, next, begun } = byHand({ running_max: 2, running_per_tenant_max: 2 });
    operations.register("image.build", runner);
    const accept = (tenant_id: string) => operations.accept(tenant_id, { type: "image.build" });
    for (let i = 0; i < 8; i++) await accept("a");
    for (const tenant_id of ["b", "b", "c"]) await accept(tenant_id);
    for (let i = 0; i < 8; i++) (await next()).succeed();
    // Both places are a's when the others come; from then on nobody waits for more than one of each other tenant.
    expect(
      begun
        .slice(0, 8)
        .map(({ context }) => context.tenant_id)
        .join(""),
    ).toMatch(/^aa(?=.{0,2}b)(?=.{0,3}c)[abc]{6}$/);
    expect(begun.slice(2, 8).filter(({ context }) => context.tenant_id === "b")).toHaveLength(2);
  });

  it("take these turns for each type by itself, and what a tenant cancels costs it none", async () => {
    const { operations } = await makeOperations(scratch().open());
    const builds = byHand({ running_max: 1, cancellable: true });
    const pulls = byHand();
    operations.register("image.build", builds.runner);
    operations.register("image.pull", pulls.runner);
    const build = (tenant_id: string) => operations.accept(tenant_id, { type: "image.build" });
    for (const tenant_id of ["b", "a"]) await build(tenant_id);
    const { operation_id } = await build("b");
    await build("b");
    // Its pulls run beside, and do not set it back.
    for (let i = 0; i < 3; i++) await operations.accept("a", { type: "image.pull" });
    for (let i = 0; i < 3; i++) (await pulls.next()).succeed();
    await operations.cancel("b", operation_id);
    for (let i = 0; i < 3; i++) (await builds.next()).succeed();
    expect(builds.begun.map(({ context }) => context.tenant_id)).toEqual(["b", "a", "b"]);
  });

  it("begin while one that runs waits for shared work, which goes on in the next free place", async () => {
    const { operations } = await makeOperations(scratch().open());
    const { runner, next } = byHand({ running_max: 1, cancellable: true });
    const shared = Promise.withResolvers<string>();
    const run: Runner["run"] = async (context) => {
      const { is_sharing } = context.input as { readonly is_sharing: boolean };
      if (!is_sharing) return runner.run(context);
      const { signal } = context;
      const stopped = once(signal, "abort").then(() => Promise.reject(signal.reason));
      const message = await context.aside(() => Promise.race([shared.promise, stopped]));
      return { ...(await runner.run(context)), message };
    };
    operations.register("box.fill", { ...runner, run });
    const accept = (is_sharing: boolean) => operations.accept("a", { type: "box.fill", input: { is_sharing } });
    const [sharing, left, other, last] = [
      await accept(true),
      await accept(true),
      await accept(false),
      await accept(false),
    ];
    const running = await next();
    expect(running.context.operation_id).toBe(other.operation_id);
    // One that is cancelled meanwhile waits for no place.
    await operations.cancel("a", left.operation_id);
    shared.resolve("shared");
    running.succeed();
    const resumed = await next();
    expect(resumed.context.operation_id).toBe(sharing.operation_id);
    resumed.succeed();
    const { operation_id } = (await next()).context;
    expect(operation_id).toBe(last.operation_id);
    expect(await operations.get("a", sharing.operation_id)).toMatchObject({ status: "succeeded", message: "shared" });
    expect(await operations.get("a", left.operation_id)).toMatchObject({ status: "cancelled" });
  });
});
