/** Requests at the moment at which the launcher is killed, and removals that fail: seen from outside. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const { create, get, shell, delete: remove } = bound(new ContainerUser(daemon));
beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

function bound(user: ContainerUser) {
  return {
    create: user.create.bind(user),
    get: user.get.bind(user),
    shell: user.shell.bind(user),
    delete: user.delete.bind(user),
  };
}

function killLauncher(): void {
  const line = daemon.processes().find((one) => one.includes(" launcher "));
  process.kill(Number(line?.split(" ", 1)[0]), "SIGKILL");
}

/** Bundles of runs of a container. */
const runsOf = (id: string) => readdirSync(`${daemon.run_dir}/c`).filter((name) => name.startsWith(id));

describe("a launcher that is killed", () => {
  it("delays the next creation of a container and does not fail it", async () => {
    for (const n of [1, 2, 3, 4]) {
      killLauncher();
      const { container_id } = await create({ name: `next-${n}` });
      expect(await shell(container_id, "cat /etc/hostname")).toBe(`next-${n}\n`);
      await remove(container_id);
    }
  });

  it("delays a cold call and does not fail it", async () => {
    await daemon.deploy({ name: "cold", handler: "cat" });
    killLauncher();
    expect(await daemon.invoke("cold", { payload: "x" })).toMatchObject({ stdout: "x", cold_start: true });
  });

  it("delays files and volumes and does not fail them", async () => {
    const { container_id } = await create({ name: "files" });
    await shell(container_id, "echo kept > /root/file");
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    killLauncher();
    const listed = await daemon.call("GET", `/api/containers/${container_id}/ls?path=/root`);
    expect(JSON.stringify(listed.body)).toContain('"file"');
    killLauncher();
    expect((await daemon.call("POST", "/api/volumes", { name: "next" })).status).toBe(201);
    killLauncher();
    expect((await daemon.call("GET", "/api/volumes/next/ls?path=/")).status).toBe(200);
    killLauncher();
    expect((await daemon.call("DELETE", "/api/volumes/next?execution=sync")).status).toBe(200);
    await remove(container_id);
  });

  it("in the middle of starts fails none of them, and leaves nothing of the first attempts", async () => {
    const creating: ReturnType<typeof create>[] = [];
    const begin = () => creating.push(create({ name: `cut-${creating.length}` }));
    for (let i = 0; i < 6; i++) begin();
    const isStarting = () => daemon.processes().some((line) => line.includes(`${daemon.run_dir}/c/`));
    await eventually("the OCI runtime works on a start", () => {
      if (isStarting()) return true;
      // All may have started between two looks.
      if (creating.length < 20) begin();
      return false;
    });
    killLauncher();
    const made = await Promise.all(creating);
    for (const { container_id, name } of made) {
      expect(await shell(container_id, "cat /etc/hostname")).toBe(`${name}\n`);
      expect(runsOf(container_id).length).toBe(1);
    }
    await remove(...made.map(({ container_id }) => container_id));
  });
});

describe("a removal that fails", () => {
  /** A mount in a container's bundle, which cannot be removed while it is there. Returns what takes it away. */
  function obstacle(id: string): () => void {
    const path = `${daemon.run_dir}/c/${runsOf(id)[0]}/obstacle`;
    mkdirSync(path);
    execFileSync("mount", ["-t", "tmpfs", "none", path]);
    return () => execFileSync("umount", [path]);
  }

  const failedRemovals = () => daemon.output.split("cannot remove a container, retrying later").length - 1;

  it("is not reported as the end of the container, and a later attempt does not hit the next run", async () => {
    const { container_id: id } = await create({ name: "stuck" });
    const [first] = runsOf(id);
    const clear = obstacle(id);
    const before = failedRemovals();
    const stopping = daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
    await eventually("a removal has failed", () => failedRemovals() > before);
    expect(await get(id)).toMatchObject({ state: "running" });
    expect((await daemon.call("POST", `/api/containers/${id}/start`)).status).toBe(409);
    clear();
    expect((await stopping).body).toMatchObject({ state: "exited" });
    await daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
    expect(runsOf(id)).toHaveLength(1);
    expect(runsOf(id)).not.toEqual([first]);
    expect(await shell(id, "echo alive")).toBe("alive\n");
    await remove(id);
  });

  it("keeps the deletion of the container from being answered until nothing is left", async () => {
    const { container_id: id } = await create({ name: "stuck" });
    const clear = obstacle(id);
    const before = failedRemovals();
    const state = { isAnswered: false };
    const deleting = daemon.call("DELETE", `/api/containers/${id}`).finally(() => {
      state.isAnswered = true;
    });
    await eventually("a removal has failed", () => failedRemovals() > before);
    expect(state.isAnswered).toBe(false);
    clear();
    expect((await deleting).status).toBe(200);
    expect(runsOf(id)).toEqual([]);
    expect(daemon.leftovers().cgroups.filter((group) => group.includes(id))).toEqual([]);
  });

  it("of either kind leaves nothing behind the daemon's end", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
