/** Functions' code after a crash: what a killed owner of a pool leaves, and what the next start makes of it. */
import { spawn } from "node:child_process";
import { lstatSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { afterEach, describe, expect, it } from "vitest";
import type { Failpoint } from "../../src/base/failpoints.ts";
import { archive, inPieces } from "../support/file-helper.ts";
import { eventually } from "../support/native.ts";
import { Ground } from "../support/storage-ground.ts";
import { CodeGround } from "./code-ground.ts";

const RUNNER = join(import.meta.dirname, "crash-runner.ts");
const state = { number: 0 };
const grounds: CodeGround[] = [];

afterEach(async () => {
  for (const ground of grounds.splice(0)) await ground.stop();
});

describe("a killed owner", () => {
  /** Runs a process on a pool of its own until it dies at the failpoint. Resolves to the reopened ground and its output. */
  async function killedAt(failpoint: Failpoint): Promise<{ left: CodeGround; digest: string }> {
    const ground = new Ground();
    const child = spawn(process.execPath, [RUNNER, ground.root, failpoint], { stdio: ["ignore", "pipe", "inherit"] });
    const exited = new Promise<string | null>((resolve) => child.once("exit", (_, signal) => resolve(signal)));
    const text = (await buffer(child.stdout)).toString();
    expect(await exited).toBe("SIGKILL");
    await eventually("the pool to be unmounted", () => ground.loops().length === 0);
    const left = new CodeGround(ground);
    grounds.push(left);
    await left.open();
    return { left, digest: text.trim() };
  }

  it("in the middle of an upload leaves nothing after the next start", async () => {
    for (const name of ["code.put.unpacked", "code.put.renamed"] as const) {
      const { left } = await killedAt(name);
      await eventually("the leftovers to go", async () => (await left.trees()).length === 0);
      expect(await left.rows()).toEqual([]);
    }
  });

  it("in the middle of a collection leaves neither row nor tree", async () => {
    const { left, digest } = await killedAt("code.collect.deleted");
    expect(digest).toMatch(/^[0-9a-f]{64}$/);
    await eventually("the leftovers to go", async () => (await left.trees()).length === 0);
    expect(await left.rows()).toEqual([]);
  });

  it("right after an upload has lost nothing of it", async () => {
    const { left, digest } = await killedAt("app.stop.begun");
    expect(await left.rows()).toEqual([`t ${digest}`]);
    expect(await left.trees()).toEqual([digest]);
    expect(readFileSync(left.seen(digest, "index.mjs"), "utf8")).toBe("export const a = 1;\n");
  });
});

describe("a start", () => {
  it("removes trees without a row and names lost ones", async () => {
    const ground = new CodeGround();
    grounds.push(ground);
    await ground.open();
    await ground.tenant("t");
    const put = async () => (await ground.code.put("t", inPieces(archive({ name: `f${state.number++}` })))).digest;
    const [kept, rowless, lost] = [await put(), await put(), await put()];
    await ground.store.write([{ sql: "DELETE FROM code WHERE digest = ?", args: [rowless] }]);
    await ground.pool.remove("code", lost);
    await ground.pool.create("code", "new-left", 10);
    await ground.close();
    await ground.open();
    await eventually("the leftovers to go", async () => (await ground.trees()).length === 1);
    expect(await ground.trees()).toEqual([kept]);
    expect(ground.lines).toContain("the storage pool lacks code of functions: deploy it again");
    await expect(ground.code.pack("t", lost)).rejects.toMatchObject({ code: "NOT_FOUND", message: /are lost/ });
    expect(() => ground.code.hold(lost)).toThrow(/are lost/);
  });

  it("is not needed to notice that somebody has removed a tree, nor to make it again", async () => {
    const ground = new CodeGround();
    grounds.push(ground);
    await ground.open();
    await ground.tenant("t");
    const bytes = archive({ name: `f${state.number++}` });
    const { digest } = await ground.code.put("t", inPieces(bytes));
    await ground.code.check(digest);
    await ground.pool.remove("code", digest);
    for (const look of [
      () => ground.code.pack("t", digest),
      () => ground.code.diff("t", null, digest, 1),
      () => ground.code.check(digest),
    ]) {
      await expect(look()).rejects.toMatchObject({ code: "NOT_FOUND", message: `files of code ${digest} are lost` });
    }
    expect(ground.lines.filter((line) => line.includes("lacks code"))).toHaveLength(1);
    await ground.code.put("t", inPieces(bytes));
    await ground.code.check(digest);
    expect(() => ground.code.hold(digest)).not.toThrow();
  });

  it("replaces a tree that lost content in a power cut as soon as it is uploaded again", async () => {
    const ground = new CodeGround();
    grounds.push(ground);
    await ground.open();
    await ground.tenant("t");
    const bytes = archive(
      { name: "d/f", content: "content" },
      { name: "d/g", type: "link", link: "d/f" },
      { name: "empty" },
      { name: "run", content: "#!", mode: 0o755 },
      { name: "l", type: "symlink", link: "d/f" },
    );
    const { digest } = await ground.code.put("t", inPieces(bytes));
    const { dev } = lstatSync(ground.seen(digest));
    await ground.close();
    await ground.open();
    await ground.code.put("t", inPieces(bytes));
    expect(lstatSync(ground.seen(digest)).dev).toBe(dev);
    expect(await ground.code.renew("t", digest)).toMatchObject({ digest });
    expect(ground.lines.filter((line) => line.includes("damaged"))).toEqual([]);
    await ground.ground.sh(`truncate -s 0 ${ground.pool.subvolume("code", digest)}/d/f`);
    await ground.close();
    await ground.open();
    await expect(ground.code.renew("t", digest)).rejects.toMatchObject({ code: "NOT_FOUND" });
    await ground.code.put("t", inPieces(bytes));
    expect(readFileSync(ground.seen(digest, "d/f"), "utf8")).toBe("content");
    expect(lstatSync(ground.seen(digest)).dev).not.toBe(dev);
    expect(ground.lines).toContain("code on the disk is damaged: an upload replaces it");
    await eventually("the damaged tree to go", async () => (await ground.trees()).length === 1);
  });
});
