/** Budgets of the machine's kernel that take seconds to use up (src/engine/README.md). */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

describe("a disk of 16 MiB", () => {
  it("is filled by empty files too", async () => {
    const { container_id } = await containers.create({ name: "small", disk_limit_mb: 16 });
    const out = await containers.python(
      container_id,
      `import os
os.mkdir("/root/files")
count = 0
try:
    while count < 300000:
        os.close(os.open("/root/files/%d" % count, os.O_CREAT | os.O_WRONLY))
        count += 1
except OSError as error: print(os.strerror(error.errno))`,
      { timeout_ms: 50_000 },
    );
    await containers.delete(container_id);
    expect(out).toBe("Disk quota exceeded\n");
  });
});
