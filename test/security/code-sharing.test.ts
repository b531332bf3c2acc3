/** Calls that share an instance (`instance_concurrency`): what one does to the others, and what stays its own. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { Daemon } from "../support/daemon.ts";

const daemon = new Daemon();
const user = new CodeUser(daemon);
const COUNT = 20;
const SHARED = { instance_concurrency: COUNT, max_instances: 1, timeout_seconds: 60 };

beforeAll(() => daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" }));
afterAll(() => daemon.dispose());

/** `n` prints and waits, and another text is what goes wrong once all others wait. */
const NODE = `
let waiting = 0, release;
const released = new Promise((resolve) => (release = resolve));
const never = () => new Promise(() => {});
const all = { exit: () => process.exit(5), throw: () => setTimeout(() => { throw new RangeError("thrown"); }), crash: () => process.abort(), loop: () => { for (;;); } };
export async function handler(what) {
  if (typeof what === "number") {
    for (let n = 0; n < 50; n++) { console.log("out " + what); console.error("err " + what); if (n % 10 === 0) await new Promise(setImmediate); }
    if (++waiting === ${COUNT - 1}) release();
    return what < 100 ? what : never();
  }
  await released;
  all[what]();
  return never();
}
`;

const PYTHON = `
import asyncio, sys
async def handler(n, context):
    for _ in range(50):
        print("out", n)
        print("err", n, file=sys.stderr)
        await asyncio.sleep(0)
    return n
`;
const THREADS = PYTHON.replace("async def", "def").replace("        await asyncio.sleep(0)\n", "");

describe("calls at the same time", () => {
  it.each([
    ["nodejs", { "index.mjs": NODE }, NODEJS],
    ["coroutines of python3", { "main.py": PYTHON }, PYTHON3],
    ["threads of python3", { "main.py": THREADS }, PYTHON3],
  ])("never mix their outputs: %s", async (title, files, fields) => {
    const name = title.replaceAll(" ", "-");
    await user.deploy(name, files, { ...fields, ...SHARED });
    const records = await Promise.all(Array.from({ length: COUNT * 2 }, (_, n) => user.invoke(name, n)));
    for (const [n, record] of records.entries()) {
      const lines = (word: string) => `${word} ${n}\n`.repeat(50);
      expect(record).toMatchObject({ status: "success", result: n, stdout: lines("out"), stderr: lines("err") });
    }
    expect(new Set(records.map(({ instance_nonce }) => instance_nonce)).size).toBe(1);
  });

  it.each([
    ["exit", /^ProcessExit: .* exit code 5$/, /^the process of the instance exited with 5(: |, without output$)/],
    ["crash", /was killed by signal 6: /, /was killed by signal 6: /],
  ])("fail with the one that ends their process, and each says why: %s", async (what, own, others) => {
    await user.deploy(`ends-${what}`, { "index.mjs": NODE }, { ...NODEJS, ...SHARED });
    const waiting = Array.from({ length: COUNT - 1 }, (_, n) => user.invoke(`ends-${what}`, 100 + n));
    expect(await user.invoke(`ends-${what}`, what)).toMatchObject({
      status: "failed",
      error_message: expect.stringMatching(own),
    });
    for (const record of await Promise.all(waiting)) {
      expect(record).toMatchObject({ status: "failed", error_message: expect.stringMatching(others) });
    }
    expect(await user.invoke(`ends-${what}`, 1)).toMatchObject({ status: "success", result: 1 });
  });

  it("are cancelled where one blocks the process beyond its deadline", async () => {
    await user.deploy("blocks", { "index.mjs": NODE }, { ...NODEJS, ...SHARED });
    const waiting = Array.from({ length: COUNT - 1 }, (_, n) => user.invoke("blocks", 100 + n));
    const late = await user.invoke("blocks", "loop", { timeout_seconds: 1 });
    expect(late).toMatchObject({ status: "timeout", error_message: "timed out after 1 s" });
    for (const record of await Promise.all(waiting)) {
      expect(record).toMatchObject({
        status: "cancelled",
        error_message: "cancelled: another call passed its deadline, and the process of the instance ended",
      });
    }
    expect(await user.invoke("blocks", 1)).toMatchObject({ status: "success", result: 1 });
  });

  it("go on beside one that only waits beyond its deadline, and the next call gets another instance", async () => {
    const code = `export const handler = (ms) => new Promise((resolve) => setTimeout(resolve, ms, "done"));\n`;
    await user.deploy("waits", { "index.mjs": code }, { ...NODEJS, ...SHARED });
    const late = user.invoke("waits", 60_000, { timeout_seconds: 1 });
    const others = await Promise.all([user.invoke("waits", 1500), user.invoke("waits", 1600)]);
    expect(others).toMatchObject(Array(2).fill({ status: "success", result: "done" }));
    const record = await late;
    expect(record).toMatchObject({ status: "timeout" });
    const next = await user.invoke("waits", 1);
    expect(next).toMatchObject({ status: "success" });
    expect(next.instance_nonce).not.toBe(record.instance_nonce);
  });

  it("go on beside one with an exception that nothing catches, and the next call gets another instance", async () => {
    const code = `export const handler = (what) => {
  if (what === "throw") setTimeout(() => { throw new RangeError("thrown"); });
  return new Promise((resolve) => { if (what !== "throw") setTimeout(resolve, what, "done"); });
};\n`;
    await user.deploy("strays", { "index.mjs": code }, { ...NODEJS, ...SHARED });
    const waiting = [user.invoke("strays", 1000), user.invoke("strays", 1100)];
    const thrown = await user.invoke("strays", "throw");
    expect(thrown).toMatchObject({ status: "failed", error_message: "RangeError: thrown" });
    expect(await Promise.all(waiting)).toMatchObject(
      Array(2).fill({ status: "success", result: "done", instance_nonce: thrown.instance_nonce }),
    );
    const next = await user.invoke("strays", 1);
    expect(next).toMatchObject({ status: "success" });
    expect(next.instance_nonce).not.toBe(thrown.instance_nonce);
  });

  it("tells in the record of a call what it does wrong after its answer, and harms no other call", async () => {
    const code = `export const handler = (what) => {
  if (what === "stray") setTimeout(() => { Promise.reject(new RangeError("late one")); throw new TypeError("late two"); }, 50);
  return what;
};\n`;
    const id = await user.deploy("late", { "index.mjs": code }, { ...NODEJS, max_instances: 1 });
    const stray = await user.invoke("late", "stray");
    expect(stray).toMatchObject({ status: "success", stderr: "" });
    const next = await user.invoke("late", "fine");
    const told = async () =>
      (await user.call("GET", `/api/functions/${id}/invocations/${stray.invocation_id}`)).body.stderr;
    const at = `uncaught in invocation ${stray.invocation_id}, after its answer:`;
    await expect.poll(told).toContain(`${at} RangeError: late one\n    at `);
    await expect.poll(told).toContain(`${at} TypeError: late two\n    at `);
    const last = await user.invoke("late", "fine");
    for (const record of [next, last]) {
      expect(record).toMatchObject({ status: "success", stderr: "", instance_nonce: stray.instance_nonce });
    }
  });

  it("fail beside a process that ends by itself, whatever call was late in it before", async () => {
    const code = `
export const handler = (what, { signal }) => {
  if (what === "late") signal.addEventListener("abort", () => setTimeout(() => process.exit(5), 300));
  return new Promise(() => {});
};
`;
    await user.deploy("late-before", { "index.mjs": code }, { ...NODEJS, ...SHARED });
    const waiting = user.invoke("late-before", "wait");
    const late = await user.invoke("late-before", "late", { timeout_seconds: 2 });
    expect(late).toMatchObject({ status: "timeout" });
    expect(await waiting).toMatchObject({
      status: "failed",
      error_message: expect.stringMatching(
        /^the process of the instance exited with 5: process\.exit\(5\) in invocation inv_\w+, after its answer$/,
      ),
      instance_nonce: late.instance_nonce,
    });
  });

  it("share an instance up to instance_calls_max calls, and those that run when it is reached", async () => {
    const code = `let n = 0;\nexport const handler = () => ++n;\n`;
    const fields = { ...NODEJS, ...SHARED, instance_concurrency: 4, instance_calls_max: 10, max_instances: 3 };
    await user.deploy("used-up", { "index.mjs": code }, fields);
    const records = await Promise.all(Array.from({ length: 60 }, () => user.invoke("used-up")));
    expect(records.filter(({ status }) => status !== "success")).toEqual([]);
    expect(Math.max(...records.map(({ result }) => result))).toBeLessThan(10 + 4);
  });

  it("may call their own function with a single instance, to the full depth", async () => {
    const code = `
export async function handler(depth, { api }) {
  if (depth === 0) return 0;
  const response = await fetch(api.url + "/api/functions/invoke/self", {
    method: "POST",
    headers: { "x-api-key": api.token, "content-type": "application/json" },
    body: JSON.stringify({ payload: depth - 1 }),
  });
  const record = await response.json();
  return record.status === "success" ? record.result + 1 : JSON.stringify(record);
}
`;
    const fields = { ...NODEJS, ...SHARED, instance_concurrency: 3, api_access: true };
    await user.deploy("self", { "index.mjs": code }, fields);
    const records = await Promise.all(Array.from({ length: 12 }, () => user.invoke("self", 4)));
    expect(records.map(({ result, error_message }) => error_message ?? result)).toEqual(Array(12).fill(4));
  });
});
