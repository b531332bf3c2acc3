/** The memory of the daemon that the result of a resident call takes. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { FRAME } from "../../src/engine/minit/frames.ts";
import { ResidentClient } from "../../src/engine/minit/resident-client.ts";

const MIB = 1024 * 1024;

it("a result of a million pieces takes little more than its bytes", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  let next_id = 1;
  const wire = { write: () => {}, nextId: () => next_id++ };
  const serving = { argv: [], environment: [], working_directory: "", concurrency: 1, open_timeout_ms: 0 };
  const resident = new ResidentClient(wire, serving, () => {});
  const request = { payload: Buffer.alloc(0), timeout_ms: 0, result_bytes_max: MIB, log_bytes_max: 0 };
  const outcome = resident.call(request);
  const before = used();
  const piece = Buffer.from("x");
  for (let n = 0; n < MIB; n++) resident.frame(FRAME.CALL_CHUNK, 2, piece);
  expect(used() - before).toBeLessThan(8 * MIB);
  resident.frame(FRAME.CALL_RESULT, 2, Buffer.alloc(16));
  expect((await outcome).result.equals(Buffer.alloc(MIB, "x"))).toBe(true);
});
