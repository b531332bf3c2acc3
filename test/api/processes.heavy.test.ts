/** A container whose processes have as long command lines, and are as many, as they may: what looks at them stays small. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

const FORKS = 900;
/** 900 processes with 1.9 MB of arguments each, which they share: they cost the container next to nothing. */
const ATTACK = `
import os
script = "mkfifo /tmp/f; for i in $(seq ${FORKS}); do read x < /tmp/f & done; echo up; wait"
os.execv("/bin/sh", ["sh", "-c", script] + ["x" * 120000] * 16)
`;

/** The most memory that the daemon had, in MiB. */
function peakMb(): number {
  const status = readFileSync(`/proc/${daemon.pid}/status`, "utf8");
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
}

it("lists 900 processes with 1.9 MB of arguments each within bounds, and adopts their container", async () => {
  const { container_id: id } = await user.create({
    name: "wide",
    memory_limit_mb: 1024,
    command: ["python3", "-c", ATTACK],
  });
  await eventually("all have been forked", async () => (await user.logs(id)).some(({ message }) => message === "up"));
  const before_mb = peakMb();
  const lists = await Promise.all([1, 2, 3, 4].map(() => daemon.call("GET", `/api/containers/${id}/processes`)));
  for (const { status, body } of lists) {
    expect(status).toBe(200);
    expect(body.truncated).toBe(true);
    expect(body.processes.length).toBeGreaterThan(FORKS);
    const lengths = body.processes.map(({ command }: { command: string }) => command.length);
    expect(Math.max(...lengths)).toBe(LIMITS.command_line_bytes_max);
    expect(body.processes.find(({ pid }: { pid: number }) => pid === 1)).toBeDefined();
  }
  expect(peakMb() - before_mb).toBeLessThan(150);

  // The start of another container fails while they run: its removal looks for those that work on it.
  const failed = await daemon.call("POST", "/api/containers", { name: "failing", working_directory: "/etc/passwd" });
  expect(failed.status).toBe(503);
  expect(peakMb() - before_mb).toBeLessThan(150);

  await daemon.stop("SIGKILL");
  await daemon.start({ HEARTH_CELLS: "0" });
  expect(await user.get(id)).toMatchObject({ state: "running", exec_ready: true });
  expect(peakMb()).toBeLessThan(before_mb + 150);
  await user.delete(id);
});
