/** Failpoints: what the setting may say, when one fires, and that each name stands at one place in the source. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { afterEach, describe, expect, it } from "vitest";
import { armFailpoint, FAILPOINTS, failpoint } from "../../src/base/failpoints.ts";
import { readText, SOURCES } from "../support/project-files.ts";

const ROOT = join(import.meta.dirname, "../..");
const MODULE = JSON.stringify(join(ROOT, "src/base/failpoints.ts"));

afterEach(() => armFailpoint(""));

/** Runs a script in a process of its own. */
function run(script: string) {
  return spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
}

describe("a failpoint", () => {
  it("does nothing when none or another one is armed", () => {
    failpoint("engine.start.slot");
    armFailpoint("engine.start.ready=throw");
    failpoint("engine.start.slot");
  });

  it("fires at its n-th passage, and once", () => {
    armFailpoint("engine.start.slot:3=throw");
    failpoint("engine.start.slot");
    failpoint("engine.start.slot");
    expect(() => failpoint("engine.start.slot")).toThrow(/failpoint engine\.start\.slot/);
    failpoint("engine.start.slot");
  });

  it("kills the process unless told otherwise", () => {
    const script = `import { armFailpoint, failpoint } from ${MODULE};
      process.on("exit", () => console.log("cleaned up"));
      armFailpoint("engine.start.slot"); failpoint("engine.start.slot");`;
    expect(run(script)).toMatchObject({ signal: "SIGKILL", stdout: "" });
  });

  it("waits for as long as it is told", () => {
    armFailpoint("engine.start.slot=delay:30");
    const begun_ms = performance.now();
    failpoint("engine.start.slot");
    expect(performance.now() - begun_ms).toBeGreaterThanOrEqual(29);
  });

  it("is armed in threads that are started later, counts with them, and ends one of them alone", async () => {
    armFailpoint("engine.start.slot:2=exit-thread");
    failpoint("engine.start.slot");
    const script = `const { parentPort } = require("node:worker_threads");
      import(${MODULE}).then(({ failpoint }) => { failpoint("engine.start.slot"); parentPort.postMessage("passed"); });`;
    const outcomes: string[] = [];
    for (let n = 0; n < 2; n++) {
      const worker = new Worker(script, { eval: true });
      worker.once("message", (message) => outcomes.push(message));
      await new Promise((resolve) => worker.once("exit", resolve));
    }
    // The second passage is the first thread's; the thread after it makes the third.
    expect(outcomes).toEqual(["passed"]);
  });

  it("is armed again and again through a file, in threads that run already, too", () => {
    const script = `import { existsSync, writeFileSync } from "node:fs";
      import { Worker } from "node:worker_threads";
      import { armFailpoint, failpoint } from ${MODULE};
      const file = "/tmp/hearth-failpoint-" + process.pid;
      armFailpoint("@" + file);
      failpoint("engine.start.slot");
      const arm = async (text) => {
        writeFileSync(file, text);
        process.kill(process.pid, "SIGUSR2");
        while (existsSync(file)) await new Promise((resolve) => setTimeout(resolve, 1));
      };
      await arm("engine.start.slot:2=throw");
      failpoint("engine.start.slot");
      try { failpoint("engine.start.slot"); } catch (error) { console.log(error.message); }
      const code = "import(" + JSON.stringify(${MODULE}) + ").then(({ failpoint }) => require('node:worker_threads')" +
        ".parentPort.on('message', () => failpoint('engine.start.ready')))";
      const worker = new Worker(code, { eval: true, execArgv: [] });
      await arm("engine.start.ready=exit-thread");
      worker.postMessage("");
      await new Promise((resolve) => worker.once("exit", resolve));
      console.log("the thread ended");
      await arm("engine.start.slot");
      failpoint("engine.start.slot");`;
    expect(run(script)).toMatchObject({
      signal: "SIGKILL",
      stdout: "failpoint engine.start.slot\nthe thread ended\n",
    });
  });

  it.each([
    "engine.start",
    "engine.start.slot:0",
    "engine.start.slot:x",
    "engine.start.slot=explode",
    "engine.start.slot=delay",
    "engine.start.slot=delay:60001",
    "engine.start.slot:1=throw and more",
  ])("cannot be armed as '%s', and the refusal names those that can", (setting) => {
    expect(() => armFailpoint(setting)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining("engine.start.slot, ") }),
    );
  });

  it("of an unknown name ends the daemon's start with a message and the exit code of a wrong setting", () => {
    const { status, stderr } = spawnSync(process.execPath, ["src/main.js"], {
      cwd: ROOT,
      encoding: "utf8",
      env: { ...process.env, HEARTH_DATA_DIR: "/nonexistent/never-made", HEARTH_FAILPOINT: "no.such.name" },
    });
    expect([status, stderr]).toEqual([64, expect.stringContaining("HEARTH_FAILPOINT is 'no.such.name'")]);
  });

  it("of each name stands at one place in the source, and no other does", () => {
    const placed = SOURCES.filter((file) => file.endsWith(".ts"))
      .flatMap((file) => [...readText(file).matchAll(/\bfailpoint\("([^"]+)"\)/g)])
      .map(([, name]) => name);
    expect(placed.sort()).toEqual([...FAILPOINTS].sort());
  });
});
