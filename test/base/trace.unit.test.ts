/** Trace context: what is taken as W3C's grammar, what is made, and what is handed on. */
import { describe, expect, it } from "vitest";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Traces, traceparentOf } from "../../src/base/trace.ts";

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID = "00f067aa0ba902b7";
const VALID = `00-${TRACE_ID}-${PARENT_ID}-01`;
const FORM = /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/;

describe("a trace context", () => {
  it("goes on with the caller's trace, under a span of its own", () => {
    const trace = new Traces(randomIds(), 0).begin(VALID, "vendor=a, other=b");
    expect(trace).toMatchObject({
      trace_id: TRACE_ID,
      parent_span_id: PARENT_ID,
      is_sampled: true,
      state: "vendor=a, other=b",
    });
    expect(trace.span_id).toMatch(/^[0-9a-f]{16}$/);
    expect(traceparentOf(trace)).toBe(`00-${TRACE_ID}-${trace.span_id}-01`);
  });

  it.each([
    ["nothing", undefined],
    ["another version", VALID.replace("00-", "01-")],
    ["capitals", VALID.toUpperCase()],
    ["a trace id of zeros", `00-${"0".repeat(32)}-${PARENT_ID}-01`],
    ["a span id of zeros", `00-${TRACE_ID}-${"0".repeat(16)}-01`],
    ["a short id", VALID.slice(0, -4)],
    ["more behind it", `${VALID}-x`],
    ["two headers", `${VALID}, ${VALID}`],
    ["spaces", ` ${VALID}`],
    ["a line break", `${VALID}\n`],
  ])("begins anew for %s, without the caller's state", (_, sent) => {
    const trace = new Traces(randomIds(), 1).begin(sent, "vendor=a");
    expect(trace).toMatchObject({ parent_span_id: null, is_sampled: true, state: null });
    expect(trace.trace_id).not.toBe(TRACE_ID);
    expect(traceparentOf(trace)).toMatch(FORM);
  });

  it("leaves the decision to sample to whoever began the trace", () => {
    const decided = (ratio: number, flags: string) =>
      new Traces(randomIds(), ratio).begin(VALID.slice(0, -2) + flags, undefined).is_sampled;
    expect([decided(0, "01"), decided(0, "ff"), decided(1, "00"), decided(1, "02")]).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });

  it("samples the set part of the traces that begin here", () => {
    const sampled = (ratio: number) => {
      const traces = new Traces(randomIds(), ratio);
      return Array.from({ length: 4_000 }, () => traces.begin(undefined, undefined)).filter((one) => one.is_sampled);
    };
    expect([sampled(0).length, sampled(1).length]).toEqual([0, 4_000]);
    // Eleven standard deviations to each side: a wrong ratio fails this, chance does not.
    expect(sampled(0.25).length).toBeGreaterThan(700);
    expect(sampled(0.25).length).toBeLessThan(1_300);
  });

  it("hands a state on only as long and as printable as W3C allows", () => {
    const traces = new Traces(randomIds(), 0);
    const kept = (state: string) => traces.begin(VALID, state).state !== null;
    expect(kept("a".repeat(LIMITS.tracestate_length_max))).toBe(true);
    expect(kept("a".repeat(LIMITS.tracestate_length_max + 1))).toBe(false);
    expect([kept(""), kept("a=\u00e9"), kept("a=\n")]).toEqual([false, false, false]);
  });
});
