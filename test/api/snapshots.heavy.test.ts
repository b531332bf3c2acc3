/** The content of snapshots, clones and forks, byte for byte, under load, at limits and in great numbers. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { SnapshotUser } from "../support/snapshots.ts";

type Json = Answer["body"];

/** Snapshots of one container; ten thousand were tried by hand. */
const MANY = 1_000;
/** Requests of many at once: as many as one tenant's operations keep busy. */
const AT_ONCE = 16;
const CLONES = 100;

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const snapshots = new SnapshotUser(daemon);
const BOX = { memory_limit_mb: 256 };

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterEach(async () => {
  await clear();
  await expect.poll(() => daemon.leftovers().subvolumes, { timeout: 120_000 }).toEqual(NOTHING_LEFT.subvolumes);
});
afterAll(() => daemon.dispose());

/** Does work on each, some at once. */
async function each<T>(all: readonly T[], work: (one: T) => Promise<unknown>): Promise<void> {
  const left = [...all];
  const next = async () => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) await work(one);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
}

async function idsOf(what: "snapshots" | "containers", id: string): Promise<string[]> {
  const ids: string[] = [];
  for (let cursor = ""; ; ) {
    const page = await snapshots.ok("GET", `/api/${what}?limit=1000${cursor}`);
    ids.push(...page[what].map((one: Json) => one[id]));
    if (page.next_cursor === null) return ids;
    cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
}

async function clear(): Promise<void> {
  for (const id of await idsOf("snapshots", "snapshot_id")) await snapshots.call("POST", `/api/snapshots/${id}/unpin`);
  // One that was pinned past its time is gone at once.
  await each(await idsOf("snapshots", "snapshot_id"), async (id) => {
    const { status } = await snapshots.call("DELETE", `/api/snapshots/${id}`);
    expect([200, 404]).toContain(status);
  });
  await each(await idsOf("containers", "container_id"), (id) => snapshots.ok("DELETE", `/api/containers/${id}`));
  const { volumes } = await snapshots.ok("GET", "/api/volumes");
  for (const { name } of volumes) await snapshots.ok("DELETE", `/api/volumes/${name}?execution=sync`);
}

/** Prints all that there is of a container's files, a line each; not what differs in each container. */
const MANIFEST = `
import hashlib, os, stat
own = {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/machine-id", "/var/lib/dbus/machine-id"}
def lines():
    for top in ("/root", "/etc", "/srv", "/opt", "/usr/share", "/var/lib"):
        for path, dirs, files in os.walk(top):
            dirs.sort()
            for name in sorted(dirs + files):
                full = path + "/" + name
                if full in own: continue
                s = os.lstat(full)
                kind = stat.S_IFMT(s.st_mode)
                content = ""
                if kind == stat.S_IFLNK: content = os.readlink(full)
                if kind == stat.S_IFREG:
                    with open(full, "rb") as f: content = hashlib.file_digest(f, "sha256").hexdigest()
                attributes = [(a, os.getxattr(full, a, follow_symlinks=False)) for a in sorted(os.listxattr(full, follow_symlinks=False))]
                links = s.st_nlink if kind == stat.S_IFREG else 0
                size = s.st_size if kind == stat.S_IFREG else 0
                yield repr((full, oct(s.st_mode), s.st_uid, s.st_gid, size, links, s.st_mtime_ns, content, attributes))
all = list(lines())
print(len(all), hashlib.sha256("\\n".join(all).encode()).hexdigest())
print("\\n".join(line for line in all if line.startswith("('/root") or line.startswith("('/srv")))
`;
const manifest = (id: string) => containers.python(id, MANIFEST, { timeout_ms: 60_000 });

/** Files of every kind, and changes of the image's. \`n\`: generation. */
const WRITES = `
import os, shutil, socket, sys
n = sys.argv[1]
d = "/root/d" + n
os.makedirs(d + "/deep/er")
with open(d + "/random", "wb") as f: f.write(os.urandom(3000000))
os.link(d + "/random", d + "/deep/same")
with open(d + "/sparse", "wb") as f:
    f.seek(200000000); f.write(b"end")
os.symlink("../random", d + "/deep/link")
os.symlink("/nowhere", d + "/dangling")
os.mkfifo(d + "/fifo")
s = socket.socket(socket.AF_UNIX); s.bind(d + "/socket")
os.setxattr(d + "/random", "user.mark", n.encode())
os.setxattr(d, "user.dir", b"\\0binary" + n.encode())
os.chown(d + "/sparse", 1234, 4321)
os.chmod(d + "/deep", 0o1711)
os.chmod(d + "/fifo", 0o604)
open(d + "/" + "x" * 255, "w").close()
open(d + "/ü\\n\\t'", "w").close()
os.rename(d + "/deep/er", d + "/renamed")
os.utime(d + "/sparse", ns=(1, 123456789))
# A whiteout, an opaque directory and a renamed directory of the image.
gone = {"1": "/etc/passwd-", "2": "/etc/group-", "3": "/etc/shadow-"}[n]
if os.path.exists(gone): os.remove(gone)
place = {"1": "/usr/share/doc", "2": "/usr/share/man", "3": "/usr/share/locale"}[n]
if os.path.isdir(place):
    shutil.rmtree(place); os.mkdir(place)
    with open(place + "/new", "w") as f: f.write(n)
if n == "2":
    shutil.rmtree("/root/d1/renamed")
    with open("/root/d1/random", "r+b") as f: f.seek(1000000); f.write(b"changed")
    os.makedirs("/root/d1/fifo.d"); os.remove("/root/d1/fifo"); os.rename("/root/d1/fifo.d", "/root/d1/fifo")
if n == "3":
    os.rename("/root/d1", "/srv/moved")
os.sync()
`;
const write = (id: string, n: number) =>
  containers.exec(id, ["python3", "-c", WRITES, String(n)]).then(({ exit_code, stderr }) => {
    expect([exit_code, stderr]).toEqual([0, ""]);
  });

describe("a clone", () => {
  it("has the same bytes, modes, owners, attributes and links over three generations, whose parents are gone", async () => {
    await containers.create({ name: "g0", ...BOX });
    for (const n of [1, 2, 3]) {
      await write(`g${n - 1}`, n);
      const before = await manifest(`g${n - 1}`);
      expect(before).toContain(`/root/d${n}/random`);
      const { snapshot_id } = await snapshots.take(`g${n - 1}`);
      await containers.shell(`g${n - 1}`, "rm -rf /root/* /srv/*; echo later > /root/later");
      await snapshots.clone(snapshot_id, { name: `g${n}`, resume_policy: "immediate" });
      expect(await manifest(`g${n}`)).toBe(before);
      await containers.delete(`g${n - 1}`);
      await snapshots.ok("DELETE", `/api/snapshots/${snapshot_id}`);
      expect(await manifest(`g${n}`)).toBe(before);
    }
    const blocks = await containers.shell("g3", "stat -c %b /srv/moved/sparse; test -S /root/d3/socket && echo socket");
    expect(Number(blocks.split("\n")[0])).toBeLessThan(200);
    expect(blocks).toContain("socket");
  });

  it("restored to each of its snapshots has the files of each", async () => {
    await containers.create({ name: "box", ...BOX });
    const seen: { readonly snapshot_id: string; readonly files: string }[] = [];
    for (const n of [1, 2, 3]) {
      await write("box", n);
      const { snapshot_id } = await snapshots.take("box");
      seen.push({ snapshot_id, files: await manifest("box") });
    }
    for (const { snapshot_id, files } of [...seen, ...seen].reverse()) {
      await snapshots.ok("POST", "/api/containers/box/restore?execution=sync", { snapshot_id });
      expect(await manifest("box")).toBe(files);
    }
  });

  it("has what was written to a mapped file before the snapshot, without a sync", async () => {
    await containers.create({ name: "box", ...BOX });
    const mapped = `
import mmap, os, time
with open("/root/map", "wb") as f: f.truncate(64 << 20)
f = open("/root/map", "r+b"); m = mmap.mmap(f.fileno(), 64 << 20)
for page in range(0, 64 << 20, 4096): m[page:page + 4] = b"page"
open("/root/ready", "w").close()
n = 0
while True:
    n += 1
    m[0:8] = n.to_bytes(8, "big"); m[33554432:33554440] = n.to_bytes(8, "big")
`;
    await containers.exec("box", ["sh", "-c", 'setsid python3 -c "$CODE" > /dev/null 2>&1 &'], {
      environment: { CODE: mapped },
    });
    await eventually("the writer runs", async () => (await containers.shell("box", "ls /root")).includes("ready"));
    const { snapshot_id } = await snapshots.take("box");
    await snapshots.clone(snapshot_id, { name: "copy", resume_policy: "immediate" });
    const read = `
f = open("/root/map", "rb").read()
a, b = (int.from_bytes(f[at:at + 8], "big") for at in (0, 33554432))
print(sum(f[page:page + 4] == b"page" for page in range(4096, 64 << 20, 4096)), a > 0, a - b in (0, 1))`;
    expect(await containers.python("copy", read)).toBe(`${(64 << 20) / 4096 - 2} True True\n`);
  });

  it("has a database that is whole, a hundred times while it is written to", async () => {
    await containers.create({ name: "box", ...BOX });
    const writer = `
import os, sqlite3
db = sqlite3.connect("/root/db", isolation_level=None)
db.execute("PRAGMA journal_mode=WAL"); db.execute("PRAGMA synchronous=NORMAL")
db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, a BLOB, b BLOB)")
n = 0
while True:
    db.execute("BEGIN")
    for _ in range(20):
        n += 1
        x = os.urandom(400)
        db.execute("INSERT INTO t VALUES (?, ?, ?)", (n, x, x))
    if n % 2000 == 0: db.execute("DELETE FROM t WHERE n < ?", (n - 1500,))
    db.execute("COMMIT")
    if n == 200: open("/root/ready", "w").close()
`;
    await containers.exec("box", ["sh", "-c", 'setsid python3 -c "$CODE" > /dev/null 2>&1 &'], {
      environment: { CODE: writer },
    });
    await eventually("the writer runs", async () => (await containers.shell("box", "ls /root")).includes("ready"));
    const check = `
import sqlite3
db = sqlite3.connect("/root/db")
print(db.execute("PRAGMA integrity_check").fetchone()[0], db.execute("SELECT count(*) >= 200, sum(a <> b) FROM t").fetchone())`;
    const clones: { snapshot_id: string; name: string }[] = [];
    // Forks of one moment, and clones of many.
    for (let n = 0; n < CLONES / 2; n++) {
      const { snapshot_id } = await snapshots.take("box");
      clones.push({ snapshot_id, name: `clone-${n}` });
    }
    await snapshots.fork("box", { name: "fork-{n}", count: CLONES / 2 });
    await each(clones, ({ snapshot_id, name }) => snapshots.clone(snapshot_id, { name }));
    const names = [...clones.map(({ name }) => name), ...clones.map((_, n) => `fork-${n + 1}`)];
    expect(names).toHaveLength(CLONES);
    for (let at = 0; at < names.length; at += 10) {
      const group = names.slice(at, at + 10);
      await Promise.all(
        group.map(async (name) => {
          await snapshots.ok("POST", `/api/containers/${name}/start?execution=sync`);
          expect([name, await containers.python(name, check)]).toEqual([name, "ok (1, 0)\n"]);
          await containers.delete(name);
        }),
      );
    }
    expect(await containers.shell("box", "pgrep -c python3")).toBe("1\n");
  });
});

describe("a fork", () => {
  const HOLD = `
import ctypes, fcntl, mmap, os, socket, time
f = open("/root/lock", "w"); fcntl.flock(f, fcntl.LOCK_EX)
g = open("/root/lock2", "w"); fcntl.lockf(g, fcntl.LOCK_EX)
s = socket.socket(socket.AF_UNIX); s.bind("/root/socket"); s.listen()
t = socket.socket(socket.AF_UNIX); t.bind("\\0abstract"); t.listen()
libc = ctypes.CDLL(None, use_errno=True)
shm = libc.shmget(4711, 4096, 0o1666)
libc.shmat.restype = ctypes.c_void_p
ctypes.memmove(libc.shmat(shm, None, 0), b"shared", 6)
watch = libc.inotify_init(); libc.inotify_add_watch(watch, b"/root", 0xfff)
open("/root/ready", "w").close()
os.read(watch, 4096)
os.set_blocking(watch, False)
while True:
    try:
        if b"from-the-fork" in os.read(watch, 65536): open("/root/leaked", "w").close()
    except BlockingIOError: time.sleep(0.01)
`;
  const TRY = `
import ctypes, fcntl, socket
def told(work):
    try: return work() or "done"
    except OSError as error: return type(error).__name__
libc = ctypes.CDLL(None)
print(told(lambda: fcntl.flock(open("/root/lock", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)))
print(told(lambda: fcntl.lockf(open("/root/lock2", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)))
print(told(lambda: socket.socket(socket.AF_UNIX).connect("/root/socket")))
print(told(lambda: socket.socket(socket.AF_UNIX).connect("\\0abstract")))
print(libc.shmget(4711, 0, 0) >= 0)
open("/root/from-the-fork", "w").close()
`;

  it("shares neither locks, sockets, watches, memory, address nor machine id with its source", async () => {
    await containers.create({ name: "box", ...BOX });
    await containers.shell("box", "echo 0123456789abcdef0123456789abcdef > /etc/machine-id");
    await containers.exec("box", ["sh", "-c", 'setsid python3 -c "$CODE" > /root/log 2>&1 &'], {
      environment: { CODE: HOLD },
    });
    await eventually("the holder runs", async () => (await containers.shell("box", "ls /root")).includes("ready"));
    await snapshots.fork("box", { name: "twin", resume_policy: "immediate" });
    const held = ["BlockingIOError", "BlockingIOError", "done", "done", "True", ""].join("\n");
    expect(await containers.python("box", TRY.replace("from-the-fork", "own"))).toBe(held);
    const free = ["done", "done", "ConnectionRefusedError", "ConnectionRefusedError", "False", ""].join("\n");
    expect(await containers.python("twin", TRY)).toBe(free);
    expect(await containers.shell("box", "ls /root")).not.toMatch(/leaked|from-the-fork/);
    const facts = "cat /etc/machine-id; hostname; hostname -i; ls -l /proc/self/ns | sed 's/.*-> //'";
    const [ofBox, ofTwin] = await Promise.all(["box", "twin"].map((id) => containers.shell(id, facts)));
    const shared = (ofBox ?? "").split("\n").filter((line) => line !== "" && (ofTwin ?? "").split("\n").includes(line));
    // All containers share the kernel's clock.
    expect(shared.filter((line) => !/^(time|time_for_children|user):|^total|^time/.test(line))).toEqual([]);
  });
});

describe("a container whose disk is full", () => {
  it("is snapshotted, cloned and restored, and can be used again", async () => {
    await containers.create({ name: "box", ...BOX, disk_limit_mb: 64 });
    const filled = await containers.shell(
      "box",
      "head -c 100M /dev/urandom > /root/full; sync; sha256sum < /root/full",
    );
    expect(filled).toContain("Disk quota exceeded");
    const { snapshot_id } = await snapshots.take("box");
    await snapshots.clone(snapshot_id, { name: "copy", resume_policy: "immediate" });
    await snapshots.fork("box", { name: "twin", resume_policy: "immediate" });
    const sum = filled.split("\n")[0];
    for (const id of ["copy", "twin"]) expect(await containers.shell(id, "sha256sum < /root/full")).toBe(`${sum}\n`);
    for (const id of ["box", "copy", "twin"]) {
      expect(await containers.shell(id, "rm /root/full; sync; echo gone")).toBe("gone\n");
    }
    await snapshots.ok("POST", "/api/containers/box/restore?execution=sync", { snapshot_id });
    expect(await containers.shell("box", "sha256sum < /root/full")).toBe(`${sum}\n`);
    await snapshots.ok("DELETE", `/api/snapshots/${snapshot_id}`);
    await containers.shell("box", "rm /root/full; sync");
    const usable = async () => (await containers.shell("box", "echo x > /root/x && sync && cat /root/x")) === "x\n";
    await eventually("the space is free again", usable);
  });
});

describe("snapshots", () => {
  it("expire unless they are pinned", async () => {
    await containers.create({ name: "box", ...BOX });
    const gone = await snapshots.take("box", { ttl_seconds: 1 });
    const kept = await snapshots.take("box", { ttl_seconds: 1 });
    expect(gone.expires_at).toBe(gone.created_at + 1);
    await snapshots.ok("POST", `/api/snapshots/${kept.snapshot_id}/pin`);
    const status = async (id: string) => (await snapshots.call("GET", `/api/snapshots/${id}`)).status;
    await eventually("it has expired", async () => (await status(gone.snapshot_id)) === 404, 100_000);
    expect(await status(kept.snapshot_id)).toBe(200);
  });

  it(`are ${MANY} of one container, each of which is listed, cloned and deleted`, async () => {
    await containers.create({ name: "box", ...BOX });
    const ids: string[] = [];
    await each(
      Array.from({ length: MANY }, (_, n) => n),
      async (n) => {
        if (n % 50 === 0) await containers.shell("box", `echo ${n} > /root/n`);
        ids.push((await snapshots.take("box")).snapshot_id);
      },
    );
    expect((await idsOf("snapshots", "snapshot_id")).sort()).toEqual([...ids].sort());
    const lineage = await snapshots.ok("GET", `/api/snapshots/${ids.at(-1)}/lineage`);
    expect(lineage.nodes).toHaveLength(Math.min(MANY, 1_000));
    expect(new Set(lineage.nodes.map(({ depth }: Json) => depth)).size).toBe(lineage.nodes.length);
    const middle = ids[MANY / 2] ?? "";
    await snapshots.clone(middle, { name: "copy", resume_policy: "immediate" });
    expect(Number(await containers.shell("copy", "cat /root/n"))).toBeGreaterThan(0);
    await containers.create({ name: "beside", ...BOX });
    expect(await containers.shell("beside", "echo runs")).toBe("runs\n");
  });
});

describe("a full storage pool", () => {
  const small = new Daemon();
  const boxes = new ContainerUser(small);
  const user = new SnapshotUser(small);

  beforeAll(() => small.start({ HEARTH_CELLS: "0", HEARTH_AREA_MB: "1024" }));
  afterAll(() => small.dispose());

  it("refuses snapshots, clones, forks and restores with CAPACITY_FULL, and has nothing of them", async () => {
    await boxes.create({ name: "box", ...BOX });
    await boxes.shell("box", "echo kept > /root/kept");
    const { snapshot_id } = await user.take("box");
    await boxes.shell("box", "head -c 2000M /dev/zero > /root/full; sync", { timeout_ms: 120_000 });
    const take = () => user.call("POST", "/api/containers/box/snapshot?execution=sync", {});
    await eventually("snapshots are refused", async () => {
      const answer = await take();
      if (answer.status === 200) await user.ok("DELETE", `/api/snapshots/${answer.body.snapshot_id}`);
      return answer.status !== 200;
    });
    const before = small.leftovers().subvolumes.length;
    for (const [path, body] of [
      ["/api/containers/box/snapshot", {}],
      [`/api/snapshots/${snapshot_id}/clone`, {}],
      ["/api/containers/box/fork", { count: 3 }],
      ["/api/containers/box/restore", { snapshot_id }],
    ] as const) {
      const { status, body: answer } = await user.call("POST", `${path}?execution=sync`, body);
      expect([path, status, answer.error_code]).toEqual([path, 503, "CAPACITY_FULL"]);
    }
    expect((await user.ok("GET", "/api/snapshots")).snapshots).toHaveLength(1);
    expect((await user.ok("GET", "/api/containers")).containers).toHaveLength(1);
    await expect.poll(() => small.leftovers().subvolumes.length).toBe(before);
    expect(await boxes.shell("box", "cat /root/kept; rm /root/full; sync")).toBe("kept\n");
    await eventually("there is room again", async () => (await take()).status === 200);
    await user.ok("POST", "/api/containers/box/restore?execution=sync", { snapshot_id });
    expect(await boxes.shell("box", "ls /root")).toBe("kept\n");
  });
});
