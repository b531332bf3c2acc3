/** The log on real descriptors: what a line looks like, and what becomes of it when nobody reads or all ends. */
import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, constants, mkdtempSync, openSync, readFileSync, readSync, rmSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { createLog, readableLine } from "../../src/base/log.ts";
import { NODE_PATH, PROJECT_DIR } from "../../src/installation/paths.js";
import { eventually } from "../support/daemon.ts";

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync("/var/tmp/hearth-log-");
  file = `${folder}/log`;
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const NONBLOCKING = constants.O_NONBLOCK;
/** Both ends of a pipe that nobody reads. */
function openFifo(): number {
  execFileSync("mkfifo", [file]);
  return openSync(file, constants.O_RDWR | NONBLOCKING);
}

function readWaiting(fd: number): string {
  const buffer = Buffer.alloc(64 * 1024);
  try {
    return buffer.subarray(0, readSync(fd, buffer)).toString();
  } catch {
    return "";
  }
}

describe("the log", () => {
  it("writes one JSON object a line, with the level, the time and the fields that have a value", async () => {
    const log = createLog("info", { ...systemClock, epochMs: () => 1_795_229_416_123 }, openSync(file, "w"));
    log.debug("unheard");
    log.info("heard", { count: 1, name: 'a "name"\n', nothing: null, absent: undefined });
    const text = await eventually("it is written", () => readFileSync(file, "utf8"));
    expect(text).toMatch(/^\{"time":"[^"]+","level":"info","message":"heard","count":1,.*\}\n$/);
    expect(JSON.parse(text)).toEqual({
      level: "info",
      time: "2026-11-21T02:50:16.123Z",
      message: "heard",
      count: 1,
      name: 'a "name"\n',
      nothing: null,
    });
  });

  it("shows what is unseen as escapes, which are the same JSON", async () => {
    const log = createLog("info", systemClock, openSync(file, "w"));
    const name = "a\u009b2J\u007f\u2028b\u202ec\u2066";
    log.info("heard", { name });
    const text = await eventually("it is written", () => readFileSync(file, "utf8"));
    expect(text).toMatch(/^[\x20-\x7e]*\n$/);
    expect(JSON.parse(text)).toMatchObject({ name });
  });

  it("drops and counts what a reader does not take, in bounded memory, and goes on when it reads again", async () => {
    const fd = openFifo();
    const log = createLog("info", systemClock, fd);
    const filler = "x".repeat(1_000);
    const lines_count = (3 * LIMITS.log_buffer_bytes_max) / filler.length;
    for (let i = 0; i < lines_count; i++) log.info("filler", { filler });
    expect(log.dropped_count).toBeGreaterThan(lines_count / 2);
    expect(log.dropped_count).toBeLessThan(lines_count);
    let taken = "";
    await eventually("what waited is written whole", () => {
      taken += readWaiting(fd);
      const whole = taken.split("\n").slice(0, -1);
      return whole.length === Math.ceil(lines_count) - log.dropped_count && whole.every((line) => JSON.parse(line));
    });
    log.info("again");
    await eventually("a later line comes", () => readWaiting(fd).includes('"again"'));
    closeSync(fd);
  });

  it("outlives a reader that has gone", async () => {
    execFileSync("mkfifo", [file]);
    const reader = openSync(file, constants.O_RDONLY | NONBLOCKING);
    const log = createLog("info", systemClock, openSync(file, constants.O_WRONLY | NONBLOCKING));
    closeSync(reader);
    log.error("into the void");
    await eventually("later lines count as dropped", () => {
      log.error("into the void");
      return log.dropped_count > 0;
    });
  });

  const SCRIPT = `import { createLog } from "./src/base/log.ts"; import { systemClock } from "./src/base/clock.ts";
    const log = createLog("info", systemClock);`;
  const runScript = (rest: string, stderr: number) =>
    spawnSync(NODE_PATH, ["--input-type=module", "-e", SCRIPT + rest], {
      cwd: PROJECT_DIR,
      stdio: ["ignore", "ignore", stderr],
      timeout: 20_000,
    });

  it.each(["process.exit(3);", "process.exitCode = 3;", "process.on('exit', () => process.exitCode = 3); throw 1;"])(
    "is written before the process ends by %s",
    (end) => {
      expect(runScript(`log.info("the last word"); ${end}`, openSync(file, "w")).status).toBe(3);
      expect(readFileSync(file, "utf8")).toContain('"the last word"');
    },
  );

  it("lets the process end where the pipe is full and nobody reads", () => {
    const fd = openFifo();
    const { status, signal } = runScript(
      `for (let i = 0; i < 200; i++) log.info("x".repeat(1_000)); process.exit(3);`,
      fd,
    );
    expect({ status, signal }).toEqual({ status: 3, signal: null });
    closeSync(fd);
  });
});

describe("a line for a terminal", () => {
  it("is short, and what it shows cannot move the cursor", () => {
    const line = readableLine(1_795_229_416_123, "info", "request\u001b[2J", {
      route: "/api/functions/:id",
      ms: 1.5,
      absent: undefined,
      error: "a b\u001b\u009b",
    });
    expect(line).toBe('02:50:16.123 info  request\\u001b[2J route=/api/functions/:id ms=1.5 error="a b\\u001b\\u009b"');
  });
});
