/** The promises of the `RateLimiter` port: the token bucket of a tenant, on a hand-driven clock. Simultaneous requests get no more tokens than the bucket has. */
import fc from "fast-check";
import { expect, it } from "vitest";
import type { Clock } from "../../../src/base/clock.ts";
import { LIMITS } from "../../../src/base/limits.ts";
import type { RateLimiter } from "../../../src/http/rates.ts";
import { HandClock } from "../../pool/hand-clock.ts";

export function rateLimiterContract(make: (clock: Clock) => RateLimiter): void {
  const bucket = (per_second: number) => {
    const clock = new HandClock();
    const rates = make(clock);
    rates.set("t", per_second);
    const allowed = (count: number): number => {
      let taken = 0;
      for (let i = 0; i < count; i++) if (rates.take("t")?.refusal === null) taken++;
      return taken;
    };
    return { clock, rates, allowed };
  };

  it("are not counted without a limit", () => {
    const rates = make(new HandClock());
    expect(rates.take("t")).toBeNull();
    rates.set("t", 1);
    rates.set("t", null);
    expect(rates.take("t")).toBeNull();
  });

  it("get a second's worth at once, and then as many as time has passed for", () => {
    const { clock, allowed } = bucket(10);
    expect(allowed(100)).toBe(10);
    clock.now_ms += 99;
    expect(allowed(100)).toBe(0);
    clock.now_ms += 1;
    expect(allowed(100)).toBe(1);
    clock.now_ms += 3_600_000;
    expect(allowed(100)).toBe(10);
  });

  it("may come one at a time below one a second", () => {
    const { clock, allowed } = bucket(0.5);
    expect(allowed(3)).toBe(1);
    clock.now_ms += 1_999;
    expect(allowed(3)).toBe(0);
    clock.now_ms += 1;
    expect(allowed(3)).toBe(1);
  });

  it("never get more than the bucket and what has run into it, whenever and in whatever crowds they come", () => {
    const crowds = fc.array(fc.record({ wait_ms: fc.nat(5_000), count: fc.integer({ min: 1, max: 200 }) }), {
      minLength: 1,
      maxLength: 50,
    });
    fc.assert(
      fc.property(fc.double({ min: 0.1, max: 300, noNaN: true }), crowds, (per_second, all) => {
        const { clock, allowed } = bucket(per_second);
        const began_ms = clock.monotonicMs();
        let taken = 0;
        for (const { wait_ms, count } of all) {
          clock.now_ms += wait_ms;
          taken += allowed(count);
          const run_in = ((clock.monotonicMs() - began_ms) * per_second) / 1000;
          expect(taken).toBeLessThanOrEqual(Math.max(1, Math.ceil(per_second)) + run_in + 1e-6);
        }
      }),
    );
  });

  it("lose nothing to refusals: who asks all the time gets as much as who waits", () => {
    const { clock, allowed } = bucket(3);
    let taken = allowed(10);
    for (let i = 0; i < 10_000; i++) {
      clock.now_ms += 1;
      taken += allowed(2);
    }
    expect(taken).toBe(3 + 30);
  });

  it("are refused with a time after which one is let in, at most a minute, and told how many are left", () => {
    const { clock, rates } = bucket(0.5);
    expect(rates.take("t")).toEqual({
      headers: { "ratelimit-policy": '"tenant";q=1;w=2', ratelimit: '"tenant";r=0;t=2' },
      refusal: null,
    });
    const refusal = rates.take("t")?.refusal;
    expect(refusal).toMatchObject({ code: "RATE_LIMITED", retry_after: 2 });
    clock.now_ms += (refusal?.retry_after ?? 0) * 1000;
    expect(rates.take("t")?.refusal).toBeNull();
    const slow = bucket(LIMITS.requests_per_second_min);
    slow.allowed(1);
    expect(slow.rates.take("t")?.refusal?.retry_after).toBeLessThanOrEqual(LIMITS.retry_after_seconds_max);
  });

  it("of one tenant take nothing from another, and a limit that is set again as it was fills nothing", () => {
    const { rates, allowed } = bucket(5);
    rates.set("u", 5);
    expect(allowed(9)).toBe(5);
    expect(rates.take("u")?.refusal).toBeNull();
    rates.set("t", 5);
    expect(allowed(9)).toBe(0);
    rates.set("t", 6);
    expect(allowed(9)).toBe(6);
  });
}
