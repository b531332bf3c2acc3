/** PID 1 of a container as an attacker: the kernel bounds the files of this machine that it can write, and readers bound themselves. */
import { mkdtempSync, rmSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { executes } from "../../src/engine/kernel/command-lines.ts";
import { containerSpec } from "../support/engine.ts";
import { compileHostileHelper, engineHelper } from "../support/helper.ts";
import { describeEngine } from "./contracts/booted-engine.ts";

const MIB = 1024 * 1024;
const EDQUOT = 122;
const ID = "hostile";

const directory = mkdtempSync("/var/tmp/hearth-hostile-");
const minit = `${directory}/minit`;
compileHostileHelper(minit);
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describeEngine(
  "crun",
  ({ engine }) => {
    const { containers } = engine;
    const spec = containerSpec(ID, { image_environment: { HOSTILE: "1" }, command: ["true"] });

    it("writes no more to this machine than a log may take, and its exit record is read with a bound", async () => {
      await containers.create(ID, null);
      // It never answers as minit: the start fails or tells the end that it wrote.
      await containers.start(spec).catch(() => null);
      const { session, close } = await containers.openFiles(spec);
      const { stream } = await session.read("report", {});
      const chunks: Uint8Array[] = [];
      for await (const chunk of stream) chunks.push(chunk);
      close();
      const [, written_bytes = 0, errno = 0] = Buffer.concat(chunks).toString().split(" ").map(Number);
      expect(written_bytes).toBeGreaterThan(0);
      expect(written_bytes).toBeLessThanOrEqual(LIMITS.log_disk_mb * MIB);
      expect(errno).toBe(EDQUOT);
      expect((await engine.storage.usage("logs", ID)).referenced_bytes).toBeLessThanOrEqual(LIMITS.log_disk_mb * MIB);
      const before_bytes = process.memoryUsage().rss;
      const end = await containers.exit(ID);
      expect(process.memoryUsage().rss - before_bytes).toBeLessThan(64 * MIB);
      expect(end?.exit_code).toBe(255);
      expect(end?.signal).toBeLessThan(128);
      expect(new Date(end?.ended_at_ms ?? 0).toISOString()).toMatch(/Z$/);
      expect(await containers.log(ID).tail({ limit: 10 })).toEqual([]);
    });

    it("is minit again for the next run, whatever the last one left in the files", async () => {
      const command = ["sh", "-c", "echo fine; exit 3"];
      const brief = { ...containerSpec(ID, { command }), image_environment: null };
      let ended = await containers.start(brief);
      while (ended === null && containers.live(ID) !== null) ended = await containers.exit(ID);
      await containers.kill(ID);
      expect((await containers.exit(ID))?.exit_code).toBe(3);
      expect((await containers.log(ID).tail({ limit: 10 })).map(({ message }) => message)).toEqual(["fine"]);
      await containers.remove(ID);
      expect(await containers.kept()).toEqual([]);
    });
  },
  minit,
);

describe("the program of a process", () => {
  it("is told from another file", async () => {
    const pid = String(process.pid);
    expect(await executes(pid, process.execPath)).toBe(true);
    expect(await executes(pid, engineHelper())).toBe(false);
  });
});
