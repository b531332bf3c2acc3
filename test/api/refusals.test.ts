/** Bad input: each is refused with its status and code, and changes nothing. */
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ERRORS, type ErrorCode } from "../../src/base/errors.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
let id = "";

/** All that a refused request could have changed. */
async function state(): Promise<unknown> {
  const { body } = await daemon.call("GET", "/api/functions?limit=1000");
  const records = await daemon.call("GET", `/api/functions/${id}/invocations`);
  const containers = await daemon.call("GET", "/api/containers");
  const volumes = await daemon.call("GET", "/api/volumes");
  return {
    functions: body.functions,
    invocations: records.body.invocations,
    containers: containers.body.containers,
    volumes: volumes.body.volumes,
  };
}

beforeAll(async () => {
  await daemon.start({ HEARTH_QUEUE_MAX: "2" });
  ({ id } = await daemon.deploy({ name: "there", handler: "cat" }));
});
afterAll(() => daemon.dispose());

async function refused(method: string, path: string, body: unknown, status: number, code: ErrorCode): Promise<void> {
  const before = await state();
  const answer = await daemon.call(method, path, body);
  expect([answer.status, answer.body.error_code, answer.body.error]).toEqual([status, code, expect.any(String)]);
  expect(answer.body).toEqual({
    error: expect.any(String),
    error_code: code,
    request_id: answer.headers.get("x-request-id"),
    details: answer.body.details,
    hint: answer.body.hint,
    retry_after: answer.body.retry_after,
    reason_code: code,
    reason_message: answer.body.error,
    retryable: ERRORS[code].retryable,
  });
  // For programs: no sentence is among them.
  for (const value of answer.body.details?.expected ?? []) expect(value).not.toMatch(/\b(must|at|expected)\b/);
  expect(await state()).toEqual(before);
}

const good = { name: "new", handler: "true" };
const CREATE: readonly [string, unknown, number, ErrorCode][] = [
  ["memory below 256 MiB", { ...good, memory_limit_mb: 255 }, 400, "INVALID_ARGUMENT"],
  ["a fraction for an integer", { ...good, memory_limit_mb: 256.5 }, 400, "INVALID_ARGUMENT"],
  ["a fraction of a second", { ...good, timeout_seconds: 1.5 }, 400, "INVALID_ARGUMENT"],
  ["min above max", { ...good, min_instances: 3, max_instances: 2 }, 400, "INVALID_ARGUMENT"],
  ["a negative count", { ...good, min_instances: -1 }, 400, "INVALID_ARGUMENT"],
  ["an unknown runtime", { ...good, runtime: "cobol" }, 400, "INVALID_ARGUMENT"],
  ["an empty handler", { ...good, handler: "" }, 400, "INVALID_ARGUMENT"],
  ["a blank handler", { ...good, handler: " \n" }, 400, "INVALID_ARGUMENT"],
  ["a handler of more bytes than characters", { ...good, handler: "é".repeat(40_000) }, 400, "INVALID_ARGUMENT"],
  ["a handler with NUL", { ...good, handler: "a\0b" }, 400, "INVALID_ARGUMENT"],
  ["a name with a slash", { ...good, name: "a/b" }, 400, "INVALID_ARGUMENT"],
  ["a name with a control character", { ...good, name: "a\nb" }, 400, "INVALID_ARGUMENT"],
  ["a name with half a surrogate pair", { ...good, name: "a\ud800" }, 400, "INVALID_ARGUMENT"],
  ["a variable with half a surrogate pair", { ...good, environment: { A: "\udc00" } }, 400, "INVALID_ARGUMENT"],
  ["an empty name", { ...good, name: "" }, 400, "INVALID_ARGUMENT"],
  ["a dot for a name", { ...good, name: ".." }, 400, "INVALID_ARGUMENT"],
  ["a name that is too long", { ...good, name: "x".repeat(129) }, 400, "INVALID_ARGUMENT"],
  ["a bad variable name", { ...good, environment: { "A=B": "c" } }, 400, "INVALID_ARGUMENT"],
  ["a relative working directory", { ...good, working_directory: "tmp" }, 400, "INVALID_ARGUMENT"],
  ["a working directory that does not exist", { ...good, working_directory: "/no/such" }, 400, "INVALID_ARGUMENT"],
  [
    "a working directory longer than any path",
    { ...good, working_directory: `/${"é".repeat(3_000)}` },
    400,
    "INVALID_ARGUMENT",
  ],
  ["a working directory that is a file", { ...good, working_directory: "/etc/passwd" }, 400, "INVALID_ARGUMENT"],
  ["a script without an interpreter", { ...good, handler: "#!python3\nprint(1)" }, 400, "INVALID_ARGUMENT"],
  ["source code", { ...good, source_code: "print(1)" }, 400, "INVALID_ARGUMENT"],
  ["a cluster", { ...good, cluster_id: "cl_1" }, 400, "INVALID_ARGUMENT"],
  ["no name", { handler: "true" }, 422, "UNPROCESSABLE_ENTITY"],
  ["no handler", { name: "new" }, 422, "UNPROCESSABLE_ENTITY"],
  ["a number for a name", { ...good, name: 7 }, 422, "UNPROCESSABLE_ENTITY"],
  ["text for a number", { ...good, memory_limit_mb: "256" }, 422, "UNPROCESSABLE_ENTITY"],
  ["a list for the environment", { ...good, environment: ["A=1"] }, 422, "UNPROCESSABLE_ENTITY"],
  ["a number as a variable's value", { ...good, environment: { A: 1 } }, 422, "UNPROCESSABLE_ENTITY"],
  ["a list for a body", [good], 422, "UNPROCESSABLE_ENTITY"],
  ["text for a body", '"text"', 422, "UNPROCESSABLE_ENTITY"],
  ["malformed JSON", '{"name": ', 400, "INVALID_JSON"],
  ["a name that is taken", { name: "there", handler: "true" }, 409, "NAME_TAKEN"],
];

describe("POST /api/functions refuses", () => {
  it.each(CREATE)("%s", (_what, body, status, code) => refused("POST", "/api/functions", body, status, code));
});

const box = { name: "box", image: "prod" };
const UNKNOWN: readonly [path: string, body: object, field: string, meant: string][] = [
  ["/api/functions", { ...good, memory_mb: 512 }, "memory_mb", "memory_limit_mb"],
  ["/api/functions", { ...good, enviroment: { A: "1" } }, "enviroment", "environment"],
  ["/api/functions", { ...good, env: { A: "1" } }, "env", "environment"],
  ["/api/containers", { ...box, memory_mb: 512 }, "memory_mb", "memory_limit_mb"],
  ["/api/containers", { ...box, enviroment: { A: "1" } }, "enviroment", "environment"],
  ["/api/containers", { ...box, comand: ["true"] }, "comand", "command"],
  ["/api/containers", { ...box, mounts: ["data:/data"] }, "mounts", "volumes"],
  ["/api/containers", { ...box, ports: [{ containerport: 80 }] }, "ports.0.containerport", "container_port"],
  ["/api/containers/batch", { items: [box, { ...box, comand: ["true"] }] }, "items.1.comand", "command"],
  ["/api/volumes", { name: "v", lables: {} }, "lables", "labels"],
  ["/api/tenants", { name: "t", limits: { function_max: 1 } }, "limits.function_max", "functions_max"],
];

/** What people send who come from other services, and the hint that leads to what is meant. */
const HABITS: readonly [string, unknown, number, string][] = [
  ["/api/functions", { ...good, runtime: "nodejs20.x" }, 400, "send 'nodejs' instead"],
  ["/api/functions", { ...good, runtime: "Python3.12" }, 400, "send 'python3' instead"],
  ["/api/functions", { ...good, runtime: "provided.al2023" }, 400, "send 'custom' instead"],
  ["/api/functions", { ...good, runtime: "typescript" }, 400, "send 'nodejs' instead"],
  [
    "/api/functions",
    { name: "new", runtime: "nodejs", handler: "index.handler" },
    400,
    "send the file with its ending and the export, as in 'index.mjs#handler'",
  ],
  [
    "/api/functions",
    { name: "new", runtime: "python3", handler: "src/app.lambda_handler" },
    400,
    "send the file and the function, as in 'src/app.py:lambda_handler'",
  ],
  [
    "/api/functions",
    { ...good, environment: ["A=1"] },
    422,
    'send an object of names and values, as in {"NAME": "value"}',
  ],
  ["/api/containers", { ...box, command: "sleep 100" }, 422, "send an array of strings"],
  [
    "/api/containers",
    { ...box, environment: ["A=1"] },
    422,
    'send an object of names and values, as in {"NAME": "value"}',
  ],
  [
    "/api/containers",
    { ...box, ports: ["8080:80"] },
    422,
    "send an object with container_port, host_port, host_address, protocol",
  ],
  [
    "/api/containers",
    { ...box, ports: "8080:80" },
    422,
    "send an array of objects with container_port, host_port, host_address, protocol",
  ],
  ["/api/containers", { ...box, restart: "unless-stopped" }, 400, "send 'always' instead"],
  ["/api/containers", { ...box, network: "none" }, 400, "send egress 'off' for a container that opens no connections"],
  [
    "/api/containers",
    { ...box, network: "host" },
    400,
    "publish ports with 'ports': no container has the network of the machine",
  ],
  [
    "/api/containers",
    { ...box, volumes: ["./site:/srv"] },
    400,
    "create a volume by POST /api/volumes, mount it, and copy the folder into it",
  ],
  ["/api/containers", { ...box, gpu_count: 1, gpu_ids: ["all"] }, 400, "send gpu_count without ids for any GPUs"],
];

describe("what other services take is refused with what this one takes, and nothing is made:", () => {
  it.each(HABITS)("POST %s %j", async (path, body, status, hint) => {
    await refused("POST", path, body, status, status === 422 ? "UNPROCESSABLE_ENTITY" : "INVALID_ARGUMENT");
    expect((await daemon.call("POST", path, body)).body.hint).toBe(hint);
  });

  it("a name in the place of an id, with the id", async () => {
    await refused("GET", "/api/functions/there", undefined, 404, "NOT_FOUND");
    await refused("PUT", "/api/functions/there", { handler: "true" }, 404, "NOT_FOUND");
    const hint = `the path takes the function's id: ${id}`;
    expect((await daemon.call("GET", "/api/functions/there")).body.hint).toBe(hint);
    expect((await daemon.call("POST", "/api/functions/there/invoke", {})).body.hint).toBe(hint);
    expect((await daemon.call("GET", "/api/functions/nowhere")).body.hint).toBeNull();
  });

  it("a route of another service, with where the routes are", async () => {
    for (const path of ["/v1.41/containers/json", "/2015-03-31/functions/there/invocations"]) {
      const { status, body } = await daemon.call("GET", path);
      expect([status, body.hint]).toEqual([404, expect.stringContaining("/api/openapi.json")]);
    }
  });
});

describe("a field that the request does not have is refused by its name, and nothing is made:", () => {
  it.each(UNKNOWN)("POST %s %j", async (path, body, field, meant) => {
    await refused("POST", path, body, 422, "UNPROCESSABLE_ENTITY");
    const { body: told } = await daemon.call("POST", path, body);
    expect(told).toMatchObject({
      error: `unknown field '${field}', did you mean '${meant}'?`,
      details: { expected: [meant], received: field.split(".").at(-1) },
      hint: `send '${meant}' instead`,
    });
  });

  it("also of a call, an update, and a request that takes no fields at all", async () => {
    await refused("POST", `/api/functions/${id}/invoke`, { playload: "x" }, 422, "UNPROCESSABLE_ENTITY");
    await refused("PUT", `/api/functions/${id}`, { handler: "true", cpu: 5 }, 422, "UNPROCESSABLE_ENTITY");
    await refused("POST", `/api/functions/${id}/deploy`, { min_instances: 1 }, 422, "UNPROCESSABLE_ENTITY");
    expect((await daemon.call("POST", `/api/functions/${id}/deploy`, {})).status).toBe(200);
  });

  it("is async_mode on a synchronous route, and a cluster on this single node", async () => {
    await refused("POST", "/api/containers", { ...box, async_mode: true }, 400, "INVALID_ARGUMENT");
    await refused("POST", "/api/containers/none/stop", { async_mode: true }, 400, "INVALID_ARGUMENT");
    await refused("POST", "/api/containers/none/kill", { async_mode: true }, 422, "UNPROCESSABLE_ENTITY");
    await refused("PUT", `/api/functions/${id}`, { cluster_id: "cl_1" }, 400, "INVALID_ARGUMENT");
    const nulls = { handler: "cat", cluster_id: null, source_code: null, memory_limit_mb: null, name: null };
    expect(await daemon.call("PUT", `/api/functions/${id}`, nulls)).toMatchObject({
      status: 200,
      body: { cluster_id: null, memory_limit_mb: 256, name: "there" },
    });
  });
});

describe("invoke refuses", () => {
  it("an unknown function, by id and by name", async () => {
    await refused("POST", "/api/functions/fn_0000000000000000/invoke", {}, 404, "NOT_FOUND");
    await refused("POST", "/api/functions/invoke/nobody", {}, 404, "NOT_FOUND");
  });

  it("a payload that is nested too deeply or has millions of values, and an invalid deadline", async () => {
    const deep = `{"payload":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
    await refused("POST", `/api/functions/${id}/invoke`, deep, 400, "INVALID_ARGUMENT");
    const many = `{"payload":[${"{},".repeat(2_700_000)}1]}`;
    await refused("POST", `/api/functions/${id}/invoke`, many, 400, "INVALID_ARGUMENT");
    await refused("POST", `/api/functions/${id}/invoke`, { timeout_seconds: 0 }, 400, "INVALID_ARGUMENT");
    await refused("POST", `/api/functions/${id}/invoke`, { environment: { "": "x" } }, 400, "INVALID_ARGUMENT");
  });

  it("a function that was never deployed", async () => {
    await daemon.call("POST", "/api/functions", { name: "undeployed", handler: "true" });
    await refused("POST", "/api/functions/invoke/undeployed", {}, 409, "WRONG_STATE");
  });

  it("a body of 20 MB, declared or sent in pieces", async () => {
    const before = await state();
    const body = JSON.stringify({ payload: "x".repeat(20_000_000) });
    const declared = await daemon.call("POST", `/api/functions/${id}/invoke`, body).catch(() => null);
    // The daemon answers before it has read all; a client that insists on sending may see the connection close instead.
    if (declared !== null) expect([declared.status, declared.body.error_code]).toEqual([413, "BODY_TOO_LARGE"]);
    const answer = await sendChunked(`/api/functions/${id}/invoke`, 20_000_000);
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    expect(await state()).toEqual(before);
  });

  it("calls beyond a full queue, with the time to wait", async () => {
    await daemon.deploy({ name: "narrow", handler: "sleep 2", max_instances: 1 });
    const calls = [...Array(6).keys()].map(() => daemon.call("POST", "/api/functions/invoke/narrow", {}));
    const answers = await Promise.all(calls);
    const full = answers.filter(({ status }) => status === 429);
    expect(full.length).toBe(3);
    for (const { headers, body } of full) {
      expect(body.error_code).toBe("QUEUE_FULL");
      expect(Number(headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
      expect(body.retry_after).toBe(Number(headers.get("retry-after")));
    }
    expect(answers.filter(({ status }) => status === 200).length).toBe(3);
  });

  it("a call whose deadline passes in the queue", async () => {
    await daemon.deploy({ name: "slow", handler: "sleep 4", max_instances: 1 });
    const first = daemon.call("POST", "/api/functions/invoke/slow", {});
    await eventually("it runs", async () => {
      const { body } = await daemon.call("GET", "/api/functions/pool/stats");
      return body.busy_count >= 1;
    });
    const second = await daemon.call("POST", "/api/functions/invoke/slow", { timeout_seconds: 1 });
    expect(second).toMatchObject({ status: 429, body: { error_code: "QUEUE_TIMEOUT" } });
    expect((await first).body.status).toBe("success");
  });
});

describe("lifecycle verbs refuse", () => {
  it("a pause of what is not active, and any verb on what is not there", async () => {
    const { body } = await daemon.call("POST", "/api/functions", { name: "idle", handler: "true" });
    await refused("POST", `/api/functions/${body.id}/pause`, undefined, 409, "WRONG_STATE");
    for (const verb of ["deploy", "pause", "resume"]) {
      await refused("POST", `/api/functions/fn_nope/${verb}`, undefined, 404, "NOT_FOUND");
    }
    await refused("DELETE", "/api/functions/fn_nope", undefined, 404, "NOT_FOUND");
    await refused("GET", `/api/functions/${id}/invocations/inv_1_zzzz`, undefined, 404, "NOT_FOUND");
  });

  it("a limit that is no number above zero, and clamps one that is too large", async () => {
    for (const limit of ["0", "-1", "x", "1.5"]) {
      await refused("GET", `/api/functions?limit=${limit}`, undefined, 400, "INVALID_ARGUMENT");
    }
    expect((await daemon.call("GET", "/api/functions?limit=999999999")).status).toBe(200);
  });
});

describe("credentials", () => {
  const get = (headers: Record<string, string>) => fetch(`${daemon.url}/api/functions`, { headers });

  it("are needed everywhere but on /health", async () => {
    expect((await get({})).status).toBe(401);
    expect((await get({ "x-api-key": "wrong" })).status).toBe(401);
    expect((await get({ authorization: "Bearer wrong" })).status).toBe(401);
    expect((await get({ authorization: `Basic ${KEY}` })).status).toBe(401);
    expect((await get({ authorization: `Bearer ${KEY}` })).status).toBe(200);
    expect((await get({ "x-api-key": KEY, authorization: `Bearer ${KEY}` })).status).toBe(400);
    expect((await fetch(`${daemon.url}/health`)).status).toBe(200);
  });
});

describe("paths", () => {
  it("that do not exist are 404, and known ones with another method 405", async () => {
    await refused("GET", "/api/nothing", undefined, 404, "NOT_FOUND");
    await refused("PATCH", `/api/functions/${id}`, {}, 405, "METHOD_NOT_ALLOWED");
  });

  it("with a malformed percent encoding are refused", async () => {
    expect((await daemon.call("GET", "/api/functions/by-name/%zz")).status).toBe(400);
  });
});

/** Sends a chunked body by hand until the answer comes, which may be before the end. */
function sendChunked(path: string, bytes: number): Promise<string> {
  const { hostname, port } = new URL(daemon.url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    let answer = "";
    socket.setTimeout(20_000, () => socket.destroy(new Error("no answer")));
    socket.on("data", (chunk) => {
      answer += chunk.toString();
    });
    socket.on("close", () => (answer === "" ? reject(new Error("closed without an answer")) : resolve(answer)));
    socket.on("error", (error) => (answer === "" ? reject(error) : resolve(answer)));
    socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${KEY}\r\ntransfer-encoding: chunked\r\n\r\n`);
    const piece = `10000\r\n${"x".repeat(0x10000)}\r\n`;
    let left = bytes;
    const push = (): void => {
      while (left > 0 && !socket.destroyed && answer === "") {
        left -= 0x10000;
        if (!socket.write(piece)) {
          socket.once("drain", push);
          return;
        }
      }
    };
    push();
  });
}
