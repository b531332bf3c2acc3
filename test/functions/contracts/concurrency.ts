/** The promises of the `ConcurrencyLimiter` port: calls in flight against the limits of functions and tenants. */
import { expect, it } from "vitest";
import type { ConcurrencyLimiter } from "../../../src/functions/calls/concurrency.ts";

const atLimit = (text: string) =>
  expect.objectContaining({ code: "CONCURRENCY_LIMIT", retry_after: 1, message: expect.stringContaining(text) });

export function concurrencyContract(make: () => ConcurrencyLimiter): void {
  it("are refused at the limit of their function, until one has left", () => {
    const calls = make();
    calls.enter("fn_a", 2, "t", null);
    calls.enter("fn_a", 2, "t", null);
    expect(() => calls.enter("fn_a", 2, "t", null)).toThrow(atLimit("of function fn_a (limit 2)"));
    calls.enter("fn_b", 2, "t", null);
    calls.leave("fn_a", "t");
    calls.enter("fn_a", 2, "t", null);
    expect(() => calls.enter("fn_a", 2, "t", null)).toThrow(atLimit("fn_a"));
  });

  it("are refused at the limit of their tenant, whatever the function, and another tenant is not touched", () => {
    const calls = make();
    calls.enter("fn_a", null, "t", 2);
    calls.enter("fn_b", 9, "t", 2);
    expect(() => calls.enter("fn_c", 9, "t", 2)).toThrow(atLimit("of tenant t (limit 2)"));
    calls.enter("fn_d", null, "u", 2);
    calls.leave("fn_b", "t");
    calls.enter("fn_c", 9, "t", 2);
  });

  it("name the function's limit where both are reached", () => {
    const calls = make();
    calls.enter("fn_a", 1, "t", 1);
    expect(() => calls.enter("fn_a", 1, "t", 1)).toThrow(atLimit("of function fn_a"));
  });

  it("count for a limit that was set after they began, and for one that was lowered", () => {
    const calls = make();
    for (let i = 0; i < 3; i++) calls.enter("fn_a", null, "t", null);
    expect(() => calls.enter("fn_a", 3, "t", null)).toThrow(atLimit("3"));
    expect(() => calls.enter("fn_a", 2, "t", null)).toThrow(atLimit("2"));
    expect(() => calls.enter("fn_b", null, "t", 3)).toThrow(atLimit("tenant"));
    calls.leave("fn_a", "t");
    calls.enter("fn_a", 3, "t", 3);
  });

  it("are all refused at a limit of 0", () => {
    expect(() => make().enter("fn_a", 0, "t", null)).toThrow(atLimit("0"));
  });
}
