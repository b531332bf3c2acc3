/** What a running daemon tells of itself: its metrics, the lines of its log, and the traces that it takes part in. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { attributesOf, Collector, type Span } from "../support/collector.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { type Metrics, scrape } from "../support/metrics.ts";

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID = "00f067aa0ba902b7";
const TRACEPARENT = `00-${TRACE_ID}-${PARENT_ID}-01`;
const INVOKE_ROUTE = "/api/functions/invoke/:name";

async function makeTenant(daemon: Daemon, name: string, key_fields: object = {}) {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name })).body;
  const keys = `/api/tenants/${tenant_id}/api-keys`;
  const made = await daemon.call("POST", keys, { name: "first", ...key_fields });
  return { tenant_id, key: made.body.key };
}

/** The request lines of the log so far, each a JSON object. */
function requestLines(daemon: Daemon): Record<string, unknown>[] {
  const lines = daemon.output.split("\n").filter((line) => line.startsWith("{") && line.endsWith("}"));
  return lines.map((line) => JSON.parse(line)).filter(({ message }) => message === "request");
}

const lineOf = (daemon: Daemon, request_id: string) =>
  eventually(`the line of ${request_id}`, () => requestLines(daemon).find((line) => line.request_id === request_id));

describe("the metrics of a daemon", () => {
  const daemon = new Daemon();
  beforeAll(() => daemon.start({ HEARTH_CELLS: "2" }));
  afterAll(() => daemon.dispose());

  it("move by exactly what was done", async () => {
    await daemon.deploy({ name: "counted", handler: "cat" });
    await daemon.deploy({ name: "broken", handler: "exit 3" });
    const before = await scrape(daemon);
    expect((await daemon.invoke("counted", { payload: "1" })).cold_start).toBe(true);
    for (const payload of ["2", "3"]) await daemon.invoke("counted", { payload });
    expect((await daemon.invoke("broken")).status).toBe("failed");
    const after = await scrape(daemon);
    const moved = (name: string, labels: Readonly<Record<string, string>> = {}) =>
      after.of(name, labels) - before.of(name, labels);
    const calls = "hearth_invocation_duration_seconds_count";
    expect(moved(calls, { start: "cold", status: "success" })).toBe(1);
    expect(moved(calls, { start: "warm", status: "success" })).toBe(2);
    expect(moved(calls, { start: "cold", status: "failed" })).toBe(1);
    expect(moved(calls, { start: "warm", status: "failed" })).toBe(0);
    expect(moved(calls, { start: "cold", status: "timeout" })).toBe(0);
    expect(moved("hearth_queue_wait_seconds_count")).toBe(4);
    const route = { method: "POST", route: INVOKE_ROUTE, status: "2xx" };
    expect(moved("hearth_http_request_duration_seconds_count", route)).toBe(4);
    expect(moved("hearth_http_request_duration_seconds_count", { ...route, status: "4xx" })).toBe(0);
    expect(moved("hearth_cell_hits_total") + moved("hearth_cell_misses_total")).toBe(2);
    expect(moved("hearth_store_batch_items_sum")).toBeGreaterThanOrEqual(4);
    expect(moved("hearth_store_commit_duration_seconds_sum")).toBeGreaterThan(0);
    const counted = { tenant_id: "default", function: "counted" };
    expect(moved("hearth_function_invocations_total", { ...counted, status: "success" })).toBe(3);
    expect(moved("hearth_function_cold_starts_total", counted)).toBe(1);
    expect(moved("hearth_function_duration_seconds_total", counted)).toBeGreaterThan(0);
    expect(moved("hearth_function_invocations_total", { ...counted, function: "broken", status: "failed" })).toBe(1);
    expect(after.of("hearth_calls_queued")).toBe(0);
  });

  it("show the pool as it stands, and the process", async () => {
    await daemon.deploy({ name: "waiting", handler: "sleep 30", timeout_seconds: 5 });
    const call = daemon.call("POST", "/api/functions/invoke/waiting", {});
    const now = await eventually("the call runs", async () => {
      const one = await scrape(daemon);
      return one.of("hearth_calls_running") === 1 ? one : null;
    });
    expect(now.of("hearth_pool_instances", { state: "busy" })).toBe(1);
    for (const name of [
      "hearth_process_resident_memory_bytes",
      "hearth_process_open_fds",
      "hearth_store_wal_bytes",
      "hearth_socket_memory_max_bytes",
    ]) {
      expect(now.of(name), name).toBeGreaterThan(0);
    }
    expect(now.of("hearth_process_cpu_seconds_total", { mode: "user" })).toBeGreaterThan(0);
    expect(now.of("hearth_event_loop_lag_seconds", { quantile: "1" })).toBeGreaterThanOrEqual(0);
    expect(now.of("hearth_log_lines_dropped_total")).toBe(0);
    expect((await call).body.status).toBe("timeout");
    const calls = "hearth_invocation_duration_seconds_count";
    expect((await scrape(daemon)).of(calls, { start: "cold", status: "timeout" })).toBe(1);
  });

  it("show containers by state, the storage pool, and tracked connections of the machine", async () => {
    const count = (metrics: Metrics, state: string) => metrics.of("hearth_containers", { state });
    const before = await scrape(daemon);
    expect(["created", "starting", "running", "exited", "error"].map((state) => count(before, state))).toEqual([
      0, 0, 0, 0, 0,
    ]);
    const script = `dd if=/dev/urandom of=/data bs=1M count=32 && sync && sleep 600`;
    const made = await daemon.call("POST", "/api/containers", { name: "seen", command: ["sh", "-c", script] });
    expect(made.status, JSON.stringify(made.body)).toBe(201);
    expect(count(await scrape(daemon), "running")).toBe(1);
    const used = (metrics: Metrics) => metrics.of("hearth_storage_used_bytes");
    await eventually(
      "the pool holds what was written",
      async () => used(await scrape(daemon)) >= used(before) + 32 * 1024 * 1024,
    );
    const { container_id } = made.body;
    expect((await daemon.call("POST", `/api/containers/${container_id}/kill`)).status).toBe(200);
    const now = await eventually("the container has exited", async () => {
      const one = await scrape(daemon);
      return count(one, "exited") === 1 ? one : null;
    });
    expect(count(now, "running")).toBe(0);
    expect(now.of("hearth_storage_size_bytes")).toBeGreaterThan(used(now));
    expect(now.of("hearth_storage_free_bytes")).toBeGreaterThan(0);
    expect(now.of("hearth_image_disk_used_bytes")).toBeGreaterThan(0);
    expect(now.of("hearth_image_disk_size_bytes")).toBeGreaterThan(now.of("hearth_image_disk_used_bytes"));
    expect([now.of("hearth_images"), now.of("hearth_images_size_bytes")]).toEqual([0, 0]);
    const max = Number(readFileSync("/proc/sys/net/netfilter/nf_conntrack_max", "utf8"));
    expect(now.of("hearth_tracked_connections_max")).toBe(max);
    expect(now.of("hearth_tracked_connections")).toBeGreaterThanOrEqual(0);
    expect(now.of("hearth_connection_packets_refused_total")).toBe(0);
    expect((await daemon.call("DELETE", `/api/containers/${container_id}`)).status).toBe(200);
  });

  it("count refusals by their code, and requests that no route answers under none", async () => {
    const codes = ["UNAUTHORIZED", "NOT_FOUND", "UNPROCESSABLE_ENTITY", "INVALID_JSON", "METHOD_NOT_ALLOWED"] as const;
    const before = await scrape(daemon);
    await fetch(`${daemon.url}/api/functions`, { headers: { "x-api-key": "hk_wrong_key_0123456789" } });
    for (let i = 0; i < 2; i++) await daemon.call("GET", "/api/functions/fn_missing");
    await daemon.call("POST", "/api/functions", { name: "no-handler" });
    await daemon.call("POST", "/api/functions", "{");
    await daemon.call("PATCH", "/health");
    await daemon.call("GET", "/nowhere");
    const after = await scrape(daemon);
    const moved = codes.map(
      (error_code) =>
        after.of("hearth_refusals_total", { error_code }) - before.of("hearth_refusals_total", { error_code }),
    );
    expect(moved).toEqual([1, 3, 1, 1, 1]);
    const unserved = "hearth_http_request_duration_seconds_count";
    expect(after.of(unserved, { method: "GET", route: "none", status: "4xx" })).toBe(1);
    expect(after.of(unserved, { method: "PATCH", route: "none", status: "4xx" })).toBe(1);
  });

  it("show a tenant its own functions, the operator all, and neither one that is deleted", async () => {
    const { tenant_id, key } = await makeTenant(daemon, "watcher");
    const as = (method: string, path: string, body?: unknown) => daemon.call(method, path, body, { "x-api-key": key });
    const { id } = (await as("POST", "/api/functions", { name: "mine", handler: "cat" })).body;
    await as("POST", `/api/functions/${id}/deploy`);
    await as("POST", "/api/functions/invoke/mine", { payload: "x" });
    await daemon.deploy({ name: "theirs", handler: "cat" });
    await daemon.invoke("theirs");
    const seen = async (key?: string) => (await scrape(daemon, key)).functions();
    expect(await seen(key)).toEqual([`${tenant_id}/mine`]);
    expect(await seen()).toEqual(expect.arrayContaining([`${tenant_id}/mine`, "default/theirs"]));
    await as("DELETE", `/api/functions/${id}`);
    expect(await seen(key)).toEqual([]);
    expect(await seen()).not.toContain(`${tenant_id}/mine`);
  });

  it("need a key that may read", async () => {
    const { key } = await makeTenant(daemon, "caller-only", { scopes: ["invoke"] });
    const status = async (headers: Record<string, string>) =>
      (await fetch(`${daemon.url}/metrics`, { headers })).status;
    expect(await status({})).toBe(401);
    expect(await status({ "x-api-key": key })).toBe(403);
  });
});

describe("the log of a daemon", () => {
  const daemon = new Daemon();
  beforeAll(() => daemon.start({ HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "debug" }));
  afterAll(() => daemon.dispose());

  it("has one line for a call, with all that one asks of it", async () => {
    const record = await daemon.deploy({ name: "logged", handler: "exit 4" });
    const answer = await daemon.call(
      "POST",
      "/api/functions/invoke/logged?limit=1",
      {},
      {
        "x-request-id": "call-1",
        traceparent: TRACEPARENT,
      },
    );
    expect(await lineOf(daemon, "call-1")).toEqual({
      level: "info",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      message: "request",
      request_id: "call-1",
      method: "POST",
      route: INVOKE_ROUTE,
      status: 200,
      tenant_id: "default",
      key_id: "bootstrap",
      function: "logged",
      version: record.version,
      invocation_id: answer.body.invocation_id,
      cold: true,
      outcome: "failed",
      ms: expect.any(Number),
      trace_id: TRACE_ID,
    });
    expect(requestLines(daemon).filter(({ request_id }) => request_id === "call-1")).toHaveLength(1);
  });

  it("has a line for a refusal with its code, also without a route or a caller", async () => {
    await daemon.call("POST", "/api/functions/invoke/logged", { timeout_seconds: 0 }, { "x-request-id": "bad-1" });
    expect(await lineOf(daemon, "bad-1")).toMatchObject({
      status: 400,
      error_code: "INVALID_ARGUMENT",
      key_id: "bootstrap",
    });
    await fetch(`${daemon.url}/nowhere`, { headers: { "x-request-id": "bad-2" } });
    const line = await lineOf(daemon, "bad-2");
    expect(line).toMatchObject({ level: "info", method: "GET", status: 404, error_code: "NOT_FOUND" });
    expect(Object.keys(line)).not.toEqual(expect.arrayContaining(["route"]));
    expect(Object.keys(line)).not.toEqual(expect.arrayContaining(["tenant_id"]));
  });

  it("has requests for liveness at debug alone", async () => {
    await fetch(`${daemon.url}/health`, { headers: { "x-request-id": "alive-1" } });
    expect(await lineOf(daemon, "alive-1")).toMatchObject({ level: "debug", route: "/health", status: 200 });
  });

  it("has successful reads that a console repeats at debug, their refusals and all changes at info", async () => {
    const send = (method: string, path: string, body: unknown, request_id: string, poll = { "x-hearth-poll": "1" }) =>
      daemon.call(method, path, body, { ...poll, "x-request-id": request_id });
    await send("GET", "/api/functions/pools", undefined, "poll-read");
    await send("GET", "/api/functions/fn_none", undefined, "poll-refused");
    await send("POST", "/api/functions", { name: "polled", handler: "cat" }, "poll-change");
    const levels = async (ids: string[]) => Promise.all(ids.map(async (id) => (await lineOf(daemon, id)).level));
    expect(await levels(["poll-read", "poll-refused", "poll-change"])).toEqual(["debug", "info", "info"]);
  });

  it("never holds a key, a path, a query, a payload, an environment value or an output", async () => {
    const secret = (where: string) => `s3cret-${where}-0123456789`;
    const { key } = await makeTenant(daemon, "secretive");
    const id = (
      await daemon.deploy({
        name: "talker",
        handler: `cat; echo $WORD $CALL_WORD; echo ${secret("error-output")} >&2; exit 1`,
        environment: { WORD: secret("environment") },
      })
    ).id;
    const headers = { tracestate: `a=${secret("state")}`, traceparent: TRACEPARENT, "user-agent": secret("agent") };
    const requests = [
      [
        "POST",
        "/api/functions/invoke/talker",
        { payload: secret("payload"), environment: { CALL_WORD: secret("call") } },
      ],
      ["POST", `/api/functions/${id}/invoke?word=${secret("query")}`, { payload: secret("payload") }],
      ["GET", `/api/functions?limit=${secret("limit")}`, undefined],
      ["GET", `/api/functions/by-name/${secret("name")}`, undefined],
      ["POST", `/api/functions/invoke/${secret("function")}`, {}],
      ["GET", `/${secret("path")}`, undefined],
      ["POST", "/api/functions", `{"name": "${secret("broken-json")}`],
      ["POST", "/api/functions", { name: secret("missing-handler") }],
      ["PUT", `/api/functions/${id}`, { environment: { WORD: secret("put") }, working_directory: 7 }],
      ["DELETE", `/api/functions/${secret("delete")}`, undefined],
    ] as const;
    for (const [method, path, body] of requests) await daemon.call(method, path, body, headers);
    await daemon.call("GET", "/api/functions", undefined, { "x-api-key": key });
    await daemon.call("GET", "/api/functions", undefined, { "x-api-key": secret("wrong-key") });
    await daemon.call("POST", "/api/auth/token", undefined, { "x-api-key": key });
    await daemon.call("GET", "/health", undefined, { "x-request-id": "last" });
    await lineOf(daemon, "last");
    expect(requestLines(daemon).length).toBeGreaterThan(requests.length);
    expect(daemon.output).not.toContain("s3cret-");
    expect(daemon.output).not.toContain(key);
    expect(daemon.output).not.toContain(KEY);
  });

  it("is complete when the daemon has ended", async () => {
    await fetch(`${daemon.url}/health`, { headers: { "x-request-id": "before-the-end" } });
    expect(await daemon.stop()).toBe(0);
    expect(requestLines(daemon).map(({ request_id }) => request_id)).toContain("before-the-end");
  });
});

describe("the trace of a call without a collector", () => {
  const daemon = new Daemon();
  beforeAll(() => daemon.start({ HEARTH_CELLS: "2" }));
  afterAll(() => daemon.dispose());
  const shown = async (headers: Record<string, string>) =>
    (await daemon.call("POST", "/api/functions/invoke/tracer", {}, headers)).body.stdout;

  it("goes on in the handler under the call's own span, with the caller's state", async () => {
    await daemon.deploy({ name: "tracer", handler: "echo $TRACEPARENT $TRACESTATE" });
    const stdout = await shown({ traceparent: TRACEPARENT, tracestate: "vendor=a,other=b" });
    expect(stdout).toMatch(new RegExp(`^00-${TRACE_ID}-(?!${PARENT_ID})[0-9a-f]{16}-01 vendor=a,other=b\n$`));
  });

  it("begins there where none was sent or it was not valid, and is not sampled", async () => {
    for (const headers of [{}, { traceparent: TRACEPARENT.toUpperCase(), tracestate: "vendor=a" }]) {
      expect(await shown(headers as Record<string, string>)).toMatch(/^00-(?!4bf9)[0-9a-f]{32}-[0-9a-f]{16}-00\s+$/);
    }
  });

  it("may be set by the call itself, like any variable", async () => {
    const answer = await daemon.call("POST", "/api/functions/invoke/tracer", { environment: { TRACEPARENT: "own" } });
    expect(answer.body.stdout.trim()).toBe("own");
  });
});

describe("a daemon with a collector", () => {
  const daemon = new Daemon();
  const held: { collector: Collector | null } = { collector: null };
  const collector = (): Collector => {
    if (held.collector === null) throw new Error("no collector");
    return held.collector;
  };
  beforeAll(async () => {
    held.collector = await Collector.start();
    await daemon.start({ HEARTH_CELLS: "2", HEARTH_OTLP_URL: `${collector().url}/` });
  });
  afterAll(async () => {
    await daemon.dispose();
    collector().close();
  });

  const spansOf = (trace_id: string): Span[] => collector().spans.filter(({ traceId }) => traceId === trace_id);
  const named = (spans: readonly Span[], name: string): Span => {
    const found = spans.filter((span) => span.name === name);
    expect(found, name).toHaveLength(1);
    return found[0] as Span;
  };

  it("sends the spans of a call: its phases under the request, the request under the caller's", async () => {
    await daemon.deploy({ name: "spanned", handler: "cat; exit 1" });
    const headers = { traceparent: TRACEPARENT, tracestate: "vendor=a", "x-request-id": "spanned-1" };
    const answer = await daemon.call("POST", "/api/functions/invoke/spanned", { payload: "x" }, headers);
    const request_name = `POST ${INVOKE_ROUTE}`;
    const spans = await eventually("the spans arrive", () => {
      const found = spansOf(TRACE_ID);
      return found.some(({ name }) => name === request_name) && found.some(({ name }) => name === "commit")
        ? found
        : null;
    });
    const request = named(spans, request_name);
    expect(request).toMatchObject({ parentSpanId: PARENT_ID, kind: 2, traceState: "vendor=a", status: { code: 0 } });
    expect(attributesOf(request)).toMatchObject({
      "http.request.method": "POST",
      "http.route": INVOKE_ROUTE,
      "http.response.status_code": 200,
      "hearth.request_id": "spanned-1",
      "hearth.tenant_id": "default",
      "faas.name": "spanned",
      "faas.version": "1",
      "faas.coldstart": true,
      "faas.invocation_id": answer.body.invocation_id,
      "hearth.invocation.status": "failed",
    });
    const phases = ["queue", "cell", "handler", "commit"].map((name) => named(spans, name));
    expect(phases.map(({ parentSpanId }) => parentSpanId)).toEqual(phases.map(() => request.spanId));
    expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length);
    expect(named(spans, "handler")).toMatchObject({ status: { code: 2 } });
    expect(attributesOf(named(spans, "handler"))).toMatchObject({ "faas.name": "spanned", "process.exit.code": 1 });
    const times = ({ startTimeUnixNano, endTimeUnixNano }: Span) =>
      [BigInt(startTimeUnixNano), BigInt(endTimeUnixNano)] as const;
    const [begun, ended] = times(request);
    for (const phase of phases) {
      const [from, to] = times(phase);
      expect(from >= begun && from <= to && to <= ended, phase.name).toBe(true);
    }
  });

  it("puts a start that the call waited for under its wait", async () => {
    const { id } = await daemon.deploy({ name: "burst", handler: "sleep 0.2", max_instances: 6 });
    const trace_ids = Array.from({ length: 6 }, (_, i) => `${TRACE_ID.slice(0, -1)}${i}`);
    const call = (trace_id: string) =>
      daemon.call("POST", `/api/functions/${id}/invoke`, {}, { traceparent: `00-${trace_id}-${PARENT_ID}-01` });
    const answers = await Promise.all(trace_ids.map(call));
    const started = answers.findIndex(({ body }) => body.timings.start !== undefined);
    expect(started).toBeGreaterThanOrEqual(0);
    const trace_id = trace_ids[started] ?? "";
    const spans = await eventually("the spans arrive", () => {
      const found = spansOf(trace_id);
      return found.some(({ name }) => name === "commit") && found.some(({ kind }) => kind === 2) ? found : null;
    });
    const queue = named(spans, "queue");
    for (const name of ["network", "rootfs", "start"]) expect(named(spans, name).parentSpanId, name).toBe(queue.spanId);
    expect(named(spans, "start").endTimeUnixNano).toBe(queue.endTimeUnixNano);
  });

  it("goes on with the trace in calls that a handler makes", async () => {
    const trace_id = "a".repeat(32);
    await daemon.deploy({ name: "leaf", handler: "echo leaf" });
    await daemon.deploy({
      name: "branch",
      api_access: true,
      handler: `curl -s -H "X-Api-Key: $HEARTH_KEY" -H "traceparent: $TRACEPARENT" "$HEARTH_URL/api/functions/invoke/leaf" -d '{}'`,
    });
    const headers = { traceparent: `00-${trace_id}-${PARENT_ID}-01` };
    const answer = await daemon.call("POST", "/api/functions/invoke/branch", {}, headers);
    expect(answer.body.stdout).toContain("leaf");
    const requests = await eventually("both requests arrive", () => {
      const found = spansOf(trace_id).filter(({ kind }) => kind === 2);
      return found.length === 2 ? found : null;
    });
    const outer = requests.find(({ parentSpanId }) => parentSpanId === PARENT_ID);
    const inner = requests.find(({ parentSpanId }) => parentSpanId !== PARENT_ID);
    expect(inner?.parentSpanId).toBe(outer?.spanId);
  });

  it("sends nothing of a trace that its beginner does not sample", async () => {
    const [quiet, loud] = ["b".repeat(32), "c".repeat(32)];
    const ask = (trace_id: string, flags: string) =>
      daemon.call("GET", "/api/functions", undefined, { traceparent: `00-${trace_id}-${PARENT_ID}-${flags}` });
    await ask(quiet, "00");
    await ask(loud, "01");
    await eventually("the later one arrives", () => spansOf(loud).length > 0);
    expect(spansOf(quiet)).toEqual([]);
  });

  it("sends traces alone, the last of them when it ends", async () => {
    const trace_id = "d".repeat(32);
    await daemon.call("GET", "/api/functions", undefined, { traceparent: `00-${trace_id}-${PARENT_ID}-01` });
    expect(await daemon.stop()).toBe(0);
    expect(spansOf(trace_id)).toHaveLength(1);
    expect([...collector().paths]).toEqual(["/v1/traces"]);
  });
});

describe("a collector that is not there", () => {
  const daemon = new Daemon();
  afterAll(() => daemon.dispose());

  it("costs spans and nothing else, and is named in the log once", async () => {
    const gone = await Collector.start();
    const { url } = gone;
    gone.close();
    await daemon.start({ HEARTH_CELLS: "1", HEARTH_OTLP_URL: url });
    await daemon.deploy({ name: "alone", handler: "cat" });
    for (let i = 0; i < 20; i++) expect((await daemon.invoke("alone", { payload: "x" })).stdout).toBe("x");
    const complaints = () => daemon.output.split("\n").filter((line) => line.includes("the collector refuses exports"));
    await eventually("it is named", () => complaints().length > 0);
    for (let i = 0; i < 20; i++) await daemon.invoke("alone", { payload: "x" });
    expect(await daemon.stop()).toBe(0);
    expect(complaints()).toHaveLength(1);
  });
});
