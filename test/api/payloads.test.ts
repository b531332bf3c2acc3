/**
 * Every payload of the interface with all its fields, on each route that the interface gives it, against real resources. Fields
 * that a path has already may be repeated in the body: the same value is accepted, another one is refused.
 */
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { encodeEnvelope } from "../../src/icc/envelope/envelope.ts";
import { Daemon, KEY } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { MadeImages } from "../support/made-images.ts";
import { SnapshotUser } from "../support/snapshots.ts";

const NAME = `localhost/hearth-test-payloads-${process.pid}`;
const made = new MadeImages(NAME);
const daemon = new Daemon();
const user = new SnapshotUser(daemon);
const ids = { box: "", other: "", fn: "" };

// biome-ignore lint/suspicious/noExplicitAny: answers as they came.
type Json = any;

/** Sends a payload and expects the status of its success. Returns the body. */
async function accepted(method: string, path: string, body: unknown, status: number): Promise<Json> {
  const answer = await user.call(method, path, body);
  expect([method, path, answer.status, answer.status === status ? null : answer.body]).toEqual([
    ...[method, path, status, null],
  ]);
  return answer.body;
}

const ended = async (handle: Json): Promise<Json> => {
  const operation = await user.ended(handle);
  expect(operation).toMatchObject({ status: "succeeded", error: null });
  return operation;
};

const refused = async (path: string, body: unknown, field: string): Promise<void> => {
  const { status, body: told } = await user.call("POST", path, body);
  expect([path, status, told.error_code]).toEqual([path, 400, "INVALID_ARGUMENT"]);
  expect(told.error).toMatch(new RegExp(`^${field}: differs from the path: `));
};

const CREATE = {
  ...{ image: "prod", oci: false, volumes: ["payload-data:/data"], working_directory: "/srv", memory_limit_mb: 256 },
  ...{ cpu_limit_percent: 50, strict: true, labels: { a: "b" }, environment: { X: "1" } },
  ...{ command: ["sleep", "1000"], gpu_count: 0, gpu_ids: [] },
};
const COPY = { resume_policy: "immediate", labels: { copy: "yes" } };
const FUNCTION = {
  // Clusters are not served yet.
  ...{ cluster_id: null, description: "all fields", handler: "cat; echo $X", runtime: "shell", memory_limit_mb: 256 },
  ...{ cpu_limit_percent: 100, timeout_seconds: 20, environment: { X: "1" }, min_instances: 0, max_instances: 1 },
  ...{ cleanup_on_exit: true, working_directory: "/tmp" },
};

let count = 0;
const envelope_b64 = (to: string, msg_id = `payload-${++count}`) =>
  encodeEnvelope({
    ...{ version: 1, msg_id, request_id: "", trace_id: "", correlation_id: "", causation_id: "" },
    ...{ from: "tester", to, stream_key: "", seq: 0, sent_at: Date.now(), ttl_ms: 600_000 },
    ...{ permission_level: "READ_ONLY", idempotency_key: "" },
    payload: { kind: "state_snapshot", value: { content_type: "text/plain", data: Buffer.from("x") } },
  }).toString("base64");
const published = async (to: string): Promise<string> =>
  (await accepted("POST", "/api/icc/publish", { envelope_b64: envelope_b64(to) }, 200)).msg_id;

beforeAll(async () => {
  made.make("base");
  await daemon.start({ HEARTH_CELLS: "0" });
});
afterAll(async () => {
  await daemon.dispose();
  made.remove();
});

describe("payloads of the interface, with all fields", () => {
  it("create, rename, write to and delete from volumes", async () => {
    await accepted("POST", "/api/volumes", { name: "payload-raw", driver: "local", labels: { a: "b" } }, 201);
    await accepted("POST", "/api/volumes/payload-raw/rename", { new_name: "payload-data" }, 200);
    const file = { path: "a/b.txt", content: Buffer.from("hello").toString("base64"), mode: 640 };
    await accepted("POST", "/api/volumes/payload-data/files", file, 200);
    expect((await user.ok("GET", "/api/volumes/payload-data/ls?path=a&page=1&page_size=10")).files).toMatchObject([
      { name: "b.txt", size: 5, mode: 640 },
    ]);
  });

  it("create containers, alone and in a batch, rename them and set their environment", async () => {
    const created = await accepted("POST", "/api/containers", { name: "payload-first", ...CREATE }, 201);
    expect(created).toMatchObject({ strict: true, labels: { a: "b" }, cpu_limit_percent: 50, gpu_count: 0 });
    ids.box = created.container_id;
    await accepted("POST", `/api/containers/${ids.box}/rename`, { new_name: "payload-box" }, 200);
    const batch = await accepted(
      "POST",
      "/api/containers/batch",
      { items: [{ name: "payload-other", ...CREATE }] },
      202,
    );
    ids.other = (await ended(batch)).items[0].container_id;
    for (const method of ["PATCH", "PUT"]) {
      await accepted(method, `/api/containers/${ids.box}/env`, { environment: { [method]: "1" } }, 200);
    }
    expect((await user.ok("GET", `/api/containers/${ids.box}/env`)).environment).toEqual({ PUT: "1" });
  });

  it("run commands and stream them", async () => {
    const exec = { command: ["sh", "-c", "pwd; cat /data/a/b.txt"], workdir: "/tmp", timeout_ms: 20_000 };
    const ran = await accepted("POST", `/api/containers/${ids.box}/exec`, exec, 200);
    expect(ran).toMatchObject({ exit_code: 0, stdout: "/tmp\nhello" });
    const stream = {
      ...{
        command: ["sh", "-c", "pwd; echo $Y"],
        working_directory: "/srv",
        environment: { Y: "2" },
        timeout_ms: 20_000,
      },
    };
    const frames = await accepted("POST", `/api/containers/${ids.box}/stream`, stream, 200);
    expect(frames).toContain('"type":"exit","code":0');
  });

  it("take snapshots in every mode, clone them and fork containers", async () => {
    const kept = { ttl_seconds: 3_600, labels: { kind: "test" } };
    const modes = [
      ["crash-consistent", "reset", "exclude"],
      ["app-consistent", "preserve_ns", "include_named"],
      ["crash-consistent", "preserve_conn_best_effort", "include_all_allowed"],
    ] as const;
    let snapshot_id = "";
    for (const [consistency_mode, network_mode, volume_mode] of modes) {
      const mode = { consistency_mode, network_mode, volume_mode };
      const handle = await accepted("POST", `/api/containers/${ids.other}/snapshot`, { ...mode, ...kept }, 202);
      await ended(handle);
      snapshot_id ||= handle.snapshot_id;
      const fork = { ...mode, ...COPY, name: `payload-fork-${volume_mode}` };
      await ended(await accepted("POST", `/api/containers/${ids.other}/fork`, fork, 202));
    }
    const clone = await accepted(
      "POST",
      `/api/snapshots/${snapshot_id}/clone`,
      { ...COPY, name: "payload-clone" },
      202,
    );
    const { container_id } = (await ended(clone)).result;
    expect(await user.ok("GET", `/api/containers/${container_id}`)).toMatchObject({ labels: { copy: "yes" } });
    expect((await user.ok("GET", "/api/snapshots?container_id=payload-other")).snapshots).toHaveLength(3);
  });

  it("upload archives to containers and volumes, as raw bytes and as JSON", async () => {
    const content = archive({ name: "top/sub/f.txt", content: "kept" });
    const packed = [
      ["application/x-tar", content],
      ["application/gzip", gzipSync(content)],
    ] as const;
    for (const [i, of] of [`containers/${ids.box}`, "volumes/payload-data"].entries()) {
      for (const [j, [type, bytes]] of packed.entries()) {
        const query = `path=${encodeURIComponent(`/data/raw${j}`)}&strip_components=1`;
        const response = await fetch(`${daemon.url}/api/${of}/archive?${query}`, {
          ...{ method: "POST", body: bytes, headers: { "x-api-key": KEY, "content-type": type } },
        });
        expect([of, type, response.status]).toEqual([of, type, 202]);
        expect(await ended(await response.json())).toMatchObject({ status: "succeeded" });
      }
      const json = { content: packed[1][1].toString("base64"), path: `/data/json${i}`, strip_components: 2 };
      await ended(await accepted("POST", `/api/${of}/archive`, json, 202));
    }
    const find = ["sh", "-c", "cd /data && ls raw*/sub/* json0/* data/raw*/sub/* data/json1/*"];
    const { stdout } = await user.ok("POST", `/api/containers/${ids.box}/exec`, { command: find });
    expect(stdout.split("\n").filter((line: string) => line !== "")).toEqual([
      ...["data/json1/f.txt", "data/raw0/sub/f.txt", "data/raw1/sub/f.txt"],
      ...["json0/f.txt", "raw0/sub/f.txt", "raw1/sub/f.txt"],
    ]);
  });

  it("create, change, call and roll back functions", async () => {
    ids.fn = (await accepted("POST", "/api/functions", { name: "payload-fn", ...FUNCTION }, 201)).id;
    await accepted("PUT", `/api/functions/${ids.fn}`, { name: "payload-fn", ...FUNCTION, description: "second" }, 200);
    await accepted("POST", `/api/functions/${ids.fn}/deploy`, undefined, 200);
    const call = { payload: '{"n":1}', environment: { X: "own" }, timeout_seconds: 10 };
    for (const path of [`/api/functions/${ids.fn}/invoke`, "/api/functions/invoke/payload-fn"]) {
      const record = await accepted("POST", path, call, 200);
      expect(record).toMatchObject({ status: "success", stdout: '{"n":1}own\n' });
    }
    await accepted("POST", `/api/functions/${ids.fn}/rollback`, { version: 1 }, 200);
  });

  it("pull images, upload files of a build, build, and launch a container from an image", async () => {
    await accepted("POST", "/api/oci/images/pull?execution=sync", { reference: `containers-storage:${NAME}` }, 200);
    const content = archive(
      {
        name: "sub/Buildfile",
        content: `FROM ${NAME} AS one\nARG WHO\nRUN echo $WHO > /who\nFROM one AS two\nRUN false\n`,
      },
      { name: "a.txt", content: "a" },
    ).toString("base64");
    const { context_id } = await accepted("POST", "/api/build-contexts", { content }, 201);
    const image_reference = "localhost/payload-built:1";
    const build = { context_id, image_reference, buildfile_path: "sub/Buildfile", build_args: { WHO: "you" } };
    await accepted("POST", "/api/oci/images/build?execution=sync", { ...build, target_stage: "one" }, 200);
    const create = { ...CREATE, name: "payload-image", image: image_reference, oci: true };
    const { container_id } = await accepted("POST", "/api/containers", create, 201);
    const { stdout } = await user.ok("POST", `/api/containers/${container_id}/exec`, { command: ["cat", "/who"] });
    expect(stdout).toBe("you\n");
  });

  it("publish and broadcast envelopes, and run commands in several containers", async () => {
    for (const path of ["/api/icc/publish", "/api/icc/messages", `/api/containers/${ids.box}/icc/publish`]) {
      await accepted("POST", path, { envelope_b64: envelope_b64(ids.box) }, 200);
    }
    const targets = { container_ids: [ids.box, "payload-other"], include_non_running: false, limit: 2 };
    const cast = { envelope_b64: envelope_b64(ids.box), targets };
    expect(await accepted("POST", "/api/icc/messages/broadcast", cast, 200)).toMatchObject({ accepted: 2, failed: 0 });
    const command = { command: ["true"], timeout_ms: 20_000, targets: { container_ids: [ids.box, ids.other] } };
    expect(await accepted("POST", "/api/icc/exec/broadcast", command, 200)).toMatchObject({ succeeded: 2, failed: 0 });
  });

  it("ack and nack messages on every route, with what the path has already", async () => {
    const paths = (msg_id: string) => [
      "/api/icc/ack",
      `/api/containers/${ids.box}/inbox/ack`,
      `/api/icc/inbox/${ids.box}/ack`,
      `/api/icc/messages/${msg_id}/ack`,
    ];
    for (const i of paths("").keys()) {
      for (const action of ["ack", "nack"]) {
        const msg_id = await published(ids.box);
        const path = paths(msg_id)[i] ?? "";
        await accepted("POST", path, { msg_id, action, reason: "read" }, 200);
      }
    }
    const msg_id = await published(ids.box);
    await refused(`/api/icc/messages/${msg_id}/ack`, { msg_id: "another", action: "ack" }, "msg_id");
    for (const path of [`/api/containers/${ids.box}/inbox/ack`, `/api/icc/inbox/payload-box/ack`]) {
      await refused(path, { msg_id, container_id: ids.other }, "container_id");
      await refused(path, { msg_id, container_id: "payload-none" }, "container_id");
    }
    // The name is the same container as the id.
    await accepted("POST", `/api/icc/inbox/${ids.box}/ack`, { msg_id, container_id: "payload-box" }, 200);
  });

  it("replay messages on every route, with what the path has already", async () => {
    const body = { container_id: ids.box, state: "acked", limit: 1 };
    const paths = [`/api/containers/payload-box/inbox/replay`, `/api/icc/inbox/${ids.box}/replay`];
    for (const path of ["/api/icc/replay", ...paths]) {
      expect(await accepted("POST", path, body, 200)).toMatchObject({ replayed: 1 });
    }
    for (const path of paths) {
      await refused(path, { ...body, container_id: ids.other }, "container_id");
      await refused(path, { ...body, container_id: "queue:payloads" }, "container_id");
    }
    const [letter] = (await user.ok("GET", "/api/icc/dlq")).messages;
    await accepted("POST", `/api/icc/dlq/${letter.stream_seq}/replay`, undefined, 200);
  });
});
