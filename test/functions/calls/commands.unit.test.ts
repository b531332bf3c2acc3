/** The environment of a call, and the outcome that its exit means. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import type { Calling } from "../../../src/functions/calls/calling.ts";
import { callEnvironment, judge } from "../../../src/functions/calls/commands.ts";

// biome-ignore lint/suspicious/noExplicitAny: only what the function reads.
const call = (parts: Record<string, unknown>): any => ({
  invocation_id: "inv_1",
  payload: "",
  environment: {},
  trace: { trace_id: "1".repeat(32), span_id: "2".repeat(16), parent_span_id: null, is_sampled: true, state: null },
  target: { environment: { PATH: "/bin", HEARTH_FUNCTION_NAME: "f" } },
  ...parts,
});
const calling = (parts: Partial<Calling> = {}): Calling => ({
  call: call({}),
  timeout_ms: 1_000,
  deadline_epoch_ms: 0,
  api: null,
  environment: {},
  hasOomKill: () => false,
  onLate: () => false,
  ...parts,
});

describe("the environment of a call", () => {
  it("puts the function's over hearth's own and the call's over both, each name once", () => {
    const target = { environment: { PATH: "/bin", A: "hearth" } };
    const list = callEnvironment(
      calling({
        call: call({ target, environment: { B: "call" } }),
        environment: { A: "function", B: "function" },
        deadline_epoch_ms: 1_000.4,
      }),
    );
    expect(list).toEqual([
      "PATH=/bin",
      "A=function",
      "HEARTH_INVOCATION_ID=inv_1",
      "HEARTH_DEADLINE_MS=1000",
      `TRACEPARENT=00-${"1".repeat(32)}-${"2".repeat(16)}-01`,
      "HEARTH_PAYLOAD=",
      "B=call",
    ]);
  });

  it("names the API and the token where the function may use it", () => {
    const list = callEnvironment(calling({ api: { url: "http://10.42.0.1:8701", token: "hi_x" } }));
    expect(list).toEqual(expect.arrayContaining(["HEARTH_URL=http://10.42.0.1:8701", "HEARTH_KEY=hi_x"]));
  });

  it("holds the payload up to 64 KiB, counted in bytes, and none with a NUL in it", () => {
    const has = (payload: string) =>
      callEnvironment(calling({ call: call({ payload }) })).some((one) => one.startsWith("HEARTH_PAYLOAD="));
    expect(has("x".repeat(LIMITS.payload_variable_bytes_max))).toBe(true);
    expect(has("x".repeat(LIMITS.payload_variable_bytes_max + 1))).toBe(false);
    expect(has("é".repeat(LIMITS.payload_variable_bytes_max / 2 + 1))).toBe(false);
    expect(has("a\0b")).toBe(false);
  });
});

describe("the outcome of an exit", () => {
  // biome-ignore lint/suspicious/noExplicitAny: only what the function reads.
  const exit = (parts: Record<string, unknown>): any => ({
    exit_code: 0,
    signal: 0,
    timed_out: false,
    spawn_failed: false,
    stderr: "",
    ...parts,
  });

  it.each([
    ["success on exit code 0", exit({}), false, "success", null],
    ["failed on another", exit({ exit_code: 3 }), false, "failed", "exited with 3"],
    ["failed with the signal's number", exit({ exit_code: 139, signal: 11 }), false, "failed", "killed by signal 11"],
    [
      "timeout at the deadline",
      exit({ exit_code: 137, signal: 9, timed_out: true }),
      false,
      "timeout",
      "timed out after 2.5 s",
    ],
    [
      "failed for memory when the kernel killed for it",
      exit({ exit_code: 137, signal: 9 }),
      true,
      "failed",
      "killed: out of memory (limit 256 MiB)",
    ],
    [
      "failed when the command could not be run",
      exit({ exit_code: 127, spawn_failed: true, stderr: "nope\n" }),
      false,
      "failed",
      "cannot run the handler: nope",
    ],
  ] as const)("is %s", (_what, outcome, oomKilled, status, error_message) => {
    expect(judge(outcome, 2_500, oomKilled, 256)).toEqual({ status, error_message });
  });
});
