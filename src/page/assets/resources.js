/** Requests of the page for containers, volumes, snapshots, services, messages, secrets, code, operations and files. */
import { encodedPath } from "./addresses.js";

/** @import { Api } from "./api.js" */
/** @import { ContainerMetrics, ContainerNetwork, AcceptedCopy, ContainerRecord, DeadLetter, DeadLetters, InboxMessage, InboxFacts, NetworkDiagnostics, NetworkSetup, ProcessList, ExecResult, FileChanges, FileList, Lineage, OperationRecord, OperationSummary, SecretRecord, ServiceRecord, SnapshotDetail, SnapshotRecord, VersionDiff, VolumeDetail, VolumeRecord } from "../wire.ts" */

/** Beyond the time that a stop, a start or a command takes by its own bounds. */
const GRACE_MS = 30_000;
/** A start waits for the container, a stop ten seconds for its command. */
const LIFE_MS = 90_000;
/** A copy waits for the bytes of its source, and for the start of its command. */
const COPY_MS = 150_000;
/** Reads that count bytes or compare files. */
const SLOW_READ_MS = 60_000;
/** The API answers no more at once. */
export const RESOURCES_MAX = 1_000;
export const PAGE_SIZE = 200;
/** The highest number that a message can have. */
const SEQ_MAX = 2 ** 32 - 1;

/**
 * The files of a container or volume.
 * @typedef {object} Tree
 * @property {string} name what a download of all of it is called
 * @property {string} archive the address of archives, in and out
 * @property {string | null} files the address of single files; null where there is none
 * @property {(path: string, page: number) => Promise<FileList>} list
 */

/** @param {string} id @param {string} [rest] */
const container = (id, rest = "") => `/api/containers/${encodeURIComponent(id)}${rest}`;
/** @param {string} name @param {string} [rest] */
const volume = (name, rest = "") => `/api/volumes/${encodeURIComponent(name)}${rest}`;

/** @param {string} path @param {number} page */
const listQuery = (path, page) => `?path=${encodeURIComponent(path)}&page=${page}&page_size=${PAGE_SIZE}`;

/** @param {Api} api */
export function containersOf(api) {
  return {
    /** @returns {Promise<{ containers: ContainerRecord[], next_cursor: string | null }>} */
    list: () => api.request("GET", `/api/containers?limit=${RESOURCES_MAX}`),
    /** @param {string} id @returns {Promise<ContainerRecord>} */
    get: (id) => api.request("GET", container(id)),
    /** @param {unknown} body @returns {Promise<ContainerRecord>} */
    create: (body) => api.request("POST", "/api/containers", body, LIFE_MS),
    /** @param {string} id @returns {Promise<ContainerMetrics>} */
    metrics: (id) => api.request("GET", container(id, "/metrics")),
    /** @param {string} id @returns {Promise<ProcessList>} */
    processes: (id) => api.request("GET", container(id, "/processes")),
    /** @param {string} id @returns {Promise<ContainerNetwork>} */
    network: (id) => api.request("GET", container(id, "/network")),
    /** @param {string} id @returns {Promise<NetworkDiagnostics>} */
    diagnose: (id) => api.request("GET", container(id, "/network/diagnostics"), undefined, LIFE_MS),
    /** @param {string} id @returns {Promise<NetworkSetup>} */
    setUpNetwork: (id) => api.request("POST", container(id, "/network/setup"), undefined, LIFE_MS),
    /** @param {string} id */
    start: (id) => api.request("POST", container(id, "/start?execution=sync"), undefined, LIFE_MS),
    /** @param {string} id */
    stop: (id) => api.request("POST", container(id, "/stop"), {}, LIFE_MS),
    /** @param {string} id */
    kill: (id) => api.request("POST", container(id, "/kill"), undefined, LIFE_MS),
    /** @param {string} id */
    remove: (id) => api.request("DELETE", container(id), undefined, LIFE_MS),
    /** @param {string} id @param {string} new_name */
    rename: (id, new_name) => api.request("POST", container(id, "/rename"), { new_name }),
    /** @param {string} id @param {number} pid @param {string} signal */
    signal: (id, pid, signal) => api.request("DELETE", container(id, `/processes/${pid}?signal=${signal}`)),
    /** @param {string} id @param {string[]} command @param {number} timeout_ms @returns {Promise<ExecResult>} */
    exec: (id, command, timeout_ms) =>
      api.request("POST", container(id, "/exec"), { command, timeout_ms }, timeout_ms + GRACE_MS),
    /** @param {string} id @param {number} limit @param {number} after_seq @param {AbortSignal} ended */
    log: (id, limit, after_seq, ended) =>
      api.open(container(id, `/logs?follow=true&limit=${limit}&after_seq=${after_seq}`), ended),
    /** @param {string} id @returns {Promise<string>} the address of its desktop */
    guiUrl: async (id) => (await api.request("GET", container(id, "/gui-url"))).gui_url,
    /** @param {string} id @returns {Tree} */
    tree: (id) => ({
      name: id,
      archive: container(id, "/archive"),
      files: null,
      list: (path, page) => api.request("GET", container(id, `/ls${listQuery(path, page)}`)),
    }),
  };
}

/** @param {Api} api */
export function volumesOf(api) {
  return {
    /** @returns {Promise<{ volumes: VolumeRecord[], next_cursor: string | null }>} */
    list: () => api.request("GET", `/api/volumes?limit=${RESOURCES_MAX}`),
    /** @param {string} name @returns {Promise<VolumeDetail>} */
    inspect: (name) => api.request("GET", volume(name, "/inspect")),
    /** @param {unknown} body @returns {Promise<VolumeRecord>} */
    create: (body) => api.request("POST", "/api/volumes", body, LIFE_MS),
    /** @param {string} name @param {string} new_name */
    rename: (name, new_name) => api.request("POST", volume(name, "/rename"), { new_name }),
    /** @param {string} name */
    remove: (name) => api.request("DELETE", volume(name, "?execution=sync"), undefined, LIFE_MS),
    /** @param {string} name @returns {Tree} */
    tree: (name) => ({
      name,
      archive: volume(name, "/archive"),
      files: volume(name, "/files"),
      list: (path, page) => api.request("GET", volume(name, `/ls${listQuery(path, page)}`)),
    }),
  };
}

/** The new container of a copy; null for a volume. @param {AcceptedCopy | OperationRecord} answer */
const copyOf = (answer) => ("container_ids" in answer ? answer.container_id : answer.result_container_id);

/** Snapshots, and the copies that containers and snapshots are made into. @param {Api} api */
export function snapshotsOf(api) {
  const snapshot = (/** @type {string} */ id, rest = "") => `/api/snapshots/${encodeURIComponent(id)}${rest}`;
  const copied = (/** @type {string} */ target, /** @type {unknown} */ body) =>
    api.tenantRequest("POST", `${target}?execution=sync`, body, COPY_MS).then(copyOf);
  return {
    /** @param {string} [query] @returns {Promise<{ snapshots: SnapshotRecord[], next_cursor: string | null }>} */
    list: (query = "") => api.tenantRequest("GET", `/api/snapshots?limit=${RESOURCES_MAX}${query}`),
    /** Newest first. @param {string} container_id @param {number} limit @returns {Promise<{ snapshots: SnapshotRecord[], next_cursor: string | null }>} */
    ofContainer: (container_id, limit) =>
      api.tenantRequest("GET", `/api/snapshots?limit=${limit}&container_id=${encodeURIComponent(container_id)}`),
    /** @param {string} id @returns {Promise<SnapshotDetail>} */
    get: (id) => api.tenantRequest("GET", snapshot(id), undefined, SLOW_READ_MS),
    /** @param {string} id @returns {Promise<Lineage>} */
    lineage: (id) => api.tenantRequest("GET", snapshot(id, "/lineage")),
    /** Ends with the snapshot, ready or still in state creating. @param {string} container_id @param {unknown} body @returns {Promise<{ snapshot_id: string }>} */
    take: (container_id, body) =>
      api.tenantRequest("POST", container(container_id, "/snapshot?execution=sync"), body, COPY_MS),
    /** Likewise. @param {string} name of a volume @param {unknown} body @returns {Promise<{ snapshot_id: string }>} */
    takeOfVolume: (name, body) => api.tenantRequest("POST", volume(name, "/snapshot?execution=sync"), body, COPY_MS),
    /** @param {string} id @param {"pin" | "unpin"} verb */
    pin: (id, verb) => api.tenantRequest("POST", snapshot(id, `/${verb}`)),
    /** @param {string} id */
    remove: (id) => api.tenantRequest("DELETE", snapshot(id), undefined, LIFE_MS),
    /** @param {string} id @param {unknown} body @returns {Promise<string | null>} id of the new container; null for a volume */
    clone: (id, body) => copied(snapshot(id, "/clone"), body),
    /** @param {string} container_id @param {unknown} body @returns {Promise<string | null>} id of the first fork */
    fork: (container_id, body) => copied(container(container_id, "/fork"), body),
    /** @param {string} container_id @param {string} snapshot_id */
    restore: (container_id, snapshot_id) =>
      api.tenantRequest("POST", container(container_id, "/restore?execution=sync"), { snapshot_id }, COPY_MS),
    /** @param {string} from @param {string} to @returns {Promise<FileChanges>} */
    diff: (from, to) =>
      api.tenantRequest("GET", snapshot(from, `/diff/${encodeURIComponent(to)}`), undefined, SLOW_READ_MS),
    /** @param {string} container_id @param {string} since id of a snapshot; empty for the image @returns {Promise<FileChanges>} */
    changes: (container_id, since) => {
      const query = since === "" ? "" : `?since=${encodeURIComponent(since)}`;
      return api.tenantRequest("GET", container(container_id, `/changes${query}`), undefined, SLOW_READ_MS);
    },
  };
}

/** @param {Api} api */
export function secretsOf(api) {
  const secret = (/** @type {string} */ name) => `/api/secrets/${encodeURIComponent(name)}`;
  return {
    /** @returns {Promise<{ secrets: SecretRecord[], next_cursor: string | null }>} */
    list: () => api.request("GET", `/api/secrets?limit=${RESOURCES_MAX}`),
    /** @param {string} name @returns {Promise<SecretRecord>} */
    get: (name) => api.request("GET", secret(name)),
    /** @param {string} name @param {{ value: string } | { value_base64: string }} value @returns {Promise<SecretRecord>} */
    set: (name, value) => api.request("PUT", secret(name), value),
    /** @param {string} name */
    remove: (name) => api.request("DELETE", secret(name)),
  };
}

/** Published services. @param {Api} api */
export function servicesOf(api) {
  const service = (/** @type {string} */ id, rest = "") => `/api/services/${encodeURIComponent(id)}${rest}`;
  return {
    /** Newest first. @returns {Promise<{ services: ServiceRecord[], next_cursor: string | null }>} */
    list: () => api.request("GET", `/api/services?limit=${RESOURCES_MAX}`),
    /** @param {string} id @returns {Promise<ServiceRecord>} */
    get: (id) => api.request("GET", service(id)),
    /** Newest first. @param {string} container_id @param {number} limit @returns {Promise<{ services: ServiceRecord[], next_cursor: string | null }>} */
    ofContainer: (container_id, limit) => api.request("GET", container(container_id, `/services?limit=${limit}`)),
    /** @param {string} container_id @param {unknown} body @returns {Promise<ServiceRecord>} */
    publish: (container_id, body) => api.request("POST", container(container_id, "/services"), body),
    /** @param {string} id @returns {Promise<ServiceRecord>} */
    rotate: (id) => api.request("POST", service(id, "/rotate")),
    /** @param {string} id */
    remove: (id) => api.request("DELETE", service(id)),
  };
}

/** Messages of inboxes, and dead letters. @param {Api} api */
export function messagesOf(api) {
  const inbox = (/** @type {string} */ name, rest = "") => `/api/icc/inbox/${encodeURIComponent(name)}${rest}`;
  const one = (/** @type {number} */ seq) => `?from_seq=${seq}&to_seq=${seq}&limit=1&include_message=true`;
  return {
    /** Facts of a container's inbox. @param {string} id @returns {Promise<InboxFacts>} */
    ofContainer: (id) => api.request("GET", container(id, "/icc")),
    /** Facts of the inbox of a queue or topic. @param {string} address @returns {Promise<InboxFacts>} */
    ofAddress: async (address) =>
      (await api.request("GET", `/api/icc/streams?container_id=${encodeURIComponent(address)}`)).streams[0],
    /** By name. @param {number} limit @param {string} after name @returns {Promise<{ streams: InboxFacts[], next_after: string | null }>} */
    inboxes: (limit, after) => api.request("GET", `/api/icc/streams?limit=${limit}&after=${encodeURIComponent(after)}`),
    /** In the order of the numbers. @param {string} name @param {number} from_seq @param {number} to_seq @returns {Promise<InboxMessage[]>} */
    list: async (name, from_seq, to_seq) => {
      const query = `?from_seq=${from_seq}&to_seq=${to_seq}&limit=${to_seq - from_seq + 1}`;
      return (await api.request("GET", inbox(name, query))).messages;
    },
    /** With its payload; undefined: it is no longer kept. @param {string} name @param {number} seq @returns {Promise<InboxMessage | undefined>} */
    get: async (name, seq) => (await api.request("GET", inbox(name, one(seq)))).messages[0],
    /** @param {string} name @param {{ msg_id: string, action: "ack" | "nack", reason?: string }} body */
    settle: (name, body) => api.request("POST", inbox(name, "/ack"), body),
    /** Publishes a message to its inbox once more. @param {string} name @param {number} seq */
    replay: (name, seq) => api.request("POST", inbox(name, "/replay"), { from_seq: seq, to_seq: seq, limit: 1 }),
    /** In the order of the numbers. @param {number} from_seq @param {number} limit @returns {Promise<DeadLetters>} */
    dead: (from_seq, limit) => api.request("GET", `/api/icc/dlq?from_seq=${from_seq}&limit=${limit}`),
    /** Number of the last dead letter; 0: none yet. @returns {Promise<number>} */
    lastDead: async () => (await api.request("GET", `/api/icc/dlq?from_seq=${SEQ_MAX}&limit=1`)).last_seq,
    /** With its payload; undefined: it is no longer kept. @param {number} seq @returns {Promise<DeadLetter | undefined>} */
    deadLetter: async (seq) => {
      const { messages } = await api.request("GET", `/api/icc/dlq?from_seq=${seq}&limit=1&include_message=true`);
      return messages[0]?.stream_seq === seq ? messages[0] : undefined;
    },
    /** @param {number} seq @param {string | null} inbox null: the one that it was in @returns {Promise<{ container_id: string, stream_seq: number }>} */
    replayDead: (seq, inbox) =>
      api.request("POST", `/api/icc/dlq/${seq}/replay`, inbox === null ? {} : { replay_to_container: inbox }),
  };
}

/** Code of functions. @param {Api} api */
export function codeOf(api) {
  const version = (/** @type {string} */ id, /** @type {number} */ number) =>
    `/api/functions/${encodeURIComponent(id)}/versions/${number}`;
  return {
    /**
     * Stores an archive of code. A version takes it by its digest.
     * @param {Blob} archive @param {number} strip_components @param {Parameters<Api["upload"]>[2]} how
     * @returns {Promise<{ code_sha256: string, size_bytes: number }>}
     */
    put: (archive, strip_components, how) =>
      api.upload(`/api/functions/code?strip_components=${strip_components}`, archive, how),
    /** As tar.gz. @param {string} id @param {number} number */
    get: (id, number) => api.download(`${version(id, number)}/code`),
    /** @param {string} id @param {number} from @param {number} to @returns {Promise<VersionDiff>} */
    diff: (id, from, to) => api.request("GET", `${version(id, from)}/diff/${to}`),
  };
}

/** @param {Api} api */
export function operationsOf(api) {
  return {
    /** Newest first. @param {number} limit @returns {Promise<{ operations: OperationSummary[], next_cursor: string | null }>} */
    list: (limit) => api.request("GET", `/api/operations?limit=${limit}`),
    /** @param {string} id @returns {Promise<OperationRecord>} */
    get: (id) => api.request("GET", `/api/operations/${encodeURIComponent(id)}`),
    /** @param {string} id */
    cancel: (id) => api.request("POST", `/api/operations/${encodeURIComponent(id)}/cancel`),
  };
}

/** @param {Api} api */
export function filesOf(api) {
  return {
    /** One file as it is. @param {string} files @param {string} path */
    file: (files, path) => api.download(`${files}${encodedPath(path)}`),
    /** @param {string} archive @param {string} path */
    tar: (archive, path) => api.download(`${archive}?path=${encodeURIComponent(path)}`),
    /** @param {string} files @param {string} path */
    remove: (files, path) => api.request("DELETE", `${files}${encodedPath(path)}?recursive=true`, undefined, LIFE_MS),
    /**
     * Unpacks an archive below a path, and has ended when all of it is there.
     * @param {string} archive @param {string} path @param {Blob} content @param {Parameters<Api["upload"]>[2]} how
     */
    unpack: (archive, path, content, how) =>
      api.upload(`${archive}?execution=sync&path=${encodeURIComponent(path)}`, content, how),
  };
}
