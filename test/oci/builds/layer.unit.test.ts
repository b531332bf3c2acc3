/** Differences of roots as layers, and the log of a build. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { LIMITS } from "../../../src/base/limits.ts";
import { createLog } from "../../../src/base/log.ts";
import type { NewEvent } from "../../../src/events/schema.ts";
import { BuildLog } from "../../../src/oci/builds/build-log.ts";
import { layerHeaders, memberOf, paxRecords, type TarMember } from "../../../src/oci/builds/layer-tar.ts";
import { type MadeLayer, makeLayer } from "../../../src/oci/builds/layer-thread.ts";

const directory = mkdtempSync("/var/tmp/hearth-layer-");
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe("a layer", () => {
  const upper = join(directory, "upper");
  beforeEach(() => {
    rmSync(upper, { recursive: true, force: true });
    mkdirSync(upper);
  });

  async function layer(): Promise<{ readonly made: MadeLayer; readonly list: string; readonly path: string }> {
    const [source, path] = [join(directory, "d.tar"), join(directory, "l.tar")];
    for (const file of [source, path]) rmSync(file, { force: true });
    const flags = ["--format=pax", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--sort=name"];
    execFileSync("tar", ["-cf", source, ...flags, "-C", upper, "."]);
    const made = await makeLayer({ source, target: path, bytes_max: LIMITS.build_layer_bytes_max });
    if ("failure" in made) throw new Error(made.failure.message);
    return { made, path, list: execFileSync("tar", ["-tvf", path, "--numeric-owner"]).toString() };
  }

  it("has deletions as whiteouts, links and long names, and neither mount points nor sockets", async () => {
    const long = `${"n".repeat(120)}/${"m".repeat(120)}`;
    mkdirSync(join(upper, long), { recursive: true });
    writeFileSync(join(upper, long, "ünï"), "content");
    for (const name of ["etc", "dev/pts", "proc", "gone", "run/hearth"])
      mkdirSync(join(upper, name), { recursive: true });
    for (const name of ["etc/hosts", "etc/hostname"]) writeFileSync(join(upper, name), "");
    writeFileSync(join(upper, "etc/resolv.conf"), "nameserver 1.1.1.1\n");
    symlinkSync("../etc", join(upper, "gone/link"));
    execFileSync("mknod", [join(upper, "gone/file"), "c", "0", "0"]);
    execFileSync("ln", [join(upper, "etc/resolv.conf"), join(upper, "gone/same")]);
    execFileSync("python3", ["-c", `import socket; socket.socket(socket.AF_UNIX).bind('${upper}/s')`]);
    const { made, list, path } = await layer();
    expect(list).toContain("gone/.wh.file");
    expect(list).toContain("gone/link -> ../etc");
    expect(list).toContain("gone/same link to etc/resolv.conf");
    expect(list).not.toMatch(/ (dev|proc|etc\/hosts|etc\/hostname|run\/hearth|s)\/?$/m);
    const [out] = [join(directory, "out")];
    mkdirSync(out, { recursive: true });
    execFileSync("tar", ["-xf", path, "-C", out]);
    expect(readFileSync(join(out, long, "ünï"), "utf8")).toBe("content");
    const bytes = readFileSync(path);
    expect(made).toEqual({
      diff_id: `sha256:${createHash("sha256").update(bytes).digest("hex")}`,
      size_bytes: bytes.length,
      has_entries: true,
    });
  });

  it("is known to be empty", async () => {
    mkdirSync(join(upper, "proc"));
    expect((await layer()).made.has_entries).toBe(false);
  });

  it("refuses a file whose name stands for a deletion", async () => {
    writeFileSync(join(upper, ".wh.x"), "");
    await expect(layer()).rejects.toThrow(/^reserved file name in image: .* \(prefix \.wh\. marks deletions\)$/);
  });

  const member: TarMember = {
    ...{ type: "5", name: "./d/", link: "", size: 0, mode: 0o755, uid: 3_000_000, gid: 1, mtime: 5, device: "0:0" },
    attributes: new Map([
      ["trusted.overlay.opaque", "y"],
      ["trusted.overlay.origin", "o"],
      ["user.a", "v"],
      ["security.selinux", "s"],
      ["security.capability", Buffer.from(`010000030000000000000000${"00".repeat(12)}`, "hex").toString("latin1")],
    ]),
  };

  it("has replaced directories as opaque ones, and of attributes only those of images", () => {
    const headers = layerHeaders(member)?.headers ?? Buffer.alloc(0);
    const size = Number.parseInt(headers.toString("latin1", 124, 135), 8);
    const pax = paxRecords(headers.subarray(512, 512 + size));
    expect([...pax.keys()].sort()).toEqual(["SCHILY.xattr.security.capability", "SCHILY.xattr.user.a", "uid"]);
    expect(Buffer.from(pax.get("SCHILY.xattr.security.capability") ?? "", "latin1").toString("hex")).toBe(
      "01000002000000000000000000000000000000" + "00",
    );
    expect(memberOf(headers.subarray(1024, 1536), pax)).toMatchObject({
      name: "d/",
      type: "5",
      uid: 3_000_000,
      gid: 1,
    });
    expect(memberOf(headers.subarray(1536), new Map()).name).toBe("d/.wh..wh..opq");
  });
});

describe("the log of a build", () => {
  const events: NewEvent[] = [];
  const log = () => {
    events.length = 0;
    return new BuildLog({
      emit: async (told) => void events.push(...told),
      ...{
        operation_id: "op_1",
        reference: "x:1",
        steps_count: 2,
        clock: systemClock,
        log: createLog("error", systemClock),
      },
    });
  };
  const texts = () => events.map(({ data }) => data?.text).join("");

  it("fits events whatever is printed, and ends at its bound", async () => {
    const build = log();
    build.begin(1, "step 1/2: RUN x");
    const noise = Buffer.alloc(64 * 1024, '\u0001\n"\\é');
    for (let i = 0; i < 40; i++) build.output("stdout", noise);
    await build.close();
    const sizes = events.map(({ data }) => JSON.stringify(data).length);
    expect(Math.max(...sizes)).toBeLessThan(LIMITS.event_bytes_max);
    expect(texts().length).toBeLessThan(LIMITS.build_log_bytes_max + LIMITS.build_log_piece_bytes);
    expect(texts()).toContain("the rest of the output is not in the log");
  });

  it("writes secrets as stars, also in pieces, and keeps the end of the output", async () => {
    const build = log();
    build.begin(1, "step", [Buffer.from("top-secret-value\nsecond-line")]);
    for (const char of `a top-secret-value b\n${"x".repeat(5_000)}top-secret-value second-line end\n`) {
      build.output("stderr", Buffer.from(char));
    }
    build.flush();
    expect(build.tail.endsWith("*** *** end")).toBe(true);
    await build.close();
    expect(texts()).not.toMatch(/secret|second/);
  });

  it("writes the longest secret as stars, and whole values alone where their lines are too many", async () => {
    const build = log();
    const lines = Array.from({ length: LIMITS.build_masked_texts_max + 1 }, (_, i) => `line-${i}`).join("\n");
    build.begin(1, "step;", [Buffer.from("abcd"), Buffer.from("abcdefgh")]);
    build.output("stdout", Buffer.from("abcdefgh;"));
    build.begin(2, "step;", [Buffer.from(lines)]);
    build.output("stdout", Buffer.from(`line-7;${lines};`));
    await build.close();
    expect(texts()).toBe("step;***;step;line-7;***;");
  });

  it("keeps a long secret out of the end of the output when the log is full", async () => {
    const secret = Array.from({ length: 3_000 }, (_, i) => `s${i};`).join("");
    const build = log();
    build.begin(1, "step", [Buffer.from(secret)]);
    const noise = Buffer.alloc(64 * 1024, "x");
    for (let i = 0; i * noise.length <= LIMITS.build_log_bytes_max + 4 * noise.length; i++)
      build.output("stdout", noise);
    // In pieces of any length, so that every cut of the waiting text falls into one of them.
    const text = secret.repeat(20);
    for (let at = 0, length = 1; at < text.length; at += length, length = (length * 7) % 1_009) {
      build.output("stdout", Buffer.from(text.slice(at, at + length)));
    }
    build.flush();
    expect(build.tail).toMatch(/^x+(\*\*\*){20}$/);
    await build.close();
    expect(texts()).not.toMatch(/s\d/);
  });

  it("tells output while the command runs, without the beginning of a secret", async () => {
    const build = log();
    build.begin(1, "step;", [Buffer.from("top-secret-value")]);
    await expect.poll(texts, { timeout: 20_000 }).toBe("step;");
    build.output("stdout", Buffer.from("0123456789abcdef waits top-sec"));
    await expect.poll(texts, { timeout: 20_000 }).toContain("0123456789a");
    expect(texts()).not.toContain("top");
    build.output("stdout", Buffer.from("ret-value end"));
    await build.close();
    expect(texts()).toBe("step;0123456789abcdef waits *** end");
  });
});
