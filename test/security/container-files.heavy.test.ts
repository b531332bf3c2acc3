/**
 * Files as a way out of a container: links that it leaves for its next start, swaps while files are moved for it, and
 * more bytes than it may have. Tried from inside of real containers.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser, commandLines, HostSecret } from "../support/containers.ts";
import { Daemon, KEY, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const host = new HostSecret(daemon);
const host_dir = host.directory;
const SECRET = host.text;

beforeAll(async () => {
  host.make();
  await daemon.start({ HEARTH_CELLS: "0" });
});
afterAll(async () => {
  await daemon.dispose();
  host.remove();
});

describe("a container that is started again on what it left", () => {
  /** Runs a line in a new container, starts it again, and answers what its command says then. */
  async function again(name: string, line: string, more: object = {}): Promise<string> {
    const { container_id } = await containers.create({ name, ...more });
    try {
      await containers.shell(container_id, line);
      await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
      const { status } = await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`);
      if (status !== 200) return `refused ${status}`;
      return await containers.shell(
        container_id,
        `cat ${host_dir}/secret /data/secret /a/b/secret 2>/dev/null; cat /etc/hosts 2>/dev/null; touch ${host_dir}/made /data/made /a/b/made 2>/dev/null; echo end`,
      );
    } finally {
      await containers.delete(container_id);
    }
  }

  beforeAll(async () => {
    await daemon.call("POST", "/api/volumes", { name: "data" });
  });
  afterAll(async () => {
    await daemon.call("DELETE", "/api/volumes/data?execution=sync");
  });

  const outside = `../../../../../../../../..${host_dir}`;
  it.each([
    ["a parent of a mount target that is a link to outside", `rm -rf /a; mv /a /c; ln -s ${outside} /a`, ["data:/a/b"]],
    ["a parent of a mount target that is a link into /proc", "mv /a /c; ln -s /proc/self/fd /a", ["data:/a/b"]],
    [
      "a parent of a mount target that is a link to the root of the first process",
      "mv /a /c; ln -s /proc/1/root /a",
      ["data:/a/b"],
    ],
    ["/etc that is a link to outside", `mv /etc /etc2; ln -s ${outside} /etc`, []],
    [
      "/etc/hosts that is a link to outside",
      `mv /etc /etc2; cp -a /etc2 /etc; rm -f /etc/hosts; ln -s ${outside}/secret /etc/hosts`,
      [],
    ],
    [
      "/etc/resolv.conf that is a link to outside",
      `mv /etc /etc2; cp -a /etc2 /etc; rm -f /etc/resolv.conf; ln -s ${host_dir}/secret /etc/resolv.conf`,
      [],
    ],
    ["/dev/shm, /dev/pts that were links", "ln -s / /dev/x; ln -s / /root/dev", []],
  ])("with %s sees nothing of this machine and changes nothing (CVE-2021-30465)", async (_, line, volumes) => {
    const before = mountsHere();
    const said = await again("links", line, { volumes });
    expect(said).not.toContain(SECRET);
    expect(readdirSync(host_dir)).toEqual(["secret"]);
    expect(readFileSync(`${host_dir}/secret`, "utf8")).toBe(SECRET);
    expect(mountsHere()).toEqual(before);
  });

  it.each(["/dev", "/proc", "/sys", "/etc"])("is not started where %s is a link in its files", async (path) => {
    const { container_id } = await containers.create({ name: "link" });
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    // As an archive of an image would have it: a running container cannot replace what is mounted.
    const { pid } = commandLines().find(
      ({ args }) => args[1] === "launcher" && args[2]?.startsWith(daemon.run_dir),
    ) ?? { pid: 0 };
    const subvolume = `/proc/${pid}/root${daemon.data_dir}/area/containers/${container_id}`;
    const upper = readdirSync(subvolume).find((name) => name.startsWith("u")) ?? "upper";
    execFileSync("rm", ["-rf", `${subvolume}/${upper}${path}`]);
    execFileSync("ln", ["-s", host_dir, `${subvolume}/${upper}${path}`]);
    const answer = await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`);
    expect([answer.status, answer.body.error_code]).toEqual([503, "START_FAILED"]);
    expect(readdirSync(host_dir)).toEqual(["secret"]);
    await containers.delete(container_id);
  });

  it("with a working directory that became a link to a descriptor begins inside (CVE-2024-21626)", async () => {
    const up = "../../../../../../../../../..";
    const command = ["sh", "-c", `cat ${up}${host_dir}/secret .${host_dir}/secret; sleep 1000`];
    const { container_id } = await containers.create({ name: "cwd", working_directory: "/work", command });
    for (let fd = 3; fd < 16; fd++) {
      await containers.shell(container_id, `rm -rf /work; ln -s /proc/self/fd/${fd} /work`, { workdir: "/" });
      await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
      const { status } = await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`);
      if (status === 200) {
        expect(await containers.shell(container_id, "cat /proc/self/mountinfo", { workdir: "/" })).not.toContain(
          host_dir,
        );
      } else {
        // It cannot be entered to be mended.
        break;
      }
    }
    expect(JSON.stringify(await containers.logs(container_id))).not.toContain(SECRET);
    await containers.delete(container_id);
  });
});

describe("what a container shares with others", () => {
  it("is no file of this machine by way of a link that it swaps while files are moved (CVE-2018-15664)", async () => {
    const swap = `mkdir -p /real && echo inside > /real/file; while :; do ln -sfn ${host_dir} /swap; ln -sfn /real /swap; ln -sfn ../../../../../../../..${host_dir} /swap; done`;
    const { container_id } = await containers.create({ name: "swaps", command: ["sh", "-c", swap] });
    const tar = execFileSync("tar", ["-c", "-C", "/etc", "hostname"]);
    const url = `${daemon.url}/api/containers/${container_id}/archive`;
    const headers = { "x-api-key": KEY, "content-type": "application/x-tar" };
    // An answer that has begun is cut off where what it reads goes away.
    const ask = (path: string, init: RequestInit = {}) =>
      fetch(`${url}?execution=sync&path=${path}`, { headers, ...init })
        .then(async (answer) => ({ status: answer.status, bytes: Buffer.from(await answer.arrayBuffer()) }))
        .catch(() => ({ status: 0, bytes: Buffer.alloc(0) }));
    const statuses = new Set<number>();
    for (let n = 0; n < 40; n++) {
      for (const path of ["/swap", "/swap/secret"]) {
        const { bytes } = await ask(path);
        expect(bytes.includes(SECRET)).toBe(false);
      }
      statuses.add((await ask("/swap", { method: "POST", body: tar })).status);
    }
    // Some went to where the link led inside.
    expect([...statuses]).toContain(200);
    expect(readdirSync(host_dir)).toEqual(["secret"]);
    await containers.delete(container_id);
  });

  it("is a disk that one cannot fill for the others", async () => {
    const full = await containers.create({ name: "full", disk_limit_mb: LIMITS.disk_limit_mb_min });
    const neighbour = await containers.create({ name: "writes" });
    const filled = await containers.exec(full.container_id, [
      "sh",
      "-c",
      `dd if=/dev/zero of=/big bs=1M count=${LIMITS.disk_limit_mb_min * 4}; du -sm /big`,
    ]);
    expect(filled.stderr).toMatch(/Disk quota exceeded|No space left/);
    expect(Number(filled.stdout.split("\t")[0])).toBeLessThanOrEqual(LIMITS.disk_limit_mb_min + 1);
    expect(await containers.shell(neighbour.container_id, "echo kept > /root/file && sync && cat /root/file")).toBe(
      "kept\n",
    );
    expect(
      await containers.shell(full.container_id, "rm /big && sync; echo again > /root/file && cat /root/file"),
    ).toBe("again\n");
    await containers.delete(full.container_id, neighbour.container_id);
  });

  it("is nothing that is left when all are gone", async () => {
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

/** Where this machine and the launcher have something of this daemon's mounted: others come and go meanwhile. */
function mountsHere(): string[] {
  const launcher = commandLines().find(({ args }) => args[1] === "launcher" && args[2]?.startsWith(daemon.run_dir));
  return ["self", String(launcher?.pid ?? "self")].flatMap((pid) =>
    readFileSync(`/proc/${pid}/mountinfo`, "utf8")
      .split("\n")
      .filter((line) => [daemon.data_dir, daemon.run_dir, host_dir, " /volumes/"].some((text) => line.includes(text)))
      .map((line) => line.split(" ")[4] ?? ""),
  );
}
