/** The promises of the `Resident` port in real instances; its frames have tests of their own (resident.test.ts). */
import { expect, it } from "vitest";
import type { CallRequest, Instance, Resident } from "../../../src/engine/ports.ts";
import { standardClass } from "../../support/engine.ts";
import { servePython } from "../../support/python-runtime.ts";
import type { BootedEngine } from "./booted-engine.ts";

const request = (payload: string, more: Partial<CallRequest> = {}): CallRequest => ({
  payload: Buffer.from(payload),
  timeout_ms: 30_000,
  result_bytes_max: 1_000_000,
  log_bytes_max: 1_000,
  ...more,
});

export function residentsContract({ engine }: BootedEngine): void {
  const withResident = async (
    handler: string,
    use: (resident: Resident, instance: Instance) => Promise<void>,
    onLog: (stream: string, chunk: Buffer) => void = () => {},
  ): Promise<void> => {
    const instance = await engine.instances.start("resident", standardClass(engine));
    engine.instances.limit(instance, { memory_limit_mb: 128, cpu_limit_percent: null });
    try {
      await use(await servePython(instance, handler, onLog), instance);
    } finally {
      await engine.instances.remove(instance);
    }
  };

  it("serves calls four at a time in one process, and keeps its state between them", async () => {
    const handler = `
import os, threading
count = 0
lock = threading.Lock()
def handler(payload, log):
    global count
    with lock:
        count += 1
        number = count
    log("call " + payload.decode())
    return f"{os.getpid()} {number} ".encode() + payload
`;
    await withResident(handler, async (resident) => {
      const { pid } = await resident.opened;
      const counts = new Set<number>();
      let [next, logged] = [0, ""];
      const lane = async () => {
        for (let n = next++; n < 200; n = next++) {
          const outcome = await resident.call(request(`n${n}`), { onLog: (_stream, chunk) => (logged += `${chunk};`) });
          const [by, count, payload] = outcome.result.toString().split(" ");
          expect([Number(by), payload, outcome.status]).toEqual([pid, `n${n}`, 0]);
          counts.add(Number(count));
        }
      };
      await Promise.all([lane(), lane(), lane(), lane()]);
      expect(counts.size).toBe(200);
      expect(logged.split(";")).toHaveLength(201);
    });
  });

  it("runs four calls at the same time, and tells a failure from a result", async () => {
    const handler = `
import threading
together = threading.Barrier(4)
def handler(payload, log):
    together.wait()
    if payload == b"2": raise ValueError("two")
    return payload * 100000
`;
    await withResident(handler, async (resident) => {
      const outcomes = await Promise.all(["0", "1", "2", "3"].map((payload) => resident.call(request(payload))));
      expect(outcomes.map(({ status }) => status)).toEqual([0, 0, 1, 0]);
      expect(outcomes[2]?.result.toString()).toBe("ValueError('two')");
      expect(outcomes[3]?.result.equals(Buffer.alloc(100_000, "3"))).toBe(true);
    });
  });

  it("cancels the other calls when one is late, and when the kernel kills the process for memory", async () => {
    const handler = `
import time
def handler(payload, log):
    held = bytearray(400 << 20) if payload == b"memory" else None
    time.sleep(1000)
`;
    let logged = "";
    await withResident(
      `print("loaded", flush=True)${handler}`,
      async (resident) => {
        const other = resident.call(request("other"));
        const late = resident.call(request("late", { timeout_ms: 200 }));
        expect(await other).toMatchObject({ cancelled: true, timed_out: false });
        expect(await late).toMatchObject({ cancelled: false, timed_out: true });
        expect(await resident.ended).toMatchObject({ timed_out: true, signal: 9 });
        expect(logged).toBe("loaded\n");
      },
      (_stream, chunk) => (logged += chunk),
    );
    await withResident(handler, async (resident, instance) => {
      const calls = ["other", "memory"].map((payload) => resident.call(request(payload)));
      for (const outcome of await Promise.all(calls)) expect(outcome.cancelled).toBe(true);
      expect(await resident.ended).toMatchObject({ signal: 9, is_broken: false });
      expect(engine.instances.oomKills(instance)).toBeGreaterThan(0);
    });
  });
}
