/** Terminal sessions through the real API: a real shell on a real pseudo terminal of a real container. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { refusalOf, TerminalTab } from "../support/socket.ts";
import { TerminalUser } from "../support/terminals.ts";

const daemon = new Daemon();
const user = new TerminalUser(daemon);

describe("a terminal session", () => {
  it("takes what is typed and a ping before it has said anything, and answers ready, pong and the echo", async () => {
    const { session_id, attach_url } = await user.make();
    const tab = await TerminalTab.open(daemon.url + attach_url, KEY, (socket) => {
      socket.send(Buffer.from("echo typed-$((40 + 2))\n"));
      socket.send(JSON.stringify({ type: "ping", ts: 123 }));
    });
    user.tabs.push(tab);
    expect(tab.socket.protocol).toBe("terminal");
    expect(await tab.frame("pong")).toEqual({ type: "pong", ts: 123 });
    expect(tab.frames[0]).toEqual({ type: "ready", session_id, shell: "/bin/bash", pid: expect.any(Number) });
    await tab.shows(/echo typed-\$\(\(40 \+ 2\)\)[\s\S]*typed-42/);
    tab.type("exit 7\n");
    expect(await tab.frame("exit")).toEqual({ type: "exit", code: 7, signal: null });
    expect(await tab.closed()).toBe(1000);
  });

  it("has a record with what it is, which follows its life and leaves the list when it is over", async () => {
    const made = await user.make({ cols: 100, rows: 30 });
    expect(made).toMatchObject({
      id: made.session_id,
      target: "container",
      container_id: user.container_id,
      child_container_id: user.container_id,
      state: "ready",
      shell: "/bin/bash",
      cols: 100,
      rows: 30,
      exit_code: null,
      signal: null,
      error_message: null,
    });
    expect(made.id).toMatch(/^sess_[0-9a-f]{12}$/);
    expect(made.expires_at - made.created_at).toBe(LIMITS.terminal_ttl_seconds_default);
    // The kernel shows no arguments of a process that is in the middle of its exec.
    await eventually("the shell runs", async () => (await user.processes()).get(made.pid) === "/bin/bash");
    expect(await user.sessions()).toEqual([made]);
    const inMaster = await daemon.call("GET", "/api/terminal/sessions?target=master");
    expect(inMaster.body).toEqual({ sessions: [], next_cursor: null });
    const tab = await user.attach({ session_id: made.id });
    await tab.frame("ready");
    expect((await user.get(made.id)).state).toBe("active");
    tab.socket.close();
    await eventually("nobody is attached", async () => (await user.get(made.id)).state === "idle");
    await daemon.call("DELETE", `/api/terminal/sessions/${made.id}`);
    expect(await user.get(made.id)).toMatchObject({ state: "terminated", exit_code: 129, signal: "SIGHUP" });
    expect(await user.sessions()).toEqual([]);
    const refused = await daemon.call("POST", `/api/terminal/sessions/${made.id}/resize`, { cols: 10, rows: 10 });
    expect(refused).toMatchObject({
      status: 409,
      body: { error_code: "WRONG_STATE", details: { state: "terminated" } },
    });
  });

  it("is told of as it is made, attached, left and ended", async () => {
    const { id, tab } = await user.open();
    tab.socket.close();
    await eventually("nobody is attached", async () => (await user.get(id)).state === "idle");
    await daemon.call("DELETE", `/api/terminal/sessions/${id}`);
    const response = await fetch(`${daemon.url}/api/events?name=terminal_update&last_event_id=0`, {
      headers: { "x-api-key": KEY },
    });
    const told: string[] = [];
    let text = "";
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk).toString();
      for (const line of text.split("\n").filter((one) => one.includes(id) && one.startsWith("data:"))) {
        const data = JSON.parse(line.slice("data:".length));
        const shown = `${data.event_type} ${data.state} ${data.container_id === user.container_id}`;
        if (!told.includes(shown)) told.push(shown);
      }
      if (text.includes('"ended"') && told.length >= 4) break;
    }
    expect(told).toEqual(["created ready true", "attached active true", "detached idle true", "ended terminated true"]);
  });

  it("is as large as it is told, by frame, by route and when it is attached", async () => {
    const { id, tab } = await user.open({ cols: 90, rows: 20 });
    tab.type("stty size\n");
    await tab.shows(/20 90\r\n/);
    tab.say({ type: "resize", cols: 100, rows: 30 });
    tab.type("stty size\n");
    await tab.shows(/30 100\r\n/);
    const answer = await daemon.call("POST", `/api/terminal/sessions/${id}/resize`, { cols: 110, rows: 40 });
    expect(answer).toMatchObject({ status: 200, body: { success: true } });
    tab.type("stty size\n");
    await tab.shows(/40 110\r\n/);
    const other = await user.attach({ session_id: id, cols: 120 });
    other.type("stty size\n");
    await other.shows(/40 120\r\n/);
    expect(await user.get(id)).toMatchObject({ cols: 120, rows: 40 });
  });

  it("passes ^C and signals to what runs in the foreground, and the shell goes on", async () => {
    const { tab } = await user.open();
    tab.type("sleep 1000; echo went-$?\n");
    await eventually("it sleeps", async () => [...(await user.processes()).values()].includes("sleep 1000"));
    tab.type("\x03");
    tab.type("echo after-$((1 + 1))\n");
    await tab.shows(/after-2/);
    tab.type("sleep 2000; echo ended-$?\n");
    await eventually("it sleeps", async () => [...(await user.processes()).values()].includes("sleep 2000"));
    tab.say({ type: "signal", signal: "SIGTERM" });
    await tab.shows(/ended-143/);
  });

  it("answers a frame that is none with an error frame, and goes on", async () => {
    const { tab } = await user.open();
    const wrong = [
      "{",
      "[]",
      '{"type":"no"}',
      '{"type":"resize","cols":0,"rows":5}',
      '{"type":"signal","signal":"SIGKILL"}',
    ];
    for (const text of [...wrong, JSON.stringify({ type: "ping", ts: "x".repeat(5_000) })]) tab.socket.send(text);
    await eventually("six errors", () => tab.frames.filter(({ type }) => type === "error").length === 6);
    expect(await tab.frame("error")).toMatchObject({ code: "INVALID_ARGUMENT" });
    tab.type("echo goes-$((1 + 1))\n");
    await tab.shows(/goes-2/);
  });

  it("tells the exit code, or the signal that ended the shell", async () => {
    const { tab } = await user.open({ shell: "/bin/sh" });
    expect(await tab.frame("ready")).toMatchObject({ shell: "/bin/sh" });
    tab.type("true && exit\n");
    expect(await tab.frame("exit")).toEqual({ type: "exit", code: 0, signal: null });
    const { tab: killed } = await user.open();
    killed.type("kill -9 $$\n");
    expect(await killed.frame("exit")).toEqual({ type: "exit", code: 137, signal: "SIGKILL" });
    expect(await killed.closed()).toBe(1000);
  });

  it("shows the last of what was written before it ended, all of it", async () => {
    const { tab } = await user.open();
    tab.type("stty -echo; head -c 3000000 /dev/zero | tr '\\0' x; exit\n");
    await tab.frame("exit");
    expect(tab.output.match(/x{1000}/)).not.toBeNull();
    expect(tab.bytes).toBeGreaterThanOrEqual(3_000_000);
  });

  it("is made by attaching to a container by its name, with the size and the shell that are asked for", async () => {
    const tab = await user.attach({ container_id: "terminals", cols: 66, rows: 11, shell: "sh" });
    const { session_id } = await tab.frame("ready");
    tab.type("stty size; echo $TERM; pwd\n");
    // The prompt may stand before or behind the echo of what was typed.
    await tab.shows(/(?:\r\n|# )11 66\r\nxterm-256color\r\n\/\r\n/);
    expect(await user.get(session_id)).toMatchObject({ container_id: user.container_id, shell: "sh", state: "active" });
  });
});

describe("a client that goes", () => {
  it("is followed by one that is shown what it missed, in the same shell", async () => {
    const { id, tab } = await user.open();
    tab.type(
      "here=$((20 + 1)); (until [ -e /tmp/alone ]; do sleep 0.05; done; echo missed-$here; touch /tmp/said) &\n",
    );
    await tab.shows(/\[1\]/);
    tab.socket.terminate();
    await eventually("nobody is attached", async () => (await user.get(id)).state === "idle");
    await user.run(["touch", "/tmp/alone"]);
    await eventually("it has written", async () => (await user.run(["test", "-e", "/tmp/said"])).exit_code === 0);
    const next = await user.attach({ session_id: id });
    await next.shows(/missed-21/);
    expect(next.frames[0]).toMatchObject({ type: "ready", session_id: id });
    next.type("echo again-$here\n");
    await next.shows(/again-21/);
  });

  it("leaves no more than the newest 256 KiB of output to the next one, and does not stop the shell", async () => {
    const { id, tab } = await user.open();
    tab.type("stty -echo; (until [ -e /tmp/left ]; do sleep 0.05; done; seq 1 200000; touch /tmp/written) &\n");
    // Input that the daemon has not read yet is lost with the connection.
    await tab.shows(/\[1\]/);
    tab.socket.terminate();
    await eventually("nobody is attached", async () => (await user.get(id)).state === "idle");
    await user.run(["touch", "/tmp/left"]);
    await eventually("all is written", async () => (await user.run(["test", "-e", "/tmp/written"])).exit_code === 0);
    const next = await user.attach({ session_id: id });
    await next.shows(/\n200000\r\n/);
    expect(next.bytes).toBeGreaterThan(LIMITS.terminal_backlog_bytes - 1_000);
    expect(next.bytes).toBeLessThan(LIMITS.terminal_backlog_bytes + 1_000);
  });

  it("is replaced by the next one, and told so", async () => {
    const { id, tab } = await user.open();
    const next = await user.attach({ session_id: id });
    expect(await tab.closed()).toBe(4001);
    next.type("echo mine-$((1 + 1))\n");
    await next.shows(/mine-2/);
    expect(await user.get(id)).toMatchObject({ state: "active" });
    expect(tab.frames.filter(({ type }) => type === "exit")).toEqual([]);
  });

  it("that does not read stops its own shell within a bound, and neither ^C nor another session", async () => {
    const { id, tab } = await user.open();
    const { tab: other } = await user.open();
    tab.type("stty -echo; i=0; while :; do i=$((i + 1)); echo $i > /tmp/count; head -c 100000 /dev/zero; done\n");
    await tab.shows(/\0/);
    tab.socket.pause();
    const count = async () => Number((await user.run(["cat", "/tmp/count"])).stdout);
    const stopped = await eventually("the shell stands", async () => {
      const before = await count();
      await new Promise((resolve) => setTimeout(resolve, 500));
      return before === (await count()) ? before : null;
    });
    // What the kernel holds of a connection, twice, and our own buffers.
    expect(stopped * 100_000).toBeLessThan(32 * 1024 * 1024);
    other.type("echo other-$((1 + 1))\n");
    await other.shows(/other-2/);
    tab.type("\x03");
    tab.socket.resume();
    tab.type("\necho back-$((1 + 1))\n");
    await tab.shows(/back-2/);
    expect((await user.get(id)).state).toBe("active");
  });

  it("that types faster than anything reads is stopped, not kept in memory", async () => {
    const { tab } = await user.open();
    tab.type("stty raw -echo; echo ready-$((1 + 1)); sleep 2; head -c 8000000 | wc -c; stty sane\n");
    await tab.shows(/ready-2/);
    const piece = Buffer.alloc(100_000, "y");
    for (let i = 0; i < 80; i++) tab.socket.send(piece);
    await tab.shows(/8000000/);
  });
});

describe("what is refused", () => {
  it.each([
    [{ target: "master" }, 403, "FORBIDDEN"],
    [{}, 422, "UNPROCESSABLE_ENTITY"],
    [{ container_id: 5 }, 422, "UNPROCESSABLE_ENTITY"],
    [{ container_id: "nobody" }, 404, "NOT_FOUND"],
    [{ container_id: "terminals", shell: "/bin/none" }, 400, "INVALID_ARGUMENT"],
    [{ container_id: "terminals", shell: "" }, 400, "INVALID_ARGUMENT"],
    [{ container_id: "terminals", command: ["/bin/none", "x"] }, 400, "INVALID_ARGUMENT"],
    [{ container_id: "terminals", command: "ls" }, 422, "UNPROCESSABLE_ENTITY"],
    [{ container_id: "terminals", command: ["ls"], shell: "sh" }, 400, "INVALID_ARGUMENT"],
    [{ container_id: "terminals", environment: { LD_PRELOAD: "x" } }, 400, "INVALID_ARGUMENT"],
    [{ container_id: "terminals", working_directory: "etc" }, 400, "INVALID_ARGUMENT"],
    [{ container_id: "terminals", cols: 0 }, 400, "INVALID_ARGUMENT"],
    [{ container_id: "terminals", target: "host" }, 400, "INVALID_ARGUMENT"],
  ])("a session of %j", async (body, status, error_code) => {
    const answer = await daemon.call("POST", "/api/terminal/sessions", body);
    expect(answer).toMatchObject({ status, body: { error_code } });
    expect(await user.sessions()).toEqual([]);
    // The shells of sessions that ended before may be about to go.
    await eventually("no shell is there", async () =>
      [...(await user.processes()).values()].every((command) => !/sh$/.test(command)),
    );
  });

  it.each([
    ["", 400, "INVALID_ARGUMENT"],
    ["?session_id=a&container_id=b", 400, "INVALID_ARGUMENT"],
    ["?session_id=sess_000000000000", 404, "NOT_FOUND"],
    ["?container_id=nobody", 404, "NOT_FOUND"],
    ["?container_id=terminals&shell=/bin/none", 400, "INVALID_ARGUMENT"],
    ["?container_id=terminals&cols=0", 400, "INVALID_ARGUMENT"],
  ])("an attachment to %j, with the error body", async (query, status, error_code) => {
    const refusal = await refusalOf(`${daemon.url.replace("http", "ws")}/ws/terminal/attach${query}`, {
      "x-api-key": KEY,
    });
    expect(refusal).toMatchObject({ status, body: { error_code } });
    expect(await user.sessions()).toEqual([]);
  });

  it("what belongs to another tenant, as if it were not there", async () => {
    const { body: tenant } = await daemon.call("POST", "/api/tenants", { name: "stranger" });
    const keys = `/api/tenants/${tenant.tenant_id}/api-keys`;
    const { key } = (await daemon.call("POST", keys, { name: "k" })).body;
    const reader = (await daemon.call("POST", keys, { name: "r", scopes: ["read", "write", "admin"] })).body.key;
    const { id, tab } = await user.open();
    const none = id.replace(/\w{12}$/, "000000000000");
    const seen = async (session_id: string) => {
      const asked = await refusalOf(user.attachUrl({ session_id }), { "x-api-key": key });
      const routes = await Promise.all(
        [
          ["GET", ""],
          ["DELETE", ""],
          ["POST", "/resize", { cols: 10, rows: 10 }],
        ].map(([method, rest, body]) =>
          daemon.call(String(method), `/api/terminal/sessions/${session_id}${rest}`, body, { "x-api-key": key }),
        ),
      );
      return [asked, ...routes].map(({ status, body }) => [
        status,
        body.error_code,
        body.error.replaceAll(session_id, "<id>"),
      ]);
    };
    expect(await seen(id)).toEqual(await seen(none));
    expect((await seen(id)).map(([status]) => status)).toEqual([404, 404, 404, 404]);
    const inContainer = await refusalOf(user.attachUrl({ container_id: user.container_id }), { "x-api-key": key });
    expect(inContainer).toMatchObject({ status: 404 });
    expect((await daemon.call("GET", "/api/terminal/sessions", undefined, { "x-api-key": key })).body).toEqual({
      sessions: [],
      next_cursor: null,
    });
    const unscoped = await refusalOf(user.attachUrl({ session_id: id }), { "x-api-key": reader });
    expect(unscoped).toMatchObject({ status: 403, body: { error_code: "FORBIDDEN" } });
    tab.type("echo unharmed-$((1 + 1))\n");
    await tab.shows(/unharmed-2/);
  });

  it("more sessions than a tenant may have, until one ends", async () => {
    const patch = (terminals_max: number | null) =>
      daemon.call("PATCH", "/api/tenants/default", { limits: { terminals_max } });
    const open = (await daemon.call("GET", "/api/tenant")).body.usage.terminals;
    await patch(open + 5);
    const made = await Promise.all(Array.from({ length: 5 }, () => user.make({ shell: "/bin/sh" })));
    const over = await daemon.call("POST", "/api/terminal/sessions", { container_id: user.container_id });
    expect(over).toMatchObject({ status: 429, body: { error_code: "CONCURRENCY_LIMIT" } });
    await daemon.call("DELETE", `/api/terminal/sessions/${made[0]?.id}`);
    await user.make();
    await patch(null);
  });
});

describe("the credential of a client", () => {
  it("may be a token in the query, and ends the socket when it ends, not the session", async () => {
    const { body: made } = await daemon.call("POST", "/api/api-keys", { name: "short", scopes: ["invoke"] });
    const token = (await daemon.call("POST", "/api/auth/token", {}, { "x-api-key": made.key })).body.access_token;
    const { id } = await user.make();
    const tab = await user.attach({ session_id: id, token }, null);
    await tab.frame("ready");
    await daemon.call("DELETE", `/api/api-keys/${made.id}`);
    expect([await tab.closed(), tab.reason]).toEqual([1008, "invalid credential"]);
    await eventually("nobody is attached", async () => (await user.get(id)).state === "idle");
    expect(daemon.output).not.toContain(token);
  });
});
