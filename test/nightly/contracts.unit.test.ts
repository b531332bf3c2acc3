/** Images that keep the contract of their profile, and images that lie about it. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { Log } from "../../src/base/log.ts";
import { ImageContracts } from "../../src/nightly/contracts.ts";
import { FakeCatalog } from "../support/fake-catalog.ts";

const directory = mkdtempSync("/var/tmp/hearth-contracts-");
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function write(path: string, mode: number, text = ""): string {
  const full = join(directory, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
  chmodSync(full, mode);
  return full;
}

/** An image of the profile `tooled`, with all that its release promises. */
function made({ user = "worker" }: { readonly user?: string } = {}) {
  const catalog = new FakeCatalog();
  catalog.add("tooled", null, user);
  const tools = { hello: "/usr/bin/hello" };
  const release = catalog.release("tooled", "00000001", ["latest"], { image_id: "image-1", tools });
  const minit = write("minit", 0o755);
  write("root/bin/sh", 0o755);
  write("root/usr/bin/hello", 0o755);
  write("root/etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\nworker:x:1000:1000::/:/bin/sh\n");
  const problems: unknown[] = [];
  const files: string[] = [];
  const note = (_: string, fields?: object) => void problems.push((fields as { problem: string }).problem);
  const log: Log = { debug: () => {}, info: () => {}, warn: note, error: () => {} };
  const state = { labels: new Map([["image-1", release.version as string | null]]), isBroken: false };
  const contracts = new ImageContracts({
    images: () => ({
      isRelease: async (image_id, version) => state.labels.get(image_id) === version,
      fileIn: async (_, path) => {
        if (state.isBroken) throw new Error("the store does not answer");
        files.push(path);
        const full = join(directory, "root", path);
        return path.startsWith("/none") ? null : full;
      },
    }),
    catalog,
    minit,
    log,
  });
  return { catalog, contracts, release, problems, files, state };
}

describe("an image of a profile", () => {
  it("keeps its contract: label, minit, shell, tools, user; and is read once", async () => {
    const { contracts, release, problems, files } = made();
    expect(await contracts.holds("image-1", release.version)).toBe(true);
    const read = files.length;
    expect(await contracts.holds("image-1", release.version)).toBe(true);
    expect([files.length, problems]).toEqual([read, []]);
  });

  it.each([
    [
      "has no shell",
      () => chmodSync(join(directory, "root/bin/sh"), 0o644),
      /^sh is missing or not executable: \/bin\/sh$/,
    ],
    [
      "has a tool that cannot be run",
      () => chmodSync(join(directory, "root/usr/bin/hello"), 0o644),
      /^hello is missing/,
    ],
    [
      "lacks its user",
      () => write("root/etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\n"),
      /^user worker is missing$/,
    ],
    ["runs on a node without minit", () => chmodSync(join(directory, "minit"), 0o644), /^minit is not executable/],
  ] as const)("that %s breaks it, and the log says why once", async (_, spoil, reason) => {
    const { contracts, release, problems } = made();
    spoil();
    expect(await contracts.holds("image-1", release.version)).toBe(false);
    expect(await contracts.holds("image-1", release.version)).toBe(false);
    expect(problems).toEqual([expect.stringMatching(reason)]);
  });

  it("that claims the release of another image breaks it", async () => {
    const { contracts, release, problems, state } = made();
    // Anyone can give an image the label.
    state.labels.set("image-2", release.version);
    expect(await contracts.holds("image-2", release.version)).toBe(false);
    expect(problems).toEqual([`release ${release.version} is image image-1`]);
    expect(await contracts.holds("image-1", release.version)).toBe(true);
  });

  it("with another label than its container was made with breaks it", async () => {
    const { contracts, state } = made();
    state.labels.set("image-1", "another");
    expect(await contracts.holds("image-1", "000000000000-00000000")).toBe(false);
  });

  it("is checked again if the store did not answer", async () => {
    const { contracts, release, state } = made();
    state.isBroken = true;
    await expect(contracts.holds("image-1", release.version)).rejects.toThrow("does not answer");
    state.isBroken = false;
    expect(await contracts.holds("image-1", release.version)).toBe(true);
  });

  it("promises nothing if it is a tenant's", async () => {
    const { contracts, files, state } = made();
    state.labels.set("theirs", null);
    expect(await contracts.holds("theirs", null)).toBe(true);
    expect(files).toEqual([]);
  });
});
