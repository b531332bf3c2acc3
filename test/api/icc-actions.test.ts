/** Actions: messages that the platform applies on real containers, with their outcomes, across crashes of the daemon. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const settings = () => ({ HEARTH_CELLS: "0", HEARTH_FAILPOINT: `@${daemon.failpoint_file}` });
let a = "";
let b = "";
beforeAll(async () => {
  await daemon.start(settings());
  [a = "", b = ""] = await Promise.all(["act-a", "act-b"].map((name) => make(name)));
});
afterAll(() => daemon.dispose());

async function make(name: string, headers: Record<string, string> = {}): Promise<string> {
  const made = await daemon.call("POST", "/api/containers", { name }, headers);
  if (made.status !== 201) throw new Error(JSON.stringify(made.body));
  return made.body.container_id;
}
const post = (path: string, body: unknown = {}, headers: Record<string, string> = {}) =>
  daemon.call("POST", path, body, headers);
const get = (path: string) => daemon.call("GET", path);
const send = (message: Record<string, unknown>) => post("/api/icc/messages", message);
/** Sends an action as a request. Resolves to its outcome. */
async function act(to: string, type: string, payload: unknown, rest: Record<string, unknown> = {}) {
  const answer = await post("/api/icc/request", { to, type, payload, timeout_ms: 30_000, ...rest });
  if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
  expect(answer.body.reply).toMatchObject({ type: "ack", from: answer.body.container_id, permission_level: "ADMIN" });
  expect(answer.body.reply.correlation_id).toBe(answer.body.msg_id);
  return answer.body.reply.payload;
}
const versionOf = async (id: string) => (await get(`/api/icc/containers/${id}/state-version`)).body.state_version;
const exec = async (id: string, command: string) =>
  (await post(`/api/containers/${id}/exec`, { command: ["sh", "-c", command] })).body;
/** Number of processes of a container whose command line has a text. */
const running = async (id: string, text: string) =>
  Number(
    (
      await exec(
        id,
        `cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o '[${text.slice(0, 1)}]${text.slice(1)}' | wc -l`,
      )
    ).stdout,
  );
const shell = (command: string) => ({ argv: ["sh", "-c", command] });
/** The state of a message in an inbox. */
async function stateOf(inbox: string, msg_id: string): Promise<string> {
  const { body } = await get(`/api/icc/inbox/${inbox}?limit=1000`);
  type Item = { readonly state: string; readonly envelope_summary: { readonly msg_id: string } };
  return (body.messages as Item[]).find((one) => one.envelope_summary.msg_id === msg_id)?.state ?? "none";
}
const settled = (inbox: string, msg_id: string) =>
  eventually(`${msg_id} is settled`, async () => {
    const state = await stateOf(inbox, msg_id);
    return state === "unread" ? null : state;
  });

describe("an action", () => {
  it("of each kind is applied, and moves the state version", async () => {
    const before = await versionOf(a);
    const applied = { status: "APPLIED", error_code: "ERROR_CODE_UNSPECIFIED", error_message: "" };
    const ran = await act("act-a", "exec_command", {
      ...shell('echo "$X in $PWD" > /tmp/x'),
      env: { X: "ran" },
      workdir: "/tmp",
    });
    expect(ran).toMatchObject({ ...applied, previous_version: before, result_version: before + 1 });
    expect(Math.abs(Date.now() - ran.applied_at)).toBeLessThan(60_000);
    const file = { path: "/srv/new/file.txt", content_type: "text/plain; charset=utf-8", patch: "content" };
    expect(await act(a, "file_patch", file)).toMatchObject(applied);
    expect(await act(a, "env_patch", { set: { ONE: "1", TWO: "2" } })).toMatchObject(applied);
    expect(await act(a, "env_patch", { set: { THREE: "3" }, unset: ["ONE"] })).toMatchObject(applied);
    const shown = await exec(a, 'cat /tmp/x /srv/new/file.txt; echo ":$ONE:$TWO:$THREE"');
    expect(shown.stdout).toBe("ran in /tmp\ncontent::2:3\n");
    const patch = { content_type: "application/merge-patch+json", patch: '{"n":1}' };
    expect(await act(a, "state_patch", patch)).toMatchObject(applied);
    expect((await get(`/api/icc/state/${a}`)).body).toMatchObject({ value: { n: 1 }, version: 1, from: "api" });
    expect(await act(a, "lifecycle_action", { action: "restart" })).toMatchObject(applied);
    expect(await act(a, "lifecycle_action", { action: "stop" })).toMatchObject(applied);
    expect((await get(`/api/containers/${a}`)).body.state).toBe("exited");
    expect(await act(a, "lifecycle_action", { action: "start" })).toMatchObject(applied);
    expect(await act(a, "lifecycle_action", { action: "start" })).toMatchObject(applied);
    expect((await get(`/api/containers/${a}`)).body.state).toBe("running");
    expect(await versionOf(a)).toBe(before + 9);
  });

  it("that is a dry run changes nothing", async () => {
    const before = await versionOf(a);
    const environment = (await get(`/api/containers/${a}/env`)).body;
    const mode = { apply_mode: "DRY_RUN" };
    const checked = { status: "APPLIED", applied_at: 0, previous_version: before, result_version: before };
    expect(await act(a, "exec_command", { ...shell("touch /tmp/dry"), ...mode })).toMatchObject(checked);
    const file = { path: "/tmp/dry", content_type: "text/plain", patch: "x", ...mode };
    expect(await act(a, "file_patch", file)).toMatchObject(checked);
    expect(await act(a, "env_patch", { set: { DRY: "1" }, ...mode })).toMatchObject(checked);
    expect(await act(a, "lifecycle_action", { action: "stop", ...mode })).toMatchObject(checked);
    const patch = { content_type: "application/json", patch: '{"n":2}', ...mode };
    expect(await act(a, "state_patch", patch)).toMatchObject(checked);
    expect(await act(a, "lifecycle_action", { action: "explode", ...mode }, { msg_id: "dry-bad" })).toMatchObject({
      ...{ status: "REJECTED", error_code: "INVALID_SCHEMA" },
    });
    expect(await settled(a, "dry-bad")).toBe("acked");
    expect((await exec(a, "ls /tmp/dry")).exit_code).not.toBe(0);
    expect((await get(`/api/containers/${a}/env`)).body).toEqual(environment);
    expect((await get(`/api/icc/state/${a}`)).body.value).toEqual({ n: 1 });
    expect(await versionOf(a)).toBe(before);
  });

  it("is a conflict where the container has another state version", async () => {
    const before = await versionOf(b);
    const wanted = { set: { A: "1" }, desired_state_version: before + 7 };
    expect(await act(b, "env_patch", wanted, { msg_id: "other" })).toMatchObject({
      ...{ status: "CONFLICT", error_code: "VERSION_CONFLICT", previous_version: before, result_version: before },
    });
    expect(await settled(b, "other")).toBe("failed");
    expect((await get("/api/icc/dlq")).body.messages.at(-1)).toMatchObject({ container_id: b });
    expect((await get("/api/icc/dlq")).body.messages.at(-1).reason).toMatch(/^CONFLICT VERSION_CONFLICT: /);
    expect(await act(b, "env_patch", { set: { A: "1" } })).toMatchObject({ status: "APPLIED" });
    const matching = { set: { A: "2" }, desired_state_version: before + 1 };
    expect(await act(b, "env_patch", matching)).toMatchObject({ status: "APPLIED", result_version: before + 2 });
    expect(await act(b, "env_patch", matching)).toMatchObject({ status: "CONFLICT" });
  });

  it("is refused where it cannot be applied, with the reason", async () => {
    const before = await versionOf(b);
    const long = { set: Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`V${i}`, "x"])) };
    const huge = { set: { BIG: "x".repeat(200_000) } };
    for (const [type, payload, error_code, text] of [
      ["exec_command", { argv: [] }, "INVALID_SCHEMA", /^argv must have at least one element$/],
      ["exec_command", { argv: ["true"], timeout_ms: 100_000_000 }, "INVALID_SCHEMA", /timeout_ms/],
      ["exec_command", { argv: ["true"], workdir: "tmp" }, "INVALID_SCHEMA", /workdir/],
      ["exec_command", { argv: ["true"], env: { LD_PRELOAD: "/x" } }, "INVALID_SCHEMA", /loader/],
      ["exec_command", { argv: ["sleep", "1000"], timeout_ms: 300 }, "TIMEOUT", /timeout_ms/],
      ["file_patch", { path: "etc/x", content_type: "text/plain" }, "INVALID_SCHEMA", /absolute/],
      ["file_patch", { path: "/etc/", content_type: "text/plain" }, "INVALID_SCHEMA", /file/],
      ["file_patch", { path: "/etc", content_type: "text/plain" }, "INVALID_SCHEMA", /directory/],
      [
        "file_patch",
        { path: "/etc/x", content_type: "text/x-diff" },
        "INVALID_SCHEMA",
        /text\/x-diff.*known: .*text\/plain/,
      ],
      ["env_patch", long, "INVALID_SCHEMA", /entries/],
      ["env_patch", huge, "INVALID_SCHEMA", /larger/],
      ["env_patch", { set: { "A-B": "1" } }, "INVALID_SCHEMA", /names/],
      ["env_patch", { set: { A: "1" }, unset: ["A"] }, "INVALID_SCHEMA", /set too/],
      ["lifecycle_action", { action: "delete" }, "INVALID_SCHEMA", /start, stop, restart, kill/],
      ["state_patch", { content_type: "text/plain", patch: "x" }, "INVALID_SCHEMA", /text\/plain/],
      ["state_patch", { content_type: "application/json", patch: "{" }, "INVALID_SCHEMA", /JSON/],
    ] as const) {
      const outcome = await act(b, type, payload);
      expect([type, outcome.status, outcome.error_code]).toEqual([type, "REJECTED", error_code]);
      expect(outcome.error_message).toMatch(text);
    }
    expect(await versionOf(b)).toBe(before);
  });

  it("needs the permission level of its kind", async () => {
    for (const [type, payload, permission_level] of [
      ["exec_command", { argv: ["true"] }, "WRITE_STATE"],
      ["env_patch", { set: {} }, "WRITE_STATE"],
      ["file_patch", { path: "/tmp/a", content_type: "text/plain", patch: "x" }, "WRITE_STATE"],
      ["lifecycle_action", { action: "stop" }, "READ_ONLY"],
    ] as const) {
      const refused = await send({ to: b, type, payload, permission_level });
      expect(refused).toMatchObject({ status: 400, body: { reason_code: "PERMISSION_DENIED" } });
    }
  });

  it("stays in the root of its container, whatever its path", async () => {
    await exec(
      b,
      "ln -s /etc/passwd /tmp/link; ln -s / /tmp/root; ln -s ../../../../../.. /tmp/up; echo old > /tmp/old; chmod 600 /tmp/old",
    );
    const content = { content_type: "application/octet-stream", patch: "mine" };
    for (const path of [
      "/../../../../tmp/escape",
      "/tmp/up/tmp/through",
      "/tmp/root/tmp/root-file",
      "/tmp/link",
      "/tmp/old",
    ]) {
      expect(await act(b, "file_patch", { ...content, path })).toMatchObject({ status: "APPLIED" });
    }
    const shown = await exec(
      b,
      "cat /tmp/escape /tmp/through /tmp/root-file /tmp/link /tmp/old; stat -c %a /tmp/old; head -c 4 /etc/passwd",
    );
    expect(shown.stdout).toBe(`${"mine".repeat(5)}600\nroot`);
    expect((await act(b, "file_patch", { ...content, path: "/proc/sys/kernel/hostname" })).status).toBe("REJECTED");
  });

  it("that runs a command says how it ended, and no process outlives its timeout", async () => {
    expect(await act(b, "exec_command", shell("echo broken >&2; exit 3"))).toMatchObject({
      ...{
        status: "APPLIED",
        error_code: "APPLY_FAILED",
        error_message: expect.stringMatching(/^exit code 3, job job_\w+: broken$/),
      },
    });
    const { error_message } = await act(b, "exec_command", shell("exit 4"));
    expect(error_message).toMatch(/^exit code 4, job job_\w+$/);
    const never = { ...shell("sleep 4242 & setsid sleep 4242 & wait"), timeout_ms: 500 };
    expect(await act(b, "exec_command", never)).toMatchObject({ status: "REJECTED", error_code: "TIMEOUT" });
    await eventually("no process is left", async () => {
      return (await running(b, "sleep 4242")) === 0;
    });
  });

  it("for a container that does not run is refused, unless it needs none", async () => {
    const id = await make("act-stopped");
    await post(`/api/containers/${id}/stop`, { timeout_ms: 0 });
    const refused = await act(id, "exec_command", { argv: ["true"] });
    expect(refused).toMatchObject({ status: "REJECTED", error_code: "APPLY_FAILED" });
    expect(refused.error_message).toMatch(/not running/);
    const file = { path: "/tmp/x", content_type: "text/plain", patch: "x" };
    expect(await act(id, "file_patch", file)).toMatchObject({ status: "APPLIED" });
    expect(await act(id, "lifecycle_action", { action: "start" })).toMatchObject({ status: "APPLIED" });
    await daemon.call("DELETE", `/api/containers/${id}`);
  });
});

describe("outcomes", () => {
  it("come to the inbox of a container that sent the action", async () => {
    const sent = {
      to: a,
      from: "act-b",
      type: "env_patch",
      payload: { set: { S: "1" } },
      msg_id: "mine",
      trace_id: "t-1",
    };
    expect((await send(sent)).status).toBe(200);
    const { body } = await post(`/api/icc/inbox/${b}/receive`, { wait_ms: 20_000 });
    expect(body.messages).toMatchObject([
      { message: { msg_id: "mine-ack", from: a, to: b, correlation_id: "mine", trace_id: "t-1", type: "ack" } },
    ]);
    expect(body.messages[0].message.payload).toMatchObject({ status: "APPLIED" });
    await post("/api/icc/ack", { msg_id: "mine-ack" });
    expect(await settled(a, "mine")).toBe("acked");
    expect((await send(sent)).body.duplicate).toBe(true);
  });

  it("of two senders at once name one order", async () => {
    const before = await versionOf(a);
    const outcomes = await Promise.all(
      Array.from({ length: 10 }, (_, i) =>
        act(a, "env_patch", { set: { [`P${i}`]: "1" } }, { from: i % 2 === 0 ? "left" : "right" }),
      ),
    );
    const versions = outcomes.map(({ result_version }) => result_version).sort((one, other) => one - other);
    expect(versions).toEqual(Array.from({ length: 10 }, (_, i) => before + 1 + i));
    const wanted = { desired_state_version: before + 10 };
    const [one, other] = await Promise.all([
      act(a, "env_patch", { set: { W: "left" }, ...wanted }, { from: "left" }),
      act(a, "env_patch", { set: { W: "right" }, ...wanted }, { from: "right" }),
    ]);
    expect([one.status, other.status].sort()).toEqual(["APPLIED", "CONFLICT"]);
  });

  it("never come as a message to receivers of the container's own inbox", async () => {
    expect((await post(`/api/icc/inbox/${a}/receive`, { max: 100 })).body.messages).toEqual([]);
  });
});

describe("many actions", () => {
  it("of one tenant do not hold up another", async () => {
    const { tenant_id } = (await post("/api/tenants", { name: "acting" })).body;
    const { key } = (await post(`/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
    const other = await make("other-tenant", { "x-api-key": key });
    const command = { to: a, type: "exec_command", payload: { argv: ["sleep", "0.05"] } };
    for (let i = 0; i < 20; i++) {
      const sent = await Promise.all(Array.from({ length: 50 }, () => send(command)));
      expect(sent.every(({ status }) => status === 200)).toBe(true);
    }
    expect((await get(`/api/containers/${a}/icc`)).body.unread).toBeGreaterThan(100);
    const action = { to: other, type: "env_patch", payload: { set: { A: "1" } }, timeout_ms: 20_000 };
    const begun_ms = performance.now();
    const answer = await post("/api/icc/request", action, { "x-api-key": key });
    expect(answer.body.reply.payload).toMatchObject({ status: "APPLIED" });
    expect(performance.now() - begun_ms).toBeLessThan(5_000);
    // Another container of the same tenant has a place too.
    expect(await act(b, "env_patch", { set: { B: "1" } })).toMatchObject({ status: "APPLIED" });
    expect((await get(`/api/containers/${a}/icc`)).body.unread).toBeGreaterThan(0);
    await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`);
    await daemon.call("DELETE", `/api/containers/${a}`);
  });
});

describe("a daemon that is killed", () => {
  const killed = () => eventually("the daemon is dead", () => !daemon.isAlive);
  const count = { to: "act-b", type: "exec_command", ...{ payload: shell("echo x >> /tmp/count") } };
  const lines = async () => Number((await exec(b, "cat /tmp/count 2>/dev/null | wc -l")).stdout);

  it("applies what waited, once it runs again", async () => {
    await send({
      to: b,
      type: "exec_command",
      payload: { argv: ["sleep", "3600"], timeout_ms: 3_600_000 },
      msg_id: "long",
    });
    await eventually("it runs", async () => (await running(b, "sleep 3600")) > 0);
    await send({ ...count, msg_id: "waits" });
    expect(await stateOf(b, "waits")).toBe("unread");
    await daemon.stop("SIGKILL");
    await daemon.start(settings());
    // The command of the killed daemon ended with it, and runs again when its lease is over.
    await eventually("it runs again", async () => (await running(b, "sleep 3600")) > 0, 60_000);
    expect(await running(b, "sleep 3600")).toBe(1);
    expect(await lines()).toBe(0);
    await post("/api/icc/ack", { msg_id: "long", container_id: b });
    expect(await settled(b, "waits")).toBe("acked");
    expect(await lines()).toBe(1);
    // Whoever settles an action ends its command.
    expect(await running(b, "sleep 3600")).toBe(0);
  });

  it("applies again what has no outcome yet, and settles by the outcome that is there", async () => {
    for (const [point, times] of [
      ["icc.action.applied", 2],
      ["icc.action.told", 1],
    ] as const) {
      await exec(b, "rm -f /tmp/count");
      const msg_id = point.replaceAll(".", "-");
      await daemon.arm(`${point}=kill`);
      const before = await versionOf(b);
      await send({ ...count, from: "act-b", msg_id }).catch(() => {});
      await killed();
      await daemon.start(settings());
      expect(await settled(b, msg_id)).toBe("acked");
      expect([point, await lines()]).toEqual([point, times]);
      expect(await versionOf(b)).toBe(before + 1);
      const { body } = await post(`/api/icc/inbox/${b}/receive`, { max: 100 });
      const ids = body.messages.map((one: { message: { msg_id: string } }) => one.message.msg_id);
      expect(ids.filter((id: string) => id === `${msg_id}-ack`)).toEqual([`${msg_id}-ack`]);
    }
  });

  it("leaves an action to the next one when it stops", async () => {
    await exec(b, "rm -f /tmp/count");
    await send({
      to: b,
      type: "exec_command",
      payload: shell("echo x >> /tmp/count; test -e /tmp/second || { touch /tmp/second; sleep 600; }"),
      msg_id: "stopped",
    });
    await eventually("it runs", async () => (await lines()) === 1);
    await daemon.stop();
    await daemon.start(settings());
    expect(await settled(b, "stopped")).toBe("acked");
    expect(await lines()).toBe(2);
  });
});
