/** Snapshots, clones and forks through the real API: records, modes, refusals, and content. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { SnapshotUser } from "../support/snapshots.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const snapshots = new SnapshotUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterEach(() => snapshots.clear());
afterAll(() => daemon.dispose());

describe("a snapshot", () => {
  it("has what was written before it, and its clone none of what came later", async () => {
    const { container_id } = await containers.create({ name: "box", labels: { a: "b" }, environment: { X: "1" } });
    await containers.shell("box", "echo one > /root/a; rm /etc/hostname; mkdir /srv/d");
    const taken = await snapshots.take("box", { labels: { stage: "test" }, name: "first" });
    expect(taken).toMatchObject({
      ...{ kind: "container", state: "ready", name: "first", labels: { stage: "test" }, pinned: false },
      ...{ source_container_id: container_id, container_id, source_container_name: "box", parent_snapshot_id: null },
      ...{ consistency_mode: "crash-consistent", network_mode: "reset", volume_mode: "exclude", ttl_seconds: null },
    });
    expect(taken.id).toBe(taken.snapshot_id);
    expect(taken.metadata.pause_ms).toBeGreaterThan(0);
    await containers.shell("box", "echo two > /root/a; echo new > /root/b; rmdir /srv/d");
    const cloned = await snapshots.clone(taken.snapshot_id, { name: "copy", resume_policy: "immediate" });
    expect(cloned).toMatchObject({ status: "succeeded", snapshot_id: taken.snapshot_id });
    const copy = await containers.get(cloned.result.container_id);
    const origin = { kind: "clone", snapshot_id: taken.snapshot_id, container_id };
    expect(copy).toMatchObject({ name: "copy", state: "running", labels: { a: "b" }, origin });
    const seen = await containers.shell("copy", "cat /root/a; ls /root; ls -d /srv/d; echo $X; hostname");
    expect(seen).toBe("one\na\n/srv/d\n1\ncopy\n");
    await snapshots.clear();
  });

  it("is there from its acceptance on, and a clone that comes too early waits for it", async () => {
    await containers.create({ name: "box" });
    await containers.shell("box", "head -c 50000000 /dev/urandom > /root/a");
    const sum = await containers.shell("box", "sha256sum < /root/a");
    const { body, status } = await snapshots.call("POST", "/api/containers/box/snapshot", {});
    expect(status).toBe(202);
    expect(body).toMatchObject({ success: true, source_container_name: "box" });
    expect((await snapshots.get(body.snapshot_id)).snapshot_id).toBe(body.snapshot_id);
    const cloned = await snapshots.clone(body.snapshot_id, { name: "copy", resume_policy: "immediate" });
    expect(cloned.status).toBe("succeeded");
    expect(await containers.shell("copy", "sha256sum < /root/a")).toBe(sum);
    expect(await snapshots.ended(body)).toMatchObject({ status: "succeeded", snapshot_id: body.snapshot_id });
    await snapshots.clear();
  });

  it("is found by container and label, pinned, unpinned and deleted", async () => {
    const { container_id } = await containers.create({ name: "box" });
    await containers.create({ name: "other" });
    const a = await snapshots.take("box", { labels: { stage: "a", "x=y": "1=2" } });
    const b = await snapshots.take("box", { labels: { stage: "b" } });
    const c = await snapshots.take("other");
    const found = async (query: string) =>
      (await snapshots.ok("GET", `/api/snapshots?${query}`)).snapshots.map(
        (one: { snapshot_id: string }) => one.snapshot_id,
      );
    expect(await found("")).toEqual([c.snapshot_id, b.snapshot_id, a.snapshot_id]);
    expect(await found(`container_id=${container_id}`)).toEqual([b.snapshot_id, a.snapshot_id]);
    expect(await found("label=stage=b")).toEqual([b.snapshot_id]);
    expect(await found("label=stage=a&label=stage=b")).toEqual([]);
    expect(await found("limit=1")).toEqual([c.snapshot_id]);
    expect((await snapshots.call("GET", "/api/snapshots?label=stage")).status).toBe(400);
    expect(await snapshots.ok("POST", `/api/snapshots/${a.snapshot_id}/pin`)).toMatchObject({ pinned: true });
    const refused = await snapshots.call("DELETE", `/api/snapshots/${a.snapshot_id}`);
    expect([refused.status, refused.body.error_code]).toEqual([409, "SNAPSHOT_PINNED"]);
    expect(await snapshots.ok("POST", `/api/snapshots/${a.snapshot_id}/unpin`)).toMatchObject({ pinned: false });
    await snapshots.ok("DELETE", `/api/snapshots/${a.snapshot_id}`);
    const gone = await snapshots.call("GET", `/api/snapshots/${a.snapshot_id}`);
    expect([gone.status, gone.body.reason_code]).toEqual([404, "SNAPSHOT_NOT_FOUND"]);
    expect((await snapshots.get(b.snapshot_id)).parent_snapshot_id).toBe(null);
    await snapshots.clear();
  });

  it("expires when its time is up, as soon as it is not pinned any more, and those after it too", async () => {
    await snapshots.ok("POST", "/api/volumes", { name: "data" });
    await containers.create({ name: "box" });
    const isGone = async (id: string) => (await snapshots.call("GET", `/api/snapshots/${id}`)).status === 404;
    const kept = await snapshots.take("box", { ttl_seconds: 3_600 });
    const pinned = await snapshots.take("box", { ttl_seconds: 3 });
    await snapshots.ok("POST", `/api/snapshots/${pinned.snapshot_id}/pin`);
    // Each comes while the timer waits for one that is due later.
    for (const ttl_seconds of [2, 1]) {
      const { snapshot_id } = await snapshots.take("box", { ttl_seconds });
      const of_volume = await snapshots.ok("POST", "/api/volumes/data/snapshot?execution=sync", { ttl_seconds });
      await eventually(
        "both are gone",
        async () => (await isGone(snapshot_id)) && isGone(of_volume.snapshot_id),
        20_000,
      );
    }
    const now = () => Date.now() / 1_000;
    await eventually("the pinned one is due", () => now() > pinned.expires_at + 1);
    expect(await isGone(pinned.snapshot_id)).toBe(false);
    await snapshots.ok("POST", `/api/snapshots/${pinned.snapshot_id}/unpin`);
    await eventually("it is gone", () => isGone(pinned.snapshot_id), 20_000);
    expect(await isGone(kept.snapshot_id)).toBe(false);
    await snapshots.clear();
  });

  it("is refused without its tenant, and for another one", async () => {
    for (const [method, path] of [
      ["GET", "/api/snapshots"],
      ["GET", "/api/snapshots/snp_0000000000000000"],
      ["GET", "/api/snapshots/snp_0000000000000000/lineage"],
      ["POST", "/api/snapshots/snp_0000000000000000/clone"],
      ["POST", "/api/snapshots/snp_0000000000000000/pin"],
      ["POST", "/api/snapshots/snp_0000000000000000/unpin"],
      ["DELETE", "/api/snapshots/snp_0000000000000000"],
      ["POST", "/api/containers/ctr_0000000000000000/snapshot"],
      ["POST", "/api/containers/ctr_0000000000000000/fork"],
      ["POST", "/api/containers/ctr_0000000000000000/restore"],
      ["POST", "/api/containers/ctr_0000000000000000/commit"],
      ["GET", "/api/containers/ctr_0000000000000000/changes"],
      ["GET", "/api/snapshots/snp_0000000000000000/diff/snp_0000000000000001"],
      ["POST", "/api/snapshots/snp_0000000000000000/export"],
      ["POST", "/api/volumes/none/snapshot"],
      ...["/api/containers/ctr_0000000000000000", "/api/volumes/none"].flatMap((of) =>
        (["PUT", "GET", "DELETE"] as const).map((method) => [method, `${of}/snapshot-schedule`] as const),
      ),
    ] as const) {
      const body = method === "POST" || method === "PUT" ? {} : undefined;
      const absent = await daemon.call(method, path, body);
      expect([path, absent.status, absent.body.error, absent.body.error_code]).toEqual([
        ...[path, 400, "X-Tenant-Id: the header is missing", "INVALID_ARGUMENT"],
      ]);
      for (const tenant_id of ["ten_x", ""]) {
        const foreign = await daemon.call(method, path, body, { "x-tenant-id": tenant_id });
        expect([path, foreign.status, foreign.body.error_code]).toEqual([path, 403, "FORBIDDEN"]);
      }
    }
    const elsewhere = await daemon.call("GET", "/api/containers", undefined, { "x-tenant-id": "ten_x" });
    expect(elsewhere.status).toBe(403);
  });

  it("of a stopped container needs no pause, and one of a volume alone becomes a volume", async () => {
    await snapshots.ok("POST", "/api/volumes", { name: "data" });
    const content = Buffer.from("hello").toString("base64");
    await snapshots.ok("POST", "/api/volumes/data/files", { path: "a", content });
    await containers.create({ name: "box", volumes: ["data:/data"] });
    await containers.shell("box", "echo x > /root/x");
    await snapshots.ok("POST", "/api/containers/box/stop", {});
    const taken = await snapshots.take("box", { consistency_mode: "app-consistent" });
    expect(taken.metadata.pause_ms).toBe(null);
    expect(taken.warnings).toEqual([
      "volume 'data' at /data is not included",
      "the container does not run, so no hook ran: its files are at rest",
    ]);
    const alone = await snapshots.ok("POST", "/api/volumes/data/snapshot?execution=sync", { name: "v" });
    expect(alone).toMatchObject({ kind: "volume", source_volume: "data", source_container_id: null, image: null });
    await snapshots.ok("DELETE", "/api/volumes/data/files/a");
    const { result } = await snapshots.clone(alone.snapshot_id, { name: "again" });
    expect(result.volume).toBe("again");
    const read = await snapshots.call("GET", "/api/volumes/again/files/a", undefined, { accept: "application/json" });
    expect(read.body.content).toBe(content);
    await snapshots.clear();
  });

  it("takes the volumes that are asked for, and a copy has its own", async () => {
    for (const name of ["one", "two"]) await snapshots.ok("POST", "/api/volumes", { name });
    await containers.create({ name: "box", volumes: ["one:/one", "two:/two"] });
    await containers.shell("box", "echo 1 > /one/f; echo 2 > /two/f");
    const unknown = await snapshots.call("POST", "/api/containers/box/snapshot", {
      volume_mode: "include_named",
      volumes: ["three"],
    });
    expect([unknown.status, unknown.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    const named = await snapshots.take("box", { volume_mode: "include_named", volumes: ["two"] });
    expect(named.volumes).toEqual([{ name: "two", target: "/two" }]);
    expect(named.warnings).toEqual(["volume 'one' at /one is not included"]);
    const all = await snapshots.take("box", { volume_mode: "include_all_allowed" });
    await containers.shell("box", "echo 3 > /one/f; echo 4 > /two/f");
    await snapshots.clone(named.snapshot_id, { name: "n", resume_policy: "immediate" });
    expect(await containers.shell("n", "cat /two/f; ls /one/f 2>&1; echo 9 > /two/f")).toContain("2\n");
    await snapshots.clone(all.snapshot_id, { name: "a", resume_policy: "immediate" });
    expect(await containers.shell("a", "cat /one/f /two/f")).toBe("1\n2\n");
    expect(await containers.shell("box", "cat /one/f /two/f")).toBe("3\n4\n");
    await snapshots.clear();
  });

  it("takes all volumes where include_named comes without a list, as do forks and schedules", async () => {
    for (const name of ["one", "two"]) await snapshots.ok("POST", "/api/volumes", { name });
    await containers.create({ name: "box", volumes: ["one:/one", "two:/two"] });
    await containers.shell("box", "echo 1 > /one/f; echo 2 > /two/f");
    const both = [
      { name: "one", target: "/one" },
      { name: "two", target: "/two" },
    ];
    for (const volumes of [undefined, null]) {
      const taken = await snapshots.take("box", { volume_mode: "include_named", volumes });
      expect(taken).toMatchObject({ volume_mode: "include_named", volumes: both, warnings: [] });
    }
    const planned = { volume_mode: "include_named", dry_run: true };
    expect(await snapshots.ok("POST", "/api/containers/box/snapshot", planned)).toMatchObject({ warnings: [] });
    await snapshots.fork("box", { name: "f", volume_mode: "include_named", resume_policy: "immediate" });
    expect(await containers.shell("f", "cat /one/f /two/f; echo 9 > /one/f")).toBe("1\n2\n");
    expect(await containers.shell("box", "cat /one/f")).toBe("1\n");
    const schedule = { every_seconds: 3_600, keep: 1, volume_mode: "include_named" };
    expect(await snapshots.ok("PUT", "/api/containers/box/snapshot-schedule", schedule)).toMatchObject(schedule);
    // A list that is sent and names nothing is no omission, and a list without the mode names what is not included.
    for (const how of [
      { volume_mode: "include_named", volumes: [] },
      { volume_mode: "exclude", volumes: ["one"] },
    ]) {
      for (const verb of ["snapshot", "fork"]) {
        const refused = await snapshots.call("POST", `/api/containers/box/${verb}`, how);
        expect([refused.status, refused.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
      }
    }
    // A container without volumes has none to leave out.
    await containers.create({ name: "bare" });
    expect(await snapshots.take("bare", { volume_mode: "include_named" })).toMatchObject({ volumes: [] });
    await snapshots.clear();
  });

  it("runs the hooks of the container, and is not taken where the first one fails", async () => {
    await containers.create({ name: "box" });
    const hook = (name: string, text: string) =>
      containers.shell("box", `mkdir -p /etc/hearth; cat > /etc/hearth/${name}; chmod +x /etc/hearth/${name}`, {
        stdin_data: text,
      });
    const plain = await snapshots.take("box", { consistency_mode: "app-consistent" });
    expect(plain.warnings[0]).toContain("no hooks");
    await hook("pre-snapshot", "#!/bin/sh\necho before $SNAPSHOT_ID > /root/pre; echo out\n");
    await hook("post-snapshot", "#!/bin/sh\necho after > /root/post; exit 3\n");
    const taken = await snapshots.take("box", { consistency_mode: "app-consistent" });
    expect(taken.metadata.hooks).toEqual({
      pre: { exit_code: 0, timed_out: false, output: "out\n" },
      post: { exit_code: 3, timed_out: false, output: "" },
    });
    expect(taken.warnings).toEqual(["the hook /etc/hearth/post-snapshot exited with 3"]);
    await snapshots.clone(taken.snapshot_id, { name: "copy", resume_policy: "immediate" });
    expect(await containers.shell("copy", "cat /root/pre; ls /root")).toBe(`before ${taken.snapshot_id}\npre\n`);
    await containers.shell("box", "rm /root/post");
    await hook("pre-snapshot", "#!/bin/sh\necho why; exit 7\n");
    const refused = await snapshots.call("POST", "/api/containers/box/snapshot?execution=sync", {
      consistency_mode: "app-consistent",
    });
    expect(refused.body).toMatchObject({
      ...{ error_code: "WRONG_STATE", details: { exit_code: 7, output: "why\n" } },
      error: "the hook /etc/hearth/pre-snapshot of the container exited with 7",
    });
    expect(await containers.shell("box", "cat /root/post")).toBe("after\n");
    expect((await snapshots.ok("GET", "/api/snapshots")).snapshots).toHaveLength(2);
    await snapshots.clear();
  });
});

describe("a fork", () => {
  it("is a container of its own", async () => {
    const { container_id, ip_address } = await containers.create({
      ...{ name: "box", ports: [{ container_port: 80 }], egress: "off" },
      command: ["sh", "-c", "echo begun >> /root/begun; exec sleep 1000"],
    });
    const id = "0123456789abcdef0123456789abcdef";
    await containers.shell("box", `echo ${id} > /etc/machine-id; mkfifo /root/fifo; echo x > /root/x`);
    const forked = await snapshots.fork("box", { name: "twin", resume_policy: "immediate" });
    expect(forked).toMatchObject({ status: "succeeded", container_id });
    expect(forked.capability_downgrades).toEqual(["memory: the processes of a copy start again with its command"]);
    const twin = await containers.get(forked.result.container_id);
    expect(twin).toMatchObject({
      ...{ name: "twin", state: "running", egress: "off", ports: [] },
      origin: { kind: "fork", snapshot_id: null, container_id },
    });
    expect(twin.ip_address).not.toBe(ip_address);
    expect(await containers.shell("twin", "hostname; cat /root/x; test -p /root/fifo && echo fifo")).toBe(
      "twin\nx\nfifo\n",
    );
    expect(await containers.shell("twin", "cat /etc/machine-id")).toMatch(/^[0-9a-f]{32}\n$/);
    expect(await containers.shell("twin", "cat /etc/machine-id")).not.toBe(`${id}\n`);
    expect(await containers.shell("box", "cat /etc/machine-id")).toBe(`${id}\n`);
    await snapshots.clear();
  });

  it("rests in state created unless it is to be started, and has its own name, labels and end", async () => {
    await containers.create({ name: "box", labels: { a: "b" } });
    await containers.shell("box", "echo x > /root/x");
    const { result } = await snapshots.fork("box", { labels: { c: "d" }, ttl_seconds: 1_000 });
    const made = await containers.get(result.container_id);
    expect(made).toMatchObject({ state: "created", labels: { c: "d" }, ttl_seconds: 1_000, started_at: null });
    expect(made.name).toMatch(/^box-[0-9a-z]{6}$/);
    await snapshots.ok("POST", `/api/containers/${result.container_id}/start?execution=sync`, {});
    expect(await containers.shell(result.container_id, "cat /root/x")).toBe("x\n");
    await snapshots.clear();
  });

  it("keeps the ports where that is asked for, or has new ones where they are taken", async () => {
    const { ports, container_id } = await containers.create({ name: "box", ports: [{ container_port: 80 }] });
    const [{ host_port }] = ports;
    const taken = await snapshots.take("box", { network_mode: "preserve_ns" });
    expect(taken.capability_downgrades[0]).toContain("network namespace");
    const beside = await snapshots.clone(taken.snapshot_id, { name: "beside" });
    expect(beside.warnings).toEqual(["the host ports of 'beside' are new: those of its source are taken"]);
    const [other] = (await containers.get(beside.result.container_id)).ports;
    expect([other.container_port, other.host_port === host_port]).toEqual([80, false]);
    await snapshots.ok("DELETE", `/api/containers/${container_id}`);
    const after = await snapshots.clone(taken.snapshot_id, { name: "after" });
    expect((await containers.get(after.result.container_id)).ports[0].host_port).toBe(host_port);
    await snapshots.clear();
  });

  it("of many is of one moment, with a name and a result each", async () => {
    await containers.create({ name: "box", command: ["sh", "-c", "while :; do date +%s%N > /root/now; done"] });
    const forked = await snapshots.fork("box", { name: "f{n}x", count: 5, resume_policy: "manual" });
    expect(forked.result).toMatchObject({ created_count: 5, failed_count: 0 });
    expect(forked.items.map(({ name }: { name: string }) => name)).toEqual(["f1x", "f2x", "f3x", "f4x", "f5x"]);
    const contents = await Promise.all(
      forked.items.map(async ({ container_id }: { container_id: string }) => {
        const path = `/api/containers/${container_id}/archive?path=/root/now`;
        return (await snapshots.call("GET", path)).body;
      }),
    );
    expect(new Set(contents).size).toBe(1);
    const again = await snapshots.fork("box", { name: "f{n}x", count: 6 });
    expect(again.result).toMatchObject({ created_count: 1, failed_count: 5 });
    expect(again.items[0]).toMatchObject({ name: "f1x", status: "failed", error_code: "NAME_TAKEN" });
    const none = await snapshots.call("POST", "/api/containers/box/fork?execution=sync", { name: "f1x" });
    expect([none.status, none.body.error_code]).toEqual([409, "NAME_TAKEN"]);
    await snapshots.clear();
  });

  it("is refused before it is accepted where its name is taken, as a clone and a volume are", async () => {
    await snapshots.ok("POST", "/api/volumes", { name: "data" });
    await containers.create({ name: "box" });
    const { snapshot_id } = await snapshots.take("box");
    const of_volume = await snapshots.ok("POST", "/api/volumes/data/snapshot?execution=sync", {});
    const copies = [
      ["/api/containers/box/fork", "box"],
      [`/api/snapshots/${snapshot_id}/clone`, "box"],
      [`/api/snapshots/${of_volume.snapshot_id}/clone`, "data"],
    ] as const;
    const operations = async () => (await snapshots.ok("GET", "/api/operations")).operations.length;
    const before = await operations();
    for (const [path, name] of copies) {
      for (const dry_run of [false, true]) {
        const refused = await snapshots.call("POST", path, { name, dry_run });
        expect([path, refused.status, refused.body.error_code]).toEqual([path, 409, "NAME_TAKEN"]);
        expect(refused.body.error).toContain(`named '${name}' exists`);
      }
    }
    // Also where all of several names are taken, by containers at rest.
    await snapshots.fork("box", { name: "r{n}", count: 2, resume_policy: "manual" });
    const several = await snapshots.call("POST", copies[1][0], { name: "r{n}", count: 2 });
    expect([several.status, several.body.error_code]).toEqual([409, "NAME_TAKEN"]);
    expect(await operations()).toBe(before + 1);
    // The names of volumes are not those of containers, and a repeated request gets its first answer.
    const once = { "idempotency-key": "twin" };
    const twin = await snapshots.ok("POST", copies[0][0], { name: "data" }, once);
    await snapshots.ok("GET", `/api/operations/${twin.operation_id}?wait_seconds=60`);
    expect(await snapshots.ok("POST", copies[0][0], { name: "data" }, once)).toEqual(twin);
    await snapshots.clear();
  });

  it("is refused before anything is done where its policy is unknown", async () => {
    await containers.create({ name: "box" });
    for (const body of [{ resume_policy: "later" }, { count: 0 }, { count: 101 }, { volumes: ["x"] }]) {
      const refused = await snapshots.call("POST", "/api/containers/box/fork", body);
      expect([body, refused.status]).toEqual([body, 400]);
    }
    const dry = await snapshots.call("POST", "/api/containers/box/fork", { dry_run: true, count: 3 });
    expect([dry.status, dry.body.dry_run]).toEqual([200, true]);
    expect((await snapshots.ok("GET", "/api/containers")).containers).toHaveLength(1);
    const key = { "idempotency-key": "one" };
    const first = await snapshots.ok("POST", "/api/containers/box/fork", {}, key);
    expect(await snapshots.ok("POST", "/api/containers/box/fork", {}, key)).toEqual(first);
    expect(await snapshots.ended(first)).toMatchObject({ status: "succeeded" });
    expect((await snapshots.ok("GET", "/api/containers")).containers).toHaveLength(2);
    await snapshots.clear();
  });
});

describe("the disk of a tenant", () => {
  it("counts what its copies hold, also when what they were copied from is gone, and is given back with the last", async () => {
    const limits = { disk_mb_max: 96, snapshot_mb_max: 64 };
    const { body: tenant } = await daemon.call("POST", "/api/tenants", { name: "small", limits });
    const { body: key } = await daemon.call("POST", `/api/tenants/${tenant.tenant_id}/api-keys`, { name: "k" });
    const own = new SnapshotUser(daemon, tenant.tenant_id, { "x-api-key": key.key });
    const run = async (id: string, line: string) =>
      (await own.ok("POST", `/api/containers/${id}/exec`, { command: ["sh", "-c", line] })).exit_code;
    await own.ok("POST", "/api/containers", { name: "c0", disk_limit_mb: 48, memory_limit_mb: 256 });
    let grown = 0;
    for (let i = 0; i < 8; i++) {
      // The data of each generation stays in all later ones, whose own limits count only their own writes.
      const code = await run(`c${i}`, `head -c 40000000 /dev/urandom > /root/${i} && sync`);
      if (code !== 0) break;
      grown += 40;
      const { result } = await own.fork(`c${i}`, { name: `c${i + 1}`, resume_policy: "immediate" }).catch(() => ({
        result: null,
      }));
      if (result === null) break;
      await own.ok("DELETE", `/api/containers/c${i}`);
    }
    expect(grown).toBeGreaterThanOrEqual(80);
    expect(grown).toBeLessThanOrEqual(160);
    const { containers: left } = await own.ok("GET", "/api/containers");
    for (const { container_id } of left) await own.ok("DELETE", `/api/containers/${container_id}`);
    // The kernel gives space back in its own time.
    await eventually("there is room again", async () => {
      const body = { name: "again", disk_limit_mb: 48, memory_limit_mb: 256 };
      const made = await own.call("POST", "/api/containers", body);
      expect([201, 403, 503]).toContain(made.status);
      return made.status === 201;
    });
    expect(await run("again", "head -c 40000000 /dev/zero > /root/x && sync")).toBe(0);
    await daemon.call("DELETE", `/api/tenants/${tenant.tenant_id}?force=true`);
  });
});

describe("a restored container", () => {
  it("has the files of the snapshot, its own settings, and runs again", async () => {
    const { container_id } = await containers.create({ name: "box" });
    await containers.shell("box", "echo one > /root/a");
    const first = await snapshots.take("box");
    await containers.shell("box", "echo two > /root/a; echo b > /root/b");
    const second = await snapshots.take("box");
    expect(second.parent_snapshot_id).toBe(first.snapshot_id);
    const { snapshot_id } = first;
    const twins = await snapshots.clone(snapshot_id, { name: "t{n}", count: 2 });
    expect(twins.items.map(({ name }: { name: string }) => name)).toEqual(["t1", "t2"]);
    await snapshots.ok("POST", "/api/containers/box/restore?execution=sync", { snapshot_id });
    expect(await containers.get("box")).toMatchObject({ container_id, state: "running" });
    expect(await containers.shell("box", "cat /root/a; ls /root")).toBe("one\na\n");
    const third = await snapshots.take("box");
    expect(third.parent_snapshot_id).toBe(snapshot_id);
    const other = await snapshots.call("POST", "/api/containers/box/restore", { snapshot_id: "snp_0000000000000000" });
    expect(other.status).toBe(404);
    await snapshots.clear();
  });
});

describe("the lineage", () => {
  it("holds snapshots, clones and forks over three generations, also when those between are gone", async () => {
    await containers.create({ name: "box" });
    const ids: string[] = [];
    const sources = ["box"];
    for (const generation of ["1", "2", "3"]) {
      const source = sources.at(-1) ?? "";
      await containers.shell(source, `echo ${generation} > /root/${generation}`);
      const taken = await snapshots.take(source);
      ids.push(taken.snapshot_id);
      const name = `g${generation}`;
      await snapshots.clone(taken.snapshot_id, { name, resume_policy: "immediate" });
      sources.push(name);
    }
    await snapshots.fork("g3", { name: "f" });
    const lineage = await snapshots.ok("GET", `/api/snapshots/${ids[1]}/lineage`);
    expect(lineage.nodes.map((node: { snapshot_id: string }) => node.snapshot_id)).toEqual(ids);
    expect(lineage.nodes.map((node: { depth: number }) => node.depth)).toEqual([0, 1, 2]);
    const kinds = lineage.containers.map((one: { name: string; kind: string }) => `${one.name} ${one.kind}`);
    expect(kinds.sort()).toEqual(["box source", "f fork", "g1 clone", "g2 clone", "g3 clone"]);
    for (const name of ["box", "g1", "g2"]) await snapshots.ok("DELETE", `/api/containers/${name}`);
    for (const id of ids) await snapshots.ok("DELETE", `/api/snapshots/${id}`);
    expect(await containers.shell("g3", "cat /root/1 /root/2 /root/3")).toBe("1\n2\n3\n");
    await snapshots.clear();
    await eventually("nothing is left", () => daemon.leftovers().subvolumes.length === NOTHING_LEFT.subvolumes.length);
  });
});
