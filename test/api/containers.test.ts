/** Containers through the real API: made, used, ended, found again. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

const create = async (body: object) => {
  const { status, body: record } = await daemon.call("POST", "/api/containers", body);
  expect(status, JSON.stringify(record)).toBe(201);
  return record;
};
const exec = async (id: string, command: readonly string[], more: object = {}) =>
  (await daemon.call("POST", `/api/containers/${id}/exec`, { command, ...more })).body;
const shell = (id: string, line: string, more: object = {}) => exec(id, ["sh", "-c", line], more);

describe("a container", () => {
  it("is ready when the answer comes, with every check true and read from what is", async () => {
    const record = await create({ name: "ready", labels: { a: "b" } });
    expect(record).toMatchObject({
      name: "ready",
      state: "running",
      exit_code: null,
      exited_at: null,
      labels: { a: "b" },
      exec_ready: true,
      network_ready: true,
      checks: {
        state_running: true,
        minit_responsive: true,
        network_configured: true,
        managed_image_valid: true,
        gui_backend_reachable: null,
      },
    });
    const { body } = await daemon.call("GET", `/api/containers/${record.container_id}/ready`);
    expect(body).toMatchObject({ exec_ready: true, network_ready: true });
    const address = (await shell(record.container_id, "hostname -I 2>/dev/null || cat /etc/hosts")).stdout;
    expect(address).toContain(record.ip_address);
    await daemon.call("DELETE", `/api/containers/${record.container_id}`);
  });

  it("keeps its files over a stop and a start, under another address or the same", async () => {
    const { container_id } = await create({ name: "files" });
    expect(await shell(container_id, "echo kept > /root/file && mkdir /new")).toMatchObject({ exit_code: 0 });
    const stopped = await daemon.call("POST", `/api/containers/${container_id}/stop`, {});
    expect(stopped).toMatchObject({ status: 200, body: { success: true, state: "exited", pid: null } });
    const refused = await daemon.call("POST", `/api/containers/${container_id}/exec`, { command: ["true"] });
    expect(refused).toMatchObject({ status: 409, body: { error_code: "NOT_RUNNING", details: { state: "exited" } } });
    const started = await daemon.call("POST", `/api/containers/${container_id}/start`);
    expect(started).toMatchObject({ status: 202, body: { success: true } });
    await eventually("it runs again", async () => {
      const { body } = await daemon.call("GET", `/api/containers/${container_id}`);
      return body.state === "running" && body.exec_ready;
    });
    expect(await shell(container_id, "cat /root/file; ls -d /new")).toMatchObject({ stdout: "kept\n/new\n" });
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("ends with its command, whose exit code, output and files are kept", async () => {
    const command = ["sh", "-c", "echo out; echo err >&2; echo done > /result; exit 7"];
    const { container_id } = await create({ name: "job", command });
    const ended = await eventually("it ends", async () => {
      const { body } = await daemon.call("GET", `/api/containers/${container_id}`);
      return body.state === "exited" ? body : null;
    });
    expect(ended).toMatchObject({ exit_code: 7, pid: null, ip_address: null });
    expect(Date.parse(ended.exited_at)).toBeGreaterThanOrEqual(Date.parse(ended.started_at) - 1_000);
    const { body } = await daemon.call("GET", `/api/containers/${container_id}/logs`);
    const lines = body.logs.map(({ stream, message }: { stream: string; message: string }) => `${stream} ${message}`);
    expect(lines.sort()).toEqual(["stderr err", "stdout out"]);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("is found by name and by state, and by its name where an id is asked for", async () => {
    const { container_id } = await create({ name: "named" });
    expect((await daemon.call("GET", "/api/containers/by-name/named")).body).toMatchObject({
      container_id,
      found: true,
    });
    expect((await daemon.call("GET", "/api/containers/named")).body).toMatchObject({ container_id });
    const names = async (state: string) =>
      (await daemon.call("GET", `/api/containers?state=${state}`)).body.containers.map(
        ({ name }: { name: string }) => name,
      );
    expect(await names("running")).toContain("named");
    expect(await names("exited")).not.toContain("named");
    expect(await daemon.call("GET", "/api/containers/by-name/nobody")).toMatchObject({
      status: 200,
      body: { found: false, container_id: null, error_message: "container 'nobody' not found" },
    });
    expect((await daemon.call("GET", "/api/functions/by-name/nobody")).status).toBe(404);
    await daemon.call("POST", `/api/containers/${container_id}/rename`, { new_name: "renamed" });
    expect((await daemon.call("GET", "/api/containers/by-name/named")).body.found).toBe(false);
    const nameless = await daemon.call("POST", `/api/containers/${container_id}/rename`, {});
    expect(nameless).toMatchObject({ status: 422, body: { error_code: "UNPROCESSABLE_ENTITY" } });
    const again = await create({ name: "named" });
    const taken = await daemon.call("POST", `/api/containers/${again.container_id}/rename`, { name: "renamed" });
    expect(taken).toMatchObject({ status: 409, body: { error_code: "NAME_TAKEN" } });
    expect(await daemon.call("POST", "/api/containers", { name: "renamed" })).toMatchObject({ status: 409 });
    for (const id of [container_id, again.container_id]) await daemon.call("DELETE", `/api/containers/${id}`);
  });

  it("is made once for one idempotency key, and batches answer with their items where they are waited for", async () => {
    const once = (query: string, body: object, key = "k1") =>
      daemon.call("POST", `/api/containers${query}`, body, { "idempotency-key": key });
    const [first, second] = [await once("", { name: "keyed" }), await once("", { name: "keyed" })];
    expect([first.status, second.status, second.body.container_id]).toEqual([201, 201, first.body.container_id]);
    expect(await once("", { name: "other" })).toMatchObject({
      status: 409,
      body: { error_code: "IDEMPOTENCY_CONFLICT" },
    });
    const items = [{ name: "keyed" }, { name: "batched" }];
    const batch = await once("/batch?execution=sync", { items }, "k2");
    expect(batch).toMatchObject({
      status: 200,
      body: {
        message: "1 of 2 containers created; 1 failed: 'keyed': NAME_TAKEN, a container named 'keyed' exists",
        result: { created_count: 1, failed_count: 1 },
        items: [{ error_code: "NAME_TAKEN" }, { name: "batched", status: "succeeded" }],
      },
    });
    expect(await once("/batch?execution=sync", { items }, "k2")).toMatchObject({ status: 200, body: batch.body });
    expect(await once("/batch", { items }, "k2")).toMatchObject({ body: { error_code: "IDEMPOTENCY_CONFLICT" } });
    for (const name of ["keyed", "batched"]) await daemon.call("DELETE", `/api/containers/${name}`);
  });

  it("is started, resumed and batched with what existing clients send beside, and async_mode decides nothing", async () => {
    const batch = { items: [{ name: "sent", memory_limit_mb: null, labels: null }], async_mode: false };
    const made = await daemon.call("POST", "/api/containers/batch", batch);
    expect(made).toMatchObject({ status: 202, body: { operation_id: expect.any(String) } });
    await daemon.call("GET", `/api/operations/${made.body.operation_id}?wait_seconds=30`);
    const sent = {
      async_mode: false,
      placement_hint: "node-1",
      ttl_seconds: null,
      labels: { a: "b" },
      dry_run: false,
    };
    for (const verb of ["start", "resume"]) {
      await daemon.call("POST", "/api/containers/sent/kill", {});
      const body = { ...sent, idempotency_key: verb };
      const started = await daemon.call("POST", `/api/containers/sent/${verb}`, body);
      const again = await daemon.call("POST", `/api/containers/sent/${verb}`, body);
      expect([verb, started.status, again.body]).toEqual([verb, 202, started.body]);
      await daemon.call("GET", `/api/operations/${started.body.operation_id}?wait_seconds=30`);
      expect((await daemon.call("GET", "/api/containers/sent")).body).toMatchObject({ state: "running", labels: {} });
    }
    const dry = await daemon.call("POST", "/api/containers/sent/start", { dry_run: true });
    expect(dry).toMatchObject({ status: 400, body: { error_code: "INVALID_ARGUMENT" } });
    await daemon.call("DELETE", "/api/containers/sent");
  });

  it("is killed where it does not end by itself, and deleted while it runs", async () => {
    const command = ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"];
    const { container_id } = await create({ name: "stubborn", command });
    await eventually("it does not listen any more", async () => {
      const { logs } = (await daemon.call("GET", `/api/containers/${container_id}/logs`)).body;
      return logs.length > 0;
    });
    const stopped = await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 200 });
    expect(stopped.body).toMatchObject({ state: "exited", exit_code: 137 });
    expect(await daemon.call("POST", `/api/containers/${container_id}/kill`)).toMatchObject({
      status: 200,
      body: { success: true, state: "exited", exit_code: 137 },
    });
    const other = await create({ name: "running", command });
    const deleted = await daemon.call("DELETE", `/api/containers/${other.container_id}`);
    expect(deleted).toMatchObject({ status: 200, body: { success: true } });
    expect((await daemon.call("GET", `/api/containers/${other.container_id}`)).status).toBe(404);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("gives commands its variables, which a patch adds to and a put replaces", async () => {
    const { container_id } = await create({ name: "env", environment: { A: "1", B: "2" } });
    const read = async () => (await shell(container_id, "echo $A$B$C")).stdout.trim();
    expect(await read()).toBe("12");
    await daemon.call("PATCH", `/api/containers/${container_id}/env`, { environment: { C: "3" } });
    expect(await read()).toBe("123");
    const many = Object.fromEntries(Array.from({ length: 254 }, (_, i) => [`N${i}`, ""]));
    const added = await daemon.call("PATCH", `/api/containers/${container_id}/env`, { environment: many });
    expect(added).toMatchObject({ status: 400, body: { error_code: "INVALID_ARGUMENT" } });
    await daemon.call("PUT", `/api/containers/${container_id}/env`, { environment: { B: "4" } });
    expect(await read()).toBe("4");
    expect((await daemon.call("GET", `/api/containers/${container_id}/env`)).body).toEqual({ environment: { B: "4" } });
    expect((await exec(container_id, ["sh", "-c", "echo $B$D"], { environment: { D: "5" } })).stdout).toBe("45\n");
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("has no volume where a link in it leads, neither at first nor when one is put there", async () => {
    await daemon.call("POST", "/api/volumes", { name: "led" });
    // A link to /run in Debian.
    const refused = await daemon.call("POST", "/api/containers", { name: "led", volumes: ["led:/var/lock/led"] });
    expect(refused).toMatchObject({ status: 400, body: { error_code: "INVALID_ARGUMENT" } });
    const { container_id } = await create({ name: "led", volumes: ["led:/mine/data"] });
    const moved = await shell(container_id, "mv /mine /old && mkdir /mine && ln -s /dev /mine/data");
    expect(moved).toMatchObject({ exit_code: 0, stderr: "" });
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    const started = await eventually("its files are let go", async () => {
      const answer = await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`);
      return answer.body.error_code === "IN_USE" ? null : answer;
    });
    expect(started).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("passes a symbolic link of the container: /mine/data") },
    });
    expect((await daemon.call("GET", `/api/containers/${container_id}`)).body).toMatchObject({ state: "error" });
    await daemon.call("DELETE", `/api/containers/${container_id}`);
    await daemon.call("DELETE", "/api/volumes/led?execution=sync");
  });

  it("with strict has no capabilities, the narrower filter and a root that an upload and its commands write to", async () => {
    const strict = await create({ name: "strict", strict: true });
    const plain = await create({ name: "plain" });
    expect(strict).toMatchObject({ strict: true, read_only_root: false });
    const folder = mkdtempSync("/var/tmp/hearth-archive-");
    execFileSync("sh", ["-c", "echo sent > sent && tar cf a.tar sent"], { cwd: folder });
    const sent = await fetch(`${daemon.url}/api/containers/strict/archive?execution=sync&path=/workspace`, {
      method: "POST",
      headers: { "x-api-key": KEY, "content-type": "application/x-tar" },
      body: readFileSync(`${folder}/a.tar`),
    });
    rmSync(folder, { recursive: true });
    expect(sent.status).toBe(200);
    const line = "grep CapEff /proc/self/status; cat /workspace/sent; touch /file /workspace/file && echo written";
    const { stdout } = await shell(strict.container_id, line);
    expect(stdout).toBe("CapEff:\t0000000000000000\nsent\nwritten\n");
    // The filter refuses before the kernel looks at the path.
    const chroot = ["python3", "-c", "import os\ntry: os.chroot('/none')\nexcept OSError as error: print(error.errno)"];
    expect((await exec(strict.container_id, chroot)).stdout).toBe("1\n");
    expect((await exec(plain.container_id, chroot)).stdout).toBe("2\n");
    for (const name of ["strict", "plain"]) await daemon.call("DELETE", `/api/containers/${name}`);
  });

  it("with read_only_root has a root that cannot be written to, and keeps its capabilities", async () => {
    const record = await create({ name: "read-only", read_only_root: true });
    expect(record).toMatchObject({ strict: false, read_only_root: true });
    const line = "grep CapEff /proc/self/status; touch /file 2>&1; touch /tmp/file /run/file && echo tmp";
    const { stdout } = await shell(record.container_id, line);
    expect(stdout).not.toMatch(/CapEff:\t0000000000000000/);
    expect(stdout).toMatch(/Read-only file system/);
    expect(stdout).toMatch(/tmp\n$/);
    await daemon.call("DELETE", `/api/containers/${record.container_id}`);
  });

  it("is started again by its policy after a failure, and not after a stop", async () => {
    const command = ["sh", "-c", "echo run >> /runs; [ $(wc -l < /runs) -ge 3 ] && exec sleep 1000; exit 1"];
    const { container_id } = await create({ name: "again", command, restart: "on-failure" });
    const record = await eventually("the third run", async () => {
      const { body } = await daemon.call("GET", `/api/containers/${container_id}`);
      return body.state === "running" && body.restart_count === 2 ? body : null;
    });
    expect(record.exec_ready).toBe(true);
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    expect((await daemon.call("GET", `/api/containers/${container_id}`)).body).toMatchObject({ state: "exited" });
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("goes when its time is up, and stops when nobody uses it", async () => {
    const short = await create({ name: "short", ttl_seconds: 1 });
    const idle = await create({ name: "idle", idle_seconds: 1 });
    await eventually(
      "it is deleted",
      async () => (await daemon.call("GET", `/api/containers/${short.container_id}`)).status === 404,
    );
    await eventually(
      "it is stopped",
      async () => (await daemon.call("GET", `/api/containers/${idle.container_id}`)).body.state === "exited",
    );
    await daemon.call("DELETE", `/api/containers/${idle.container_id}`);
  });

  it.each([
    [{}, 422],
    [{ name: 3 }, 422],
    [{ name: "x", command: "ls" }, 422],
    [{ name: "x", command: [] }, 400],
    [{ name: "a/b" }, 400],
    [{ name: "x", image: "none" }, 400],
    [{ name: "x", memory_limit_mb: 1 }, 400],
    [{ name: "x", volumes: ["v:/proc"] }, 400],
    [{ name: "x", volumes: ["v:/usr/lib"] }, 400],
    [{ name: "x", volumes: ["v:/"] }, 400],
    [{ name: "x", volumes: ["v:/data/../etc"] }, 400],
    [{ name: "x", volumes: ["v:/data", "w:/data/more"] }, 400],
    [{ name: "x", volumes: ["v:/data:ro"] }, 400],
    [{ name: "x", volumes: ["v:/data:rw,z"] }, 400],
    [{ name: "x", volumes: ["/etc:/data"] }, 400],
    [{ name: "x", volumes: ["./site:/data"] }, 400],
    [{ name: "x", network: "none" }, 400],
    [{ name: "x", network: "host" }, 400],
    [{ name: "x", volumes: ["none:/data"] }, 404],
    [{ name: "x", environment: { LD_PRELOAD: "/x.so" } }, 400],
    [{ name: "x", environment: { "A=B": "1" } }, 400],
    [{ name: "x", working_directory: "relative" }, 400],
    [{ name: "x", working_directory: "/proc/self" }, 400],
    [{ name: "x", gpu_count: "two" }, 400],
    [{ name: "x", gpu_count: 1, gpu_ids: ["nvidia0", "nvidia1"] }, 400],
    [{ name: "x", gpu_count: 1, strict: true }, 400],
    [{ name: "x", gpu_count: 1, gpu_ids: ["nvidia0"] }, 503],
    [{ name: "x", image: "localhost/none:1", oci: true }, 404],
    [{ name: "x", image: `registry:5000/a/b@sha256:${"0".repeat(64)}`, oci: true }, 404],
    [{ name: "x", image: "--cpu-profile=/var/tmp/hearth-is-not-made", oci: true }, 400],
    [{ name: "x", image: "containers-storage:[overlay@/var/tmp]none", oci: true }, 400],
    [{ name: "x", image: "dir:/etc", oci: true }, 400],
    [{ name: "x", image: "", oci: true }, 400],
    [{ name: "x", async_mode: true }, 400],
    [{ name: "x", egress: [3] }, 422],
    [{ name: "x", egress: ["example.org"] }, 400],
  ])("made of %j is refused with %i and changes nothing", async (body, status) => {
    const answer = await daemon.call("POST", "/api/containers", body);
    expect(answer.status, JSON.stringify(answer.body)).toBe(status);
    if (status === 503) expect(answer.body).toMatchObject({ error_code: "CAPACITY_FULL", retry_after: null });
    // Nothing of where this machine keeps what.
    expect(JSON.stringify(answer.body)).not.toMatch(/\/var\/lib|\/run\/|buildah|storage-driver/);
    expect((await daemon.call("GET", "/api/containers/by-name/x")).body.found).toBe(false);
  });

  it("whose command is over at once is made all the same, and has ended", async () => {
    for (let i = 0; i < 5; i++) {
      const { container_id } = await create({ name: "over", command: ["/bin/true"] });
      const ended = await eventually("its end is noted", async () => {
        const { body } = await daemon.call("GET", `/api/containers/${container_id}`);
        return body.state === "exited" ? body : null;
      });
      expect(ended.exit_code).toBe(0);
      await daemon.call("DELETE", `/api/containers/${container_id}`);
    }
  });

  it("cannot make a subvolume, whose files would be outside of its limit", async () => {
    const { container_id } = await create({ name: "subvolume", disk_limit_mb: 16 });
    const code = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/", os.O_RDONLY)
name = (8).to_bytes(8, "little") + b"sub" + bytes(4085)
for number in (0x5000940E, 0x50009418, 0x15000940E, 0x50009401):
    print(libc.syscall(16, fd, ctypes.c_ulong(number), name), ctypes.get_errno())
print(libc.syscall(16, fd, ctypes.c_ulong(0x5401), ctypes.create_string_buffer(64)), ctypes.get_errno())
`;
    const { stdout } = await exec(container_id, ["python3", "-c", code]);
    expect(stdout.trim().split("\n")).toEqual([...Array(4).fill("-1 38"), "-1 25"]);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("takes an archive and gives files back, whether it runs or not", async () => {
    const { container_id } = await create({ name: "archived" });
    const upload = async (path: string) => {
      const folder = mkdtempSync("/var/tmp/hearth-archive-");
      execFileSync("sh", ["-c", `echo ${path} > here && tar czf a.tgz here`], { cwd: folder });
      const answer = await fetch(`${daemon.url}/api/containers/${container_id}/archive?path=${path}`, {
        method: "POST",
        headers: { "x-api-key": KEY, "content-type": "application/gzip" },
        body: readFileSync(`${folder}/a.tgz`),
      });
      rmSync(folder, { recursive: true });
      const { operation_id } = (await answer.json()) as { operation_id: string };
      return (await daemon.call("GET", `/api/operations/${operation_id}?wait_seconds=10`)).body;
    };
    expect(await upload("/root/one")).toMatchObject({ status: "succeeded", container_id, message: "1 entry" });
    expect((await shell(container_id, "cat /root/one/here; stat -c %u /root/one/here")).stdout).toBe("/root/one\n0\n");
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    expect(await upload("/root/two")).toMatchObject({ status: "succeeded" });
    const list = async () => {
      const answer = await fetch(`${daemon.url}/api/containers/${container_id}/archive?path=/root`, {
        headers: { "x-api-key": KEY },
      });
      return execFileSync("tar", ["t"], { input: Buffer.from(await answer.arrayBuffer()) }).toString();
    };
    expect(await list()).toMatch(/two\/here/);
    const slow = await fetch(`${daemon.url}/api/containers/${container_id}/archive?path=/usr`, {
      headers: { "x-api-key": KEY },
    });
    const refused = await daemon.call("POST", `/api/containers/${container_id}/start`);
    expect(refused).toMatchObject({ status: 409, body: { error_code: "IN_USE" } });
    expect((await daemon.call("GET", `/api/containers/${container_id}`)).body.state).toBe("exited");
    await slow.body?.cancel();
    await eventually("its files are let go", async () => {
      const { status } = await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`);
      return status === 200;
    });
    expect((await shell(container_id, "cat /root/two/here")).stdout).toBe("/root/two\n");
    expect(await list()).toMatch(/one\/here/);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("shows its directories page by page, whether it runs or not, and nothing that a link of it leads to outside", async () => {
    const { container_id } = await create({ name: "listed" });
    await shell(
      container_id,
      "mkdir /root/d; cd /root/d; touch a b c; ln -s / up; ln -s ../../../../../etc/hostname out",
    );
    const list = async (query: string) => {
      const { status, body } = await daemon.call("GET", `/api/containers/${container_id}/ls?${query}`);
      return [status, body.error_code ?? body.files.map(({ name }: { name: string }) => name), body.total];
    };
    const looks = async () => {
      expect(await list("path=/root/d&page_size=2")).toEqual([200, ["a", "b"], 5]);
      expect(await list("path=/root/d&page_size=2&page=3")).toEqual([200, ["up"], 5]);
      // Its own root, not this machine's.
      expect((await list("path=/root/d/up"))[1]).toEqual((await list(""))[1]);
      expect((await list("path=/root/d/up/root"))[1]).toContain("d");
      expect(await list("path=/root/nothing")).toEqual([404, "NOT_FOUND", undefined]);
      expect(await list("path=/root/d/a")).toEqual([400, "INVALID_ARGUMENT", undefined]);
      expect(await list("path=/root/../..")).toEqual([400, "INVALID_ARGUMENT", undefined]);
    };
    await looks();
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    await looks();
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("whose first process does not answer is not ready, and what is run in it is refused", async () => {
    const { container_id, pid } = await create({ name: "frozen" });
    process.kill(pid, "SIGSTOP");
    const ready = await daemon.call("GET", `/api/containers/${container_id}/ready`);
    expect(ready.body).toMatchObject({ exec_ready: false, checks: { state_running: true, minit_responsive: false } });
    const refused = await daemon.call("POST", `/api/containers/${container_id}/exec`, { command: ["true"] });
    expect(refused).toMatchObject({ status: 503, body: { error_code: "NOT_RESPONDING" } });
    process.kill(pid, "SIGCONT");
    expect((await exec(container_id, ["true"])).exit_code).toBe(0);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("that has filled its disk can be started again, and be emptied", async () => {
    const { container_id } = await create({ name: "full", disk_limit_mb: 16 });
    const filled = await shell(container_id, "dd if=/dev/zero of=/big bs=1M 2>&1");
    expect(filled.stdout).toMatch(/Disk quota exceeded/);
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    const started = await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`);
    expect(started).toMatchObject({ status: 200, body: { exec_ready: true } });
    expect(await shell(container_id, "rm /big && sync && echo room > /room && cat /room")).toMatchObject({
      exit_code: 0,
      stdout: "room\n",
    });
    const { stdout } = await shell(container_id, "dd if=/dev/zero of=/big bs=1M 2>&1");
    expect(stdout).toMatch(/Disk quota exceeded/);
    expect(Number(/^(\d+) bytes/m.exec(stdout)?.[1])).toBeLessThanOrEqual(17 * 1024 * 1024);
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  });

  it("ends the command of a client that goes; whoever follows its log is done when it is deleted", async () => {
    const { container_id } = await create({ name: "left", command: ["sh", "-c", "echo said; exec sleep 1000"] });
    const url = `${daemon.url}/api/containers/${container_id}`;
    const headers = { "x-api-key": KEY };
    const leaving = new AbortController();
    const body = JSON.stringify({ command: ["sleep", "999"], timeout_ms: 600_000 });
    const gone = fetch(`${url}/exec`, { method: "POST", headers, body, signal: leaving.signal }).catch(() => "gone");
    const sleeps = async () => {
      const { processes } = (await daemon.call("GET", `/api/containers/${container_id}/processes`)).body;
      return processes.some(({ command }: { command: string }) => command === "sleep 999");
    };
    await eventually("it runs", sleeps);
    leaving.abort();
    expect(await gone).toBe("gone");
    await eventually("it is ended", async () => !(await sleeps()));
    const job = await eventually("its job is noted", async () => {
      const { jobs } = (await daemon.call("GET", `/api/containers/${container_id}/jobs`)).body;
      return jobs[0];
    });
    expect(job).toMatchObject({
      status: "failed",
      exit_code: null,
      error_message: "the client disconnected while the command ran",
    });
    const follower = await fetch(`${url}/logs?follow=true`, { headers });
    await daemon.call("DELETE", `/api/containers/${container_id}`);
    expect(await follower.text()).toMatch(/^\{.*"message":"said".*\}\n$/);
  });

  it("leaves nothing when all are deleted", async () => {
    const { body } = await daemon.call("GET", "/api/containers");
    for (const { container_id } of body.containers) await daemon.call("DELETE", `/api/containers/${container_id}`);
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
