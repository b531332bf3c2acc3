/** The memory of the daemon that a resident process takes: the result of a call, and output that belongs to none. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { FRAME } from "../../src/engine/minit/frames.ts";
import { ResidentClient } from "../../src/engine/minit/resident-client.ts";

const MIB = 1024 * 1024;

function served(): ResidentClient {
  let next_id = 1;
  const wire = { write: () => {}, nextId: () => next_id++ };
  const serving = { argv: [], environment: [], working_directory: "", concurrency: 1, open_timeout_ms: 0 };
  return new ResidentClient(wire, serving, () => {});
}

it("a result of a million pieces takes little more than its bytes", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const resident = served();
  const request = { payload: Buffer.alloc(0), timeout_ms: 0, result_bytes_max: MIB, log_bytes_max: 0 };
  const outcome = resident.call(request);
  const before = used();
  const piece = Buffer.from("x");
  for (let n = 0; n < MIB; n++) resident.frame(FRAME.CALL_CHUNK, 2, piece);
  expect(used() - before).toBeLessThan(8 * MIB);
  resident.frame(FRAME.CALL_RESULT, 2, Buffer.alloc(16));
  expect((await outcome).result.equals(Buffer.alloc(MIB, "x"))).toBe(true);
});

it("keeps the newest 4 KiB of the output that belongs to no call, in whole characters", () => {
  const resident = served();
  const say = (bytes: Uint8Array) => resident.frame(FRAME.CALL_LOG, 0, Buffer.concat([Buffer.from([2]), bytes]));
  expect(resident.tail).toBe("");
  say(Buffer.from("before "));
  say(Buffer.from("its end"));
  expect(resident.tail).toBe("before its end");
  for (let n = 0; n < 10_000; n++) say(Buffer.from("€"));
  expect(resident.tail).toBe("€".repeat(1_365));
  const large = Buffer.alloc(65_536, "x");
  say(large);
  expect(resident.tail).toBe("x".repeat(4_096));
  for (const byte of Buffer.from("the last words")) say(Buffer.from([byte]));
  expect(resident.tail).toBe(`${"x".repeat(4_082)}the last words`);
});
