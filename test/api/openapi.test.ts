/** The description of the API against a daemon: every example is sent, every refusal that is cheap is provoked. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import type { ApiDocument } from "../../src/docs/openapi-document.ts";
import { type Alpine, startAlpine } from "../support/alpine.ts";
import { routeOf } from "../support/answers.ts";
import { type Described, Document } from "../support/api-document.ts";
import { Daemon } from "../support/daemon.ts";
import { plantOperation } from "../support/planted.ts";
import { SnapshotUser } from "../support/snapshots.ts";

const daemon = new Daemon();
const found: { document: Document | null; alpine: Alpine | null } = { document: null, alpine: null };

beforeAll(async () => {
  found.alpine = await startAlpine();
  await daemon.start({ HEARTH_CELLS: "2", HEARTH_USERS: "on", ...found.alpine.settings });
  found.document = new Document((await daemon.call("GET", "/api/openapi.json")).body as ApiDocument);
});
afterAll(async () => {
  await daemon.dispose();
  found.alpine?.registry.close();
});

const document = (): Document => {
  if (found.document === null) throw new Error("no description");
  return found.document;
};

/** Operations that need what others made, in an order that works. All others are sent before these. */
const ORDER = [
  "createFunction",
  "getFunction",
  "findFunction",
  "deployFunction",
  "invokeFunctionByName",
  "invokeFunction",
  "listFunctions",
  "listInvocations",
  "getInvocation",
  "functionPool",
  "functionPools",
  "updateFunction",
  "listVersions",
  "getVersion",
  "diffVersions",
  "deployFunctions",
  "rollbackFunction",
  "pauseFunction",
  "resumeFunction",
  "createTenant",
  "listTenants",
  "getTenant",
  "updateTenant",
  "createTenantKey",
  "listTenantKeys",
  "revokeTenantKey",
  "deleteTenant",
  "registerUser",
  "loginUser",
  "refreshLogin",
  "listUsers",
  "resetPassword",
  "createKey",
  "listKeys",
  "requestToken",
  "revokeKey",
  ...["createVolume", "listVolumes", "writeFile", "getVolume", "inspectVolume", "listFiles", "readFile"],
  ...["uploadVolumeArchive", "downloadVolumeArchive", "snapshotVolume"],
  ...["putVolumeSchedule", "getVolumeSchedule", "deleteVolumeSchedule"],
  "createContainer",
  "listContainers",
  "getContainer",
  "findContainer",
  "containerReady",
  "listNetworkAllocations",
  "getContainerNetwork",
  "setUpContainerNetwork",
  "diagnoseContainerNetwork",
  "getContainerEgress",
  "listActivity",
  "listMonitors",
  "listMonitoredProcesses",
  "getMonitorProfile",
  "getMonitor",
  "publishService",
  "listContainerServices",
  "listServices",
  "getService",
  ...["rotateService", "deleteService"],
  ...["publishMessage", "publishContainerEnvelope", "readInbox", "readContainerInbox"],
  ...["listContainerMessages", "containerMessaging", "stateVersion", "listMessageStreams", "receiveMessages"],
  ...["broadcastCommand", "setMessagePermission", "messagePermission"],
  ...["subscribe", "listTopics", "listSubscribers", "unsubscribe"],
  ...["bindFunction", "listBindings", "getBinding", "deleteBinding"],
  "execInContainer",
  "streamFromContainer",
  ...["listJobs", "getJob", "listProcesses"],
  "containerMetrics",
  "createTerminalSession",
  "listTerminalSessions",
  "getTerminalSession",
  "resizeTerminalSession",
  "endTerminalSession",
  "listContainerFiles",
  "uploadContainerArchive",
  "downloadContainerArchive",
  "getContainerEnvironment",
  "patchContainerEnvironment",
  "putContainerEnvironment",
  "snapshotContainer",
  "listSnapshots",
  "getSnapshot",
  "getSnapshotLineage",
  "listContainerChanges",
  "diffSnapshots",
  "pinSnapshot",
  "unpinSnapshot",
  "cloneSnapshot",
  "forkContainer",
  "restoreContainer",
  "exportSnapshot",
  "commitContainer",
  "createVersionFromSnapshot",
  "deleteFunction",
  "deleteSnapshot",
  "putContainerSchedule",
  "getContainerSchedule",
  "deleteContainerSchedule",
  "createContainerKey",
  "listContainerKeys",
  "revokeContainerKey",
  "killContainer",
  "listContainerCleanupTasks",
  "listCleanupTasks",
  "getCleanupStatus",
  "startContainer",
  "stopContainer",
  "resumeContainer",
  "renameContainer",
  "deleteContainer",
  "createContainers",
  "listNetworks",
  "listDnsEntries",
  "renameDnsEntry",
  "deleteFile",
  "renameVolume",
  "pullImage",
  "listImages",
  "inspectImage",
  "imageHistory",
  "saveImage",
  "tagImage",
  "updateImage",
  "deleteImage",
  "pruneImages",
  ...["setRegistry", "listRegistries", "getRegistry", "deleteRegistry"],
  ...["createBuildContext", "listBuildContexts", "deleteBuildContext"],
  ...["setSecret", "listSecrets", "getSecret", "deleteSecret"],
  ...["putState", "listStates", "getState", "deleteState", "resolveProfile", "getRelease"],
  "listOperations",
  "getOperation",
  "listAudit",
];

/** Operations that have ended are all that a test can plant; the others need more than one example gives. */
const UNSENT = [
  // The machine's apt sources decide whether it lists any, a difference needs two releases, and channels are those of all
  // daemons on the image store: profiles.test.ts.
  "profileUpdates",
  "diffReleases",
  "promoteProfile",
  "rollbackProfile",
  // Their bodies are archives: code.test.ts and image-archives.test.ts send them.
  "loadImage",
  // They need a context with a build file, and a registry that takes images: builds.test.ts, registry-pushes.test.ts.
  "buildImage",
  "pushImage",
  "uploadCode",
  "renewCode",
  "putCode",
  "getCode",
  "cancelOperation",
  "signalProcess",
  "deleteVolume",
  "containerLogs",
  // They are about the user of the credential, which the operator's key has not: users.test.ts sends them.
  "logoutUser",
  "changePassword",
  // They need an address of this node, a list of destinations, and a container that may go: container-addresses.test.ts,
  // container-cleanup.test.ts.
  "putContainerNetwork",
  "addContainerRoute",
  "removeContainerRoute",
  "forceContainerCleanup",
  // They need a message in an inbox, a dead letter, an envelope of this moment, or somebody who replies: icc.test.ts.
  ...[
    "ackMessage",
    "ackMessageById",
    "ackInboxMessage",
    "ackContainerMessage",
    "listDeadLetters",
    "replayDeadLetter",
    "listMessages",
  ],
  ...["replayMessages", "replayInbox", "replayContainerInbox"],
  ...["publishEnvelope", "broadcastMessage", "requestReply"],
  // They need a container with a desktop: desktop.test.ts.
  "getGuiUrl",
  "desktopViewer",
  "takeScreenshot",
  "sendInput",
  // A setting gives the key here; rotation.test.ts sends it.
  "rotateOperatorKey",
];

/** What an answer gives to the examples that follow. */
const MADE: Readonly<Record<string, readonly [placeholder: string, field: string]>> = {
  createFunction: ["function_id", "id"],
  invokeFunctionByName: ["invocation_id", "invocation_id"],
  createTenant: ["tenant_id", "tenant_id"],
  createTenantKey: ["tenant_key_id", "id"],
  createKey: ["key_id", "id"],
  createContainerKey: ["container_key_id", "id"],
  loginUser: ["refresh_token", "refresh_token"],
  createContainer: ["container_id", "container_id"],
  execInContainer: ["job_id", "job_id"],
  createTerminalSession: ["session_id", "session_id"],
  createBuildContext: ["context_id", "context_id"],
  snapshotContainer: ["snapshot_id", "snapshot_id"],
  publishService: ["service_id", "service_id"],
  bindFunction: ["binding_id", "binding_id"],
  resolveProfile: ["version", "version"],
};

const changeFile = (made: ReadonlyMap<string, string>) =>
  daemon.call("POST", `/api/containers/${made.get("container_id")}/exec`, {
    command: ["sh", "-c", "date +%N >> /root/changed"],
  });
/** Prepares objects that an example needs and no other example creates. */
const BEFORE: Readonly<Record<string, (made: Map<string, string>) => Promise<unknown>>> = {
  listNetworks: () => daemon.call("POST", "/api/containers", { name: "redis", network: "shop" }),
  snapshotContainer: changeFile,
  diffSnapshots: async (made) => {
    await changeFile(made);
    const later = await new SnapshotUser(daemon).take(made.get("container_id") ?? "");
    made.set("other_id", later.snapshot_id);
  },
};

function filledBody(example: unknown, made: ReadonlyMap<string, string>): unknown {
  if (example === undefined) return undefined;
  return JSON.parse(JSON.stringify(example).replace(/(?<=")\{(\w+)\}(?=")/g, (text, name) => made.get(name) ?? text));
}

/** The headers without which it is refused, as the description shows them. */
const requiredHeaders = (operation: Described): Record<string, string> =>
  Object.fromEntries(
    document()
      .parameters(operation)
      .filter((one) => one.in === "header" && one.required === true)
      .map(({ name, example }) => [name.toLowerCase(), String(example)]),
  );

/** The request that the description shows, with the placeholders of the route table filled in. */
function requestOf(operation: Described, made: ReadonlyMap<string, string>): { path: string; body: unknown } {
  const { method, path } = operation;
  const route = routeOf(method, path);
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    (route?.example.params?.[name] ?? "").replace(
      /^\{(\w+)\}$/,
      (text, placeholder: string) => made.get(placeholder) ?? text,
    ),
  );
  if (/[{}]|\/\/|\/$/.test(filled)) throw new Error(`no example of ${method} ${path} can be sent before what it needs`);
  const query = document()
    .parameters(operation)
    .filter((one) => one.in === "query" && one.example !== undefined)
    .map(({ name, example }) => `${name}=${encodeURIComponent(String(example))}`)
    .join("&");
  return {
    path: query === "" ? filled : `${filled}?${query}`,
    body: filledBody(operation.requestBody?.content["application/json"]?.example, made),
  };
}

describe("every operation", () => {
  it("answers its example with its status, in the shape that is described, like the answer that is shown", async () => {
    const { operations } = document();
    const byId = new Map(operations.map((operation) => [operation.operationId, operation]));
    const first = operations.filter(({ operationId }) => ![...ORDER, ...UNSENT].includes(operationId));
    const ordered = ORDER.map((name) => byId.get(name)).filter((operation) => operation !== undefined);
    expect(ordered.map(({ operationId }) => operationId)).toEqual(ORDER);
    const made = new Map([["operation_id", plantOperation(daemon, { tenant_id: "default" })]]);
    for (const operation of [...first, ...ordered]) {
      const { operationId, method } = operation;
      // A WebSocket: terminal.test.ts opens it.
      if (operation.responses[101] !== undefined) continue;
      await BEFORE[operationId]?.(made);
      const { path, body } = requestOf(operation, made);
      const answer = await daemon.call(method, path, body, requiredHeaders(operation));
      const response = document().response(operation, answer.status);
      expect([operationId, answer.status < 400, response !== undefined, answer.body]).toEqual([
        operationId,
        true,
        true,
        answer.body,
      ]);
      const type = answer.headers.get("content-type")?.split(";", 1)[0] ?? "";
      const media = response?.content[type];
      expect([operationId, type, media === undefined]).toEqual([operationId, type, false]);
      if (media === undefined || type !== "application/json") continue;
      const { schema, example } = media;
      expect([operationId, document().validator(schema).safeParse(answer.body).error]).toEqual([
        operationId,
        undefined,
      ]);
      expect([operationId, document().unknownFields(schema, answer.body)]).toEqual([operationId, []]);
      if (example !== undefined) {
        expect([operationId, document().fields(schema, example)]).toEqual([
          operationId,
          document().fields(schema, answer.body),
        ]);
      }
      const [placeholder = "", field = ""] = MADE[operationId] ?? [];
      if (placeholder !== "") made.set(placeholder, answer.body[field]);
      if (answer.status !== 202) continue;
      const { body: ended } = await daemon.call("GET", `${answer.body.status_url}?wait_seconds=60`);
      expect([operationId, ended.status, ended.error]).toEqual([operationId, "succeeded", null]);
    }
  });
});

interface Provoked {
  readonly operation: Described;
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly code: string;
}

async function provoke({ operation, path, body, headers, code }: Provoked): Promise<void> {
  const { operationId, method } = operation;
  const answer = await daemon.call(method, path, body, { ...requiredHeaders(operation), ...headers });
  const described = document().codes(operation, answer.status);
  expect([operationId, code, answer.body.error_code, described.includes(code)]).toEqual([
    operationId,
    code,
    code,
    true,
  ]);
  const headersDescribed = Object.keys(document().response(operation, answer.status)?.headers ?? {});
  for (const name of ["Retry-After", "WWW-Authenticate"]) {
    // 409 is of codes that time mends and of others.
    if (answer.status === 409) continue;
    expect([operationId, code, name, headersDescribed.includes(name)]).toEqual([
      operationId,
      code,
      name,
      answer.headers.has(name),
    ]);
  }
}

/** A path that names nothing that exists. */
const anyPath = ({ path }: Described): string => path.replace(/\{\w+\}/g, "nothing-here");

describe("the refusals that are described are those that are answered", () => {
  it("of a request without a credential, with a wrong one, with two", async () => {
    for (const operation of document().operations) {
      if (operation["x-hearth-auth"] === "public") continue;
      const path = anyPath(operation);
      await provoke({ operation, path, headers: { "x-api-key": "wrong" }, code: "UNAUTHORIZED" });
      await provoke({ operation, path, headers: { authorization: "Bearer x" }, code: "TWO_CREDENTIALS" });
    }
  });

  it("of a key without the scope, or that is not the operator's", async () => {
    const { body: tenant } = await daemon.call("POST", "/api/tenants", { name: "scopes" });
    const path = `/api/tenants/${tenant.tenant_id}/api-keys`;
    const of = async (...scopes: string[]): Promise<string> =>
      (await daemon.call("POST", path, { name: "k", scopes })).body.key;
    const [reader, writer] = [await of("read"), await of("write", "invoke", "admin")];
    for (const operation of document().operations) {
      const scope = operation["x-hearth-scope"];
      if (scope === null) continue;
      const headers = { "x-api-key": scope === "read" ? writer : reader };
      await provoke({ operation, path: anyPath(operation), headers, code: "FORBIDDEN" });
    }
  });

  it("of a header that names another tenant, and of none where one is required", async () => {
    for (const operation of document().operations) {
      if (operation["x-hearth-auth"] === "public") continue;
      const path = anyPath(operation);
      await provoke({ operation, path, headers: { "x-tenant-id": "ten_0000000000000000" }, code: "FORBIDDEN" });
      if (requiredHeaders(operation)["x-tenant-id"] === undefined) continue;
      const { status, body } = await daemon.call(operation.method, path);
      expect([operation.operationId, status, body.error_code]).toEqual([
        operation.operationId,
        400,
        "INVALID_ARGUMENT",
      ]);
      expect(document().codes(operation, status)).toContain("INVALID_ARGUMENT");
    }
  });

  it("of a thing that is not there", async () => {
    const { body: record } = await daemon.call("POST", "/api/functions", { name: "there", handler: "true" });
    for (const operation of document().operations) {
      // Resolving a name answers 200 with found: false; setting a secret, a state or the credentials of a registry makes them.
      const isMade = ["findContainer", "setSecret", "setRegistry", "putState"].includes(operation.operationId);
      // Without a token, viewers of desktops do not tell whether a container exists.
      const isHidden = ["desktopViewer", "attachDesktop"].includes(operation.operationId);
      // A request that asks for no WebSocket is refused before its container is sought.
      const isSocket = operation.path.startsWith("/ws/");
      if (!operation.path.includes("{") || isMade || isHidden || isSocket) continue;
      const body = operation.requestBody?.content["application/json"]?.example;
      await provoke({ operation, path: anyPath(operation), body, code: "NOT_FOUND" });
      const inside = operation.path.replace("{function_id}", record.id);
      if (inside.includes("{") && inside !== operation.path) {
        await provoke({ operation, path: inside.replace(/\{\w+\}/, "nothing"), body, code: "NOT_FOUND" });
      }
    }
  });

  it("of a body that is no JSON, no object, too large, of a query that is out of bounds", async () => {
    for (const operation of document().operations) {
      const path = anyPath(operation);
      const isJson = operation.requestBody?.content["application/json"] !== undefined;
      if (isJson) {
        await provoke({ operation, path, body: "{", code: "INVALID_JSON" });
        await provoke({ operation, path, body: [], code: "UNPROCESSABLE_ENTITY" });
        await provoke({ operation, path, body: "x".repeat(LIMITS.body_bytes_max + 1), code: "BODY_TOO_LARGE" });
      }
      const query = document()
        .parameters(operation)
        // Any text will do for a plain one.
        .find((one) => one.in === "query" && (one.schema.type !== "string" || one.schema.enum !== undefined));
      if (query !== undefined) {
        await provoke({ operation, path: `${path}?${query.name}=-`, code: "INVALID_ARGUMENT" });
      }
    }
  });

  it("of a state, a name, a limit that is in the way", async () => {
    const op = (method: string, path: string) => document().operation(method, path);
    const { body: record } = await daemon.call("POST", "/api/functions", { name: "taken", handler: "true" });
    const create = op("POST", "/api/functions");
    const fields = { name: "taken", handler: "true" };
    await provoke({ operation: create, path: create.path, body: fields, code: "NAME_TAKEN" });
    await provoke({ operation: create, path: create.path, body: { ...fields, handler: "" }, code: "INVALID_ARGUMENT" });
    const byName = op("POST", "/api/functions/invoke/{name}");
    await provoke({ operation: byName, path: "/api/functions/invoke/taken", code: "WRONG_STATE" });
    const pause = op("POST", "/api/functions/{function_id}/pause");
    await provoke({ operation: pause, path: `/api/functions/${record.id}/pause`, code: "WRONG_STATE" });

    const tenants = op("POST", "/api/tenants");
    const limits = { requests_per_second: 0.1, functions_max: 0 };
    const { body: tenant } = await daemon.call("POST", "/api/tenants", { name: "slow", limits });
    await provoke({ operation: tenants, path: tenants.path, body: { name: "slow" }, code: "NAME_TAKEN" });
    const keys = `/api/tenants/${tenant.tenant_id}/api-keys`;
    const headers = { "x-api-key": (await daemon.call("POST", keys, { name: "k" })).body.key };
    await provoke({ operation: create, path: create.path, body: fields, headers, code: "QUOTA_EXCEEDED" });
    await provoke({ operation: create, path: create.path, body: fields, headers, code: "RATE_LIMITED" });
    const revoke = op("DELETE", "/api/api-keys/{key_id}");
    await provoke({ operation: revoke, path: "/api/api-keys/bootstrap", code: "WRONG_STATE" });
    const remove = op("DELETE", "/api/tenants/{tenant_id}");
    await provoke({ operation: remove, path: "/api/tenants/default", code: "WRONG_STATE" });
  });
});

describe("headers", () => {
  it("of an answer are those that are described, and of a limited tenant the rates too", async () => {
    const { body: tenant } = await daemon.call("POST", "/api/tenants", {
      name: "h",
      limits: { requests_per_second: 50 },
    });
    const { body: key } = await daemon.call("POST", `/api/tenants/${tenant.tenant_id}/api-keys`, { name: "k" });
    const described = Object.keys(document().whole.components.headers).map((name) => name.toLowerCase());
    const transport = [
      "connection",
      "content-length",
      "content-type",
      "date",
      "keep-alive",
      "transfer-encoding",
      "vary",
    ];
    for (const path of ["/api/functions", "/api/functions/help?format=markdown", "/api/functions/nothing"]) {
      const { headers } = await daemon.call("GET", path, undefined, { "x-api-key": key.key, "x-request-id": "mine-1" });
      expect(headers.get("x-request-id")).toBe("mine-1");
      expect(headers.get("ratelimit-policy")).toBe('"tenant";q=50;w=1');
      expect([...headers.keys()].filter((name) => ![...described, ...transport].includes(name))).toEqual([]);
    }
  });
});
