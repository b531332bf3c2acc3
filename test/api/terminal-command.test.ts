/** A command in place of a shell in a terminal session: what it is given, and what becomes of output before a client. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { TerminalTab } from "../support/socket.ts";

const daemon = new Daemon();
const SESSIONS = "/api/terminal/sessions";

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" });
  expect((await daemon.call("POST", "/api/containers", { name: "box" })).status).toBe(201);
});
afterAll(async () => {
  await daemon.call("DELETE", "/api/containers/box");
  await daemon.stop();
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

async function make(more: object): Promise<{ id: string; shell: string }> {
  const { status, body } = await daemon.call("POST", SESSIONS, { container_id: "box", ...more });
  expect(status, JSON.stringify(body)).toBe(201);
  return body;
}
const attach = (id: string) => TerminalTab.open(`${daemon.url}/ws/terminal/attach?session_id=${id}`, KEY);

describe("a command on a terminal", () => {
  it("is run as argv, with its variables, where it shall begin", async () => {
    const script = 'printf "%s|" "$0" "$1" "$A" "$TERM" "$PWD"; tty; exit 5';
    const { id, shell } = await make({
      command: ["sh", "-c", script, "it's", "\x03"],
      environment: { A: "two words" },
      working_directory: "/etc",
    });
    expect(shell).toBe("sh");
    const tab = await attach(id);
    expect(await tab.frame("exit")).toEqual({ type: "exit", code: 5, signal: null });
    expect(tab.output).toMatch(/^it's\|.\|two words\|xterm-256color\|\/etc\|\/dev\/pts\/\d+\r\n$/);
  });

  it("that has ended before its client came leaves it all, once", async () => {
    const { id } = await make({ command: ["sh", "-c", "echo before; exit 3"] });
    await eventually(
      "it has ended",
      async () => (await daemon.call("GET", `${SESSIONS}/${id}`)).body.state === "terminated",
    );
    const tab = await attach(id);
    expect(await tab.closed()).toBe(1000);
    expect(tab.frames).toMatchObject([{ type: "ready" }, { type: "exit", code: 3 }]);
    expect(tab.output).toBe("before\r\n");
    await expect(attach(id)).rejects.toThrow(/409/);
  });

  it("waits for its first client before it writes more than is kept", async () => {
    const { id } = await make({ command: ["seq", "1", "100000"] });
    await eventually("it runs", async () => {
      const { body } = await daemon.call("GET", "/api/containers/box/processes");
      return body.processes.some(({ command }: { command: string }) => command === "seq 1 100000");
    });
    const tab = await attach(id);
    expect(await tab.frame("exit")).toMatchObject({ code: 0 });
    expect(tab.output.split("\r\n").slice(0, -1)).toEqual(Array.from({ length: 100_000 }, (_, i) => String(i + 1)));
  });
});
