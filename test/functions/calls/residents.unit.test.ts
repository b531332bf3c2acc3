/** What the end of a resident process means to the calls beside the one that caused it. */
import { expect, it } from "vitest";
import { FRAME } from "../../../src/engine/minit/frames.ts";
import { ResidentClient } from "../../../src/engine/minit/resident-client.ts";
import type { Calling } from "../../../src/functions/calls/calling.ts";
import { callResident } from "../../../src/functions/calls/residents.ts";

const TIMED_OUT = 1;
const CANCELLED = 32;
const SERVE_ID = 1;
const RETURNED = 0;
const FAILED = 1;
const LATE = 2;

// biome-ignore lint/suspicious/noExplicitAny: only what the function reads.
const call: any = {
  invocation_id: "inv_1",
  payload: "",
  environment: {},
  trace: { trace_id: "1".repeat(32), span_id: "2".repeat(16), parent_span_id: null, is_sampled: true, state: null },
  target: { record: { memory_limit_mb: 256 } },
};
const calling: Calling = {
  call,
  timeout_ms: 1_000,
  deadline_epoch_ms: 0,
  api: null,
  environment: {},
  hasOomKill: () => false,
  onLate: () => false,
};

function served() {
  let next_id = SERVE_ID;
  const wire = { write: () => {}, nextId: () => next_id++ };
  const serving = { argv: [], environment: [], working_directory: "", concurrency: 3, open_timeout_ms: 0 };
  const resident = new ResidentClient(wire, serving, () => {});
  const endings = [1, 2, 3].map(async () => {
    const { ending } = await callResident(resident, calling);
    return [ending.status, ending.error_message];
  });
  return {
    endings,
    result: (id: number, flags: number, status = RETURNED, content = "") => {
      const body = Buffer.alloc(16);
      body.writeUInt32LE(flags, 0);
      body.writeUInt32LE(status, 4);
      resident.frame(FRAME.CALL_RESULT, id, Buffer.concat([body, Buffer.from(content)]));
    },
    exit: (exit_code: number, signal: number, flags: number) => {
      const body = Buffer.alloc(44);
      for (const [i, value] of [exit_code, signal, flags].entries()) body.writeUInt32LE(value, i * 4);
      resident.frame(FRAME.EXIT, SERVE_ID, body);
    },
  };
}

const CANCELLATION = [
  "cancelled",
  "cancelled: another call passed its deadline, and the process of the instance ended",
];
const TIMEOUT = ["timeout", "timed out after 1 s"];

it.each([[[2, 3, 4]], [[3, 2, 4]], [[4, 3, 2]]])(
  "the others are cancelled where minit ended the process at a deadline, in one read with all answers: %j",
  async (order) => {
    const { endings, result, exit } = served();
    for (const id of order) result(id, id === 3 ? TIMED_OUT : CANCELLED);
    exit(137, 9, TIMED_OUT);
    expect(await Promise.all(endings)).toEqual([CANCELLATION, TIMEOUT, CANCELLATION]);
  },
);

it("the others failed where the process ended by itself, after a late call that it had answered", async () => {
  const { endings, result, exit } = served();
  result(3, 0, LATE);
  expect(await endings[1]).toEqual(TIMEOUT);
  for (const id of [2, 4]) result(id, CANCELLED);
  exit(5, 0, 0);
  const failure = ["failed", "the process of the instance exited with 5, without output"];
  expect(await Promise.all(endings)).toEqual([failure, TIMEOUT, failure]);
});

it.each([
  [{ type: "Error", message: "" }, "Error"],
  [{ type: "KeyError", message: " " }, "KeyError"],
  [{ type: "", message: "" }, "Error"],
  [{ type: "  ", message: "no" }, "no"],
  [{ message: "" }, "Error"],
  [{}, "Error"],
  [{ type: "Error", message: "no" }, "no"],
  [{ type: "TypeError", message: "no" }, "TypeError: no"],
  [null, "the handler failed with an unreadable error: null"],
])("a failure of %j is recorded as %j", async (content, text) => {
  const { endings, result } = served();
  for (const id of [2, 3, 4]) result(id, 0, FAILED, JSON.stringify(content));
  expect(await endings[0]).toEqual(["failed", text]);
});
