/** The ends of terminal sessions: by request, with their container, with the daemon, and by their times. */
import { describe, expect, it } from "vitest";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { refusalOf } from "../support/socket.ts";
import { SETTINGS, TerminalUser } from "../support/terminals.ts";

const daemon = new Daemon();
const user = new TerminalUser(daemon);

describe("the end of a session", () => {
  it("by DELETE ends the shell and all that it runs, and tells the client", async () => {
    const { id, tab } = await user.open();
    tab.type("sleep 3000 & sleep 4000\n");
    await eventually(
      "both run",
      async () => [...(await user.processes()).values()].filter((one) => /^sleep [34]000$/.test(one)).length === 2,
    );
    expect((await daemon.call("DELETE", `/api/terminal/sessions/${id}`)).status).toBe(200);
    expect(await tab.frame("exit")).toEqual({ type: "exit", code: 129, signal: "SIGHUP" });
    expect(await tab.closed()).toBe(1000);
    await eventually("nothing of it is left", async () => {
      const left = [...(await user.processes()).values()];
      return !left.some((command) => /^sleep [34]000$|bash/.test(command));
    });
    expect((await daemon.call("DELETE", `/api/terminal/sessions/${id}`)).status).toBe(200);
  });

  it("comes with the container's, and a session that has ended is not attached to", async () => {
    const own = await user.makeContainer("short");
    const { id } = await user.make({ container_id: own });
    const tab = await user.attach({ session_id: id });
    await tab.frame("ready");
    await daemon.call("POST", `/api/containers/${own}/stop`, { timeout_ms: 0 });
    expect(await tab.frame("exit")).toMatchObject({
      type: "exit",
      code: expect.any(Number),
      signal: expect.any(String),
    });
    expect(await tab.closed()).toBe(1000);
    expect(await user.get(id)).toMatchObject({ state: "terminated", error_message: null });
    const refusal = await refusalOf(user.attachUrl({ session_id: id }), { "x-api-key": KEY });
    expect(refusal).toMatchObject({
      status: 409,
      body: { error_code: "WRONG_STATE", details: { state: "terminated" } },
    });
    const stopped = await refusalOf(user.attachUrl({ container_id: own }), { "x-api-key": KEY });
    expect(stopped).toMatchObject({ status: 409, body: { error_code: "NOT_RUNNING" } });
    await daemon.call("DELETE", `/api/containers/${own}`);
  });

  it("comes to a container that is used by nothing else, and gives it back", async () => {
    const own = await user.makeContainer("given", KEY, { idle_seconds: 1 });
    const id = await eventually("a session", async () => {
      const { status, body } = await daemon.call("POST", "/api/terminal/sessions", { container_id: own });
      // On a slow machine its time is up before the session is made.
      if (status !== 201) await daemon.call("POST", `/api/containers/${own}/start`);
      return status === 201 ? body.id : null;
    });
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    expect((await daemon.call("GET", `/api/containers/${own}`)).body.state).toBe("running");
    await daemon.call("DELETE", `/api/terminal/sessions/${id}`);
    await eventually("nobody uses the container", async () => {
      return (await daemon.call("GET", `/api/containers/${own}`)).body.state === "exited";
    });
    await daemon.call("DELETE", `/api/containers/${own}`);
  });
});

describe("the end of the daemon", () => {
  it("is told to clients, ends the shells and not the container, whose sessions nobody knows then", async () => {
    const { id, tab } = await user.open();
    tab.type("sleep 5000\n");
    await eventually("it sleeps", async () => [...(await user.processes()).values()].includes("sleep 5000"));
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(await tab.closed()).toBe(1001);
    expect(await tab.frame("exit")).toMatchObject({ signal: "SIGHUP" });
    await daemon.start({ ...SETTINGS, HEARTH_TERMINAL_IDLE_SECONDS: "1" });
    expect((await daemon.call("GET", `/api/terminal/sessions/${id}`)).status).toBe(404);
    await eventually("its shell has ended", async () =>
      [...(await user.processes()).values()].every((command) => !/bash|sleep/.test(command)),
    );
  });

  it("by force ends the shells too", async () => {
    const { tab } = await user.open();
    tab.type("sleep 6000\n");
    await eventually("it sleeps", async () => [...(await user.processes()).values()].includes("sleep 6000"));
    await daemon.stop("SIGKILL");
    expect(await tab.closed()).toBe(1006);
    await daemon.start({ ...SETTINGS, HEARTH_TERMINAL_IDLE_SECONDS: "1" });
    await eventually("its shell has ended", async () =>
      [...(await user.processes()).values()].every((command) => !/bash|sleep/.test(command)),
    );
  });

  it("of a session without a client comes when it was idle for long enough, and not before its client goes", async () => {
    const { id: unused } = await user.make();
    const tab = await user.attach({ container_id: user.container_id });
    const { session_id: id } = await tab.frame("ready");
    await eventually("the one that nobody came to ends", async () => (await user.get(unused)).state === "terminated");
    tab.type("echo still-$((1 + 1))\n");
    await tab.shows(/still-2/);
    tab.socket.close();
    await eventually("the other one ends", async () => (await user.get(id)).state === "terminated");
    expect(await user.get(id)).toMatchObject({ exit_code: 129, signal: "SIGHUP" });
  });

  it("of any session comes with its time, also while a client is attached", async () => {
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_TERMINAL_TTL_SECONDS: "1" });
    const tab = await user.attach({ container_id: user.container_id });
    expect(await tab.frame("exit")).toMatchObject({ code: 129, signal: "SIGHUP" });
    expect(await tab.closed()).toBe(1000);
  });
});
