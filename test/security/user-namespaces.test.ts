/** Root in a container is nobody on this machine, and its files are root's all the same: on the disk, beside it, outside. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { buildahCommand, readDirectories } from "../../src/installation/paths.js";
import { profileImage } from "../../src/installation/profiles.js";
import { ContainerUser, commandLines } from "../support/containers.ts";
import { Daemon, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { pullLocal } from "../support/made-images.ts";

const COUNT = LIMITS.user_namespace_ids;
const SETTINGS = { HEARTH_CELLS: "0" };
const folder = mkdtempSync("/var/tmp/hearth-ids-");
const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const BUILDAH = buildahCommand(readDirectories(process.env, []).image_dir);
const LAYERED = `localhost/hearth/layers-${daemon.tag}`;

afterAll(async () => {
  await daemon.dispose();
  // In use until the daemon is gone.
  spawnSync(BUILDAH[0] ?? "", [...BUILDAH.slice(1), "rmi", `${LAYERED}:2`, `${LAYERED}:1`]);
  rmSync(folder, { recursive: true });
});

/** Real, effective, saved and file-system id of each kind, outside. */
function idsOf(pid: number): number[] {
  const lines = readFileSync(`/proc/${pid}/status`, "utf8").match(/^[UG]id:.*$/gm) ?? [];
  return lines.flatMap((line) => line.split("\t").slice(1).map(Number));
}

/** What the disk says of a file in a subvolume, as the launcher sees it. */
function onDisk(path: string, format = "%u:%g"): string {
  const launcher = commandLines().find(({ args }) => args[1] === "launcher" && args[2]?.startsWith(daemon.run_dir));
  return execFileSync("stat", ["-c", format, `/proc/${launcher?.pid}/root${daemon.data_dir}/area/${path}`])
    .toString()
    .trim();
}

const firstOf = async (id: string): Promise<number> => {
  const [inside, outside, count] = (await containers.shell(id, "cat /proc/self/uid_map")).trim().split(/\s+/);
  expect([inside, count]).toEqual(["0", String(COUNT)]);
  return Number(outside);
};

const mode = async () => (await daemon.call("GET", "/api/system/info")).body.engine.user_namespaces;

/** Makes an archive of files that belong to these uids, named after them, and sends it. */
async function upload(id: string, path: string, uids: readonly number[]): Promise<number> {
  const files = mkdtempSync(`${folder}/t`);
  for (const uid of uids) {
    writeFileSync(`${files}/${uid}`, String(uid));
    execFileSync("chown", [`${uid}:${uid}`, `${files}/${uid}`]);
  }
  const body = execFileSync("tar", ["-c", "--numeric-owner", "-C", files, "."]);
  const headers = { "x-api-key": KEY, "content-type": "application/x-tar" };
  const url = `${daemon.url}/api/containers/${id}/archive?execution=sync&path=${path}`;
  return (await fetch(url, { method: "POST", headers, body })).status;
}

/** `<uid>/<gid> <path>` of what an archive of a container's directory holds. */
async function owners(id: string, path: string): Promise<string[]> {
  const url = `${daemon.url}/api/containers/${id}/archive?path=${path}`;
  const input = Buffer.from(await (await fetch(url, { headers: { "x-api-key": KEY } })).arrayBuffer());
  const listing = execFileSync("tar", ["-tv", "--numeric-owner"], { input }).toString().trim();
  return listing.split("\n").map((line) => line.replace(/^\S+ +(\S+) .* (\S+)$/, "$1 $2"));
}

/** Makes an image of two layers above that of functions. */
function layeredImage(): string {
  const name = LAYERED;
  const script = `set -e; add() { $B from --pull-never --name $N-$1 $2; cd $($B mount $N-$1); }
keep() { cd /; $B commit -q $N-$1 $N:$1; $B umount $N-$1; $B rm $N-$1; }
add 1 $FROM; mkdir -p layers/opaque/old; echo two > layers/two; chown 33:5 layers/two; rm -r srv; keep 1
add 2 $N:1; echo three > layers/three; ln layers/three layers/linked; rm -r layers/opaque; mkdir layers/opaque; touch layers/opaque/new; keep 2`;
  const env = { ...process.env, B: BUILDAH.join(" "), N: name, FROM: profileImage("prod").reference };
  execFileSync("unshare", ["-m", "sh", "-c", script], { env, stdio: "pipe" });
  return `${name}:2`;
}

describe("a container with a user namespace", () => {
  const state = { a: "", b: "", pid: 0, first_id: 0 };

  beforeAll(async () => {
    await daemon.start(SETTINGS);
    await daemon.call("POST", "/api/volumes", { name: "shared" });
    const a = await containers.create({ name: "a", volumes: ["shared:/data"] });
    state.b = (await containers.create({ name: "b", volumes: ["shared:/data"] })).container_id;
    Object.assign(state, { a: a.container_id, pid: a.pid, first_id: await firstOf(a.container_id) });
  });

  it("is what this machine gives, and says so", async () => {
    expect(await mode()).toEqual({ mode: "on", reason: null });
  });

  it("has ids that no other has, and none of its processes is root outside", async () => {
    expect(idsOf(state.pid)).toEqual(Array(8).fill(state.first_id));
    const running = containers.exec(state.a, [
      "sh",
      "-c",
      "exec setpriv --reuid 33 --regid 33 --clear-groups sleep 1002",
    ]);
    const { body } = await daemon.call("GET", `/api/containers/${state.a}/processes`);
    expect(body.processes.length).toBeGreaterThan(0);
    await expect
      .poll(() => commandLines().filter(({ args }) => args[0] === "sleep" && args[1] === "1002").length, {
        timeout: 10_000,
      })
      .toBe(1);
    const sleeper = commandLines().find(({ args }) => args[0] === "sleep" && args[1] === "1002");
    expect(idsOf(sleeper?.pid ?? 0)).toEqual(Array(8).fill(state.first_id + 33));
    await containers.shell(state.a, "kill -9 -1");
    await running;
    const other_id = await firstOf(state.b);
    expect(Math.abs(other_id - state.first_id)).toBeGreaterThanOrEqual(COUNT);
    for (const first_id of [state.first_id, other_id]) {
      expect(first_id).toBeGreaterThanOrEqual(LIMITS.user_namespace_first_id);
      expect(first_id % COUNT).toBe(0);
    }
  });

  it("owns what an image gives to root, and may give files to all of its ids and to no other", async () => {
    expect(await containers.shell(state.a, "stat -c %u:%g / /etc/passwd /root /tmp")).toBe("0:0\n".repeat(4));
    const last = COUNT - 1;
    const line = `cd /root; touch f; chown ${last}:${last} f; chown ${COUNT} f; chown :${COUNT} f; stat -c %u:%g f`;
    const said = await containers.shell(state.a, line);
    expect(said).toMatch(new RegExp(`^${last}:${last}\n(ch.*Invalid argument\n){2}$`));
    expect(onDisk(`containers/${state.a}/upper/root/f`)).toBe(`${last}:${last}`);
  });

  it("leaves root's files to root on the disk, in listings and archives", async () => {
    await containers.shell(
      state.a,
      "mkdir -p /files/d; echo x > /files/x; chown 33:5 /files/d; ln -s x /files/l; rm -r /media",
    );
    expect(onDisk(`containers/${state.a}/upper/files/x`)).toBe("0:0");
    expect(onDisk(`containers/${state.a}/upper/files/d`)).toBe("33:5");
    // What the overlay makes itself.
    expect(onDisk(`containers/${state.a}/upper/media`, "%u:%g %F")).toBe("0:0 character special file");
    expect(onDisk(`containers/${state.a}/work/work`)).toBe("0:0");
    expect((await owners(state.a, "/files")).sort()).toEqual(["0/0 x", "0/0 x", "33/5 d/"]);
  });

  it("takes archives, whose files are root's, and gives them back with the owners that they have got", async () => {
    expect(await upload(state.a, "/in", [0, 1000])).toBe(200);
    expect(await containers.shell(state.a, "cd /in; stat -c %n:%u:%g . *; chown 1000:5 1000")).toBe(
      ".:0:0\n0:0:0\n1000:0:0\n",
    );
    for (const path of ["/in", "/in/0"]) expect(onDisk(`containers/${state.a}/upper${path}`)).toBe("0:0");
    expect((await owners(state.a, "/in")).sort()).toEqual(["0/0 0", "1000/5 1000"]);
  });

  it("shares a volume with another one as if both had the same ids", async () => {
    const set = `import os, struct
open("/data/mine", "w").write("x")
os.chown("/data/mine", 33, 5)
open("/data/roots", "w").write("x")
os.setxattr("/data/roots", "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
os.setxattr("/data/roots", "user.note", b"kept")`;
    expect(await containers.python(state.a, set)).toBe("");
    const get = `import os
for name in ("mine", "roots"): print(name, os.stat("/data/" + name).st_uid, os.stat("/data/" + name).st_gid)
print(os.getxattr("/data/roots", "security.capability").hex(), os.getxattr("/data/roots", "user.note"))
open("/data/mine", "a").write("y"); os.chown("/data/mine", 34, 5); os.chmod("/data/roots", 0o600)`;
    const said = await containers.python(state.b, get);
    expect(said).toMatch(/^mine 33 5\nroots 0 0\n01000002[0-9a-f]* b'kept'\n$/);
    expect(await containers.shell(state.a, "stat -c %u:%a /data/*")).toBe("34:644\n0:600\n");
    const { body } = await daemon.call("GET", "/api/volumes/shared/inspect");
    expect(onDisk(`volumes/${body.id}/mine`)).toBe("34:5");
  });

  it("has a network, a /sys and terminals that are its own", async () => {
    expect(await containers.shell(state.a, "ls /sys/class/net")).toBe("eth0\nlo\n");
    const listen = "import socket\nprint(socket.create_server(('0.0.0.0', 80)).getsockname()[1])";
    expect(await containers.python(state.a, listen)).toBe("80\n");
    // Its network has it as root, who could write there without what it lacks and what is read-only.
    expect(
      await containers.shell(
        state.a,
        "echo 0 > /proc/sys/net/ipv4/ip_forward; ip link set lo down; echo 1 > /sys/class/net/lo/mtu",
      ),
    ).not.toBe("");
    const link =
      "import fcntl, socket, struct\ns = socket.socket()\nfor n in (0x8914, 0x8916, 0x8922):\n    try: fcntl.ioctl(s, n, struct.pack('16sH14s', b'lo', 0, b'')); print('done')\n    except OSError as e: print(e.strerror)";
    expect(await containers.python(state.a, link)).toBe("Operation not permitted\n".repeat(3));
    const made = "import os\nm, s = os.openpty()\ni = os.fstat(s)\nprint(i.st_uid, i.st_gid, oct(i.st_mode & 0o777))";
    expect(await containers.python(state.a, made)).toBe("0 5 0o620\n");
  });

  it("has ids at its next start that no container had before, and the same owners of its files", async () => {
    await containers.shell(state.a, "echo kept > /root/kept; chown 33:5 /root/kept; echo /root > /root/roots");
    await daemon.call("POST", `/api/containers/${state.a}/stop`, { timeout_ms: 0 });
    const between = await containers.create({ name: "between", volumes: ["shared:/data"] });
    const others = [state.first_id, await firstOf(between.container_id)];
    await daemon.call("POST", `/api/containers/${state.a}/start?execution=sync`);
    others.push(await firstOf(state.a));
    expect(new Set(others).size).toBe(3);
    expect(await containers.shell(state.a, "stat -c %u:%g /root/kept /root/roots; cat /root/kept; rm /root/kept")).toBe(
      "33:5\n0:0\nkept\n",
    );
    await containers.delete(between.container_id);
  });

  it("may be of an image of many layers, which hide, replace and link what is in others", async () => {
    const image = layeredImage();
    await pullLocal(daemon, image);
    const made = await containers.create({ name: "layers", image, oci: true });
    const line =
      "cd /layers; test -e /srv || ls opaque; stat -c '%n %u:%g %h' two linked; cat linked; echo more >> two; cat two";
    expect(await containers.shell(made.container_id, line)).toBe("new\ntwo 33:5 1\nlinked 0:0 2\nthree\ntwo\nmore\n");
    expect(onDisk(`containers/${made.container_id}/upper/layers/two`)).toBe("33:5");
    await containers.delete(made.container_id);
  });

  it("is started on from directories that strangers on this machine can pass and not look into", () => {
    const open = readdirSync(daemon.run_dir).filter(
      (name) => (statSync(`${daemon.run_dir}/${name}`).mode & 0o077) !== 0,
    );
    expect(open.sort()).toEqual(["member-resolv.conf", "r", "resolv.conf", "trust"]);
    for (const path of ["", "/r", "/trust"].map((name) => daemon.run_dir + name))
      expect(statSync(path).mode & 0o777).toBe(0o711);
  });

  it("lives on without them where they are off, and is root's again at its next start, with the same files", async () => {
    const { pid } = await containers.get(state.a);
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_USER_NAMESPACES: "off" });
    expect(await mode()).toEqual({ mode: "off", reason: "HEARTH_USER_NAMESPACES is off" });
    expect((await containers.get(state.a)).pid).toBe(pid);
    expect(idsOf(pid)[0]).not.toBe(0);
    expect(await upload(state.a, "/later", [33])).toBe(200);
    expect(await containers.shell(state.a, "cd /later; stat -c %u *; chown 33 *")).toBe("0\n");
    await daemon.call("POST", `/api/containers/${state.a}/stop`, { timeout_ms: 0 });
    expect(await owners(state.a, "/later")).toEqual(["33/0 33"]);
    await daemon.call("POST", `/api/containers/${state.a}/start?execution=sync`);
    expect(idsOf((await containers.get(state.a)).pid)).toEqual(Array(8).fill(0));
    expect(await containers.shell(state.a, "stat -c %u /later/* /root/roots; cat /proc/self/uid_map")).toMatch(
      /^33\n0\n +0 +0 +4294967295\n$/,
    );
  });

  it("leaves nothing", async () => {
    await containers.delete(state.a, state.b);
    await daemon.call("DELETE", "/api/volumes/shared?execution=sync");
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

describe("where the OCI runtime cannot do it", () => {
  const settings = { ...SETTINGS, HEARTH_OCI_RUNTIME: "runc" };

  it("containers have none, and the reason is told", async () => {
    await daemon.start(settings);
    expect(await mode()).toEqual({ mode: "off", reason: expect.stringMatching(/runc cannot start/) });
    const { container_id, pid } = await containers.create({ name: "plain" });
    expect(idsOf(pid)).toEqual(Array(8).fill(0));
    // What owns its network is nobody's to be root of by having made it.
    expect(await containers.shell(container_id, "ip link set lo down 2>&1 || echo no")).toMatch(/no\n$/);
    await containers.delete(container_id);
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });

  it("the daemon that has to have them does not start, says why, and leaves nothing", async () => {
    const child = await daemon.launch({ ...settings, HEARTH_USER_NAMESPACES: "on" });
    await new Promise((resolve) => child.once("exit", resolve));
    expect(child.exitCode).toBe(1);
    expect(daemon.output).toMatch(/HEARTH_USER_NAMESPACES is on, and they do not work here: runc cannot start/);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
