/** Builds that use up what they have, and daemons that are killed within one. */
import { existsSync, readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BuildUser } from "../support/builds.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { MadeImages, pullLocal } from "../support/made-images.ts";

const NAME = `localhost/hearth-test-heavy-build-${process.pid}`;
const SETTINGS = { HEARTH_CELLS: "0" };
const made = new MadeImages(NAME);
const daemon = new Daemon();
const user = new BuildUser(daemon);
const BASE = `FROM ${NAME}\n`;
const SMALL = { disk_mb_max: 64, container_memory_mb_max: 256, image_mb_max: null };

beforeAll(async () => {
  made.make("base");
  await daemon.start(SETTINGS);
  await pullLocal(daemon, NAME);
});

afterAll(async () => {
  await daemon.dispose();
  made.remove();
});

/** Names in a folder of the storage pool, where the launcher sees it. */
function stored(kind: string): string[] {
  const line = daemon.processes().find((one) => one.includes(" launcher ")) ?? "";
  const path = `/proc/${line.split(" ", 1)[0]}/root${daemon.data_dir}/area/${kind}`;
  return existsSync(path) ? readdirSync(path).sort() : [];
}

describe("a command that takes all it gets", () => {
  it("ends as a failed step: memory, processes, disk, output", async () => {
    const { as: small, tenant_id } = await user.tenant("small", SMALL);
    await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true });
    const failure = async (command: string) => (await small.build(`${BASE}RUN ${command}\n`)).body.error;
    expect(await failure("python3 -c 'str(1) * (1 << 30)'")).toMatch(/exit code (137|1)/);
    expect(await failure("head -c 200M /dev/zero > /full")).toMatch(/exit code 1/);
    expect(await failure("for i in $(seq 2000); do sleep 100 & done; exit 9")).toMatch(/exit code/);
    expect(await failure("head -c 20M /dev/urandom | base64; exit 4")).toContain("exit code 4");
    expect((await small.built(`${BASE}RUN true\n`)).message).toBe("image built");
    await eventually("no container of a build is left", () => stored("containers").length === 0);
    expect((await user.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
    await eventually("nothing is kept of the tenant", () => stored("snapshots").length === 0);
  });
});

describe("files without end", () => {
  it("fill no more than a build's disk over all its stages", async () => {
    const { as: small, tenant_id } = await user.tenant("stages", SMALL);
    const names = ["a", "b", "c", "d"];
    const stages = names.map((name) => `${BASE.trim()} AS ${name}\nRUN head -c 24M /dev/urandom > /${name}\n`);
    const copies = names.map((name) => `COPY --from=${name} /${name} /\n`);
    const { body } = await small.build(`${stages.join("")}${BASE}${copies.join("")}`);
    expect(body.error).toMatch(
      /^(step \d+\/\d+ [\s\S]* failed: [\s\S]*No space left on device|stages of the build too large)/,
    );
    await eventually("no root is left", () => stored("containers").length === 0);
    const one = await small.built(`${stages[0]}${BASE}${copies[0]}`);
    expect(one.message).toBe("image built");
    expect((await user.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
    await eventually("nothing is kept of the tenant", () => stored("snapshots").length === 0);
  });

  it("are counted once for each name that leads to them", async () => {
    const [files_count, links_count] = [2_000, 101];
    const files = Array.from({ length: files_count }, (_, i) => ({ name: `d/${i}`, content: "" }));
    const links = Array.from(
      { length: links_count },
      (_, i) => ({ name: `l${i}`, type: "symlink", link: "d" }) as const,
    );
    const { status, body } = await user.build(`${BASE}COPY ${links.map(({ name }) => name).join(" ")} /all/\n`, [
      ...files,
      ...links,
    ]);
    expect(status).not.toBe(200);
    expect(body.error).toContain("too many files to copy (limit 200000)");
  });
});

describe("a daemon that is killed within a build", () => {
  it.each(["oci.build.started", "oci.build.kept", "oci.build.layered"])("at %s leaves nothing of it", async (point) => {
    const before = stored("snapshots");
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: `${point}=kill` });
    const id = await user.begin(`${BASE}RUN echo ${point} > /x\n`).catch(() => null);
    await eventually(
      "the daemon is gone",
      async () => (await daemon.call("GET", "/healthz").catch(() => null)) === null,
    );
    await daemon.start(SETTINGS);
    if (id !== null) expect((await user.operation(id, 30)).status).toBe("failed");
    await eventually("no container is left", () => stored("containers").length === 0);
    // Kept steps of builds that succeeded stay; that of this one has a row only behind the layer.
    const added = stored("snapshots").filter((id) => !before.includes(id));
    expect(added).toHaveLength(point === "oci.build.layered" ? 1 : 0);
    expect(existsSync(`${daemon.data_dir}/builds`)).toBe(false);
    expect((await user.built(`${BASE}RUN echo ${point} > /x\n`)).message).toBe("image built");
    for (const reference of (await user.call("GET", "/api/oci/images")).body.images.map(
      (one: { reference: string }) => one.reference,
    )) {
      if (reference.includes("built-")) await user.call("DELETE", `/api/oci/images?reference=${reference}`);
    }
  });

  it("and that stops in the end leaves nothing", async () => {
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
