/** The runtime nodejs in a PID namespace of its own, as in a cell: it reaches all processes that a call left. */
import { afterEach, describe, expect, it } from "vitest";
import { NodejsProcess, resultOf } from "../../test/support/nodejs-process.ts";
import { STATUS } from "../envelope.ts";

const started: NodejsProcess[] = [];

/** The shell takes the place of minit: PID 1, and parent of the process. */
async function serveInNamespace(code: string): Promise<NodejsProcess> {
  const process = await NodejsProcess.start({ "index.mjs": code }, {}, (argv) => [
    ...["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "sh", "-c", '"$@" & wait', "sh"],
    ...argv,
  ]);
  started.push(process);
  expect((await process.bound).status).toBe(STATUS.returned);
  return process;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
});

const PROCESSES = `readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name))
  .map((pid) => { try { return readFileSync("/proc/" + pid + "/cmdline", "latin1").replaceAll("\\0", " ").trim(); } catch { return ""; } })
  .filter((line) => line.startsWith("sleep"))`;

describe("cleanup in a cell", () => {
  it("kills children that a call orphaned, not those of the module", async () => {
    const process = await serveInNamespace(
      `import { execSync, spawn } from "node:child_process"; import { readdirSync, readFileSync } from "node:fs";
       execSync("sleep 1001 >/dev/null 2>&1 &"); spawn("sleep", ["1002"]);
       export const handler = (what) => {
         if (what === "leave") execSync("setsid sh -c 'sleep 1003 & sleep 1004 &' >/dev/null 2>&1");
         return ${PROCESSES}.sort();
       };`,
    );
    const kept = ["sleep 1001", "sleep 1002"];
    expect(resultOf(await process.call("leave"))).toEqual([...kept, "sleep 1003", "sleep 1004"]);
    await expect.poll(async () => resultOf(await process.call("look"))).toEqual(kept);
  });
});
