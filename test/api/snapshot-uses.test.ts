/** Uses of snapshots through the real API: comparisons, archives, images, versions; and schedules. */
import { readdirSync, statSync } from "node:fs";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { SnapshotUser } from "../support/snapshots.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const snapshots = new SnapshotUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterEach(() => snapshots.clear());
afterAll(() => daemon.dispose());

describe("changes", () => {
  const told = (body: { changes: { change: string; path: string; renamed_from: string | null }[] }) =>
    body.changes.map(
      ({ change, path, renamed_from }) => `${change} ${path}${renamed_from ? ` < ${renamed_from}` : ""}`,
    );

  it("between snapshots, and of a container since one or against its image, are those that it sees", async () => {
    await containers.create({ name: "box" });
    await containers.shell(
      "box",
      "mkdir -p /srv/d/e; echo 1 > /srv/a; echo 1 > /srv/b; echo 1 > /srv/d/f; ln /srv/a /srv/h",
    );
    const first = await snapshots.take("box");
    const image = await snapshots.ok("GET", "/api/containers/box/changes");
    expect(told(image)).toEqual([
      ...["added /srv/a", "added /srv/b", "added /srv/d", "added /srv/d/e", "added /srv/d/f", "added /srv/h"],
    ]);
    await containers.shell(
      "box",
      "echo 2 >> /srv/a; rm /srv/b; mv /srv/d /srv/moved; echo 3 > /srv/moved/f; touch /srv/new; rm /etc/issue; chmod 600 /etc/hosts.allow 2>/dev/null; rm -r /etc/skel; mkdir /etc/skel; touch '/srv/a b\tc'",
    );
    const second = await snapshots.take("box");
    const diff = await snapshots.ok("GET", `/api/snapshots/${first.snapshot_id}/diff/${second.snapshot_id}`);
    expect(told(diff)).toEqual([
      "deleted /etc/issue",
      ...["deleted /etc/skel/.bash_logout", "deleted /etc/skel/.bashrc", "deleted /etc/skel/.profile"],
      ...["changed /srv/a", "added /srv/a b\tc", "deleted /srv/b", "deleted /srv/d", "deleted /srv/d/f"],
      ...["added /srv/moved < /srv/d", "added /srv/moved/f < /srv/d/f", "added /srv/new"],
    ]);
    const since = await snapshots.ok("GET", `/api/containers/box/changes?since=${first.snapshot_id}`);
    expect(since).toEqual(diff);
    const back = await snapshots.ok("GET", `/api/snapshots/${second.snapshot_id}/diff/${first.snapshot_id}?limit=2`);
    expect(told(back)).toEqual(["added /etc/issue", "added /etc/skel/.bash_logout"]);
    expect(back).toMatchObject({
      is_truncated: true,
      added_count: diff.deleted_count,
      deleted_count: diff.added_count,
    });
    const same = await snapshots.ok("GET", `/api/snapshots/${first.snapshot_id}/diff/${first.snapshot_id}`);
    expect(same).toMatchObject({ changes: [], is_truncated: false });
    await snapshots.clear();
    await eventually("nothing is left", () => daemon.leftovers().subvolumes.length === 0);
  });
});

describe("slow work, and sources that are deleted meanwhile", () => {
  it("serves other requests while a clone waits for its snapshot", async () => {
    await containers.create({ name: "box" });
    await containers.shell(
      "box",
      "mkdir -p /etc/hearth; printf '#!/bin/sh\\nsleep 3\\n' > /etc/hearth/pre-snapshot; chmod +x /etc/hearth/pre-snapshot",
    );
    const { body } = await snapshots.call("POST", "/api/containers/box/snapshot", {
      consistency_mode: "app-consistent",
    });
    const clone = await snapshots.ok("POST", `/api/snapshots/${body.snapshot_id}/clone`, { name: "copy" });
    // Longer than a waiting clone looks at its snapshot: it must not spin.
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect((await daemon.call("GET", "/health")).status).toBe(200);
    expect(await snapshots.ended(clone)).toMatchObject({ status: "succeeded" });
    await snapshots.clear();
  });

  it("waits with every use of a snapshot that is being taken, until it is complete or not made", async () => {
    await containers.create({ name: "box" });
    const hook = (line: string) =>
      containers.shell(
        "box",
        `mkdir -p /etc/hearth; printf '#!/bin/sh\nwhile [ ! -e /go ]; do sleep 0.1; done; rm /go; ${line}\n' > /etc/hearth/pre-snapshot; chmod +x /etc/hearth/pre-snapshot`,
      );
    const begun = async () => {
      const { body } = await snapshots.call("POST", "/api/containers/box/snapshot", {
        consistency_mode: "app-consistent",
      });
      return { operation: body, id: String(body.snapshot_id), path: `/api/snapshots/${body.snapshot_id}` };
    };
    /** Answers of requests that are sent while the snapshot is being taken. */
    const sent = async (
      { path, id }: { path: string; id: string },
      requests: readonly (readonly [string, string, object?])[],
    ) => {
      let answered = 0;
      const all = requests.map(([method, to, body]) =>
        snapshots
          .call(method, to.replace("{path}", path).replace("{id}", id), body && { snapshot_id: id, ...body })
          .finally(() => answered++),
      );
      expect(await snapshots.ok("GET", path)).toMatchObject({ state: "creating" });
      expect(answered).toBe(0);
      await containers.shell("box", "touch /go");
      return (await Promise.all(all)).map(({ status, body }) => [status, body.error_code ?? null]);
    };
    await hook("true");
    const kept = await begun();
    const uses = [
      ["POST", "{path}/pin"],
      ["GET", "{path}/diff/{id}"],
      ["GET", "/api/containers/box/changes?since={id}"],
    ] as const;
    expect(await sent(kept, uses)).toEqual(uses.map(() => [200, null]));
    expect(await snapshots.ok("GET", kept.path)).toMatchObject({ state: "ready", pinned: true });
    await snapshots.ok("POST", `${kept.path}/unpin`);
    // Those that begin an operation, too.
    const fn = await snapshots.ok("POST", "/api/functions", { name: "made", handler: "cat" });
    const begins = [
      ["POST", "/api/snapshots/{id}/export", { snapshot_id: undefined, reference: "made:1" }],
      ["POST", `/api/functions/${fn.id}/versions`, {}],
      ["POST", "/api/containers/box/restore", {}],
    ] as const;
    expect(await sent(await begun(), begins)).toEqual(begins.map(() => [202, null]));
    await eventually("they have ended", async () => {
      const { operations } = await snapshots.ok("GET", "/api/operations?limit=20");
      return operations.every((one: { completed_at: string | null }) => one.completed_at !== null);
    });
    const removed = await begun();
    expect(await sent(removed, [["DELETE", "{path}"]])).toEqual([[200, null]]);
    expect((await snapshots.call("GET", removed.path)).status).toBe(404);
    // Not made, because its hook fails: what waited finds nothing.
    await hook("exit 7");
    const lost = await begun();
    const refused = [...uses, ["POST", "{path}/unpin"], ["DELETE", "{path}"]] as const;
    expect(await sent(lost, [...refused, ...begins])).toEqual([...refused, ...begins].map(() => [404, "NOT_FOUND"]));
    // A client that gives up: what it asked for is not done later.
    await hook("true");
    const left = await begun();
    const headers = { "x-api-key": KEY, "x-tenant-id": "default" };
    const gone = AbortSignal.timeout(500);
    const json = { ...headers, "content-type": "application/json" };
    const leave = ([method, path, body]: (typeof begins)[number]) =>
      fetch(daemon.url + path.replace("{id}", left.id), {
        ...{ method, headers: json, body: JSON.stringify({ snapshot_id: left.id, ...body }), signal: gone },
      });
    const gave = [
      fetch(daemon.url + left.path, { method: "DELETE", headers, signal: gone }),
      ...begins.map((one) => leave(one)),
    ];
    expect((await Promise.allSettled(gave)).map(({ status }) => status)).toEqual(gave.map(() => "rejected"));
    await containers.shell("box", "touch /go");
    await snapshots.ended(left.operation);
    expect(await snapshots.ok("GET", left.path)).toMatchObject({ state: "ready" });
    const { operations } = await snapshots.ok("GET", "/api/operations?limit=1");
    expect(operations).toMatchObject([{ operation_id: left.operation.operation_id }]);
    await snapshots.ok("DELETE", `/api/functions/${fn.id}`);
    await snapshots.clear();
  });

  it("gives an archive of a volume whole, also when its snapshot is deleted while it is read", async () => {
    await snapshots.ok("POST", "/api/volumes", { name: "data" });
    await containers.create({ name: "box", volumes: ["data:/data"] });
    await containers.shell(
      "box",
      "head -c 30000000 /dev/urandom > /data/a; for i in $(seq 50); do echo $i > /data/znote$i; done",
    );
    const { snapshot_id } = await snapshots.ok("POST", "/api/volumes/data/snapshot?execution=sync", {});
    const answer = await fetch(`${daemon.url}/api/snapshots/${snapshot_id}/export`, {
      method: "POST",
      headers: { "x-api-key": KEY, "x-tenant-id": "default" },
      body: JSON.stringify({ format: "tar" }),
    });
    const reader = answer.body?.getReader();
    const pieces = [Buffer.from((await reader?.read())?.value ?? [])];
    await snapshots.ok("DELETE", `/api/snapshots/${snapshot_id}`);
    for (let next = await reader?.read(); next?.done === false; next = await reader?.read())
      pieces.push(Buffer.from(next.value));
    expect(
      Buffer.concat(pieces)
        .toString("latin1")
        .match(/znote\d+\0/g),
    ).toHaveLength(50);
    await snapshots.clear();
  });

  it("compares backwards without what the image has, and believes no attribute of a file", async () => {
    await containers.create({ name: "box" });
    const first = await snapshots.take("box");
    await containers.shell("box", "touch /usr/bin/x /root/backdoor");
    await containers.python(
      "box",
      "import os; open('/root/z','w'); os.setxattr('/root/z','user.a',b'\\nunlink          ./s/upper/root/backdoor\\n')",
    );
    const second = await snapshots.take("box");
    const paths = ({ changes }: { changes: { change: string; path: string }[] }) =>
      changes.map(({ change, path }) => `${change} ${path}`);
    const names = ["/root/backdoor", "/root/z", "/usr/bin/x"];
    const forth = await snapshots.ok("GET", `/api/snapshots/${first.snapshot_id}/diff/${second.snapshot_id}`);
    expect(paths(forth)).toEqual(names.map((path) => `added ${path}`));
    const back = await snapshots.ok("GET", `/api/snapshots/${second.snapshot_id}/diff/${first.snapshot_id}`);
    expect(paths(back)).toEqual(names.map((path) => `deleted ${path}`));
    // A path that the kernel cannot name: the snapshot is taken, the comparison refused.
    await containers.python(
      "box",
      "import os\nos.chdir('/root')\nfor _ in range(40):\n  os.mkdir('n'*200); os.chdir('n'*200)",
    );
    const deep = await snapshots.take("box");
    expect(deep.state).toBe("ready");
    const refused = await snapshots.call("GET", "/api/containers/box/changes");
    expect([refused.status, refused.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    await snapshots.clear();
  });
});

describe("an image of a container", () => {
  it("has its files over the image below, its command, and makes containers", async () => {
    await containers.create({ name: "box", environment: { SECRET: "s" }, command: ["sleep", "1000"] });
    await containers.shell("box", "echo made > /srv/made; rm /etc/issue; mkdir -m 700 /srv/d");
    const made = await snapshots.ok("POST", "/api/containers/box/commit?execution=sync", { reference: "tools:1" });
    expect(made.result).toMatchObject({ reference: "docker.io/library/tools:1" });
    const taken = await snapshots.take("box");
    await containers.shell("box", "echo later > /srv/made");
    const path = `/api/snapshots/${taken.snapshot_id}/export`;
    const again = await snapshots.ok("POST", `${path}?execution=sync`, { reference: "tools:2" });
    await containers.create({ name: "again", image: "tools:2", oci: true });
    expect(await containers.shell("again", "cat /srv/made; ls /etc/issue 2>&1; stat -c %a /srv/d; echo $SECRET.")).toBe(
      "made\nls: cannot access '/etc/issue': No such file or directory\n700\n.\n",
    );
    expect((await snapshots.ok("GET", "/api/oci/images/inspect?reference=tools:2")).image.default_cmd).toEqual([
      ...["sleep", "1000"],
    ]);
    expect(again.result.image_id).toMatch(/^sha256:[0-9a-f]{64}$/);
    const of = await snapshots.take("again");
    await snapshots.ok("DELETE", "/api/containers/again");
    const used = await snapshots.call("DELETE", "/api/oci/images?reference=tools:2");
    expect([used.status, used.body.error]).toEqual([409, "image 'docker.io/library/tools:2' is in use by 1 snapshot"]);
    await snapshots.ok("DELETE", `/api/snapshots/${of.snapshot_id}`);
    for (const tag of [1, 2]) await snapshots.ok("DELETE", `/api/oci/images?reference=tools:${tag}`);
    const tar = await fetch(daemon.url + path, {
      method: "POST",
      headers: { "x-api-key": KEY, "x-tenant-id": "default" },
      body: JSON.stringify({ format: "tar" }),
    });
    expect([tar.status, tar.headers.get("content-type")]).toEqual([200, "application/x-tar"]);
    const reader = tar.body?.getReader();
    const first = await reader?.read();
    expect(Buffer.from(first?.value ?? []).toString("latin1", 257, 262)).toBe("ustar");
    await reader?.cancel();
    expect((await snapshots.call("POST", path, {})).status).toBe(400);
    await snapshots.clear();
    await eventually("nothing is left", () => daemon.leftovers().subvolumes.length === 0);
  });
});

describe("an image of a container above the tenant's limit", () => {
  it("is refused before its layer is written, by a commit and by an export", async () => {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "small" })).body;
    const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
    const headers = { "x-api-key": key };
    const own = new SnapshotUser(daemon, tenant_id, headers);
    await own.ok("POST", "/api/containers", { name: "box", image: "prod", command: ["sleep", "1000"] });
    const write = { command: ["sh", "-c", "head -c 64M /dev/urandom > /large"] };
    expect((await own.ok("POST", "/api/containers/box/exec", write)).exit_code).toBe(0);
    const taken = await own.take("box");
    await daemon.call("PATCH", `/api/tenants/${tenant_id}`, { limits: { image_mb_max: 4 } });
    const paths = ["/api/containers/box/commit", `/api/snapshots/${taken.snapshot_id}/export`];
    for (const path of paths) {
      let largest = 0;
      const watching = setInterval(() => {
        largest = Math.max(largest, bytesBelow(`${daemon.data_dir}/commits`));
      }, 1);
      const { body } = await own
        .call("POST", `${path}?execution=sync`, { reference: "large:1" })
        .finally(() => clearInterval(watching));
      expect(body.error_code).toBe("QUOTA_EXCEEDED");
      expect(largest).toBeLessThanOrEqual(4 * 1024 * 1024);
    }
    expect((await daemon.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
  });
});

/** Bytes of the files below a directory, which may go meanwhile. */
function bytesBelow(path: string): number {
  try {
    const entries = readdirSync(path, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile());
    return files.reduce((sum, { parentPath, name }) => sum + statSync(`${parentPath}/${name}`).size, 0);
  } catch {
    return 0;
  }
}

describe("a version from a snapshot", () => {
  it("runs the handler on the files of the container", async () => {
    await containers.create({ name: "box" });
    await containers.shell("box", "echo 'echo made: $(cat)' > /usr/local/bin/tool; chmod 755 /usr/local/bin/tool");
    const { snapshot_id } = await snapshots.take("box");
    const made = await daemon.deploy({ name: "tool", handler: "echo first" });
    expect((await daemon.invoke("tool")).stdout).toBe("first\n");
    const path = `/api/functions/${made.id}/versions?execution=sync`;
    const next = await snapshots.ok("POST", path, { snapshot_id, handler: "sh /usr/local/bin/tool" });
    expect(next).toMatchObject({ current_version: 2, oci: true, handler: "sh /usr/local/bin/tool" });
    expect((await daemon.invoke("tool", { payload: "x" })).stdout).toBe("made: x\n");
    await snapshots.ok("POST", `/api/functions/${made.id}/rollback`, { version: 1 });
    expect((await daemon.invoke("tool")).stdout).toBe("first\n");
    const unknown = await snapshots.call("POST", path, { snapshot_id: "snp_0000000000000000" });
    expect(unknown.status).toBe(404);
    await snapshots.ok("DELETE", `/api/functions/${made.id}`);
    await snapshots.clear();
  });
});

describe("a schedule", () => {
  it("is one of a container or volume, replaced, and gone with it", async () => {
    await containers.create({ name: "box" });
    await snapshots.ok("POST", "/api/volumes", { name: "data" });
    const path = "/api/containers/box/snapshot-schedule";
    expect((await snapshots.call("GET", path)).status).toBe(404);
    expect((await snapshots.call("PUT", path, { every_seconds: 1, keep: 1 })).status).toBe(400);
    const made = await snapshots.ok("PUT", path, { every_seconds: 60, keep: 2, labels: { by: "schedule" } });
    expect(made).toMatchObject({ source_kind: "container", keep: 2, labels: { by: "schedule" }, last_error: null });
    expect(made.due_at).toBe(made.created_at + 60);
    expect(await snapshots.ok("PUT", path, { every_seconds: 120, keep: 1 })).toMatchObject({ every_seconds: 120 });
    expect(await snapshots.ok("PUT", path, { every_seconds: 120, keep: 3 })).toMatchObject({ keep: 3 });
    const of = "/api/volumes/data/snapshot-schedule";
    expect((await snapshots.call("PUT", of, { every_seconds: 60, keep: 1, volume_mode: "exclude" })).status).toBe(422);
    expect(await snapshots.ok("PUT", of, { every_seconds: 60, keep: 1 })).toMatchObject({ source_kind: "volume" });
    await snapshots.ok("DELETE", of);
    expect((await snapshots.call("DELETE", of)).status).toBe(404);
    await snapshots.clear();
    await containers.create({ name: "box" });
    expect((await snapshots.call("GET", path)).status).toBe(404);
    await snapshots.clear();
  });
});
