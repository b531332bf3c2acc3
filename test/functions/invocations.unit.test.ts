/** Invocation records in a real store: numbers, ids, reading and pruning. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { Invocations } from "../../src/functions/invocations.ts";
import type { InvocationRecord } from "../../src/functions/schema.ts";
import { openEmbedded } from "../../src/store/embedded.ts";
import type { Store } from "../../src/store/store.ts";

const DAY_SECONDS = 86_400;
const NOW_SECONDS = 2_000_000_000;
const clock: Clock = { ...systemClock, epochMs: () => NOW_SECONDS * 1000 };

let folder: string;
let store: Store;
let invocations: Invocations;
const key = { function_seq: 1, id: "fn_1", name: "f" };

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "hearth-invocations-"));
  store = openEmbedded({ path: join(folder, "hearth.db"), clock: systemClock, log: createLog("error", Date.now) });
  invocations = new Invocations(store, randomIds(), "node_1");
  await invocations.boot();
  await store.write([
    {
      sql: `INSERT INTO functions (seq, id, tenant_id, name, state, current_version, min_instances, max_instances,
        cleanup_on_exit, created_at, updated_at) VALUES (1, 'fn_1', 'default', 'f', 'active', 1, 0, 1, 1, 0, 0)`,
    },
  ]);
});

afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true, force: true });
});

async function append(parts: Partial<InvocationRecord> = {}): Promise<InvocationRecord> {
  const number = invocations.number();
  const record: InvocationRecord = {
    invocation_id: number.id,
    function_id: "fn_1",
    function_name: "f",
    version: 1,
    execution_node_id: "node_1",
    status: "success",
    started_at: NOW_SECONDS,
    ended_at: NOW_SECONDS,
    duration_ms: 1,
    exit_code: 0,
    stdout: "out",
    stderr: "",
    stdout_truncated: false,
    stderr_truncated: true,
    error_message: null,
    cold_start: true,
    instance_nonce: "abc",
    timings: { queue: 0, handler: 1, total: 2 },
    ...parts,
  };
  await invocations.append(1, number, record);
  return record;
}

describe("invocation records", () => {
  it("come back as they went in, by id and newest first", async () => {
    const first = await append({ stdout: "a\0b\u{1f525}", exit_code: null, error_message: "lost", status: "failed" });
    const second = await append();
    expect(await invocations.get(key, first.invocation_id)).toEqual(first);
    expect(await invocations.list(key, 10)).toEqual([second, first]);
    expect(await invocations.list(key, 1)).toEqual([second]);
  });

  it("are found by their whole id only", async () => {
    const { invocation_id } = await append();
    for (const wrong of [
      `${invocation_id}x`,
      invocation_id.slice(0, -1),
      "inv_1_00000000",
      "inv__",
      "1",
      "inv_zzzzzzzzzzzz_a",
    ]) {
      await expect(invocations.get(key, wrong)).rejects.toMatchObject({ code: "NOT_FOUND" });
    }
    await expect(invocations.get({ ...key, function_seq: 2 }, invocation_id)).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
  });

  it("are counted on their function in the same commit", async () => {
    await append();
    await append({ status: "timeout" });
    const row = await store.readOne(
      "SELECT invocation_count, error_count, last_invoked_at FROM functions WHERE seq = 1",
    );
    expect(row).toEqual({ invocation_count: 2, error_count: 1, last_invoked_at: NOW_SECONDS });
  });

  it("never get a number that an earlier process may have given out", async () => {
    const { seq } = invocations.number();
    const later = new Invocations(store, randomIds(), "node_1");
    await later.boot();
    expect(later.number().seq).toBeGreaterThan(seq + 100_000);
  });

  it("are pruned by count and by age, and no others", async () => {
    const old = await append({ ended_at: NOW_SECONDS - 8 * DAY_SECONDS });
    const kept = [await append({ ended_at: NOW_SECONDS - 6 * DAY_SECONDS }), await append(), await append()];
    await invocations.prune(clock, 100, 7 * DAY_SECONDS);
    expect(await invocations.list(key, 10)).toEqual([...kept].reverse());
    await expect(invocations.get(key, old.invocation_id)).rejects.toMatchObject({ code: "NOT_FOUND" });
    await invocations.prune(clock, 2, 7 * DAY_SECONDS);
    expect(await invocations.list(key, 10)).toEqual([kept[2], kept[1]]);
  });
});
