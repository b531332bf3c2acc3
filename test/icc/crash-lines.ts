/** Lines of a killed bus, and the promises that they make. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect } from "vitest";
import type { Bus } from "../../src/icc/bus/port.ts";

const RUNNER = join(import.meta.dirname, "bus-crash-runner.ts");
const KEY = { tenant_id: "acme", inbox: "ctr_one" };

export interface Runner {
  readonly child: ChildProcess;
  readonly lines: string[];
  /** Resolves to the signal that ended it. */
  ended(): Promise<string | null>;
}

export function startRunner(...args: readonly string[]): Runner {
  const child = spawn(process.execPath, [RUNNER, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const lines: string[] = [];
  let rest = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const pieces = (rest + text).split("\n");
    rest = pieces.pop() ?? "";
    lines.push(...pieces);
  });
  const closed = once(child, "close");
  return { child, lines, ended: async () => (await closed)[1] as string | null };
}

/** Checks the lines of all lives of a bus, and receives what is left. */
export async function checkLives(bus: Bus, lines: readonly string[]): Promise<{ published: number; acked: number }> {
  const published = new Set<string>();
  const acked = new Set<string>();
  const delivered = new Set<string>();
  let last_seq = 0;
  const deliver = (msg_id: string, stream_seq: number) => {
    expect(acked.has(msg_id), `${msg_id} came after its ack`).toBe(false);
    if (!delivered.has(msg_id)) {
      expect(stream_seq, `${msg_id} came in its order`).toBeGreaterThan(last_seq);
      last_seq = stream_seq;
    }
    delivered.add(msg_id);
  };
  for (const line of lines) {
    const [verb, msg_id = "", seq] = line.split(" ");
    if (verb === "published") published.add(msg_id);
    else if (verb === "delivered") deliver(msg_id, Number(seq));
    else if (verb === "acked") acked.add(msg_id);
  }
  const deadline_ms = performance.now() + 20_000;
  const options = { entries_max: 100, lease_ms: 60_000, max_deliver: 1_000, is_ordered: true };
  // An ack of which the process could not tell has settled its entry.
  const settled = async () => {
    const ids = [...delivered].filter((id) => !acked.has(id));
    const found = await Promise.all(ids.map((id) => bus.find("acme", id)));
    return ids.filter((_, i) => found[i]?.[0]?.state === "acked");
  };
  for (const id of await settled()) acked.add(id);
  while ((await bus.facts(KEY)).unread_count > 0 && performance.now() < deadline_ms) {
    for (const { msg_id, stream_seq, lease } of await bus.receive(KEY, options).catch(() => [])) {
      deliver(msg_id, stream_seq);
      await bus.ack({ ...KEY, msg_id }, { lease });
      acked.add(msg_id);
    }
  }
  expect([...published].filter((id) => !acked.has(id))).toEqual([]);
  expect(await bus.receive(KEY, options)).toEqual([]);
  return { published: published.size, acked: acked.size };
}
