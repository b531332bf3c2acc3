/**
 * Containers and what serves them, ended one by one: the daemon, the machine, the launcher, the OCI runtime in the middle
 * of a start, a container's first process, its memory. What is not meant by it goes on; the rest is told as it was.
 */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Connection } from "../../src/store/connection.ts";
import { ContainerUser, commandLines, identityOf, isAlive, type LogLine } from "../support/containers.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { sendSignal } from "../support/signals.ts";

const SETTINGS = { HEARTH_CELLS: "0" };
const COUNTS = ["sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done"];
/** Ends with the code in /go, when that is there. */
const WAITS = ["sh", "-c", "while [ ! -e /go ]; do sleep 0.02; done; code=$(cat /go); rm /go; echo going; exit $code"];

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const { create, get, until, shell, logs } = {
  create: containers.create.bind(containers),
  get: containers.get.bind(containers),
  until: containers.until.bind(containers),
  shell: containers.shell.bind(containers),
  logs: containers.logs.bind(containers),
};

beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

/** Bytes of the log of a container, in the files that its first process holds open: no daemon is needed to see them. */
function logBytes(pid: number): number {
  const files = readdirSync(`/proc/${pid}/fd`).map((fd) => `/proc/${pid}/fd/${fd}`);
  const segments = files.filter((file) => /\/log\.\d$/.test(readlinkSync(file)));
  return segments.reduce((sum, file) => sum + statSync(file).size, 0);
}

/** Without a gap, without a repetition, each number where it belongs. */
function expectWhole(lines: readonly LogLine[]): void {
  expect(lines.map(({ seq, message }) => [seq, message])).toEqual(lines.map((_, i) => [i + 1, String(i)]));
}

/** Has the command of a container end, from outside. */
function endWith(pid: number, code: number): void {
  // As its own root, whoever that is outside: nobody else can make a file there.
  const uid = /^Uid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "";
  execFileSync("nsenter", [
    "-t",
    String(pid),
    "-m",
    "-S",
    uid,
    "-G",
    uid,
    "sh",
    "-c",
    `echo ${code} > /made && mv /made /go`,
  ]);
}

async function gone(pid: number): Promise<void> {
  await eventually(`process ${pid} ends`, () => !isAlive(pid));
}

/** The lines of a stream until one is what `isLast` waits for. */
async function follow(id: string, isLast: (line: LogLine) => boolean): Promise<LogLine[]> {
  const abort = new AbortController();
  const lines: LogLine[] = [];
  const response = await fetch(`${daemon.url}/api/containers/${id}/logs?follow=true&limit=10000`, {
    headers: { "x-api-key": KEY },
    signal: AbortSignal.any([abort.signal, AbortSignal.timeout(20_000)]),
  });
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of response.body ?? []) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts.filter((text) => text !== "")) lines.push(JSON.parse(part));
    if (lines.some(isLast)) break;
  }
  abort.abort();
  return lines;
}

describe("a container that runs", () => {
  it.each(["SIGTERM", "SIGKILL"] as const)(
    "goes on with its daemon ended by %s, and is found again whole",
    async (signal) => {
      const { container_id: id, pid } = await create({ name: "counts", command: COUNTS });
      const before = identityOf(pid);
      await shell(id, "echo kept > /root/file; (sleep 1000; echo never) & echo $! > /root/pid");
      await daemon.stop(signal);
      const bytes = logBytes(pid);
      await eventually("it writes on", () => logBytes(pid) > bytes + 1_000);
      await daemon.start(SETTINGS);
      const record = await get(id);
      expect(record).toMatchObject({ state: "running", pid, exec_ready: true, network_ready: true, restart_count: 0 });
      expect(identityOf(pid)).toBe(before);
      expect(await shell(id, "cat /root/file")).toBe("kept\n");
      const last = (await logs(id)).at(-1)?.seq ?? 0;
      const followed = await follow(id, ({ seq }) => seq > last + 5);
      expectWhole(followed);
      const streamed = await daemon.call("POST", `/api/containers/${id}/stream`, { command: ["echo", "streamed"] });
      const frames = String(streamed.body)
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
      expect(frames.map(({ type }) => type)).toEqual(["started", "stdout", "exit"]);
      const stopped = await daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
      expect(stopped.body).toMatchObject({ state: "exited" });
      // Ended by SIGTERM, or where that took longer than no time by SIGKILL.
      expect([137, 143]).toContain(stopped.body.exit_code);
      expectWhole(await logs(id));
      await containers.delete(id);
    },
  );

  it("keeps its network: it reaches nobody more and nobody less, and no other gets its address", async () => {
    const old = await create({ name: "old" });
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    const others = await Promise.all([1, 2, 3].map((n) => create({ name: `other-${n}` })));
    const addresses = [old, ...others].map(({ ip_address }) => ip_address);
    expect(new Set(addresses).size).toBe(4);
    expect(await shell(old.container_id, "cat /etc/hosts")).toContain(old.ip_address);
    await containers.delete(old.container_id, ...others.map(({ container_id }) => container_id));
  });
});

describe("a container whose command ends while no daemon runs", () => {
  it("is told with its code, and started again as its policy says", async () => {
    const made = await Promise.all(
      [
        { name: "none", restart: "no", code: 7 },
        { name: "failed", restart: "on-failure", code: 3 },
        { name: "fine", restart: "on-failure", code: 0 },
        { name: "always", restart: "always", code: 0 },
        { name: "killed", restart: "no", code: null },
      ].map(async ({ code, ...fields }) => ({ code, ...(await create({ ...fields, command: WAITS })) })),
    );
    await daemon.stop("SIGKILL");
    for (const { pid, code } of made) {
      if (code === null) process.kill(pid, "SIGKILL");
      else endWith(pid, code);
    }
    for (const { pid } of made) await gone(pid);
    await daemon.start(SETTINGS);
    const [none, failed, fine, always, killed] = made.map(({ container_id }) => container_id as string);
    expect(await get(none ?? "")).toMatchObject({ state: "exited", exit_code: 7, restart_count: 0, pid: null });
    expect(await get(fine ?? "")).toMatchObject({ state: "exited", exit_code: 0, restart_count: 0 });
    expect(await get(killed ?? "")).toMatchObject({ state: "exited", exit_code: 137, restart_count: 0 });
    for (const id of [failed, always]) {
      const record = await until(id ?? "", "it runs again", ({ state }) => state === "running");
      expect(record).toMatchObject({ restart_count: 1, exit_code: null, exited_at: null });
      expect((await logs(id ?? "")).map(({ seq, message }) => [seq, message])).toEqual([[1, "going"]]);
    }
    await containers.delete(...made.map(({ container_id }) => container_id));
  });

  it("stays ended where it was stopped before, whatever its policy", async () => {
    const { container_id: id } = await create({ name: "stopped", command: WAITS, restart: "always" });
    await daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
    await daemon.stop("SIGTERM");
    await daemon.start(SETTINGS);
    const other = await create({ name: "later", command: ["true"], restart: "always" });
    await until(other.container_id, "its second restart", ({ restart_count }) => restart_count >= 2);
    expect(await get(id)).toMatchObject({ state: "exited", restart_count: 0 });
    await containers.delete(id, other.container_id);
  });

  it("is told to have run out of memory where it did", async () => {
    const command = ["sh", "-c", `while [ ! -e /go ]; do sleep 0.02; done; exec tail /dev/zero`];
    const { container_id: id, pid } = await create({ name: "hungry", command, memory_limit_mb: 256 });
    await daemon.stop("SIGKILL");
    endWith(pid, 0);
    await gone(pid);
    await daemon.start(SETTINGS);
    expect(await get(id)).toMatchObject({ state: "exited", exit_code: 137, oom_killed: true });
    await containers.delete(id);
  });
});

describe("a container whose stop a crash cut short", () => {
  it("is ended by the next start of the daemon, and not started again by its policy", async () => {
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "containers.stop.unwanted" });
    const { container_id: id } = await create({ name: "cut", command: COUNTS, restart: "always" });
    await expect(daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 })).rejects.toThrow();
    await eventually("the daemon is dead", () => !daemon.isAlive);
    await daemon.start(SETTINGS);
    const ended = await until(id, "it has ended", ({ state }) => state === "exited");
    expect(ended).toMatchObject({ restart_count: 0, pid: null });
    await containers.delete(id);
  });
});

describe("a start by policy that fails", () => {
  it("is tried again until it succeeds, and told meanwhile", async () => {
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "containers.start.slot:2=throw" });
    const { container_id: id, pid } = await create({ name: "tried", command: WAITS, restart: "on-failure" });
    endWith(pid, 1);
    const record = await until(id, "it runs again", (now) => now.state === "running" && now.restart_count > 0);
    expect(record).toMatchObject({ restart_count: 2, exec_ready: true });
    const { body } = await daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
    expect(body.state).toBe("exited");
    await containers.delete(id);
  });
});

describe("a removal that fails", () => {
  it("is tried again, until nothing of the container is left and its port is free", async () => {
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "containers.delete.removed:1=throw" });
    const { container_id: id, ports } = await create({ name: "sticks", ports: [{ container_port: 80 }] });
    expect((await daemon.call("DELETE", `/api/containers/${id}`)).status).toBe(500);
    expect((await daemon.call("GET", `/api/containers/${id}`)).status).toBe(404);
    const again = { name: "sticks", ports: [{ container_port: 80, host_port: ports[0].host_port }] };
    const made = await eventually("its port is free", async () => {
      const { status, body } = await daemon.call("POST", "/api/containers", again);
      return status === 201 ? body : null;
    });
    await containers.delete(made.container_id);
  });
});

/** What a reboot of the machine takes of a daemon that was killed with it. */
function reboot(): void {
  for (const { pid, args } of commandLines()) {
    if (args[1] === "launcher" && args[2]?.startsWith(daemon.run_dir)) process.kill(pid, "SIGKILL");
  }
  for (const line of daemon.processes()) {
    sendSignal(Number(line.split(" ", 1)[0]));
  }
}

async function clearAfterReboot(): Promise<void> {
  await eventually("no process is left", () => daemon.processes().length === 0);
  const { cgroups, links, tables } = daemon.leftovers();
  for (const path of [...cgroups].reverse()) rmdir(path);
  for (const link of links.filter((name) => existsSync(`/sys/class/net/${name}`))) {
    execFileSync("ip", ["link", "delete", link], { stdio: "ignore" });
  }
  for (const table of tables) execFileSync("nft", ["delete", ...table.split(" ")]);
  rmSync(daemon.run_dir, { recursive: true, force: true });
}

function rmdir(path: string): void {
  execFileSync("rmdir", [path]);
}

describe("a reboot of the machine", () => {
  it("ends all containers; those that always run come back, with their files, and the rest are told as ended", async () => {
    const volume = await daemon.call("POST", "/api/volumes", { name: "data" });
    const volumes = volume.status === 201 ? ["data:/data"] : [];
    const touch = "echo kept > /root/file; [ -d /data ] && echo shared > /data/file; sync";
    const made = await Promise.all(
      [
        { name: "r-always", restart: "always", command: WAITS, volumes },
        { name: "r-failure", restart: "on-failure", command: WAITS },
        { name: "r-none" },
        { name: "r-stopped", restart: "always" },
      ].map((fields) => create(fields)),
    );
    const [always, failure, none, stopped] = made.map(({ container_id }) => container_id as string);
    for (const { container_id } of made) await shell(container_id, touch);
    await daemon.call("POST", `/api/containers/${stopped}/stop`, { timeout_ms: 0 });
    await daemon.stop("SIGKILL");
    reboot();
    await clearAfterReboot();
    await daemon.start(SETTINGS);
    const back = await until(always ?? "", "it runs again", ({ state }) => state === "running");
    expect(back).toMatchObject({ exec_ready: true, network_ready: true, restart_count: 1 });
    expect(await shell(always ?? "", "cat /root/file")).toBe("kept\n");
    if (volumes.length > 0) expect(await shell(always ?? "", "cat /data/file")).toBe("shared\n");
    expect(await get(failure ?? "")).toMatchObject({ state: "exited", exit_code: null, restart_count: 0 });
    expect(await get(none ?? "")).toMatchObject({ state: "exited", exit_code: null, pid: null, ip_address: null });
    expect(await get(stopped ?? "")).toMatchObject({ state: "exited", restart_count: 0 });
    const started = await daemon.call("POST", `/api/containers/${none}/start?execution=sync`);
    expect([started.status, started.body.state]).toEqual([200, "running"]);
    expect(await shell(none ?? "", "cat /root/file")).toBe("kept\n");
    await containers.delete(...made.map(({ container_id }) => container_id));
    if (volumes.length > 0) await daemon.call("DELETE", "/api/volumes/data?execution=sync");
  });
});

describe("what is killed under a daemon that runs on", () => {
  it("a container's first process: it has ended with 137, and its policy holds", async () => {
    const once = await create({ name: "once" });
    const again = await create({ name: "again", restart: "on-failure", command: COUNTS });
    for (const { pid } of [once, again]) process.kill(pid, "SIGKILL");
    expect(await until(once.container_id, "it has ended", ({ state }) => state === "exited")).toMatchObject({
      exit_code: 137,
      oom_killed: false,
    });
    const record = await until(again.container_id, "it runs again", (now) => now.restart_count === 1 && now.exec_ready);
    expect(record.pid).not.toBe(again.pid);
    expectWholeOverRuns(await logs(again.container_id));
    await containers.delete(once.container_id, again.container_id);
  });

  it("the launcher: containers run on, others start, files are where they were", async () => {
    const old = await create({ name: "old", command: COUNTS });
    await shell(old.container_id, "echo before > /root/file");
    const launcher = commandLines().find(({ args }) => args[1] === "launcher" && args[2]?.startsWith(daemon.run_dir));
    process.kill(launcher?.pid ?? 0, "SIGKILL");
    const made = await eventually("another starts", async () => {
      const { status, body } = await daemon.call("POST", "/api/containers", { name: "new" });
      return status === 201 ? body : null;
    });
    expect(await shell(made.container_id, "echo works")).toBe("works\n");
    expect(await get(old.container_id)).toMatchObject({ state: "running", pid: old.pid, exec_ready: true });
    expect(await shell(old.container_id, "cat /root/file; echo after > /root/file")).toBe("before\n");
    const stopped = await daemon.call("POST", `/api/containers/${old.container_id}/stop`, { timeout_ms: 0 });
    expect(stopped.body).toMatchObject({ state: "exited" });
    const started = await daemon.call("POST", `/api/containers/${old.container_id}/start?execution=sync`);
    expect(started.body).toMatchObject({ state: "running", exec_ready: true });
    expect(await shell(old.container_id, "cat /root/file")).toBe("after\n");
    await containers.delete(old.container_id, made.container_id);
  });

  it("the OCI runtime in the middle of a start: the start fails, nothing of it is left, the next succeeds", async () => {
    const begin = `${daemon.run_dir}/c/`;
    const before = readdirSync(begin);
    const runtimes = () => commandLines().filter(({ args }) => args.some((arg) => arg.startsWith(begin)));
    const outcome = await eventually("a start that was hit", async () => {
      const creating = daemon.call("POST", "/api/containers", { name: "hit" });
      const state = { isOver: false };
      void creating.finally(() => {
        state.isOver = true;
      });
      while (!state.isOver) {
        for (const { pid } of runtimes()) sendSignal(pid);
        await new Promise((resolve) => setImmediate(resolve));
      }
      const answer = await creating;
      if (answer.status !== 201) return answer;
      await containers.delete(answer.body.container_id);
      return null;
    });
    expect(outcome).toMatchObject({ status: 503, body: { error_code: "START_FAILED" } });
    expect((await daemon.call("GET", "/api/containers/by-name/hit")).body.found).toBe(false);
    await eventually("nothing of it is left", () => readdirSync(begin).every((id) => before.includes(id)));
    const { container_id } = await create({ name: "hit" });
    await containers.delete(container_id);
  });

  it("a command that wants more memory than there is: 137 and oom_killed, beside it all goes on", async () => {
    const neighbour = await create({ name: "neighbour" });
    const command = ["sh", "-c", "exec tail /dev/zero"];
    const main = await create({ name: "main", command, memory_limit_mb: 256 });
    expect(await until(main.container_id, "it has ended", ({ state }) => state === "exited")).toMatchObject({
      exit_code: 137,
      oom_killed: true,
    });
    const holder = await create({ name: "holder", memory_limit_mb: 256, command: COUNTS });
    expect(await containers.exec(holder.container_id, command)).toMatchObject({ exit_code: 137, timed_out: false });
    expect(await get(holder.container_id)).toMatchObject({ state: "running", pid: holder.pid, exec_ready: true });
    expect(await shell(holder.container_id, "echo fine")).toBe("fine\n");
    expect(await shell(neighbour.container_id, "echo fine")).toBe("fine\n");
    await containers.delete(neighbour.container_id, main.container_id, holder.container_id);
  });
});

/** Numbers without a gap, also where the command began again. */
function expectWholeOverRuns(lines: readonly LogLine[]): void {
  expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, i) => i + 1));
}

describe("a store that knows of nothing", () => {
  it("has containers and volumes that are there ended and removed", async () => {
    await create({ name: "unknown", command: COUNTS });
    await daemon.call("POST", "/api/volumes", { name: "unknown" });
    await daemon.stop("SIGKILL");
    const connection = new Connection(`${daemon.data_dir}/hearth.db`, LIMITS);
    for (const table of ["container_volumes", "containers", "volumes"]) connection.exec(`DELETE FROM ${table}`);
    connection.close();
    await daemon.start(SETTINGS);
    const { container_id } = await create({ name: "known" });
    await eventually("only what is known is left", () => {
      const { subvolumes, container_files } = daemon.leftovers();
      const isGone = daemon.processes().every((line) => !line.includes("i=$((i+1))"));
      return isGone && [subvolumes, container_files].every((all) => all.length === 1 && all[0] === container_id);
    });
    await containers.delete(container_id);
  });
});

describe("after all of this", () => {
  it("a stop leaves the containers that run, and nothing when there is none", async () => {
    const { container_id, pid } = await create({ name: "last" });
    await daemon.stop();
    expect(isAlive(pid)).toBe(true);
    expect(readFileSync(`/proc/${pid}/comm`, "utf8")).toBe("minit\n");
    await daemon.start(SETTINGS);
    await containers.delete(container_id);
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    const loops = execFileSync("losetup", ["--list", "--noheadings", "--output", "BACK-FILE"]).toString();
    expect(loops).not.toContain(daemon.data_dir);
  });
});
