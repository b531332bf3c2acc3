/** The promises of the `Resident` port in real instances; its frames have tests of their own (resident.test.ts). */
import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { RUNTIME_INSIDE as RUNTIMES_PATH } from "../../../runtimes/runtime.ts";
import { RUNTIME_INSIDE } from "../../../src/base/container-environment.ts";
import type { CallRequest, Instance, Resident } from "../../../src/engine/ports.ts";
import { standardClass } from "../../support/engine.ts";
import { pythonProgram, servePython } from "../../support/python-runtime.ts";
import type { BootedEngine } from "./booted-engine.ts";

const request = (payload: string, more: Partial<CallRequest> = {}): CallRequest => ({
  payload: Buffer.from(payload),
  timeout_ms: 30_000,
  result_bytes_max: 1_000_000,
  log_bytes_max: 1_000,
  ...more,
});

export function residentsContract({ engine, config }: BootedEngine): void {
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

  it("starts an instance of a class with a resident process, and has it open", async () => {
    const handler = `
import json, os
def handler(payload, log):
    return json.dumps([dict(os.environ), os.getcwd(), open("/proc/self/cgroup").read()]).encode()
`;
    const of = standardClass(engine, { key: "resident-1", resident: pythonProgram(handler) });
    const instance = await engine.instances.start("opened", of);
    const { resident, timings } = instance;
    expect(timings.open_ms).toBeGreaterThan(0);
    const calls = Array.from({ length: 100 }, () => resident?.call(request("")));
    for (const outcome of await Promise.all(calls)) {
      const [environment, directory] = JSON.parse(String(outcome?.result)) as [Record<string, string>, string];
      const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
      expect([environment, directory]).toEqual([{ PATH: path, HOME: "/tmp", LANG: "C.UTF-8" }, "/"]);
    }
    await engine.instances.remove(instance);
    await expect(resident?.call(request(""))).rejects.toMatchObject({ code: "INTERNAL" });
  });

  it("starts the process from the directory of its runtime, which instances cannot change", async () => {
    const directory = mkdtempSync(join(config.data_dir, "runtime-"));
    chmodSync(directory, 0o777);
    writeFileSync(join(directory, "handler.py"), "def handler(payload, log): return b'from the directory'");
    chmodSync(join(directory, "handler.py"), 0o666);
    const program = pythonProgram(`
import os, sys
sys.path.append("${RUNTIME_INSIDE}"); sys.dont_write_bytecode = True
import handler as runtime
def handler(payload, log):
    if payload == b"options":
        return next(line.split()[5] for line in open("/proc/self/mountinfo") if " ${RUNTIME_INSIDE} " in line).encode()
    if payload == b"write": open("${RUNTIME_INSIDE}/handler.py", "a")
    return runtime.handler(payload, log)
`);
    expect(RUNTIME_INSIDE).toBe(RUNTIMES_PATH);
    const of = standardClass(engine, { key: "resident-4", runtime_directory: directory, resident: program });
    const instance = await engine.instances.start("directory", of);
    const said = async (payload: string) => (await instance.resident?.call(request(payload)))?.result.toString();
    expect(await said("")).toBe("from the directory");
    expect((await said("options"))?.split(",")).toEqual(expect.arrayContaining(["ro", "nosuid", "nodev"]));
    expect(await said("write")).toContain("Read-only file system");
    await engine.instances.remove(instance);
    rmSync(directory, { recursive: true });
    await expect(engine.instances.start("directory", of)).rejects.toMatchObject({ code: "START_FAILED" });
    expect(readdirSync(`${config.run_dir}/i`)).toEqual([]);
  });

  it.each([
    ["exits", 'import sys; sys.exit("no such module")', 20_000, /it exited with 1: no such module$/],
    ["is killed", "import os; os.kill(os.getpid(), 9)", 20_000, /it was killed by signal 9$/],
    [
      "is slow",
      'import time; print("loads", flush=True); time.sleep(1000)',
      1_000,
      /it was not open within 1000 ms: load/,
    ],
    ["violates the protocol", "import os; os.write(3, bytes(64))", 20_000, /it violated the protocol$/],
    ["prints a lot", 'import sys; print("x" * 100000 + "end"); sys.exit(4)', 20_000, /exited with 4: x{4000,4092}end$/],
  ])("leaves nothing of a start whose resident process %s, and says why", async (_how, handler, open_ms, message) => {
    const of = standardClass(engine, { key: "resident-2", resident: pythonProgram(handler, open_ms) });
    const starting = engine.instances.start("failed", of);
    await expect(starting).rejects.toMatchObject({ code: "START_FAILED", message: expect.stringMatching(message) });
    expect(readdirSync(`${config.run_dir}/i`)).toEqual([]);
    await engine.instances.remove(await engine.instances.start("failed", standardClass(engine)));
  });

  it("says which program cannot be started", async () => {
    const resident = { argv: ["/no/such"], open_timeout_ms: 10_000 };
    const starting = engine.instances.start("failed", standardClass(engine, { key: "resident-3", resident }));
    await expect(starting).rejects.toThrow("could not be started: minit: /no/such: No such file or directory");
    expect(readdirSync(`${config.run_dir}/i`)).toEqual([]);
  });
}
