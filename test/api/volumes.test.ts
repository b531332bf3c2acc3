/** Volumes through the real API: files in and out, mounts, quotas, archives, deletion. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const scratch = mkdtempSync("/var/tmp/hearth-volumes-");

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(async () => {
  await daemon.dispose();
  rmSync(scratch, { recursive: true, force: true });
});

/** Helpers that have a volume open. */
const ofFiles = () => daemon.processes().filter((line) => / files /.test(line));
const base64 = (text: string) => Buffer.from(text).toString("base64");
const create = async (name: string, more: object = {}) => {
  const { status, body } = await daemon.call("POST", "/api/volumes", { name, ...more });
  expect(status, JSON.stringify(body)).toBe(201);
  return body;
};
const write = (name: string, path: string, text: string, more: object = {}) =>
  daemon.call("POST", `/api/volumes/${name}/files`, { path, content: base64(text), ...more });
const raw = (path: string, init: RequestInit = {}) =>
  fetch(daemon.url + path, { ...init, headers: { "x-api-key": KEY, ...init.headers } });
const ended = async ({ operation_id }: { operation_id: string }) =>
  (await daemon.call("GET", `/api/operations/${operation_id}?wait_seconds=20`)).body;
const names = async (name: string, path: string) =>
  (await daemon.call("GET", `/api/volumes/${name}/ls?path=${encodeURIComponent(path)}`)).body.files.map(
    (file: { name: string }) => file.name,
  );

describe("a volume", () => {
  it("keeps files with their modes, and gives their bytes, a part of them, or JSON", async () => {
    expect(await create("files", { labels: { a: "b" } })).toMatchObject({
      driver: "local",
      labels: { a: "b" },
      status: "active",
    });
    expect(await write("files", "notes/deep/a b.txt", "hello world", { mode: 640 })).toMatchObject({ status: 200 });
    const whole = await raw("/api/volumes/files/files/notes%2Fdeep%2Fa%20b.txt");
    expect([whole.status, whole.headers.get("content-type"), whole.headers.get("x-file-mode")]).toEqual([
      200,
      "application/octet-stream",
      "640",
    ]);
    expect(whole.headers.get("x-file-path")).toBe("/notes/deep/a%20b.txt");
    expect(await whole.text()).toBe("hello world");
    const part = await raw("/api/volumes/files/files/notes/deep/a%20b.txt", { headers: { range: "bytes=6-" } });
    expect([part.status, part.headers.get("content-range"), await part.text()]).toEqual([
      206,
      "bytes 6-10/11",
      "world",
    ]);
    const last = await raw("/api/volumes/files/files/notes/deep/a%20b.txt", { headers: { range: "bytes=-3" } });
    expect(await last.text()).toBe("rld");
    const beyond = await raw("/api/volumes/files/files/notes/deep/a%20b.txt", { headers: { range: "bytes=11-" } });
    expect([beyond.status, ((await beyond.json()) as { error_code: string }).error_code]).toEqual([
      416,
      "RANGE_NOT_SATISFIABLE",
    ]);
    const json = await raw("/api/volumes/files/files/notes/deep/a%20b.txt", {
      headers: { accept: "application/json" },
    });
    expect(await json.json()).toEqual({ content: base64("hello world"), path: "/notes/deep/a b.txt", mode: 640 });
    const large = "0123456".repeat(100_000);
    await write("files", "large", large);
    const inJson = await raw("/api/volumes/files/files/large", { headers: { accept: "application/json" } });
    // In pieces: what has a length was made whole before.
    expect([inJson.headers.get("content-type"), inJson.headers.get("content-length")]).toEqual([
      "application/json",
      null,
    ]);
    expect(await inJson.json()).toEqual({ content: base64(large), path: "/large", mode: 644 });
    const { body } = await daemon.call("GET", "/api/volumes/files/ls?path=notes/deep");
    expect(body).toMatchObject({ path: "/notes/deep", total: 1, has_more: false });
    expect(body.files[0]).toMatchObject({
      name: "a b.txt",
      path: "/notes/deep/a b.txt",
      type: "file",
      size: 11,
      mode: 640,
    });
    expect((await daemon.call("GET", "/api/volumes/files/inspect")).body.used_bytes).toBeGreaterThan(0);
    expect((await daemon.call("DELETE", "/api/volumes/files/files/notes/deep/a%20b.txt")).status).toBe(200);
    expect(await names("files", "/notes/deep")).toEqual([]);
    expect((await daemon.call("DELETE", "/api/volumes/files/files/notes")).status).toBe(409);
    expect((await daemon.call("DELETE", "/api/volumes/files/files/notes?recursive=true")).status).toBe(200);
    expect((await daemon.call("GET", "/api/volumes/files/files/none")).status).toBe(404);
  });

  it("is done with an archive that is cancelled, whatever of it comes no more", async () => {
    await create("stalled");
    const headers = { "x-api-key": KEY, "content-length": "1000000" };
    const sending = request(`${daemon.url}/api/volumes/stalled/archive`, { method: "POST", headers });
    const answer = Promise.withResolvers<number | undefined>();
    sending.on("response", (response) => answer.resolve(response.resume().statusCode)).on("error", answer.reject);
    sending.write(Buffer.alloc(512));
    const newest = async () => (await daemon.call("GET", "/api/operations?limit=1")).body.operations[0];
    const { operation_id } = await eventually("it is unpacked", async () => {
      const operation = (await newest()) ?? {};
      return operation.operation_type === "volume.archive" && operation.status === "running" ? operation : null;
    });
    expect((await daemon.call("POST", `/api/operations/${operation_id}/cancel`)).status).toBe(200);
    // Well before the stall of an upload is noticed.
    const soon_ms = LIMITS.upload_stall_ms / 3;
    await eventually("it has ended", async () => (await newest()).status === "cancelled", soon_ms);
    await eventually("nothing is done for it any more", () => ofFiles().length === 0, soon_ms);
    sending.end(Buffer.alloc(1_000_000 - 512));
    expect(await answer.promise).toBe(202);
    expect((await daemon.call("DELETE", "/api/volumes/stalled?execution=sync")).status).toBe(200);
  });

  it("leaves no transfer open where the body is not wanted", async () => {
    await create("unread");
    await write("unread", "f", "text");
    // Those of the tests before, whose answers were read to the end, end by themselves.
    await eventually("no transfer is open before", () => ofFiles().length === 0);
    for (const path of ["files/f", "archive", "archive?format=tar.gz"]) {
      const { status, headers } = await raw(`/api/volumes/unread/${path}`, { method: "HEAD" });
      expect([path, status, headers.get("content-type")]).toEqual([path, 200, expect.stringMatching(/octet|tar|gzip/)]);
    }
    await eventually("no transfer is open", () => ofFiles().length === 0);
  });

  it("is listed page by page, each name once", async () => {
    await create("pages");
    for (let i = 0; i < 5; i++) await write("pages", `f${i}`, "");
    const page = async (number: number) =>
      (await daemon.call("GET", `/api/volumes/pages/ls?page=${number}&page_size=2`)).body;
    const pages = await Promise.all([1, 2, 3].map(page));
    expect(pages.flatMap(({ files }) => files.map(({ name }: { name: string }) => name))).toEqual([
      "f0",
      "f1",
      "f2",
      "f3",
      "f4",
    ]);
    expect(pages.map(({ has_more }) => has_more)).toEqual([true, true, false]);
    expect(pages[0]).toMatchObject({ total: 5, total_pages: 3, page: 1, page_size: 2 });
  });

  it("is shared by containers, survives them, and cannot be deleted while one has it", async () => {
    await create("shared");
    await write("shared", "in", "from outside");
    const [one, two] = await Promise.all(
      ["one", "two"].map(
        async (name) => (await daemon.call("POST", "/api/containers", { name, volumes: ["shared:/data"] })).body,
      ),
    );
    const run = async (id: string, line: string) =>
      (await daemon.call("POST", `/api/containers/${id}/exec`, { command: ["sh", "-c", line] })).body.stdout;
    expect(await run(one.container_id, "cat /data/in; echo from one > /data/out")).toBe("from outside");
    expect(await run(two.container_id, "cat /data/out")).toBe("from one\n");
    expect(await (await raw("/api/volumes/shared/files/out")).text()).toBe("from one\n");
    const refused = await daemon.call("DELETE", "/api/volumes/shared");
    expect(refused).toMatchObject({ status: 409, body: { error_code: "IN_USE" } });
    expect(refused.body.error).toBe("volume 'shared' is in use by 2 containers");
    await daemon.call("POST", "/api/volumes/shared/rename", { new_name: "moved" });
    expect(await run(two.container_id, "cat /data/in")).toBe("from outside");
    await daemon.call("DELETE", `/api/containers/${one.container_id}`);
    const last = await daemon.call("DELETE", "/api/volumes/moved");
    expect(last.body.error).toBe("volume 'moved' is in use by 1 container");
    await daemon.call("DELETE", `/api/containers/${two.container_id}`);
    expect(await (await raw("/api/volumes/moved/files/out")).text()).toBe("from one\n");
    const { status, body } = await daemon.call("DELETE", "/api/volumes/moved");
    expect(status).toBe(202);
    expect(await ended(body)).toMatchObject({ status: "succeeded", operation_type: "volume.delete" });
    expect((await daemon.call("GET", "/api/volumes/moved")).status).toBe(404);
  });

  it("holds no more than its quota, and another is none the worse", async () => {
    await create("small", { quota_mb: 16 });
    await create("other");
    const { body } = await daemon.call("POST", "/api/containers", {
      name: "filler",
      volumes: ["small:/data", "other:/other"],
    });
    const fill =
      "dd if=/dev/zero of=/data/big bs=1M count=64 conv=fsync 2>&1; dd if=/dev/zero of=/other/x bs=1M count=20 conv=fsync 2>&1 | tail -1";
    const { stdout } = (
      await daemon.call("POST", `/api/containers/${body.container_id}/exec`, { command: ["sh", "-c", fill] })
    ).body;
    expect(stdout).toMatch(/Disk quota exceeded|No space left/);
    expect(stdout).toMatch(/20971520 bytes/);
    const full = await write("small", "more", "x".repeat(4_000_000));
    expect(full).toMatchObject({ status: 507, body: { error_code: "STORAGE_FULL" } });
    await daemon.call("DELETE", `/api/containers/${body.container_id}`);
  });

  it("counts what an archive leaves there: nothing of entries that are stripped away, in containers neither", async () => {
    await create("stripped");
    await daemon.call("POST", "/api/containers", { name: "stripped" });
    const line =
      "mkdir -p s/top/sub && echo one > s/top/a && echo three > s/top/sub/b && tar cf s.tar -C s top && tar cf dot.tar -C s .";
    execFileSync("sh", ["-c", line], { cwd: scratch });
    // The archive's entries: top/, top/a, top/sub/, top/sub/b; with `.` as tar names them from there, ./ before.
    for (const [file, strip, entry_count, byte_count] of [
      ["s.tar", 0, 4, 10],
      ["s.tar", 1, 3, 10],
      ["s.tar", 2, 1, 6],
      ["s.tar", 3, 0, 0],
      ["s.tar", 64, 0, 0],
      ["dot.tar", 0, 5, 10],
      ["dot.tar", 1, 4, 10],
      ["dot.tar", 4, 0, 0],
    ] as const) {
      const body = readFileSync(`${scratch}/${file}`);
      for (const tree of ["/api/volumes/stripped", "/api/containers/stripped"]) {
        const path = `/root/${file}-${strip}`;
        const query = `path=${path}&strip_components=${strip}`;
        const headers = { "content-type": "application/x-tar" };
        const sent = await raw(`${tree}/archive?${query}`, { method: "POST", body, headers });
        const json = { content: body.toString("base64"), path, strip_components: strip };
        const handles = [await sent.json(), (await daemon.call("POST", `${tree}/archive`, json)).body];
        for (const handle of handles) {
          const { result } = await ended(handle as { operation_id: string });
          expect([tree, file, strip, result]).toEqual([tree, file, strip, { entry_count, byte_count }]);
        }
      }
    }
    await daemon.call("DELETE", "/api/containers/stripped");
  });

  it("takes an archive as it comes, plain or in gzip or as JSON, and gives it back", async () => {
    await create("archive");
    execFileSync(
      "sh",
      [
        "-c",
        "mkdir -p top/sub && echo one > top/a && echo two > top/sub/b && ln -s a top/link && tar czf t.tgz top && tar cf t.tar top",
      ],
      { cwd: scratch },
    );
    const send = async (file: string, query: string, type: string) => {
      const body = readFileSync(`${scratch}/${file}`);
      const answer = await raw(`/api/volumes/archive/archive${query}`, {
        method: "POST",
        body,
        headers: { "content-type": type },
      });
      expect(answer.status).toBe(202);
      return ended((await answer.json()) as { operation_id: string });
    };
    expect(await send("t.tgz", "?path=/x&strip_components=1", "application/gzip")).toMatchObject({
      status: "succeeded",
    });
    expect(await names("archive", "/x")).toEqual(["a", "link", "sub"]);
    expect(await send("t.tar", "?path=y", "application/x-tar")).toMatchObject({ status: "succeeded" });
    expect(await names("archive", "/y/top")).toEqual(["a", "link", "sub"]);
    const json = await daemon.call("POST", "/api/volumes/archive/archive?execution=sync", {
      content: readFileSync(`${scratch}/t.tgz`).toString("base64"),
      path: "/z",
    });
    expect(json).toMatchObject({ status: 200, body: { success: true } });
    const back = await raw("/api/volumes/archive/archive?path=/x&format=tar.gz");
    writeFileSync(`${scratch}/back.tar`, gunzipSync(Buffer.from(await back.arrayBuffer())));
    const list = execFileSync("tar", ["tvf", `${scratch}/back.tar`]).toString();
    expect(list).toMatch(/ a\n/);
    expect(list).toMatch(/link -> a/);
    expect(list).toMatch(/sub\/b/);
    writeFileSync(`${scratch}/bad.tar`, "this is no archive".repeat(100));
    expect(await send("bad.tar", "", "application/x-tar")).toMatchObject({
      status: "failed",
      reason_code: "INVALID_ARGUMENT",
    });
  });

  it("names no path of this machine in what it tells of failures", async () => {
    await create("plain");
    const told: string[] = [];
    const tell = async (method: string, path: string, body?: object) => {
      const answer = await daemon.call(method, path, body);
      told.push(JSON.stringify(answer.body));
      return answer;
    };
    const refusals = [
      await tell("POST", "/api/containers", { name: "no-command", command: ["/none"] }),
      await tell("POST", "/api/containers", { name: "no-directory", working_directory: "/etc/passwd/x" }),
      await tell("POST", "/api/containers", { name: "no-program", command: ["/etc/passwd"] }),
    ];
    // A volume whose files went, as on a disk that fails, and one that is no directory any more.
    const launcher = daemon
      .processes()
      .find((line) => line.includes(" launcher "))
      ?.trim()
      .split(" ", 1)[0];
    const volumes = `/proc/${launcher}/root${daemon.data_dir}/area/volumes`;
    for (const [name, instead] of [
      ["gone", null],
      ["spoilt", "no directory"],
    ] as const) {
      const { id } = await create(name);
      renameSync(`${volumes}/${id}`, `${volumes}/away`);
      if (instead !== null) writeFileSync(`${volumes}/${id}`, instead);
      refusals.push(
        await tell("GET", `/api/volumes/${name}/ls?path=/`),
        await tell("POST", "/api/containers", { name: `${name}-volume`, volumes: [`${name}:/data`] }),
      );
      rmSync(`${volumes}/${id}`, { force: true });
      renameSync(`${volumes}/away`, `${volumes}/${id}`);
    }
    for (const { status, body } of refusals.slice(-4, -1))
      expect(status, JSON.stringify(body)).toBeGreaterThanOrEqual(400);
    const { body: runs } = await tell("POST", "/api/containers", { name: "runs", command: ["sleep", "1000"] });
    const path = `/api/containers/${runs.container_id}`;
    for (const command of [["/none"], ["/etc"], ["/etc/passwd"]]) await tell("POST", `${path}/exec`, { command });
    await tell("POST", `${path}/exec`, { command: ["true"], working_directory: "/none" });
    await tell("GET", `${path}/archive?path=/none`);
    await tell("GET", `${path}/ls?path=/none`);
    await tell("GET", "/api/volumes/plain/files/none");
    await tell("GET", "/api/volumes/plain/ls?path=/none");
    const content = Buffer.from("no archive".repeat(100)).toString("base64");
    await tell("POST", "/api/volumes/plain/archive?execution=sync", { content, path: "/z" });
    for (const list of ["containers", "operations", "volumes", "tenant"]) await tell("GET", `/api/${list}`);
    for (const name of ["no-command", "no-directory", "no-program", "gone-volume", "spoilt-volume"]) {
      await tell("GET", `/api/containers/${name}`);
      await tell("GET", `/api/containers/${name}/logs`);
      await daemon.call("DELETE", `/api/containers/${name}?force=true`);
    }
    await daemon.call("DELETE", path);
    const hidden = [daemon.data_dir, daemon.run_dir, "/run/hearth", process.cwd(), "/sys/fs/cgroup", "/run/netns"];
    for (const text of told) {
      for (const one of hidden) expect(text).not.toContain(one);
      expect(text).not.toMatch(/\/proc\/\d{2,}/);
    }
  });

  it("is read in the processor share of its tenant, a bounded number of times at once", async () => {
    const tenant = (await daemon.call("POST", "/api/tenants", { name: "reader" })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant.tenant_id}/api-keys`, { name: "k" })).body;
    const as = { "x-api-key": key };
    expect((await daemon.call("POST", "/api/volumes", { name: "sparse" }, as)).status).toBe(201);
    const { body: made } = await daemon.call("POST", "/api/containers", { name: "s", volumes: ["sparse:/data"] }, as);
    const line = "truncate -s 1T /data/tera /root/tera && mkdir /data/d && truncate -s 1T /data/d/tera";
    const command = ["sh", "-c", line];
    const path = `/api/containers/${made.container_id}`;
    expect((await daemon.call("POST", `${path}/exec`, { command }, as)).body).toMatchObject({ exit_code: 0 });

    const end = new AbortController();
    const read = (from: string, accept = "*/*") =>
      fetch(daemon.url + from, { headers: { ...as, accept }, signal: end.signal });
    const paths = [
      "/api/volumes/sparse/files/tera",
      `${path}/archive?path=/root`,
      "/api/volumes/sparse/archive?path=/d",
    ];
    const [first, ...more] = await Promise.all([
      ...paths.map((one) => read(one)),
      read("/api/volumes/sparse/files/tera", "application/json"),
    ]);
    for (const one of [first, ...more]) expect(one?.status).toBe(200);
    const groupOf = (line: string) => readFileSync(`/proc/${line.trim().split(/\s+/, 1)[0]}/cgroup`, "utf8");
    const own = `/hearth-${daemon.tag}-c/${tenant.tenant_id}/helpers`;
    await eventually("all helpers are in the group of the tenant", () => {
      const helpers = ofFiles();
      return helpers.length === 4 && helpers.every((line) => groupOf(line).includes(own));
    });
    expect(groupOf(ofFiles()[0] ?? "")).toMatch(new RegExp(`^\\d+:([a-z,]*,)?(cpu(,[a-z]+)*|):${own}$`, "m"));

    // As many as anybody likes to ask for: the rest is refused, and another tenant is served.
    const all = await Promise.all(Array.from({ length: 128 }, () => read(paths[0] ?? "")));
    const count = (status: number) => all.filter((one) => one.status === status).length;
    expect([count(200), count(429)]).toEqual([
      LIMITS.file_sessions_per_tenant_max - 4,
      132 - LIMITS.file_sessions_per_tenant_max,
    ]);
    expect(await write("files", "beside", "beside")).toMatchObject({ status: 200 });
    expect(await (await raw("/api/volumes/files/files/beside")).text()).toBe("beside");
    end.abort();
    await eventually("no helper is left", () => ofFiles().length === 0);
    const deleted = await daemon.call("DELETE", `/api/tenants/${tenant.tenant_id}?force=true`);
    expect(deleted.status).toBeLessThan(300);
    await eventually(
      "its groups are gone",
      () => !daemon.leftovers().cgroups.some((one) => one.includes(tenant.tenant_id)),
    );
  });

  it.each([
    ["POST", "/api/volumes", { name: "a/b" }, 400],
    ["POST", "/api/volumes", { name: "a:b" }, 400],
    ["POST", "/api/volumes", { name: ".." }, 400],
    ["POST", "/api/volumes", {}, 422],
    ["POST", "/api/volumes", { name: "x", driver: "nfs" }, 400],
    ["POST", "/api/volumes", { name: "files" }, 409],
    ["GET", "/api/volumes/none", undefined, 404],
    ["GET", "/api/volumes/files/files/..%2F..%2Fetc%2Fpasswd", undefined, 400],
    ["GET", "/api/volumes/files/ls?path=../..", undefined, 400],
    ["POST", "/api/volumes/files/files", { path: "../x", content: "" }, 400],
    ["POST", "/api/volumes/files/files", { path: "x", content: "%%" }, 400],
    ["POST", "/api/volumes/files/files", { path: "x", content: "", mode: 9 }, 400],
    ["POST", "/api/volumes/files/files", { content: "" }, 422],
    ["POST", "/api/volumes/files/rename", {}, 422],
    ["POST", "/api/volumes/files/rename", { new_name: "a/b" }, 400],
  ])("%s %s with %j answers %4$i", async (method, path, body, status) => {
    const answer = await daemon.call(method, path, body);
    expect(answer.status, JSON.stringify(answer.body)).toBe(status);
  });

  it("goes with its files, and nothing is left", async () => {
    const { body } = await daemon.call("GET", "/api/volumes");
    for (const { name } of body.volumes) await daemon.call("DELETE", `/api/volumes/${name}?execution=sync`);
    await eventually("all are gone", async () => (await daemon.call("GET", "/api/volumes")).body.volumes.length === 0);
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
