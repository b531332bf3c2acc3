/** Two tenants with one of everything, and requests in somebody's name whose answers can be compared byte by byte. */
import { type Daemon, KEY } from "./daemon.ts";
import { archive } from "./file-helper.ts";
import { plantImage, plantOperation } from "./planted.ts";
import { SnapshotUser } from "./snapshots.ts";
import { zip } from "./zip.ts";

/** Sent with every request, so that answers do not differ by it. */
const REQUEST_ID = "same-for-all";

/** What differs from one answer to the next whatever was asked. */
const UNCOMPARED = new Set(["date", "x-request-id"]);

export interface Seen {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

export interface Request {
  readonly method: string;
  readonly path: string;
  readonly body: string | null;
  /** Beside the credential. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** A value for each path parameter there is. */
export type Ids = Readonly<
  Record<
    | "function_id"
    | "invocation_id"
    | "name"
    | "key_id"
    | "tenant_id"
    | "operation_id"
    | "container_id"
    | "context_id"
    | "job_id"
    | "pid"
    | "path"
    | "session_id"
    | "snapshot_id"
    | "service_id"
    | "other_id"
    | "registry"
    | "version"
    | "other_version"
    | "profile"
    | "other"
    | "msg_id"
    | "stream_seq"
    | "key"
    | "binding_id"
    | "code_sha256",
    string
  >
>;

export interface Tenant {
  readonly ids: Ids;
  /** With all scopes. */
  readonly key: string;
  /** Every text by which it could be known. */
  readonly marks: readonly string[];
}

export async function send(
  daemon: Daemon,
  { method, path, body, headers: own = {} }: Request,
  headers: Readonly<Record<string, string>>,
): Promise<Seen> {
  const response = await fetch(daemon.url + path, {
    method,
    headers: { "x-request-id": REQUEST_ID, ...own, ...headers },
    body,
    redirect: "manual",
  });
  const kept = [...response.headers].filter(([name]) => !UNCOMPARED.has(name));
  // A stream has no end to wait for.
  const isStream = response.headers.get("content-type") === "text/event-stream";
  if (isStream) await response.body?.cancel();
  return {
    status: response.status,
    headers: Object.fromEntries(kept),
    text: isStream ? "" : await response.text(),
  };
}

/** Ids that name something: process ids and versions are numbers like any others, and profiles are the node's. */
export function namesOf({
  pid: _,
  version: __,
  other_version: ___,
  profile: ____,
  other: _____,
  stream_seq: ______,
  ...ids
}: Ids): string[] {
  return Object.values(ids);
}

/** The answer with the ids of its request taken out of it: what is left must tell nothing of what they stand for. */
export function without(ids: readonly string[], { status, headers, text }: Seen): Seen {
  // One that nothing has may be a part of another.
  const longest = [...ids].sort((a, b) => b.length - a.length);
  const cut = (value: string) => longest.reduce((left, id) => left.replaceAll(id, "<id>"), value);
  return {
    status,
    headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, cut(value)])),
    text: cut(text),
  };
}

/** Ids as good as any, of the same lengths as `of`, that nothing has. */
export function missing(ids: Ids): Ids {
  const { function_id, invocation_id, name, key_id, tenant_id, operation_id, path } = ids;
  const { msg_id, container_id, context_id, job_id, session_id, registry, snapshot_id, other_id, service_id } = ids;
  const other = (id: string, from: number) => id.slice(0, from) + id.slice(from).replace(/./g, "7");
  return {
    function_id: other(function_id, "fn_".length),
    // The number in it stays that of a record that is there.
    invocation_id: other(invocation_id, invocation_id.lastIndexOf("_") + 1),
    name: other(name, 0),
    key_id: other(key_id, "key_".length),
    tenant_id: other(tenant_id, "ten_".length),
    operation_id: other(operation_id, "op_".length),
    container_id: other(container_id, "ctr_".length),
    context_id: other(context_id, "ctx_".length),
    job_id: other(job_id, "job_".length),
    pid: "4000000",
    session_id: other(session_id, "sess_".length),
    snapshot_id: other(snapshot_id, "snp_".length),
    service_id: other(service_id, "svc_".length),
    other_id: other(other_id, "snp_".length).replace(/.$/, "8"),
    path: other(path, 0),
    registry: registry.replace(/^[^.]*/, (host) => "7".repeat(host.length)),
    version: "3",
    other_version: "2",
    profile: "nothing",
    other: "2",
    msg_id: other(msg_id, "msg_".length),
    stream_seq: "3",
    key: other(ids.key, 0),
    binding_id: other(ids.binding_id, "bnd_".length),
    code_sha256: other(ids.code_sha256, 0),
  };
}

/** A tenant with a function in two versions, deployed and called once, and a key beside its own. */
export async function makeTenant(daemon: Daemon, name: string): Promise<Tenant> {
  const made = await daemon.call("POST", "/api/tenants", { name: `${name}-tenant` });
  const { tenant_id } = made.body;
  const first = await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: `${name}-first` });
  const { key } = first.body;
  const call = async (method: string, path: string, body?: unknown) => {
    const answer = await daemon.call(method, path, body, { "x-api-key": key });
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  const { id } = await call("POST", "/api/functions", {
    name: `${name}-function`,
    handler: `echo ${name}-output`,
    description: `${name}-description`,
    environment: { SECRET: `${name}-secret` },
  });
  await call("POST", `/api/functions/${id}/deploy`);
  await call("PUT", `/api/functions/${id}`, { timeout_seconds: 20 });
  const code_sha256 = await putCode(daemon, key, id, name);
  const record = await call("POST", `/api/functions/${id}/invoke`, { payload: "x" });
  const contained = await makeContainer(call, name);
  const message = { to: contained.container_id, type: `${name}-type`, payload: `${name}-payload` };
  const { msg_id } = await call("POST", "/api/icc/messages", message);
  await call("PUT", `/api/icc/topics/${name}-function/subscribers/${contained.container_id}`);
  await call("PUT", `/api/icc/state/${name}-state`, { value: `${name}-value` });
  const bound = { function: id, message_type: `${name}-other` };
  const { binding_id } = await call("POST", "/api/icc/bindings", bound);
  const user = new SnapshotUser(daemon, tenant_id, { "x-api-key": key });
  const snapshots = await makeSnapshots(user, contained.container_id, name);
  plantImage(daemon, tenant_id, `docker.io/library/${name}-function:latest`);
  const content = archive({ name: `${name}-file`, content: `${name}-content` }).toString("base64");
  const { context_id } = await call("POST", "/api/build-contexts", { content });
  const extra = await call("POST", "/api/api-keys", { name: `${name}-extra`, scopes: ["read"] });
  const ids = {
    function_id: id,
    invocation_id: record.invocation_id,
    name: `${name}-function`,
    key_id: extra.id,
    tenant_id,
    operation_id: plantOperation(daemon, { tenant_id, message: `${name}-message` }),
    context_id,
    version: "3",
    other_version: "2",
    profile: "nothing",
    other: "2",
    msg_id,
    stream_seq: "3",
    key: `${name}-state`,
    binding_id,
    code_sha256,
    ...contained,
    ...snapshots,
  };
  const marks = [...namesOf(ids), first.body.id, key, extra.key, record.instance_nonce, `${name}-`];
  return { ids, key, marks };
}

/** Gives a function code, which makes a version. Returns its digest. */
async function putCode(daemon: Daemon, key: string, function_id: string, name: string): Promise<string> {
  const response = await fetch(`${daemon.url}/api/functions/${function_id}/code`, {
    method: "PUT",
    headers: { "x-api-key": key, "content-type": "application/zip" },
    body: new Uint8Array(zip({ name: `${name}-code`, content: `${name}-content` })),
  });
  if (response.status !== 200) throw new Error(await response.text());
  return ((await response.json()) as { code_sha256: string }).code_sha256;
}

type Call = (
  method: string,
  path: string,
  body?: unknown,
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape.
) => Promise<any>;

/** A container, a secret and a volume with a file, of the same name as the function, and something that was run. */
async function makeContainer(call: Call, name: string) {
  const shared = `${name}-function`;
  await call("POST", "/api/volumes", { name: shared });
  const path = `${name}-file`;
  await call("POST", `/api/volumes/${shared}/files`, { path, content: "eA==" });
  const environment = { SECRET: `${name}-secret` };
  const named = { name: shared, network: "common", dns: true };
  const made = await call("POST", "/api/containers", { ...named, environment, volumes: [`${shared}:/data`] });
  const { container_id } = made;
  const exec = (command: readonly string[]) => call("POST", `/api/containers/${container_id}/exec`, { command });
  // One has process ids that the other has not.
  if (name.endsWith("alpha")) for (let i = 0; i < 20; i++) await exec(["true"]);
  const { job_id, stdout } = await exec(["sh", "-c", "sleep 100000 >/dev/null 2>&1 & echo $!"]);
  await call("PUT", `/api/secrets/${shared}`, { value: `${name}-secret` });
  const registry = `${name}-registry.example`;
  await call("PUT", `/api/oci/registries/${registry}`, { username: `${name}-user`, password: `${name}-password` });
  const { session_id } = await call("POST", "/api/terminal/sessions", { container_id });
  const service = { name: `${name}-service`, target_port: 8_080 };
  const { service_id } = await call("POST", `/api/containers/${container_id}/services`, service);
  return { container_id, job_id, pid: stdout.trim() as string, path, session_id, registry, service_id };
}

/** Two snapshots of a container, and schedules that come due after the test, of the container and of its volume. */
async function makeSnapshots(user: SnapshotUser, container_id: string, name: string) {
  const take = () => user.take(container_id, { name: `${name}-snapshot`, labels: { of: `${name}-label` } });
  const [{ snapshot_id }, { snapshot_id: other_id }] = [await take(), await take()];
  const schedule = { every_seconds: 86_400, keep: 2, labels: { of: `${name}-schedule` } };
  await user.ok("PUT", `/api/containers/${container_id}/snapshot-schedule`, schedule);
  await user.ok("PUT", `/api/volumes/${name}-function/snapshot-schedule`, schedule);
  return { snapshot_id: String(snapshot_id), other_id: String(other_id) };
}

/** A record of a container without the age of its checks, which differs in each answer. */
const unaged = ({ checks_age_ms: _, ...record }: { readonly checks_age_ms: unknown }) => record;

/** All that a tenant sees of itself. */
export async function worldOf(daemon: Daemon, { ids, key }: Tenant): Promise<unknown> {
  const { function_id, name, tenant_id, operation_id, container_id, pid, snapshot_id } = ids;
  const own = { "x-api-key": key, "x-tenant-id": tenant_id };
  const get = async (path: string, as: Record<string, string> = own) =>
    (await daemon.call("GET", path, undefined, as)).body;
  return {
    functions: await get("/api/functions"),
    record: await get(`/api/functions/${function_id}`),
    named: await get(`/api/functions/by-name/${name}`),
    versions: await get(`/api/functions/${function_id}/versions`),
    invocations: await get(`/api/functions/${function_id}/invocations`),
    keys: (await get("/api/api-keys")).api_keys.map(({ last_used_at: _, ...key }: { last_used_at: unknown }) => key),
    operations: await get("/api/operations"),
    operation: await get(`/api/operations/${operation_id}`),
    containers: (await get("/api/containers")).containers.map(unaged),
    container: unaged(await get(`/api/containers/${container_id}`)),
    environment: await get(`/api/containers/${container_id}/env`),
    jobs: await get(`/api/containers/${container_id}/jobs`),
    process: (await get(`/api/containers/${container_id}/processes`)).processes.map(
      (one: { pid: number }) => String(one.pid) === pid,
    ),
    networks: await get("/api/networks"),
    entries: await get("/api/dns/entries"),
    volumes: await get("/api/volumes"),
    files: await get(`/api/volumes/${name}/ls`),
    secrets: await get("/api/secrets"),
    services: await get("/api/services"),
    registries: await get("/api/oci/registries"),
    images: await get("/api/oci/images"),
    image: await get(`/api/oci/images/inspect?reference=${name}`),
    build_contexts: await get("/api/build-contexts"),
    snapshots: await get("/api/snapshots"),
    lineage: await get(`/api/snapshots/${snapshot_id}/lineage`),
    schedule: await get(`/api/containers/${container_id}/snapshot-schedule`),
    volume_schedule: await get(`/api/volumes/${name}/snapshot-schedule`),
    tenant: await get(`/api/tenants/${tenant_id}`, { "x-api-key": KEY }),
  };
}
