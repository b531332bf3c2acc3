/** Answers that clients of containers rely on and would not notice if they were wrong: through the real API. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { EventReader } from "../support/event-stream.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const state = { id: "" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  state.id = (await containers.create({ name: "box" })).container_id;
  await containers.create({ name: "taken" });
});
afterAll(() => daemon.dispose());

const ended = async (operation_id: string) =>
  eventually("the operation ends", async () => {
    const { body } = await daemon.call("GET", `/api/operations/${operation_id}?wait_seconds=5`);
    return body.completed_at === null ? null : body;
  });

describe("a batch", () => {
  const batch = (names: readonly string[], query = "") =>
    daemon.call("POST", `/api/containers/batch${query}`, { items: names.map((name) => ({ name })) });

  it("succeeds where one item does, and names the failed ones in its message and its items", async () => {
    const { body } = await batch(["box", "b1", "taken"]);
    const record = await ended(body.operation_id);
    expect(record).toMatchObject({ status: "succeeded", result: { created_count: 1, failed_count: 2 }, error: null });
    for (const name of ["'box'", "'taken'"]) expect(record.message).toContain(name);
    const failed = { status: "failed", error_code: "NAME_TAKEN", retryable: false };
    expect(record.items).toEqual([
      { name: "box", ...failed, error: "a container named 'box' exists" },
      { name: "b1", status: "succeeded", container_id: expect.stringMatching(/^ctr_/) },
      { name: "taken", ...failed, error: "a container named 'taken' exists" },
    ]);
    await containers.delete("b1");
  });

  it("fails where no item succeeds, with its items all the same", async () => {
    const { body } = await batch(["box", "taken"]);
    const record = await ended(body.operation_id);
    expect(record).toMatchObject({ status: "failed", reason_code: "NAME_TAKEN", result: null });
    for (const text of [record.message, record.error]) expect(text).toContain("'taken': NAME_TAKEN");
    expect(record.items.map(({ name, status }: Record<string, string>) => `${name} ${status}`)).toEqual([
      "box failed",
      "taken failed",
    ]);
    expect(await batch(["box", "taken"], "?execution=sync")).toMatchObject({
      status: 409,
      body: { error_code: "NAME_TAKEN", error: expect.stringContaining("'taken': NAME_TAKEN") },
    });
  });
});

describe("a create that fails", () => {
  it("leaves an operation that names no container, neither in its record nor in its events", async () => {
    const { body } = await daemon.call("POST", "/api/containers?execution=async", { name: "box" });
    expect(body.container_id).toBeUndefined();
    const record = await ended(body.operation_id);
    expect(record).toMatchObject({
      status: "failed",
      reason_code: "NAME_TAKEN",
      container_id: null,
      target_resource_id: null,
      result_container_id: null,
    });
    expect(JSON.stringify(record)).not.toContain("ctr_");
    const made = await daemon.call("POST", "/api/containers?execution=async", { name: "made" });
    const { container_id, result, target_resource_id } = await ended(made.body.operation_id);
    expect([container_id, target_resource_id]).toEqual([result.container_id, result.container_id]);
    await containers.delete("made");
  });

  it("for a missing GPU is not retryable, also as an operation", async () => {
    const create = { name: "gpu", gpu_count: 1 };
    for (const headers of [undefined, { "x-api-key": KEY, "idempotency-key": "gpu" }]) {
      const answer = await daemon.call("POST", "/api/containers", create, headers);
      expect(answer).toMatchObject({ status: 503, body: { error_code: "CAPACITY_FULL", retry_after: null } });
      expect(answer.headers.get("retry-after")).toBeNull();
    }
  });
});

describe("kill", () => {
  it("of a container that has ended is 200, and keeps its policy from starting it again", async () => {
    const command = ["sh", "-c", "exit 3"];
    const { container_id } = await containers.create({ name: "ends", command, restart: "always" });
    await containers.until(container_id, "it ended some times", ({ restart_count }) => restart_count >= 2);
    for (let i = 0; i < 2; i++) {
      const killed = await daemon.call("POST", `/api/containers/${container_id}/kill`);
      expect(killed).toMatchObject({ status: 200, body: { success: true, state: "exited", container_id } });
    }
    await containers.delete(container_id);
    expect((await daemon.call("POST", `/api/containers/${container_id}/kill`)).status).toBe(404);
  });

  it("of a container that has never run says so, as stop does, and the container can be started", async () => {
    const { container_id: source } = await containers.create({ name: "source" });
    const tenant = { "x-api-key": KEY, "x-tenant-id": "default" };
    const forked = await daemon.call(
      "POST",
      `/api/containers/${source}/fork?execution=sync`,
      { name: "rests" },
      tenant,
    );
    const id = forked.body.result.container_id;
    for (const path of ["kill", "stop", "stop?execution=async"]) {
      const refused = await daemon.call("POST", `/api/containers/rests/${path}`);
      expect([path, refused.status, refused.body]).toEqual([
        ...[path, 409],
        expect.objectContaining({
          ...{ error_code: "NOT_RUNNING", error: `container '${id}' has never run: created` },
          details: expect.objectContaining({ state: "created", expected: ["running"] }),
        }),
      ]);
    }
    expect(await daemon.call("POST", "/api/containers/rests/start?execution=sync")).toMatchObject({ status: 200 });
    expect(await daemon.call("POST", "/api/containers/rests/kill")).toMatchObject({ body: { exit_code: 137 } });
    for (const one of [id, source]) await containers.delete(one);
  });
});

describe("a stream", () => {
  const stream = (id: string, body: object) => daemon.call("POST", `/api/containers/${id}/stream`, body);

  it("begins with its start, or is refused: of what cannot be started, and in a container that does not run", async () => {
    const { container_id } = await containers.create({ name: "streams" });
    for (const [body, exit_code, why] of [
      [{ command: ["/no/such"] }, 127, "/no/such: No such file or directory"],
      [{ command: ["no-such"] }, 127, "no-such: No such file or directory"],
      [{ command: ["/etc/passwd"] }, 126, "/etc/passwd: Permission denied"],
      [{ command: ["true"], working_directory: "/none" }, 126, "chdir /none: No such file or directory"],
      [{ command: ["true"], working_directory: "/etc/passwd" }, 126, "chdir /etc/passwd: Not a directory"],
    ] as const) {
      const refused = await stream(container_id, body);
      expect([body, refused.status, refused.headers.get("content-type")]).toEqual([body, 400, "application/json"]);
      expect(refused.body).toMatchObject({
        ...{ error_code: "INVALID_ARGUMENT", error: `the command cannot be started: ${why}` },
        details: { exit_code },
      });
    }
    // Refusals hold no place: more of them than commands may run at the same time.
    for (let i = 0; i <= LIMITS.execs_per_container_max; i++) {
      expect((await stream(container_id, { command: ["no-such"] })).status).toBe(400);
    }
    for (const body of [
      { command: ["true"] },
      { command: ["sh", "-c", "echo out; exit 3"] },
      { command: ["sleep", "9"], timeout_ms: 500 },
    ]) {
      const { status, body: text } = await stream(container_id, body);
      expect(status).toBe(200);
      const types = (typeof text === "string" ? text : JSON.stringify(text)).match(/"type":"\w+"/g);
      expect([types?.[0], types?.at(-1)]).toEqual(['"type":"started"', '"type":"exit"']);
    }
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    expect(await stream(container_id, { command: ["true"] })).toMatchObject({
      status: 409,
      body: { error_code: "NOT_RUNNING" },
    });
    await containers.delete(container_id);
    expect(await stream(container_id, { command: ["true"] })).toMatchObject({ status: 404 });
  });
});

describe("a list", () => {
  it("shows the readiness that was measured last, with its age", async () => {
    const { container_id } = await containers.create({ name: "aged" });
    const listed = async () =>
      (await daemon.call("GET", "/api/containers")).body.containers.find(
        (one: { name: string }) => one.name === "aged",
      );
    const [first, later] = [
      await listed(),
      await eventually("it ages", async () => {
        const one = await listed();
        return one.checks_age_ms > 50 ? one : null;
      }),
    ];
    expect([first.exec_ready, later.exec_ready]).toEqual([true, true]);
    expect(later.checks_age_ms).toBeGreaterThan(first.checks_age_ms);
    // A list asks nobody: it shows what was true then, and a record what is true now.
    process.kill(later.pid, "SIGSTOP");
    try {
      expect(await listed()).toMatchObject({ exec_ready: true, checks: { minit_responsive: true } });
      const { body } = await daemon.call("GET", `/api/containers/${container_id}`);
      expect(body).toMatchObject({ exec_ready: false, checks: { minit_responsive: false, managed_image_valid: true } });
      const after = await listed();
      expect(after).toMatchObject({ exec_ready: false, checks: { state_running: true, minit_responsive: false } });
      expect(after.checks_age_ms).toBeGreaterThanOrEqual(0);
    } finally {
      process.kill(later.pid, "SIGCONT");
    }
    expect(await containers.get(container_id)).toMatchObject({ exec_ready: true });
    expect(await listed()).toMatchObject({ exec_ready: true });
    // Of another run nothing is known from the one before.
    await daemon.call("POST", `/api/containers/${container_id}/kill`);
    expect(await listed()).toMatchObject({ exec_ready: false, checks_age_ms: 0, checks: { minit_responsive: false } });
    await containers.delete(container_id);
  });
});

describe("an exec", () => {
  it("emits its start and its end, with its exit code, and names neither its command nor its output", async () => {
    const { container_id } = await containers.create({ name: "told" });
    const reader = await EventReader.open(daemon.url, `?container_id=${container_id}&name=container_update`);
    const { job_id } = await containers.exec(container_id, ["sh", "-c", "echo sesame; exit 7"]);
    const detached = await containers.exec(container_id, ["sleep", "0.2"], { detach: true });
    const types = () => reader.events.slice(1).map(({ data }) => [data.event_type, data.job_id, data.exit_code]);
    await eventually("both have ended", () => types().filter(([type]) => type === "exec_died").length === 2);
    expect(types()).toEqual([
      ["exec_started", job_id, undefined],
      ["exec_died", job_id, 7],
      ["exec_started", detached.job_id, undefined],
      ["exec_died", detached.job_id, 0],
    ]);
    expect(JSON.stringify(reader.events)).not.toContain("sesame");
    reader.close();
    await containers.delete(container_id);
  });

  it("that runs for long is among the jobs and the events while it runs", async () => {
    const { container_id } = await containers.create({ name: "long" });
    const reader = await EventReader.open(daemon.url, `?container_id=${container_id}&type=exec_started`);
    const sent = containers.exec(container_id, ["sh", "-c", "while [ ! -e /seen ]; do sleep 0.1; done; exit 4"]);
    const started = await eventually("its start", () => reader.events[1]?.data);
    const job = (await daemon.call("GET", `/api/containers/${container_id}/jobs/${started.job_id}`)).body;
    expect(job).toMatchObject({ status: "running", exit_code: null, pid: started.pid });
    await containers.shell(container_id, "touch /seen");
    expect(await sent).toMatchObject({ job_id: started.job_id, exit_code: 4 });
    reader.close();
    await containers.delete(container_id);
  });

  it("above the bound emits no event, so that other events stay in the log", async () => {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "many" })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
    const headers = { "x-api-key": key };
    const { container_id } = (await daemon.call("POST", "/api/containers", { name: "busy" }, headers)).body;
    const exec = () => daemon.call("POST", `/api/containers/${container_id}/exec`, { command: ["true"] }, headers);
    const count = LIMITS.exec_events_per_window_max + 40;
    for (let i = 0; i < count; i += 10) await Promise.all(Array.from({ length: 10 }, exec));
    await daemon.call("POST", `/api/containers/${container_id}/rename`, { new_name: "last" }, headers);
    const reader = await EventReader.open(daemon.url, `?last_event_id=0&container_id=${container_id}`, headers);
    await eventually("the last event", () => reader.types("container_update").includes("renamed"));
    const types = reader.types("container_update");
    for (const type of ["exec_started", "exec_died"]) {
      expect(types.filter((one) => one === type).length).toBe(LIMITS.exec_events_per_window_max);
    }
    reader.close();
    await daemon.call("DELETE", `/api/containers/${container_id}`, undefined, headers);
  });
});

describe("a log", () => {
  it("holds only the output of the command: none of execs, no message of the runtime", async () => {
    const command = ["sh", "-c", "echo own; while [ ! -e /go ]; do sleep 0.1; done; echo end >&2"];
    const { container_id } = await containers.create({ name: "logs", command });
    await containers.shell(container_id, "echo of an exec; echo of it too >&2; touch /go");
    await containers.until(container_id, "it ends", ({ state }) => state === "exited");
    const lines = (await containers.logs(container_id)).map(({ stream, message }) => `${stream} ${message}`);
    expect(lines).toEqual(["stdout own", "stderr end"]);
    await containers.delete(container_id);
  });

  it.each([
    [["/no/such"], {}, 127, "/no/such: No such file or directory"],
    [["no-such-command"], { restart: "on-failure" }, 127, "no-such-command: No such file or directory"],
    [["/etc/passwd"], {}, 126, "/etc/passwd: Permission denied"],
    [["/etc"], { strict: true }, 126, "/etc: Permission denied"],
    [["true"], { user: "nobody-here" }, 126, "user 'nobody-here' not found in /etc/passwd"],
  ])(
    "is empty where %j cannot be started, and the answer, the record and the events say why",
    async (command, more, exit_code, error_message) => {
      const { body: health } = await daemon.call("GET", "/api/containers/health");
      const reader = await EventReader.open(daemon.url, "?name=container_update");
      const { status, body } = await daemon.call("POST", "/api/containers", { name: "none", command, ...more });
      const id = body.container_id;
      const told = { state: "exited", exit_code, error_message, pid: null, ip_address: null, exec_ready: false };
      expect([status, body]).toEqual([
        201,
        expect.objectContaining({
          ...told,
          checks: expect.objectContaining({ state_running: false, minit_responsive: false }),
        }),
      ]);
      expect(Date.parse(body.exited_at)).toBeGreaterThanOrEqual(Date.parse(body.started_at));
      expect(await containers.logs(id)).toEqual([]);
      const types = () =>
        reader.events
          .slice(1)
          .filter(({ data }) => data.container_id === id)
          .map(({ data }) => data.event_type);
      await eventually("its end is told", () => types().includes("died"));
      expect(types().slice(0, 3)).toEqual(["created", "started", "died"]);
      reader.close();
      await daemon.call("POST", `/api/containers/${id}/kill`);
      const again = await daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
      expect(again).toMatchObject({ status: 200, body: told });
      await containers.delete(id);
      expect((await daemon.call("GET", "/api/containers/health")).body.running_count).toBe(health.running_count);
    },
  );
});
