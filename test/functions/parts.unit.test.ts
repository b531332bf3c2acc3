/** The parts of the function concern that decide without a container: handlers, environments, outcomes. */
import { describe, expect, it } from "vitest";
import { RUNTIMES } from "../../runtimes/index.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { createContainer } from "../../src/containers/schema.ts";
import { callEnvironment, judge } from "../../src/functions/launch.ts";
import { nextPortion, type ReadLengths } from "../../src/functions/byte-paging.ts";
import { createFunction } from "../../src/functions/schema.ts";

const shell = RUNTIMES.get("shell");

describe("the shell runtime", () => {
  it.each([
    ["cat", ["cat"]],
    ["  python3  -m http.server 80 ", ["python3", "-m", "http.server", "80"]],
    ["/usr/bin/env A=1", ["/usr/bin/env", "A=1"]],
    ["echo a:b,c@d", ["echo", "a:b,c@d"]],
  ])("runs %s without a shell", (line, argv) => {
    expect(shell?.command(line)).toEqual(argv);
  });

  it.each([
    "echo $HOME",
    "a; b",
    "a | b",
    "a > b",
    "a && b",
    "a &",
    "echo 'x'",
    'echo "x"',
    "echo a\\ b",
    "ls *.txt",
    "ls [ab]",
    "ls ~",
    "A=1 env",
    "cd /tmp",
    "exit 3",
    ". ./file",
    "if true",
    "echo #x",
    "a\nb",
    "echo {a,b}",
    "(a)",
    "`a`",
    "! true",
  ])("leaves %j to /bin/sh", (line) => {
    expect(shell?.command(line)).toEqual(["/bin/sh", "-c", line]);
  });
});

describe("the name of a function", () => {
  it("follows the rule of a container's name", () => {
    const names = ["a", "x".repeat(128), "it's é 日本", "-rf", "a b", "a:b", "$(id)"];
    const refused = ["", " a", "a ", ".", "..", "a/b", "a\0", "a\nb", "\ud800", "x".repeat(129)];
    const isTaken = (name: string) =>
      [createFunction.safeParse({ name, handler: "true" }), createContainer.safeParse({ name })].map(
        ({ success }) => success,
      );
    for (const name of names) expect([name, ...isTaken(name)]).toEqual([name, true, true]);
    for (const name of refused) expect([name, ...isTaken(name)]).toEqual([name, false, false]);
  });
});

describe("a script", () => {
  it.each([
    ["#!/bin/sh\necho 1", ["/bin/sh"]],
    ["#! /usr/bin/env  python3 -u \nprint(1)", ["/usr/bin/env", "python3 -u"]],
    ["#!/bin/cat", ["/bin/cat"]],
  ])("%j is handed to the interpreter of its first line, which gets one argument", (script, words) => {
    const argv = shell?.command(script) ?? [];
    expect([argv[4], ...argv.slice(5)]).toEqual([script, ...words]);
    expect(shell?.complaint(script)).toBe(null);
  });

  it.each(["#!", "#!\n/bin/sh", "#!python3\nprint(1)", "#!/\n", "#! /bin/sh\r\necho 1\r\n"])(
    "%j is refused: no interpreter could read it",
    (script) => {
      expect(shell?.complaint(script)).toContain("absolute path of an interpreter");
    },
  );
});

describe("a portion of rows", () => {
  const rowsOf =
    (lengths: readonly number[]): ReadLengths =>
    async (after, row_count) =>
      lengths.map((bytes, i) => ({ seq: i + 1, bytes })).slice(after ?? 0, (after ?? 0) + row_count);
  const portion = (lengths: readonly number[], rows_max: number, bytes_max: number) =>
    nextPortion(rowsOf(lengths), rows_max, bytes_max);

  it("ends before the row that does not fit", async () => {
    expect(await portion([4, 4, 4], 10, 8)).toEqual({ row_count: 2, last_seq: 2, is_cut: true });
    expect(await portion([4, 4], 10, 8)).toEqual({ row_count: 2, last_seq: 2, is_cut: false });
  });

  it("has at least one row if there is one", async () => {
    expect(await portion([9, 1], 10, 8)).toEqual({ row_count: 1, last_seq: 1, is_cut: true });
    expect(await portion([], 10, 8)).toEqual({ row_count: 0, last_seq: 0, is_cut: false });
  });

  it("has no more rows than asked for, over as many reads as that takes", async () => {
    expect(await portion(Array(200).fill(1), 150, 1_000)).toEqual({ row_count: 150, last_seq: 150, is_cut: true });
    expect(await portion(Array(96).fill(1), 150, 1_000)).toEqual({ row_count: 96, last_seq: 96, is_cut: false });
  });
});

describe("the bounds of a function", () => {
  const complaints = (fields: object): string[] =>
    createFunction
      .safeParse({ name: "f", handler: "true", ...fields })
      .error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`) ?? [];

  it("are bytes where the kernel counts bytes", () => {
    const { handler_bytes_max, path_bytes_max } = LIMITS;
    expect(complaints({ handler: "é".repeat(handler_bytes_max / 2) })).toEqual([]);
    expect(complaints({ handler: "é".repeat(handler_bytes_max / 2 + 1) })).toEqual([
      `handler: must not be larger than ${handler_bytes_max} bytes`,
    ]);
    expect(complaints({ working_directory: `/${"x".repeat(path_bytes_max - 1)}` })).toEqual([]);
    expect(complaints({ working_directory: `/${"é".repeat(path_bytes_max / 2)}` })).toEqual([]);
    expect(complaints({ working_directory: `/x${"é".repeat(path_bytes_max / 2)}` })).toEqual([
      `working_directory: must not be larger than ${path_bytes_max} bytes`,
    ]);
  });
});

// biome-ignore lint/suspicious/noExplicitAny: only what the function reads.
const call = (parts: Record<string, unknown>): any => ({
  invocation_id: "inv_1",
  payload: "",
  environment: {},
  trace: { trace_id: "1".repeat(32), span_id: "2".repeat(16), parent_span_id: null, is_sampled: true, state: null },
  target: { environment: { PATH: "/bin", HEARTH_FUNCTION_NAME: "f" }, record: { environment: {} } },
  ...parts,
});

describe("the environment of a call", () => {
  it("puts the function's over hearth's own and the call's over both, each name once", () => {
    const target = {
      environment: { PATH: "/bin", A: "hearth" },
      record: { environment: { A: "function", B: "function" } },
    };
    const list = callEnvironment(call({ target, environment: { B: "call" } }), 1_000.4, null);
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
    const list = callEnvironment(call({}), 0, { url: "http://10.42.0.1:8701", token: "hi_x" });
    expect(list).toEqual(expect.arrayContaining(["HEARTH_URL=http://10.42.0.1:8701", "HEARTH_KEY=hi_x"]));
  });

  it("holds the payload up to 64 KiB, counted in bytes, and none with a NUL in it", () => {
    const has = (payload: string) =>
      callEnvironment(call({ payload }), 0, null).some((one) => one.startsWith("HEARTH_PAYLOAD="));
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
      "killed: out of memory (limit 256 MB)",
    ],
    [
      "failed when the command could not be run",
      exit({ exit_code: 127, spawn_failed: true, stderr: "nope\n" }),
      false,
      "failed",
      "the handler could not be run: nope",
    ],
  ] as const)("is %s", (_what, outcome, oomKilled, status, error_message) => {
    expect(judge(outcome, 2_500, oomKilled, 256)).toEqual({ status, error_message });
  });
});
