/** A store that refuses writes in the middle of what containers and volumes do, and a guard that is stopped from inside. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Connection } from "../../src/store/connection.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

/** Has the store refuse a kind of write while `work` lasts. */
async function refusing<T>(what: string, work: () => Promise<T>): Promise<T> {
  const connection = new Connection(`${daemon.data_dir}/hearth.db`, LIMITS);
  try {
    connection.exec(`CREATE TRIGGER refused BEFORE ${what} BEGIN SELECT RAISE(ABORT, 'refused'); END`);
    return await work();
  } finally {
    connection.exec("DROP TRIGGER refused");
    connection.close();
  }
}

const volumes = () => daemon.leftovers().subvolumes.filter((id) => id.startsWith("vol_"));

describe("a store that refuses a write", () => {
  it("leaves no files of a volume that was not made, nor one whose deletion was begun", async () => {
    const made = () => daemon.call("POST", "/api/volumes", { name: "refused" });
    expect((await refusing("INSERT ON volumes", made)).status).toBe(500);
    expect(volumes()).toEqual([]);
    expect((await made()).status).toBe(201);
    const deleted = () => daemon.call("DELETE", "/api/volumes/refused?execution=sync");
    expect((await refusing("DELETE ON volumes", deleted)).status).toBe(500);
    expect(
      (
        await eventually("its name is free", async () => {
          const answer = await made();
          return answer.status === 201 ? answer : null;
        })
      ).body,
    ).toMatchObject({ name: "refused" });
    await deleted();
    expect(volumes()).toEqual([]);
  });

  it("does not keep a container in state starting, nor its name", async () => {
    const made = () => daemon.call("POST", "/api/containers", { name: "refused" });
    expect((await refusing("UPDATE ON containers", made)).status).toBe(500);
    const { body } = await eventually("its name is free", async () => {
      const answer = await made();
      return answer.status === 201 ? answer : null;
    });
    await user.delete(body.container_id);
  });

  it("does not keep a container in state starting whose start has failed", async () => {
    await daemon.call("POST", "/api/volumes", { name: "below" });
    const { container_id: id } = await user.create({ name: "failing", volumes: ["below:/root/sub/data"] });
    // A link on the way to the place of a volume fails the next start.
    expect(await user.shell(id, "mv /root/sub /root/other && ln -s other /root/sub")).toBe("");
    await daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
    const started = () => daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
    const refused = await refusing("UPDATE ON containers WHEN NEW.state = 'error'", started);
    expect(refused.status).toBe(400);
    expect(await user.get(id)).toMatchObject({ state: "starting" });
    await user.until(id, "it has failed", ({ state }) => state === "error");
    await user.delete(id);
    await daemon.call("DELETE", "/api/volumes/below?execution=sync");
  });
});

/** Stops every process that appears in its container: with luck a guard before it has told of its command. */
const STOPPER = `
import os, signal
own = os.getpid()
print("up", flush=True)
while True:
    for pid in range(own + 1, own + 400):
        try:
            os.kill(pid, signal.SIGSTOP)
        except OSError:
            pass
`;

describe("code in a container that stops the guards of commands", () => {
  it("fails its own commands and holds up neither its first process nor a command that waits", async () => {
    const { container_id: id } = await user.create({ name: "stopper", command: ["python3", "-uc", STOPPER] });
    await eventually("it stops what it finds", async () =>
      (await user.logs(id)).some(({ message }) => message === "up"),
    );
    const command = ["true"];
    const seen: boolean[] = [];
    await eventually("a guard was stopped", async () => {
      const state = { isOver: false };
      const stopped = [1, 2, 3].map(() =>
        daemon.call("POST", `/api/containers/${id}/exec`, { command, timeout_ms: 1_500 }),
      );
      const all = Promise.all(stopped).finally(() => {
        state.isOver = true;
      });
      while (!state.isOver) seen.push((await user.get(id)).checks.minit_responsive);
      return (await all).some(({ body }) => body.exit_code !== 0);
    });
    expect(seen).not.toContain(false);
    await user.delete(id);
  });

  it("leaves nothing behind the daemon's end", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
