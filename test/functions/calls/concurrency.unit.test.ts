/** Calls in flight, counted in the memory of this process: the contract of the port, and what is left of the counts. */
import { describe, expect, it } from "vitest";
import { InvariantError } from "../../../src/base/errors.ts";
import { LocalConcurrency } from "../../../src/functions/calls/concurrency.ts";
import { concurrencyContract } from "../contracts/concurrency.ts";

describe("calls in flight", () => {
  concurrencyContract(() => new LocalConcurrency());

  it("leave nothing behind, refused ones included", () => {
    const calls = new LocalConcurrency();
    for (const id of ["fn_a", "fn_b", "fn_c"]) calls.enter(id, null, "t", null);
    expect(() => calls.enter("fn_a", 1, "t", null)).toThrow(/fn_a/);
    expect(() => calls.enter("fn_d", null, "t", 3)).toThrow(/tenant/);
    expect(calls.size).toBe(4);
    for (const id of ["fn_a", "fn_b", "fn_c"]) calls.leave(id, "t");
    expect(calls.size).toBe(0);
    expect(() => calls.leave("fn_a", "t")).toThrow(InvariantError);
  });
});
