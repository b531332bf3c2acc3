/** The function concern through the real API, on real containers. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start());
afterAll(() => daemon.dispose());

describe("POST /api/functions", () => {
  it("registers a function in state pending and answers its whole record", async () => {
    const { status, body } = await daemon.call("POST", "/api/functions", {
      name: "whole",
      cluster_id: null,
      description: "every field",
      handler: "cat",
      runtime: "shell",
      memory_limit_mb: 300,
      cpu_limit_percent: 50,
      timeout_seconds: 7,
      environment: { A: "1" },
      min_instances: 1,
      max_instances: 3,
      cleanup_on_exit: false,
      working_directory: "/usr/bin",
    });
    expect(status).toBe(201);
    expect(body).toMatchObject({
      name: "whole",
      state: "pending",
      version: 1,
      current_version: 1,
      tenant_id: "default",
      cluster_id: null,
      description: "every field",
      handler: "cat",
      runtime: "shell",
      memory_limit_mb: 300,
      cpu_limit_percent: 50,
      timeout_seconds: 7,
      environment: { A: "1" },
      min_instances: 1,
      max_instances: 3,
      cleanup_on_exit: false,
      working_directory: "/usr/bin",
      last_invoked_at: null,
      invocation_count: 0,
      error_count: 0,
      error_message: null,
    });
    expect(body.id).toBe(body.function_id);
    expect(body.owner_node_id).toMatch(/^node_/);
    expect(Number.isInteger(body.created_at)).toBe(true);
  });

  it("fills in the defaults", async () => {
    const { body } = await daemon.call("POST", "/api/functions", { name: "defaults", handler: "true" });
    expect(body).toMatchObject({
      runtime: "shell",
      memory_limit_mb: 256,
      cpu_limit_percent: null,
      timeout_seconds: 30,
      environment: {},
      min_instances: 0,
      max_instances: 10,
      cleanup_on_exit: true,
      working_directory: null,
    });
  });

  it("lets one of two creates with the same name win", async () => {
    const twice = await Promise.all(
      [1, 2].map(() => daemon.call("POST", "/api/functions", { name: "once", handler: "true" })),
    );
    expect(twice.map(({ status }) => status).sort()).toEqual([201, 409]);
  });
});

describe("reading functions", () => {
  it("answers the same record by id, by name and in the list", async () => {
    const { body: created } = await daemon.call("POST", "/api/functions", { name: "found me", handler: "true" });
    const byId = await daemon.call("GET", `/api/functions/${created.id}`);
    const byName = await daemon.call("GET", `/api/functions/by-name/${encodeURIComponent("found me")}`);
    const list = await daemon.call("GET", "/api/functions?limit=1");
    expect(byId.body).toEqual(created);
    expect(byName.body).toEqual({ ...created, found: true });
    expect(list.body.functions).toEqual([created]);
  });
});

describe("POST /api/functions/<id>/deploy", () => {
  it("makes a function without min_instances active and starts no instance", async () => {
    const record = await daemon.deploy({ name: "lazy", handler: "true" });
    expect(record.state).toBe("active");
    const pool = await daemon.call("GET", `/api/functions/${record.id}/pool`);
    expect(pool.body).toMatchObject({ function_id: record.id, ready_count: 0, total_count: 0 });
  });

  it("warms min_instances before it answers, and the first call is then not cold", async () => {
    const record = await daemon.deploy({ name: "eager", handler: "cat", min_instances: 2 });
    const pool = await daemon.call("GET", `/api/functions/${record.id}/pool`);
    expect(pool.body).toMatchObject({ ready_count: 2, warming_count: 0, busy_count: 0, total_count: 2 });
    expect((await daemon.invoke("eager")).cold_start).toBe(false);
  });
});

describe("invoking", () => {
  it("answers the whole record, by name and by id, and keeps it", async () => {
    const { id } = await daemon.deploy({ name: "echo", handler: "cat", max_instances: 1 });
    const first = await daemon.invoke("echo", { payload: '{"n":1}' });
    expect(first).toMatchObject({
      function_id: id,
      function_name: "echo",
      version: 1,
      status: "success",
      exit_code: 0,
      stdout: '{"n":1}',
      stderr: "",
      error_message: null,
      cold_start: true,
      stdout_truncated: false,
      stderr_truncated: false,
    });
    expect(first.execution_node_id).toMatch(/^node_/);
    expect(first.ended_at).toBeGreaterThanOrEqual(first.started_at);
    expect(Object.keys(first.timings)).toEqual(expect.arrayContaining(["queue", "cell", "handler", "total"]));
    const second = (await daemon.call("POST", `/api/functions/${id}/invoke`, { payload: "x" })).body;
    expect(second).toMatchObject({ status: "success", stdout: "x", cold_start: false });
    expect(second.instance_nonce).toBe(first.instance_nonce);
    const kept = await daemon.call("GET", `/api/functions/${id}/invocations/${first.invocation_id}`);
    expect(kept.body).toEqual(first);
    const listed = await daemon.call("GET", `/api/functions/${id}/invocations?limit=1`);
    expect(listed.body).toMatchObject({ invocations: [second], next_cursor: expect.any(String) });
    expect((await daemon.call("GET", `/api/functions/${id}`)).body).toMatchObject({
      invocation_count: 2,
      error_count: 0,
    });
  });

  it("keeps apart the id of one function and a name of another that looks like it", async () => {
    const one = await daemon.deploy({ name: "plain", handler: "echo plain" });
    const name = `#${one.id}`;
    await daemon.deploy({ name, handler: "echo other" });
    expect((await daemon.invoke(name)).stdout).toBe("other\n");
    expect((await daemon.call("POST", `/api/functions/${one.id}/invoke`)).body.stdout).toBe("plain\n");
  });

  it("takes an empty body and one without a content type", async () => {
    await daemon.deploy({ name: "bare", handler: "cat" });
    const empty = await fetch(`${daemon.url}/api/functions/invoke/bare`, {
      method: "POST",
      headers: { "x-api-key": "test-key-0123456789abcdef" },
    });
    expect(await empty.json()).toMatchObject({ status: "success", stdout: "" });
  });

  it("gives the handler its identity, its deadline and its payload, with the function's and the call's environment on top", async () => {
    await daemon.deploy({
      name: "env",
      handler: "env; echo; printf '%s' \"$HEARTH_PAYLOAD\"",
      environment: { FROM_FUNCTION: "f", BOTH: "f", HOME: "/nowhere" },
      timeout_seconds: 9,
    });
    const before_ms = Date.now();
    const record = await daemon.invoke("env", { payload: "héllo", environment: { FROM_CALL: "c", BOTH: "c" } });
    const [variables = "", payload] = record.stdout.split("\n\n");
    const seen = Object.fromEntries(variables.split("\n").map((line: string) => line.split(/=(.*)/s).slice(0, 2)));
    expect(seen).toMatchObject({
      HEARTH_INVOCATION_ID: record.invocation_id,
      HEARTH_FUNCTION_NAME: "env",
      HEARTH_FUNCTION_VERSION: "1",
      HEARTH_PAYLOAD: "héllo",
      FROM_FUNCTION: "f",
      FROM_CALL: "c",
      BOTH: "c",
      HOME: "/nowhere",
    });
    const deadline_ms = Number(seen.HEARTH_DEADLINE_MS);
    expect(deadline_ms).toBeGreaterThanOrEqual(before_ms + 9_000);
    expect(deadline_ms).toBeLessThanOrEqual(Date.now() + 9_000);
    expect(payload).toBe("héllo");
  });

  it("passes a string payload as it is, any other JSON value as its text, and null or nothing as no input", async () => {
    await daemon.deploy({ name: "json", handler: "cat" });
    const cases: [payload: string, stdin: string][] = [
      ['{"a": [1, "é\\n", null], "__proto__": {"b": 2}}', '{"a":[1,"é\\n",null],"__proto__":{"b":2}}'],
      ["[]", "[]"],
      ["-0.5e1", "-0.5e1"],
      ["false", "false"],
      ['"{\\"a\\": 1}"', '{"a": 1}'],
      ["null", ""],
    ];
    for (const [payload, stdin] of cases) {
      const { body } = await daemon.call("POST", "/api/functions/invoke/json", `{"payload":${payload}}`);
      expect([payload, body.status, body.stdout]).toEqual([payload, "success", stdin]);
    }
    const nulls = { payload: null, environment: null, timeout_seconds: null };
    expect((await daemon.call("POST", "/api/functions/invoke/json", nulls)).body.stdout).toBe("");
  });

  it("runs a script by its first line, each time whole, with the payload on standard input", async () => {
    const python = `#!/usr/bin/env python3
import os, sys
open(os.path.realpath(__file__), "a").write("raise SystemExit(9)\\n")
print(sys.version_info.major, "it's $HOME", sys.stdin.read())
# ${"é".repeat(20_000)}`;
    await daemon.deploy({ name: "python", handler: python, cleanup_on_exit: false });
    for (const payload of ["one", "two"]) {
      expect(await daemon.invoke("python", { payload })).toMatchObject({
        status: "success",
        stdout: `3 it's $HOME ${payload}\n`,
        stderr: "",
      });
    }
    await daemon.deploy({ name: "strict-sh", handler: "#!/bin/sh -e\nfalse\necho not reached" });
    expect(await daemon.invoke("strict-sh")).toMatchObject({ status: "failed", exit_code: 1, stdout: "" });
    const created = await daemon.call("POST", "/api/functions", {
      name: "nobody",
      handler: "#!/no/such/interpreter\n",
    });
    const deployed = await daemon.call("POST", `/api/functions/${created.body.id}/deploy`);
    expect(deployed).toMatchObject({
      status: 400,
      body: {
        error: "handler: the first line names an interpreter that does not exist: /no/such/interpreter",
        error_code: "INVALID_ARGUMENT",
      },
    });
  });

  it("passes a payload above 64 KiB on standard input alone, whole", async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the braces are the shell's.
    await daemon.deploy({ name: "large", handler: 'wc -c; printf %s "${HEARTH_PAYLOAD-unset}"' });
    const record = await daemon.invoke("large", { payload: "x".repeat(3_000_000) });
    expect(record.stdout).toBe("3000000\nunset");
  });

  it("records a failing handler as failed in a 200 answer, and uses its instance again", async () => {
    await daemon.deploy({ name: "fails", handler: "echo out; echo err >&2; exit 3", max_instances: 1 });
    const first = await daemon.invoke("fails");
    expect(first).toMatchObject({
      status: "failed",
      exit_code: 3,
      stdout: "out\n",
      stderr: "err\n",
      error_message: "exited with 3",
    });
    const second = await daemon.invoke("fails");
    expect(second).toMatchObject({ cold_start: false, instance_nonce: first.instance_nonce });
  });

  it("names a command that does not exist when it is deployed, and when only the call can tell", async () => {
    const created = await daemon.call("POST", "/api/functions", {
      name: "absent",
      handler: "no-such-command with words",
    });
    expect(await daemon.call("POST", `/api/functions/${created.body.id}/deploy`)).toMatchObject({
      status: 400,
      body: { error: "handler: command not found: no-such-command" },
    });
    await daemon.call("PUT", `/api/functions/${created.body.id}`, { handler: "index.handler" });
    expect((await daemon.call("POST", `/api/functions/${created.body.id}/deploy`)).body).toMatchObject({
      error: "handler: command not found: index.handler",
      hint: "choose the runtime nodejs or python3: a handler of shell is a command line",
    });
    await daemon.call("PUT", `/api/functions/${created.body.id}`, { handler: "/etc/passwd" });
    expect((await daemon.call("POST", `/api/functions/${created.body.id}/deploy`)).body.error).toBe(
      "handler: file is not executable and does not begin with #!: /etc/passwd",
    );
    expect((await daemon.call("GET", `/api/functions/${created.body.id}`)).body.state).toBe("pending");
    await daemon.deploy({ name: "lost", handler: "cat file", environment: { PATH: "/nowhere" } });
    expect(await daemon.invoke("lost")).toMatchObject({ status: "failed", exit_code: 127 });
  });

  it("cuts each stream at 1 MiB and says so", async () => {
    await daemon.deploy({
      name: "loud",
      handler: "head -c 1500000 /dev/zero | tr '\\0' a; head -c 1048576 /dev/zero | tr '\\0' b >&2",
    });
    const record = await daemon.invoke("loud");
    expect(record.stdout.length).toBe(1_048_576);
    expect(record).toMatchObject({ status: "success", stdout_truncated: true, stderr_truncated: false });
    expect(record.stderr.length).toBe(1_048_576);
  });

  it("ends at the deadline with the whole process tree, and does not use the instance again", async () => {
    const handler = "(trap '' TERM; setsid sleep 300 & sleep 300) & echo begun; sleep 300";
    await daemon.deploy({ name: "hangs", handler });
    const record = await daemon.invoke("hangs", { timeout_seconds: 1 });
    expect(record).toMatchObject({ status: "timeout", stdout: "begun\n", error_message: "timed out after 1 s" });
    await eventually("no sleep of the tree is left", () =>
      daemon.processes().every((line) => !line.includes("sleep 300")),
    );
    const next = await daemon.invoke("hangs", { timeout_seconds: 1 });
    expect(next.instance_nonce).not.toBe(record.instance_nonce);
  });

  it("does not wait for a process that the handler left in the background, and ends it", async () => {
    await daemon.deploy({ name: "strays", handler: "sleep 299 & echo done" });
    expect(await daemon.invoke("strays")).toMatchObject({ status: "success", stdout: "done\n" });
    await eventually("no stray is left", () => daemon.processes().every((line) => !line.includes("sleep 299")));
  });

  it("empties /tmp between calls, unless cleanup_on_exit is off", async () => {
    const handler = "ls -A /tmp /dev/shm; mkdir -p /tmp/d/e; touch /tmp/d/e/f /dev/shm/g /tmp/.h";
    // One instance: a call that comes during the clean-up does not start another.
    await daemon.deploy({ name: "clean", handler, max_instances: 1 });
    const first = await daemon.invoke("clean");
    const second = await daemon.invoke("clean");
    expect(second).toMatchObject({ instance_nonce: first.instance_nonce, stdout: first.stdout });
    await daemon.deploy({ name: "keeps", handler, max_instances: 1, cleanup_on_exit: false });
    await daemon.invoke("keeps");
    expect((await daemon.invoke("keeps")).stdout).toContain("g\n");
  });

  it("enforces the memory limit and tells it from a failure of the handler", async () => {
    await daemon.deploy({ name: "hungry", handler: 'python3 -c "x = bytearray(400 * 1024 * 1024); print(len(x))"' });
    const record = await daemon.invoke("hungry");
    expect(record).toMatchObject({ status: "failed", error_message: "killed: out of memory (limit 256 MiB)" });
    await daemon.deploy({
      name: "fed",
      memory_limit_mb: 600,
      handler: 'python3 -c "x = bytearray(400 * 1024 * 1024); print(len(x))"',
    });
    expect(await daemon.invoke("fed")).toMatchObject({ status: "success", stdout: "419430400\n" });
  });

  it("does not blame memory for a later failure when a handler survived that its child was killed for it", async () => {
    const handler = 'read -r what; case $what in grow) python3 -c "bytearray(400 << 20)"; exit 0;; *) exit 1;; esac';
    await daemon.deploy({ name: "survivor", handler, max_instances: 1 });
    const first = await daemon.invoke("survivor", { payload: "grow\n" });
    expect(first).toMatchObject({ status: "success", exit_code: 0 });
    expect(first.stderr).toContain("Killed");
    expect(await daemon.invoke("survivor", { payload: "fail\n" })).toMatchObject({
      instance_nonce: first.instance_nonce,
      error_message: "exited with 1",
    });
  });

  it("lists as many records as fit into one answer, and the others on the next page", async () => {
    const { id } = await daemon.deploy({
      name: "wordy",
      handler: "head -c 1048576 /dev/zero | tr '\\0' a; head -c 1048576 /dev/zero | tr '\\0' b >&2",
    });
    const records = [];
    for (let i = 0; i < 9; i++) records.unshift((await daemon.invoke("wordy")).invocation_id);
    const { body } = await daemon.call("GET", `/api/functions/${id}/invocations`);
    const listed = body.invocations.map(({ invocation_id }: { invocation_id: string }) => invocation_id);
    expect(listed).toEqual(records.slice(0, 7));
    const rest = await daemon.call("GET", `/api/functions/${id}/invocations?cursor=${body.next_cursor}`);
    expect(rest.body).toMatchObject({ invocations: records.slice(7).map((invocation_id) => ({ invocation_id })) });
    expect(rest.body.next_cursor).toBe(null);
    expect((await daemon.call("DELETE", `/api/functions/${id}`)).status).toBe(200);
  });

  it("serves calls that come while the function is being deployed", async () => {
    const { body } = await daemon.call("POST", "/api/functions", { name: "early", handler: "cat", min_instances: 1 });
    const deployed = daemon.call("POST", `/api/functions/${body.id}/deploy`);
    // As soon as the state shows, and for as long as the deploy takes.
    const answers = new Set<string>();
    let isDeployed = false;
    const done = deployed.finally(() => {
      isDeployed = true;
    });
    while (!isDeployed) {
      const { status, body: answer } = await daemon.call("POST", "/api/functions/invoke/early", {});
      answers.add(`${status} ${answer.status ?? answer.details.state}`);
    }
    expect((await done).body.state).toBe("active");
    for (const answer of answers) expect(["409 pending", "200 success"]).toContain(answer);
    expect(await daemon.invoke("early", { payload: "x" })).toMatchObject({ stdout: "x" });
  });

  it("runs in the working directory", async () => {
    await daemon.deploy({ name: "placed", handler: "pwd", working_directory: "/usr/share" });
    expect((await daemon.invoke("placed")).stdout).toBe("/usr/share\n");
  });

  it("serves more calls at once than there are instances, each in an instance of its own time", async () => {
    await daemon.deploy({ name: "burst", handler: "sleep 0.05; cat", max_instances: 5 });
    const records = await Promise.all([...Array(40).keys()].map((n) => daemon.invoke("burst", { payload: String(n) })));
    expect(records.map(({ stdout }) => stdout)).toEqual([...Array(40).keys()].map(String));
    expect(new Set(records.map(({ instance_nonce }) => instance_nonce)).size).toBeLessThanOrEqual(5);
  });
});

describe("pause and resume", () => {
  it("scales to zero, refuses calls meanwhile, and serves again after resume", async () => {
    const { id } = await daemon.deploy({ name: "rests", handler: "cat", min_instances: 1 });
    const paused = await daemon.call("POST", `/api/functions/${id}/pause`);
    expect(paused).toMatchObject({ status: 200, body: { success: true } });
    expect((await daemon.call("GET", `/api/functions/${id}/pool`)).body.total_count).toBe(0);
    const refused = await daemon.call("POST", "/api/functions/invoke/rests", {});
    expect(refused).toMatchObject({ status: 409, body: { error_code: "WRONG_STATE", details: { state: "paused" } } });
    const resumed = await daemon.call("POST", `/api/functions/${id}/resume`);
    expect(resumed).toMatchObject({ status: 200, body: { state: "active" } });
    expect(await daemon.invoke("rests", { payload: "again" })).toMatchObject({ stdout: "again" });
  });
});

describe("verbs at the same time", () => {
  it("let a function that is resumed while its pause still waits for a call serve at once", async () => {
    const { id } = await daemon.deploy({ name: "turns", handler: "n=$(cat); [ $n != 1 ] || sleep 3; printf $n" });
    const running = daemon.invoke("turns", { payload: "1" });
    const busy = async () => (await daemon.call("GET", `/api/functions/${id}/pool`)).body.busy_count === 1;
    await eventually("it runs", busy);
    const pausing = daemon.call("POST", `/api/functions/${id}/pause`);
    await eventually(
      "it is paused",
      async () => (await daemon.call("GET", `/api/functions/${id}`)).body.state === "paused",
    );
    expect((await daemon.call("POST", `/api/functions/${id}/resume`)).body.state).toBe("active");
    expect(await daemon.invoke("turns", { payload: "2" })).toMatchObject({ status: "success", stdout: "2" });
    expect(await running).toMatchObject({ status: "success", stdout: "1" });
    expect((await pausing).status).toBe(200);
    expect(await daemon.invoke("turns", { payload: "3" })).toMatchObject({ stdout: "3" });
  });

  it("leave a function that many deploy, pause and invoke in a state that is true", async () => {
    const { id } = await daemon.deploy({ name: "contested", handler: "cat" });
    const verbs = ["deploy", "pause", "resume", "deploy", "pause", "resume"];
    const moves = verbs.map((verb) => daemon.call("POST", `/api/functions/${id}/${verb}`));
    const calls = [1, 2, 3, 4].map(() => daemon.call("POST", "/api/functions/invoke/contested", {}));
    for (const { status } of await Promise.all([...moves, ...calls])) expect([200, 409]).toContain(status);
    expect((await daemon.call("POST", `/api/functions/${id}/deploy`)).body.state).toBe("active");
    expect(await daemon.invoke("contested", { payload: "x" })).toMatchObject({ status: "success", stdout: "x" });
  });
});

describe("DELETE /api/functions/<id>", () => {
  it("removes the function with its records and instances, and frees the name", async () => {
    const { id } = await daemon.deploy({ name: "goes", handler: "cat", min_instances: 1 });
    const { invocation_id } = await daemon.invoke("goes");
    expect(await daemon.call("DELETE", `/api/functions/${id}`)).toMatchObject({ status: 200, body: { success: true } });
    for (const path of [
      `/api/functions/${id}`,
      `/api/functions/${id}/invocations/${invocation_id}`,
      `/api/functions/${id}/pool`,
    ]) {
      expect((await daemon.call("GET", path)).status).toBe(404);
    }
    expect((await daemon.call("POST", "/api/functions/invoke/goes", {})).status).toBe(404);
    expect((await daemon.call("POST", "/api/functions", { name: "goes", handler: "true" })).status).toBe(201);
  });

  it("lets a running call finish", async () => {
    const { id } = await daemon.deploy({ name: "lingers", handler: "sleep 3; echo finished" });
    const running = daemon.invoke("lingers");
    await eventually(
      "it runs",
      async () => (await daemon.call("GET", `/api/functions/${id}/pool`)).body.busy_count === 1,
    );
    const deleted = daemon.call("DELETE", `/api/functions/${id}`);
    expect(await running).toMatchObject({ status: "success", stdout: "finished\n" });
    expect((await deleted).status).toBe(200);
  });
});

describe("the pool and the daemon's own routes", () => {
  it("shows global pool stats", async () => {
    const { status, body } = await daemon.call("GET", "/api/functions/pool/stats");
    expect(status).toBe(200);
    for (const key of [
      "total_count",
      "warming_count",
      "ready_count",
      "busy_count",
      "recycling_count",
      "terminating_count",
    ]) {
      expect(Number.isInteger(body[key])).toBe(true);
    }
  });

  it("is alive without a credential, and tells about itself with one", async () => {
    const health = await fetch(`${daemon.url}/health`);
    expect([health.status, await health.json()]).toMatchObject([200, { status: "ok" }]);
    const info = await daemon.call("GET", "/api/system/info");
    expect(info.body).toMatchObject({ version: expect.any(String), runtime: expect.stringMatching(/^linux\//) });
    expect(info.body.limits.memory_limit_mb_min).toBe("256");
    expect((await daemon.call("GET", "/api/functions/health")).body).toMatchObject({ status: "ok" });
  });

  it("echoes a request id and makes one where none came", async () => {
    const echoed = await daemon.call("GET", "/api/functions/nope", undefined, { "x-request-id": "abc-1" });
    expect(echoed.headers.get("x-request-id")).toBe("abc-1");
    expect(echoed.body.request_id).toBe("abc-1");
    expect((await daemon.call("GET", "/health")).headers.get("x-request-id")).toMatch(/\S{8,}/);
  });
});
