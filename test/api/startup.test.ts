/** Starts and ends that do not go as planned: each is refused or survived, and leaves nothing. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { volatileDirectory } from "../../src/base/volatile-directory.ts";
import { NODE_PATH, PROJECT_DIR } from "../../src/installation/paths.js";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";

const daemons: Daemon[] = [];
function make(): Daemon {
  const daemon = new Daemon();
  daemons.push(daemon);
  return daemon;
}
afterEach(async () => {
  for (const daemon of daemons.splice(0)) await daemon.dispose();
});

const cells = { HEARTH_CELLS: "2" };
const waitForCells = (daemon: Daemon) =>
  eventually("cells stand ready", async () => (await daemon.call("GET", "/api/functions/pool/stats")).body.cells === 2);

describe("a first start", () => {
  it("makes a key, shows it this once, keeps it for root alone, and accepts it", async () => {
    const daemon = await make().start({ ...cells, HEARTH_BOOTSTRAP_KEY: "" });
    const file = `${daemon.data_dir}/key`;
    const key = readFileSync(file, "utf8").trim();
    expect(key).toMatch(/^hk_[0-9a-z]{12}_[0-9a-z]{32}$/);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    await eventually("it is shown", () => daemon.output.includes(key));
    const list = () => fetch(`${daemon.url}/api/functions`, { headers: { "x-api-key": key } });
    expect((await list()).status).toBe(200);
    await daemon.stop();
    daemon.output = "";
    await daemon.start({ ...cells, HEARTH_BOOTSTRAP_KEY: "" });
    expect([(await list()).status, daemon.output.includes(key)]).toEqual([200, false]);
  });

  it("under a umask that hides files lets users of containers and handlers read theirs", async () => {
    const daemon = make();
    daemon.umask = "077";
    const proxy = { HEARTH_BUILD_PROXY: "http://10.1.2.3:3128" };
    await daemon.start({ ...cells, ...proxy });
    const containers = new ContainerUser(daemon);
    const { container_id: id } = await containers.create({ name: "box", command: ["sleep", "1000"] });
    const files = "/etc/resolv.conf /dev/hearth/environment";
    const read = `cat /etc/hosts /etc/hostname ${files} > /dev/null`;
    const found = await containers.exec(id, ["sh", "-c", read], { user: "nobody" });
    expect(found).toMatchObject({ stderr: "", exit_code: 0 });
    await daemon.deploy({ name: "reads", handler: `cat ${files} > /dev/null && echo read` });
    expect(await daemon.invoke("reads")).toMatchObject({ status: "success", stdout: "read\n" });
    expect((await daemon.call("DELETE", `/api/containers/${id}`)).status).toBe(200);
  });

  it("that was cut short while it kept its secrets makes them again", async () => {
    const daemon = make();
    for (const name of ["key", "token-secret"]) writeFileSync(`${daemon.data_dir}/${name}`, "");
    await daemon.start({ ...cells, HEARTH_BOOTSTRAP_KEY: "" });
    const headers = { "x-api-key": readFileSync(`${daemon.data_dir}/key`, "utf8").trim() };
    const answer = await fetch(`${daemon.url}/api/auth/token`, { method: "POST", headers });
    expect(answer.status).toBe(200);
    const { access_token } = (await answer.json()) as { access_token: string };
    const list = () => fetch(`${daemon.url}/api/functions`, { headers: { authorization: `Bearer ${access_token}` } });
    expect((await list()).status).toBe(200);
    await daemon.stop();
    await daemon.start({ ...cells, HEARTH_BOOTSTRAP_KEY: "" });
    expect((await list()).status).toBe(200);
  });
});

describe("a start that is refused", () => {
  it("because another daemon has the bridge takes nothing of that daemon's along", async () => {
    const first = await make().start(cells);
    const before = first.leftovers().links;
    const second = make();
    await expect(second.start({ HEARTH_BRIDGE: first.bridge })).rejects.toThrow(/belongs to .*HEARTH_BRIDGE/);
    expect(second.leftovers()).toEqual(NOTHING_LEFT);
    expect(first.leftovers().links).toEqual(expect.arrayContaining([first.bridge]));
    expect(before).toEqual(expect.arrayContaining([first.bridge]));
    await first.deploy({ name: "still", handler: "echo here" });
    expect((await first.invoke("still")).stdout).toBe("here\n");
  });

  it("because a setting is wrong leaves containers as they run, for the next start", async () => {
    const daemon = await make().start({ HEARTH_CELLS: "0" });
    const containers = new ContainerUser(daemon);
    const { container_id: id, pid } = await containers.create({ name: "lives", command: ["sleep", "1000"] });
    await daemon.stop();
    const before = daemon.leftovers();
    for (const [settings, said] of [
      [{ HEARTH_IMAGE_DIR: `${daemon.data_dir}/none` }, "image not in the store"],
      [{ HEARTH_OCI_RUNTIME: "/bin/false" }, "no OCI runtime"],
      [{ HEARTH_OCI_RUNTIME: "/bin/echo" }, "/bin/echo is not an OCI runtime"],
      [{ HEARTH_BRIDGE: "lo" }, "the bridge lo belongs to another program"],
    ] as const) {
      daemon.output = "";
      const child = await daemon.launch({ HEARTH_CELLS: "0", ...settings });
      await eventually("it gives up", () => child.exitCode !== null);
      expect([child.exitCode, daemon.output]).toEqual([1, expect.stringContaining(said)]);
      expect(daemon.leftovers()).toEqual(before);
    }
    await daemon.start({ HEARTH_CELLS: "0" });
    expect(await containers.get(id)).toMatchObject({ state: "running", pid, exec_ready: true, network_ready: true });
    expect(await containers.shell(id, "hostname -i")).toContain("10.");
    await containers.delete(id);
  });

  it("because the store is missing keeps the files of volumes; a missing storage pool is logged", async () => {
    const settings = { HEARTH_CELLS: "0", HEARTH_AREA_MB: "1024" };
    const daemon = await make().start(settings);
    const { body: volume } = await daemon.call("POST", "/api/volumes", { name: "kept" });
    await daemon.call("POST", "/api/volumes/kept/files", { path: "a", content: "aGVsbG8=" });
    await daemon.stop();
    const away = `${daemon.data_dir}/away`;
    const move = (pattern: RegExp, from: string, to: string) => {
      mkdirSync(to, { recursive: true });
      for (const name of readdirSync(from).filter((entry) => pattern.test(entry))) {
        renameSync(`${from}/${name}`, `${to}/${name}`);
      }
    };
    move(/^hearth\.db/, daemon.data_dir, away);
    for (const attempt of [1, 2]) {
      daemon.output = "";
      const child = await daemon.launch(settings);
      await eventually("it gives up", () => child.exitCode !== null);
      const said = `hearth: the store ${daemon.data_dir}/hearth.db is new, but the storage pool`;
      expect([attempt, child.exitCode, daemon.output]).toEqual([attempt, 1, expect.stringContaining(said)]);
    }
    move(/^hearth\.db/, away, daemon.data_dir);
    move(/^area\.btrfs$/, daemon.data_dir, away);
    await daemon.start(settings);
    expect(daemon.output).toMatch(new RegExp(`the storage pool lacks files of volumes.*${volume.id}`));
    await daemon.stop();
    move(/^area\.btrfs$/, away, daemon.data_dir);
    await daemon.start(settings);
    const headers = { "x-api-key": KEY };
    const file = await fetch(`${daemon.url}/api/volumes/kept/files/a`, { headers });
    expect(await file.text()).toBe("hello");
  });

  it("because the port is taken ends what it had started", async () => {
    const first = await make().start(cells);
    const second = make();
    // It had containers to start: a function with min_instances from its last run.
    await second.start(cells);
    await second.deploy({ name: "eager", handler: "cat", min_instances: 2 });
    await second.stop();
    const child = await second.launch({ ...cells, HEARTH_LISTEN: new URL(first.url).host });
    await eventually("it gives up", () => child.exitCode !== null);
    expect([child.exitCode, second.output]).toEqual([
      1,
      expect.stringContaining("the address is in use by another process"),
    ]);
    expect(second.leftovers()).toEqual(NOTHING_LEFT);
  });

  it("because a daemon has the data directory, by whatever path, touches nothing of it", async () => {
    const first = await make().start(cells);
    const link = `${first.data_dir}-link`;
    symlinkSync(first.data_dir, link);
    try {
      const second = make();
      const child = await second.launch({ ...cells, HEARTH_DATA_DIR: link });
      await eventually("it gives up", () => child.exitCode !== null);
      const said = `hearth: data directory in use by another hearth daemon: ${link}\n`;
      expect([child.exitCode, second.output]).toEqual([1, said]);
    } finally {
      rmSync(link);
    }
    expect(await first.deploy({ name: "still", handler: "echo here" })).toMatchObject({ state: "active" });
  });

  it("because a secret is damaged names its file and what to do", async () => {
    const daemon = make();
    for (const name of ["key", "token-secret", "cursor-secret"]) {
      const file = `${daemon.data_dir}/${name}`;
      for (const [damage, said] of [
        [() => writeFileSync(file, "half a l"), `hearth: the file ${file} is damaged (restore the file, or delete it`],
        [() => mkdirSync(file), `hearth: cannot read or create the file ${file}: EISDIR`],
      ] as const) {
        damage();
        daemon.output = "";
        const child = await daemon.launch({ ...cells, HEARTH_BOOTSTRAP_KEY: "" });
        await eventually("it gives up", () => child.exitCode !== null);
        expect([child.exitCode, daemon.output]).toEqual([1, expect.stringContaining(said)]);
        rmSync(file, { recursive: true });
      }
    }
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });

  it("because the data directory cannot be made ends set-up and the daemon with that reason", async () => {
    for (const path of ["/proc/x", "/proc"]) {
      const env = { ...process.env, HEARTH_DATA_DIR: path, HEARTH_IMAGE_DIR: "" };
      const set_up = spawnSync(NODE_PATH, ["src/setup/index.js", "start"], { cwd: PROJECT_DIR, env, timeout: 30_000 });
      expect([set_up.status, String(set_up.stderr)]).toEqual([
        1,
        expect.stringMatching(/^hearth set-up: .*\/proc.*\n$/),
      ]);
    }
    const daemon = make();
    const child = await daemon.launch({ HEARTH_DATA_DIR: "/proc/x" });
    await eventually("it gives up", () => child.exitCode !== null);
    expect([child.exitCode, daemon.output]).toEqual([1, expect.stringContaining("cannot create /proc/x (ENOENT)")]);
  });

  it("because a variable is no setting names the nearest one", async () => {
    const daemon = make();
    const child = await daemon.launch({ HEARTH_INSTANCE_MAX: "5" });
    await eventually("it gives up", () => child.exitCode !== null);
    const said = "hearth: unknown setting HEARTH_INSTANCE_MAX, did you mean 'HEARTH_INSTANCES_MAX'?";
    expect([child.exitCode, daemon.output]).toEqual([64, expect.stringContaining(said)]);
  });
});

describe("an end", () => {
  it("by SIGHUP, with nobody reading what it prints any more, is as clean as any", async () => {
    const daemon = await make().start(cells);
    await waitForCells(daemon);
    daemon.closeOutput();
    expect(await daemon.stop("SIGHUP")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });

  it("by a crash during the start of a container names the interruption, and the container starts again", async () => {
    const daemon = make();
    await daemon.start({ ...cells, HEARTH_FAILPOINT: "containers.start.slot" });
    const request = daemon.call("POST", "/api/containers", { name: "cut", image: "prod" }).catch(() => null);
    await eventually("it has died", () => !daemon.isAlive);
    await request;
    await daemon.start(cells);
    const { body } = await daemon.call("GET", "/api/containers/by-name/cut");
    expect(body).toMatchObject({
      ...{ state: "exited", exit_code: null, ip_address: null },
      error_message: "interrupted: the daemon ended during the start",
    });
    const started = await daemon.call("POST", "/api/containers/cut/start");
    expect(started.status).toBeLessThan(300);
    await eventually("it runs", async () => {
      const { state, error_message } = (await daemon.call("GET", "/api/containers/by-name/cut")).body;
      return state === "running" && error_message === null;
    });
  });

  it("that is asked for while it starts comes when it has started", async () => {
    const daemon = make();
    const child = await daemon.launch(cells);
    await eventually("it has begun", () => daemon.leftovers().links.length > 0);
    child.kill("SIGTERM");
    await eventually("it ends", () => child.exitCode !== null);
    expect(child.exitCode).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

describe("a start after a crash", () => {
  it("gets over a torn state file of the OCI runtime and containers that it knows nothing of", async () => {
    const daemon = await make().start(cells);
    await waitForCells(daemon);
    await daemon.stop("SIGKILL");
    const states = `${volatileDirectory()}/hearth/${daemon.tag}/oci`;
    const [torn = "", lost = ""] = readdirSync(states);
    truncateSync(`${states}/${torn}/status`, 0);
    execFileSync("rm", ["-r", `${states}/${lost}`]);
    mkdirSync(`${states}/never-was`);
    await daemon.start(cells);
    await daemon.deploy({ name: "again", handler: "echo served" });
    expect((await daemon.invoke("again")).stdout).toBe("served\n");
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });

  it("gets over a system-call filter that was kept half", async () => {
    const daemon = await make().start(cells);
    await daemon.stop();
    const cache = `${daemon.data_dir}/cache`;
    // Of instances, and of the container that user namespaces are tried out with.
    const files = readdirSync(cache).map((name) => ({
      path: `${cache}/${name}`,
      whole: readFileSync(`${cache}/${name}`),
    }));
    expect(files.length).toBe(2);
    const spoilt = [
      () => Buffer.alloc(0),
      (whole: Buffer) => whole.subarray(0, whole.length / 2),
      () => Buffer.from("no"),
    ];
    for (const [i, spoil] of spoilt.entries()) {
      for (const { path, whole } of files) writeFileSync(path, spoil(whole));
      await daemon.start(cells);
      await daemon.deploy({ name: `filtered-${i}`, handler: "grep Seccomp: /proc/self/status" });
      expect((await daemon.invoke(`filtered-${i}`)).stdout).toBe("Seccomp:\t2\n");
      expect((await daemon.call("GET", "/api/system/info")).body.engine.user_namespaces.mode).toBe("on");
      await daemon.stop();
      for (const { path, whole } of files) expect(readFileSync(path).equals(whole)).toBe(true);
    }
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
