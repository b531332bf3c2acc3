/** Snapshots, clones and forks asked for by those who must not have them, and of containers that want to do harm. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type Answer, Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { SnapshotUser } from "../support/snapshots.ts";

type Json = Answer["body"];

const daemon = new Daemon();
const SMALL = { memory_limit_mb: 256, disk_limit_mb: 64 };

/** A tenant with a key of its own. */
interface Tenant {
  readonly tenant_id: string;
  readonly key: string;
  readonly user: SnapshotUser;
  /** A container that runs. */
  readonly box: (name: string, more?: object) => Promise<Json>;
  /** Returns the output of a shell line, on both streams. */
  readonly shell: (id: string, line: string, more?: object) => Promise<string>;
  readonly usage: () => Promise<Json>;
}

async function makeTenant(name: string, limits: object = {}): Promise<Tenant> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name, limits })).body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).body;
  const user = new SnapshotUser(daemon, tenant_id, { "x-api-key": key });
  const shell = async (id: string, line: string, more: object = {}) => {
    const body = { command: ["sh", "-c", line], ...more };
    const { stdout, stderr } = await user.ok("POST", `/api/containers/${id}/exec`, body);
    return stdout + stderr;
  };
  return {
    ...{ tenant_id, key, user, shell },
    box: (box, more = {}) => user.ok("POST", "/api/containers", { name: box, ...SMALL, ...more }),
    usage: async () => (await user.ok("GET", "/api/tenant")).usage,
  };
}

const refusal = ({ status, body }: Answer) => [status, body.error_code];

/** Deletes all containers, snapshots and volumes of a tenant. */
async function clear({ user }: Tenant): Promise<void> {
  for (const { snapshot_id } of (await user.ok("GET", "/api/snapshots")).snapshots) {
    await user.ok("POST", `/api/snapshots/${snapshot_id}/unpin`);
    await user.ok("DELETE", `/api/snapshots/${snapshot_id}`);
  }
  for (const { container_id } of (await user.ok("GET", "/api/containers")).containers) {
    await user.ok("DELETE", `/api/containers/${container_id}`);
  }
  for (const { name } of (await user.ok("GET", "/api/volumes")).volumes) {
    await user.ok("DELETE", `/api/volumes/${name}?execution=sync`);
  }
}

async function expectNothingLeft(): Promise<void> {
  await expect.poll(() => daemon.leftovers().subvolumes).toEqual(NOTHING_LEFT.subvolumes);
}

const state: { a: Tenant | null; b: Tenant | null } = { a: null, b: null };
const a = (): Tenant => state.a as Tenant;
const b = (): Tenant => state.b as Tenant;

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  state.a = await makeTenant("a");
  state.b = await makeTenant("b");
});
afterEach(async () => {
  for (const tenant of [a(), b()]) await clear(tenant);
  await expectNothingLeft();
});
afterAll(() => daemon.dispose());

describe("another tenant", () => {
  it("finds no snapshot by its id, and changes none", async () => {
    const { container_id } = await a().box("box");
    const { snapshot_id } = await a().user.take("box", { labels: { stage: "x" } });
    const mine = await b().box("mine");
    const before = await a().user.get(snapshot_id);
    for (const [method, path, body] of [
      ["GET", `/api/snapshots/${snapshot_id}`],
      ["GET", `/api/snapshots/${snapshot_id}/lineage`],
      ["POST", `/api/snapshots/${snapshot_id}/clone`, {}],
      ["POST", `/api/snapshots/${snapshot_id}/clone`, { dry_run: true }],
      ["POST", `/api/snapshots/${snapshot_id}/pin`, {}],
      ["POST", `/api/snapshots/${snapshot_id}/unpin`, {}],
      ["DELETE", `/api/snapshots/${snapshot_id}`],
      ["POST", `/api/containers/${container_id}/fork`, {}],
      ["POST", `/api/containers/${container_id}/snapshot`, {}],
      ["POST", `/api/containers/${container_id}/restore`, { snapshot_id }],
      ["POST", `/api/containers/${mine.container_id}/restore`, { snapshot_id }],
    ] as const) {
      const theirs = await b().user.call(method, path, body);
      expect([method, path, ...refusal(theirs)]).toEqual([method, path, 404, "NOT_FOUND"]);
      const elsewhere = await b().user.call(method, path, body, { "x-tenant-id": a().tenant_id });
      const code = path.endsWith("/restore") ? elsewhere.body.error_code : "FORBIDDEN";
      expect([method, path, elsewhere.body.error_code]).toEqual([method, path, code]);
      expect([403, 404]).toContain(elsewhere.status);
    }
    for (const query of ["", `?container_id=${container_id}`, "?label=stage=x"]) {
      expect((await b().user.ok("GET", `/api/snapshots${query}`)).snapshots).toEqual([]);
    }
    expect(await a().user.get(snapshot_id)).toEqual(before);
  });

  it("sees neither containers nor snapshots of others in its lineage", async () => {
    await a().box("box");
    await b().box("box");
    const [mine, theirs] = [await a().user.take("box"), await b().user.take("box")];
    const lineage = await b().user.ok("GET", `/api/snapshots/${theirs.snapshot_id}/lineage`);
    expect(lineage.nodes.map((node: Json) => node.snapshot_id)).toEqual([theirs.snapshot_id]);
    expect(JSON.stringify(lineage)).not.toContain(mine.snapshot_id);
  });

  it("is not held up by many snapshots that a tenant takes at once", async () => {
    await a().box("box", { command: ["sh", "-c", "while :; do date > /root/now; done"] });
    await b().box("calm");
    const handles = await Promise.all(
      Array.from({ length: 30 }, () => a().user.ok("POST", "/api/containers/box/snapshot", {})),
    );
    for (let n = 0; n < 10; n++) expect(await b().shell("calm", `echo ${n}`)).toBe(`${n}\n`);
    const taken = await b().user.take("calm");
    expect(taken.state).toBe("ready");
    for (const handle of handles) expect((await a().user.ended(handle)).status).toBe("succeeded");
    expect(await a().shell("box", "echo alive")).toBe("alive\n");
  });
});

describe("the limits of a tenant", () => {
  it("refuse one snapshot too many, and leave nothing of it", async () => {
    const c = await makeTenant("c", { snapshots_max: 2 });
    await c.box("box");
    const first = await c.user.take("box");
    await c.user.take("box");
    const refused = await c.user.call("POST", "/api/containers/box/snapshot", {});
    expect(refusal(refused)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect((await c.usage()).snapshots).toBe(2);
    await c.user.ok("DELETE", `/api/snapshots/${first.snapshot_id}`);
    expect((await c.usage()).snapshots).toBe(1);
    const both = await Promise.all([1, 2, 3].map(() => c.user.call("POST", "/api/containers/box/snapshot", {})));
    expect(both.filter(({ status }) => status === 202)).toHaveLength(1);
    expect(both.filter(({ status }) => status === 403)).toHaveLength(2);
    for (const { body, status } of both) if (status === 202) await c.user.ended(body);
    await clear(c);
    await expectNothingLeft();
    expect(await c.usage()).toMatchObject({ snapshots: 0, snapshot_mb: 0 });
  });

  it("refuse a snapshot that is too large, and leave nothing of it", async () => {
    const d = await makeTenant("d", { snapshot_mb_max: 20 });
    await d.box("box");
    await d.shell("box", "head -c 12M /dev/urandom > /root/a");
    const first = await d.user.take("box");
    expect(first.size_bytes).toBeGreaterThanOrEqual(12 * 2 ** 20);
    expect((await d.usage()).snapshot_mb).toBe(Math.ceil(first.size_bytes / 2 ** 20));
    const refused = await d.user.call("POST", "/api/containers/box/snapshot?execution=sync", {});
    expect(refusal(refused)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect((await d.user.ok("GET", "/api/snapshots")).snapshots).toHaveLength(1);
    await d.user.ok("DELETE", `/api/snapshots/${first.snapshot_id}`);
    expect((await d.user.take("box")).state).toBe("ready");
    await clear(d);
    await expectNothingLeft();
  });

  it("hold for the containers that copies are", async () => {
    const e = await makeTenant("e", { containers_max: 3 });
    await e.box("box");
    const forked = await e.user.fork("box", { count: 5 });
    expect(forked.result).toMatchObject({ created_count: 2, failed_count: 3 });
    const failed = forked.items.filter(({ status }: Json) => status === "failed");
    expect(failed[0].error_code).toMatch(/QUOTA_EXCEEDED|CAPACITY_FULL/);
    expect(daemon.leftovers().subvolumes.filter((name) => name.startsWith("ctr_"))).toHaveLength(3);
    await clear(e);
    await expectNothingLeft();
  });

  it("end with the tenant: its deletion by force removes its snapshots, pinned ones too", async () => {
    const f = await makeTenant("f");
    await f.user.ok("POST", "/api/volumes", { name: "data" });
    await f.box("box", { volumes: ["data:/data"] });
    const { snapshot_id } = await f.user.take("box", { volume_mode: "include_all_allowed" });
    await f.user.ok("POST", `/api/snapshots/${snapshot_id}/pin`);
    await f.user.ok("POST", "/api/volumes/data/snapshot?execution=sync", {});
    await f.user.ok("POST", "/api/containers/box/snapshot", {});
    const plain = await daemon.call("DELETE", `/api/tenants/${f.tenant_id}`);
    expect([409, 200, 202]).toContain(plain.status);
    await daemon.call("DELETE", `/api/tenants/${f.tenant_id}?force=true`);
    await expectNothingLeft();
    expect((await f.user.call("GET", "/api/snapshots")).status).toBe(401);
  });
});

const MACHINE_ID = "0123456789abcdef0123456789abcdef";

describe("a container whose files are traps", () => {
  it.each([
    ["a link to a file of the host", "ln -sf /proc/1/root/etc/machine-id /etc/machine-id"],
    ["a link to above", "ln -sf ../../../../../../../etc/machine-id /etc/machine-id"],
    ["a link to itself", "ln -sf /etc/machine-id /etc/machine-id"],
    ["a FIFO", "rm -f /etc/machine-id; mkfifo /etc/machine-id"],
    ["a directory", "rm -f /etc/machine-id; mkdir -p /etc/machine-id/x"],
    [
      "a socket",
      "rm -f /etc/machine-id; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/etc/machine-id\")'",
    ],
    ["a huge file", "rm -f /etc/machine-id; truncate -s 1T /etc/machine-id"],
    [
      "a file that fills the disk",
      `echo ${MACHINE_ID} > /etc/machine-id; head -c 100M /dev/zero > /root/full; sync; true`,
    ],
    [
      "in a directory that is a link",
      `cp -a /etc /etc2; rm -rf /etc; mkdir -p /srv/e; echo ${MACHINE_ID} > /srv/e/machine-id; ln -s /srv/e /etc`,
    ],
    ["in a directory that is a link to above", "cp -a /etc /etc2; rm -rf /etc; ln -s ../../../../../../tmp /etc"],
    ["in a directory that is a FIFO", "rm -rf /var/lib/dbus; mkfifo /var/lib/dbus"],
    [
      "in a directory without permissions",
      `mkdir -p /var/lib/dbus; echo ${MACHINE_ID} > /var/lib/dbus/machine-id; chmod 0 /var/lib/dbus`,
    ],
    ["linked twice", `echo ${MACHINE_ID} > /etc/machine-id; ln /etc/machine-id /root/same`],
  ])("is forked where its machine id is %s", async (_, line) => {
    await a().box("box");
    await a().shell("box", line);
    const of = "ls -ld /etc /etc/machine-id 2>&1 | cut -c1-10; readlink /etc/machine-id; true";
    const before = await a().shell("box", of);
    const forked = await a().user.fork("box", { name: "twin", resume_policy: "immediate" });
    expect([forked.status, forked.error]).toEqual(["succeeded", null]);
    expect((await a().shell("twin", of)).slice(0, 1)).toBe(before.slice(0, 1));
    expect(await a().shell("box", of)).toBe(before);
    const isFile = "[ -f /etc/machine-id ] && [ ! -L /etc/machine-id ] && head -c 32 /etc/machine-id || true";
    expect(await a().shell("twin", isFile)).not.toBe(MACHINE_ID);
  });

  it.each([
    ["is a directory", "mkdir -p /etc/hearth/pre-snapshot"],
    ["may not be executed", "mkdir -p /etc/hearth; echo '#!/bin/sh' > /etc/hearth/pre-snapshot"],
    [
      "names no interpreter",
      "mkdir -p /etc/hearth; echo '#!/none' > /etc/hearth/pre-snapshot; chmod +x /etc/hearth/pre-snapshot",
    ],
    [
      "is killed",
      "mkdir -p /etc/hearth; printf '#!/bin/sh\\nkill -9 $$\\n' > /etc/hearth/pre-snapshot; chmod +x /etc/hearth/pre-snapshot",
    ],
  ])("refuses an application-consistent snapshot where its hook %s", async (_, line) => {
    await a().box("box");
    await a().shell("box", line);
    const body = { consistency_mode: "app-consistent" };
    const refused = await a().user.call("POST", "/api/containers/box/snapshot?execution=sync", body);
    expect([...refusal(refused), refused.body.reason_code]).toEqual([409, "WRONG_STATE", "HOOK_FAILED"]);
    expect((await a().user.ok("GET", "/api/snapshots")).snapshots).toEqual([]);
    expect((await a().user.take("box")).state).toBe("ready");
  });

  it("ends a hook that hangs at its deadline, with what it left in the background", async () => {
    await a().box("box");
    const hook =
      "#!/bin/sh\nsetsid sh -c 'while :; do echo noise; done' &\nyes &\ntrap '' TERM\nwhile :; do sleep 1; done\n";
    await a().shell("box", "mkdir /etc/hearth; cat > /etc/hearth/pre-snapshot; chmod +x /etc/hearth/pre-snapshot", {
      stdin_data: hook,
    });
    const body = { consistency_mode: "app-consistent" };
    const refused = await a().user.call("POST", "/api/containers/box/snapshot?execution=sync", body);
    expect([...refusal(refused), refused.body.reason_code]).toEqual([409, "WRONG_STATE", "HOOK_FAILED"]);
    expect(refused.body.details.exit_code).toBe(null);
    expect(refused.body.details.output.length).toBeLessThanOrEqual(2_048);
    expect(await a().shell("box", "echo alive")).toBe("alive\n");
  });

  it("keeps the beginning of the endless output of a hook that ends", async () => {
    await a().box("box");
    const hook = "#!/bin/sh\nyes | head -c 50000000\nyes é | head -c 1000000 >&2\n(sleep 1000 &)\nexit 0\n";
    await a().shell("box", "mkdir /etc/hearth; cat > /etc/hearth/pre-snapshot; chmod +x /etc/hearth/pre-snapshot", {
      stdin_data: hook,
    });
    const { metadata } = await a().user.take("box", { consistency_mode: "app-consistent" });
    expect(metadata.hooks.pre.exit_code).toBe(0);
    expect(metadata.hooks.pre.output.length).toBeLessThanOrEqual(2_048);
  });
});

const VFORK = `
import ctypes, time
libc = ctypes.CDLL(None)
# The parent waits until the child has ended.
if libc.vfork() == 0:
    libc.sleep(100000)
    libc._exit(0)
`;
const TRACED = `
import ctypes, os, time
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), 19)
os.waitpid(child, 0)
open("/root/stopped", "w").close()
time.sleep(100000)
`;
const BOMB = `
import os, time
while True:
    try: os.posix_spawn("/bin/sh", ["sh", "-c", "echo x > /root/$$; rm /root/$$; sleep 0.01"], {})
    except OSError: time.sleep(0.001)
`;

describe("a container that does not freeze easily", () => {
  it.each([
    ["has a process in vfork", VFORK],
    ["has a process that is traced and stopped", TRACED],
    ["has a fork bomb", BOMB],
  ])("is copied and goes on where it %s", async (_, code) => {
    await a().box("box", { command: ["python3", "-c", code] });
    await a().shell("box", "echo kept > /root/kept");
    const { snapshot_id } = await a().user.take("box");
    await a().user.clone(snapshot_id, { name: "copy" });
    const path = "/api/containers/copy/archive?path=/root/kept";
    expect((await a().user.call("GET", path)).status).toBe(200);
    expect((await a().user.ok("GET", "/api/containers/box")).state).toBe("running");
  });
});

describe("requests at the same moment", () => {
  it("settle where a container is stopped, started, killed, snapshotted and forked at once", async () => {
    const { container_id } = await a().box("box", { command: ["sleep", "100000"] });
    const path = `/api/containers/${container_id}`;
    for (let n = 0; n < 5; n++) {
      const answers = await Promise.all([
        a().user.call("POST", `${path}/snapshot?execution=sync`, { consistency_mode: "app-consistent" }),
        a().user.call("POST", `${path}/stop`, { timeout_ms: 0 }),
        a().user.call("POST", `${path}/snapshot?execution=sync`, {}),
        a().user.call("POST", `${path}/fork?execution=sync`, { count: 2 }),
        a().user.call("POST", `${path}/start?execution=sync`, {}),
        a().user.call("POST", `${path}/kill`, { signal: "KILL" }),
      ]);
      const codes = answers.map(({ status, body }) => `${status} ${body.error_code ?? ""}`);
      for (const { status, body } of answers) expect([codes, status < 500, body]).toEqual([codes, true, body]);
    }
    await a().user.call("POST", `${path}/start?execution=sync`, {});
    expect(await a().shell(container_id, "echo alive")).toBe("alive\n");
  });

  it("settle where a container is deleted while it is copied, and leave nothing", async () => {
    for (let n = 0; n < 5; n++) {
      const { container_id } = await a().box(`box-${n}`);
      const path = `/api/containers/${container_id}`;
      const [deleted, ...others] = await Promise.all([
        a().user.call("DELETE", path),
        a().user.call("POST", `${path}/snapshot?execution=sync`, {}),
        a().user.call("POST", `${path}/fork?execution=sync`, { count: 3 }),
      ]);
      expect(deleted?.status).toBe(200);
      for (const { status, body } of others) expect([200, 404, 409], JSON.stringify(body)).toContain(status);
    }
    for (const { state: one } of (await a().user.ok("GET", "/api/snapshots")).snapshots) expect(one).toBe("ready");
  });

  it("settle where snapshots are deleted while they are cloned, and volumes while they are copied", async () => {
    await a().user.ok("POST", "/api/volumes", { name: "data" });
    await a().box("box", { volumes: ["data:/data"] });
    for (let n = 0; n < 5; n++) {
      const { snapshot_id } = await a().user.take("box", { volume_mode: "include_all_allowed" });
      const [, ...clones] = await Promise.all([
        a().user.call("DELETE", `/api/snapshots/${snapshot_id}`),
        ...[1, 2].map(() => a().user.call("POST", `/api/snapshots/${snapshot_id}/clone?execution=sync`, {})),
      ]);
      for (const { status, body } of clones) expect([200, 404], JSON.stringify(body)).toContain(status);
    }
    await a().user.ok("DELETE", "/api/containers/box");
    const [taken, deleted] = await Promise.all([
      a().user.call("POST", "/api/volumes/data/snapshot?execution=sync", {}),
      a().user.call("DELETE", "/api/volumes/data?execution=sync"),
    ]);
    expect([200, 404, 409]).toContain(taken.status);
    expect([200, 404, 409]).toContain(deleted.status);
  });
});

describe("odd texts", () => {
  it.each([
    [{ "": "x" }],
    [{ "a=b": "c=d" }],
    [{ 'q"uote': "'" }],
    [{ "%": "_%" }],
    [{ ключ: "значение" }],
    [{ "line\nbreak": "\t\u0007" }],
    [{ "$.x": '"]' }],
  ])("are labels that are found as they are, or refused: %j", async (labels) => {
    await a().box("box");
    const answer = await a().user.call("POST", "/api/containers/box/snapshot?execution=sync", { labels });
    if (answer.status === 200) {
      expect(answer.body.labels).toEqual(labels);
      await a().user.take("box", { labels: { other: "x" } });
      for (const [key, value] of Object.entries(labels)) {
        if (key === "" || key.includes("=")) continue;
        const query = new URLSearchParams({ label: `${key}=${value}` });
        const { snapshots } = await a().user.ok("GET", `/api/snapshots?${query}`);
        expect(snapshots.map((one: Json) => one.snapshot_id)).toEqual([answer.body.snapshot_id]);
        const none = new URLSearchParams({ label: `${key}=${value}x` });
        expect((await a().user.ok("GET", `/api/snapshots?${none}`)).snapshots).toEqual([]);
      }
    } else expect(answer.status).toBe(400);
  });

  it.each(["../x", "a/b", "", " ", "x".repeat(300), "a\0b", "\n"])("are refused as names: %j", async (name) => {
    const { container_id } = await a().box("box");
    for (const path of ["snapshot", "fork"]) {
      const { status } = await a().user.call("POST", `/api/containers/${container_id}/${path}`, { name });
      expect([path, name, status]).toEqual([path, name, 400]);
    }
  });

  it("name forks by number only where they fit", async () => {
    await a().box("box");
    const long = await a().user.call("POST", "/api/containers/box/fork", { name: `${"x".repeat(63)}{n}`, count: 10 });
    expect([400, 202]).toContain(long.status);
    if (long.status === 202) await a().user.ended(long.body);
    const same = await a().user.fork("box", { name: "{n}{n}", count: 2 });
    expect(same.items.map(({ name }: Json) => name)).toEqual(["11", "22"]);
    await eventually("all are there", async () => (await a().user.ok("GET", "/api/containers")).containers.length >= 3);
  });
});
