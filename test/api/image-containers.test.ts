/** Containers of images that say how they run: images of one static program, images with users, hostile configurations. */
import { execFileSync } from "node:child_process";
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { operatorOf } from "../support/command.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { EventReader } from "../support/event-stream.ts";
import { compile } from "../support/helper.ts";
import { MadeImages, pullLocal, type Recipe } from "../support/made-images.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const directory = mkdtempSync("/var/tmp/hearth-facts-");
const program = join(directory, "facts");
const made: MadeImages[] = [];
const PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Makes an image of a name of its own, which it returns. */
function image(label: string, recipe: Recipe): string {
  const name = `localhost/hearth-test-run-${label}-${process.pid}`;
  const images = new MadeImages(name);
  made.push(images);
  images.makeOf(recipe);
  return name;
}

/** An image whose only file is the program. */
const scratch = (label: string, config: readonly string[], edit: (root: string) => void = () => {}) =>
  image(label, {
    edit: (root) => {
      copyFileSync(program, join(root, "facts"));
      edit(root);
    },
    config: [["--entrypoint", '["/facts"]', ...config]],
  });

/** An image of the profile's system with a user of its own. */
const system = (label: string, config: readonly string[], edit: (root: string) => void = () => {}) =>
  image(label, {
    base: "prod",
    edit: (root) => {
      appendFileSync(join(root, "etc/passwd"), "app:x:1500:1500::/home/app:/bin/sh\n");
      appendFileSync(join(root, "etc/group"), "app:x:1500:\nextra:x:1501:other,app\n");
      edit(root);
    },
    config: [config],
  });

let sequence = 0;
const pulled = new Set<string>();
/** Pulls each image once. */
const create = async (name: string, fields: object = {}) => {
  if (!pulled.has(name)) await pullLocal(daemon, name);
  pulled.add(name);
  return user.create({ name: `c${++sequence}`, image: name, oci: true, ...fields });
};
/** Of the pull, or of the container. */
const refusal = async (name: string, fields: object = {}) => {
  const pull = await daemon.call("POST", "/api/oci/images/pull", { reference: `containers-storage:${name}` });
  if (pull.status !== 200) return { status: pull.status, ...pull.body };
  const { status, body } = await daemon.call("POST", "/api/containers", {
    name: "x",
    image: name,
    oci: true,
    ...fields,
  });
  return { status, ...body };
};
const ended = (id: string) => user.until(id, "its end", ({ state }) => state === "exited");

/** What the program printed as the main command, which has ended. */
async function factsOf(name: string, fields: object = {}): Promise<string[]> {
  const { container_id } = await create(name, fields);
  const { exit_code, error_message } = await ended(container_id);
  const lines = (await user.logs(container_id)).map(({ message }) => message);
  await user.delete(container_id);
  expect([exit_code, error_message]).toEqual([0, null]);
  return lines;
}

beforeAll(async () => {
  compile(program, [join(import.meta.dirname, "../support/facts.c")]);
  await daemon.start({ HEARTH_CELLS: "0" });
});

afterAll(async () => {
  await daemon.dispose();
  for (const images of made) images.remove();
  rmSync(directory, { recursive: true, force: true });
});

describe("a container of an image with one static program and nothing else", () => {
  let name: string;
  beforeAll(() => {
    const config = ["--cmd", "one two", "--env", "A=b", "--env", "LD_LIBRARY_PATH=/lib", "--workingdir", "/not/there"];
    name = scratch("scratch", [...config, "--user", "1234:55"]);
  });

  it("runs as the image says", async () => {
    expect((await factsOf(name)).sort()).toEqual(
      [
        "uid 1234",
        "gid 55",
        "groups",
        "cwd /not/there",
        "args one two",
        "env A=b",
        "env LD_LIBRARY_PATH=/lib",
        "env HOME=/",
        `env ${PATH}`,
      ].sort(),
    );
  });

  it.each([
    [{ command: ["three"] }, ["args three"]],
    [{ entrypoint: ["/facts", "mine"] }, ["args mine"]],
    [{ entrypoint: [], command: ["/facts", "own"] }, ["args own"]],
    [{ environment: { A: "c", HOME: "/h" } }, ["env A=c", "env HOME=/h"]],
    [{ working_directory: "/" }, ["cwd /"]],
    [{ user: "root" }, ["uid 0", "gid 0", "env HOME=/"]],
    [{ user: "7" }, ["uid 7", "gid 0"]],
    [{ strict: true }, ["uid 1234", "gid 55", "groups"]],
    [{ read_only_root: true, working_directory: "/" }, ["uid 1234"]],
  ])("with %j has %j", async (fields, expected) => {
    expect(await factsOf(name, fields)).toEqual(expect.arrayContaining(expected));
  });

  it("waits for exec if entrypoint and command are empty, and exec inherits user, directory and environment", async () => {
    const { container_id } = await create(name, { entrypoint: [], command: [], environment: { B: "c" } });
    const { stdout } = await user.exec(container_id, ["/facts", "x"], { environment: { C: "d" } });
    expect(stdout.split("\n")).toEqual(
      expect.arrayContaining(["uid 1234", "gid 55", "cwd /not/there", "env A=b", "env B=c", "env C=d", "env HOME=/"]),
    );
    expect((await user.exec(container_id, ["/facts"], { working_directory: "/" })).stdout).toContain("cwd /\n");
    expect(await user.exec(container_id, ["sh"])).toMatchObject({ exit_code: 127 });
    await daemon.call("PUT", `/api/containers/${container_id}/env`, { environment: {} });
    const later = (await user.exec(container_id, ["/facts"])).stdout;
    expect([later.includes("env B="), later.includes("env HOME=/\n"), later.includes("env A=b\n")]).toEqual([
      false,
      true,
      true,
    ]);
    await user.delete(container_id);
  });

  it("ends with a message if the user is not found", async () => {
    const { container_id } = await create(name, { user: "app" });
    expect(await ended(container_id)).toMatchObject({
      exit_code: 126,
      error_message: "user 'app' not found in /etc/passwd: No such file or directory",
    });
    await user.delete(container_id);
  });
});

describe("the stop signal", () => {
  it("of the image asks the command to end, unless another is given", async () => {
    const name = scratch("stop", ["--cmd", "wait", "--stop-signal", "SIGQUIT"]);
    for (const [fields, exit_code] of [
      [{}, 3],
      [{ stop_signal: "SIGRTMIN+2" }, 36],
      [{ stop_signal: "usr1" }, 10],
    ] as const) {
      const { container_id } = await create(name, fields);
      await eventually("it waits", async () => (await user.logs(container_id)).length > 3);
      const { body } = await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 20_000 });
      expect(body).toMatchObject({ state: "exited", exit_code });
      await user.delete(container_id);
    }
  });
});

describe("a container of an image with a user", () => {
  const FACTS = 'echo "$(id -un) $(id -g) $(id -G) $HOME $(pwd)"';
  let name: string;
  beforeAll(() => {
    name = system("user", ["--user", "app", "--workingdir", "/home/app"]);
  });

  it("runs every command as the user with all its groups, and owns its output", async () => {
    const { container_id } = await create(name);
    expect(await user.shell(container_id, FACTS)).toBe("app 1500 1500 1501 /home/app /home/app\n");
    expect(await user.shell(container_id, "echo written > /dev/stdout; touch /x")).toMatch(/^written\ntouch: .*denied/);
    expect(await user.shell(container_id, "kill -9 1; kill -9 $PPID; cat /proc/1/environ; echo alive")).toMatch(
      /alive/,
    );
    await user.delete(container_id);
  });

  it("has no capability at all if it is strict, and still is stopped and killed", async () => {
    const caps = "grep -E '^Cap(Eff|Prm|Inh|Amb)' /proc/self/status";
    for (const wanted of ["app", "0:extra"]) {
      const { container_id } = await create(name, { strict: true, user: wanted, restart: "no" });
      expect(await user.shell(container_id, caps)).toMatch(/^(Cap...:\t0+\n){4}$/);
      expect(await user.shell(container_id, "id -g")).toBe(wanted === "app" ? "1500\n" : "1501\n");
      const regain = "import os\nfor call in (os.setuid, os.setgid): call(0)";
      if (wanted === "app") expect(await user.python(container_id, regain)).toMatch(/PermissionError/);
      const killed = await user.exec(container_id, ["sh", "-c", "trap '' TERM; sleep 100"], { timeout_ms: 100 });
      expect(killed).toMatchObject({ timed_out: true });
      const { body } = await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 5_000 });
      expect(body.state).toBe("exited");
      await user.delete(container_id);
    }
  });

  it("has the same settings after restarts, a new image of the name, and a crash of the daemon", async () => {
    const { container_id } = await create(name, { restart: "always" });
    const before = await user.shell(container_id, FACTS);
    const moved = new MadeImages(name);
    made.push(moved);
    moved.makeOf({ base: "prod", config: [["--user", "root", "--env", "HOME=/other"]] });
    await daemon.stop("SIGKILL");
    await daemon.start({ HEARTH_CELLS: "0" });
    expect(await user.shell(container_id, FACTS)).toBe(before);
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    await daemon.call("POST", `/api/containers/${container_id}/start?execution=sync`);
    expect(await user.shell(container_id, FACTS)).toBe(before);
    await user.delete(container_id);
  });

  it.each([
    ["a link to a file in the image", (etc: string) => symlinkSync("passwd.real", `${etc}/passwd`), "1500\n"],
    ["a link out of the image", (etc: string) => symlinkSync("/../../../../etc/none", `${etc}/passwd`), null],
    ["a device", (etc: string) => void execFileSync("mknod", [`${etc}/passwd`, "c", "1", "5"]), null],
    ["a pipe", (etc: string) => void execFileSync("mkfifo", [`${etc}/passwd`]), null],
    ["a link to the kernel", (etc: string) => symlinkSync("/proc/1/environ", `${etc}/passwd`), null],
    ["a directory", (etc: string) => mkdirSync(`${etc}/passwd`), null],
  ])("whose /etc/passwd is %s resolves the user, or ends with a message", async (label, edit, expected) => {
    const odd = system(label.replaceAll(" ", "-"), ["--user", "app"], (root) => {
      execFileSync("mv", [`${root}/etc/passwd`, `${root}/etc/passwd.real`]);
      edit(`${root}/etc`);
    });
    const { container_id } = await create(odd);
    if (expected === null) {
      const { error_message } = await ended(container_id);
      expect(error_message).toMatch(/^user 'app' not found in \/etc\/passwd/);
    } else {
      expect(await user.shell(container_id, "id -u")).toBe(expected);
    }
    const byNumber = await create(odd, { user: "1500:1501" });
    expect(await user.shell(byNumber.container_id, "id -u; id -g")).toBe("1500\n1501\n");
    await user.delete(container_id, byNumber.container_id);
  });
});

describe("a container of a profile", () => {
  it("runs as a given user, with an entrypoint before its command", async () => {
    const { container_id } = await user.create({
      name: "profile",
      user: "nobody",
      entrypoint: ["sh", "-c"],
      command: ["id -un; echo $HOME; sleep 100"],
    });
    await eventually("it ran", async () => (await user.logs(container_id)).length === 2);
    expect((await user.logs(container_id)).map(({ message }) => message)).toEqual(["nobody", "/nonexistent"]);
    expect(await user.get(container_id)).toMatchObject({ user: "nobody", stop_signal: "SIGTERM", health: null });
    await user.delete(container_id);
  });
});

describe("ports, volumes and a read-only root", () => {
  it("that the image declares are in the record, and its volumes stay writable", async () => {
    const name = system("declared", [
      ...["--port", "80", "--port", "53/udp", "--volume", "/data", "--volume", "/etc", "--user", "app"],
    ]);
    const { container_id, ...record } = await create(name, { read_only_root: true });
    expect(record.exposed_ports.sort()).toEqual(["53/udp", "80/tcp"]);
    expect(record.declared_volumes.sort()).toEqual(["/data", "/etc"]);
    expect(await user.shell(container_id, "touch /data/x && echo yes; touch /home/x; touch /etc/x")).toMatch(
      /^yes\n.*Read-only file system\n.*Read-only file system\n$/,
    );
    await user.delete(container_id);
  });
});

describe("the health check", () => {
  let name: string;
  beforeAll(() => {
    name = image("health", {
      format: "docker",
      edit: (root) => copyFileSync(program, join(root, "facts")),
      config: [
        ["--entrypoint", '["/facts"]', "--cmd", "wait"],
        ["--healthcheck", "CMD /facts check", "--healthcheck-interval", "1s", "--healthcheck-retries", "2"],
      ],
    });
  });
  /** Statuses that the events of a container told, and the types of its other events. */
  const told = ({ events }: EventReader) =>
    events.filter(({ name }) => name === "container_update").map(({ data }) => data.health ?? data.event_type);

  it("of the image shows in the record and as events", async () => {
    const reader = await EventReader.open(daemon.url);
    const { container_id, health } = await create(name);
    expect(health).toMatchObject({ status: "starting", interval_seconds: 1, retries: 2, on_unhealthy: "none" });
    const unhealthy = await user.until(container_id, "unhealthy", (record) => record.health.status === "unhealthy");
    expect(unhealthy.health.last_check).toMatchObject({ exit_code: 3, timed_out: false, output: "is not healthy\n" });
    expect(unhealthy.state).toBe("running");
    await eventually("it is told", () => told(reader).includes("unhealthy"));
    await user.exec(container_id, ["/facts", "mark"]);
    await user.until(container_id, "healthy", (record) => record.health.status === "healthy");
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    expect((await user.get(container_id)).health.status).toBeNull();
    reader.close();
    await user.delete(container_id);
  });

  it("can be replaced and switched off", async () => {
    const { container_id } = await create(name, { health: { command: ["/facts"], interval_seconds: 1 } });
    await user.until(container_id, "healthy", (record) => record.health.status === "healthy");
    const none = await create(name, { health: "none" });
    expect(none.health).toBeNull();
    await user.delete(container_id, none.container_id);
  });

  it("starts an unhealthy container again if that was asked for, whatever its exit code", async () => {
    const reader = await EventReader.open(daemon.url);
    const { container_id } = await create(name, {
      restart: "on-failure",
      // Without a command of its own it exits with 0.
      ...{ entrypoint: [], command: [] },
      health: { on_unhealthy: "restart", retries: 1 },
    });
    await user.until(container_id, "a restart", ({ restart_count }) => restart_count >= 1);
    await eventually("all is told", () => told(reader).includes("died"));
    expect(told(reader).slice(0, 4)).toEqual(["created", "started", "unhealthy", "died"]);
    reader.close();
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    await user.delete(container_id);
  });
});

describe("an unhealthy container and a crash of the daemon", () => {
  const made = (name: string, seconds: number) =>
    user.create({
      name,
      command: ["sh", "-c", `trap 'sleep ${seconds}; exit 0' TERM; while :; do sleep 0.05; done`],
      restart: "on-failure",
      health: { command: ["false"], interval_seconds: 1, retries: 1, on_unhealthy: "restart" },
    });
  /** Kills the daemon when a container is about to be stopped, and starts the next one after a while. */
  const crash = async (id: string, down_ms: number) => {
    await user.until(id, "a reason", ({ error_message }) => error_message?.startsWith("unhealthy: 1 failed") === true);
    await daemon.stop("SIGKILL");
    await new Promise((resolve) => setTimeout(resolve, down_ms));
    await daemon.start({ HEARTH_CELLS: "0" });
  };
  const end = async (id: string) => {
    await daemon.call("POST", `/api/containers/${id}/kill`);
    await user.delete(id);
  };

  it("is restarted though it ended with 0 while no daemon ran", async () => {
    const { container_id } = await made("ends", 0.3);
    await crash(container_id, 1_500);
    await user.until(container_id, "a restart", ({ restart_count }) => restart_count >= 1);
    await end(container_id);
  });

  it("is checked anew if it still runs, and then restarted", async () => {
    const { container_id } = await made("stays", 10);
    await crash(container_id, 0);
    const { pid } = await user.get(container_id);
    expect(pid).not.toBeNull();
    await user.until(container_id, "a restart", ({ restart_count }) => restart_count >= 1);
    await end(container_id);
  });
});

describe("hearth run", () => {
  const operator = operatorOf(daemon);
  afterAll(() => operator.dispose());

  it("has flags for what an image says", async () => {
    const name = scratch("cli", ["--cmd", "one", "--user", "1234:55"]);
    await pullLocal(daemon, name);
    const flags = ["--rm", "--oci", "--image", name, "-u", "7:8", "-w", "/", "--stop-signal", "QUIT"];
    const { out, code } = await operator.hearth("run", ...flags, "--entrypoint", "/facts", "--", "x", "y");
    expect([code, out.split("\n").slice(0, 5)]).toEqual([0, ["uid 7", "gid 8", "groups", "cwd /", "args x y"]]);
    const check = ["--health-cmd", "test -e /", "--health-interval", "1", "--health-retries", "2", "--health-restart"];
    await operator.out("run", "-d", "--name", "checked", "--restart", "always", ...check);
    const { container_id, health } = await user.get("checked");
    expect(health).toMatchObject({ interval_seconds: 1, retries: 2, on_unhealthy: "restart" });
    await user.until(container_id, "healthy", (record) => record.health.status === "healthy");
    expect(await operator.out("ps")).toMatch(/checked +running +up .*\(healthy\)/);
    await user.delete(container_id);
    const refused = await operator.hearth("run", "-d", "--health-retries", "2");
    expect(refused).toMatchObject({ code: 1, err: expect.stringMatching(/ {2}give --health-cmd\n/) });
  });
});

describe("an image whose configuration is hostile", () => {
  it.each(["dev", "proc", "sys", "etc"])(
    "by a link in the place of /%s starts no container, and leaves nothing",
    async (folder) => {
      const name = scratch(`link-${folder}`, [], (root) => symlinkSync("/tmp", join(root, folder)));
      expect(await refusal(name)).toMatchObject({ error: `not a directory in the container: /${folder}` });
      expect((await daemon.call("GET", "/api/containers")).body.containers).toEqual([]);
    },
  );

  it.each([
    ["--workingdir", "/proc/self/fd/8", /^working_directory of the image: must not be in/],
    ["--stop-signal", "SIGNONE", /^stop_signal of the image: must be a signal/],
    ["--user", "a b", /^user of the image: must be <user>/],
    ["--user", "70000", /^user of the image: must not have an id above 65535/],
  ])("in %s %s is refused with 400, which names the field", async (flag, value, message) => {
    const name = scratch(`hostile-${++sequence}`, [flag, value]);
    expect(await refusal(name)).toMatchObject({
      status: 400,
      error_code: "INVALID_ARGUMENT",
      error: expect.stringMatching(message),
    });
  });

  it("by its size is refused with 400, and costs the daemon nothing", async () => {
    const variables = (count: number, from: number) =>
      Array.from({ length: count }, (_, i) => ["--env", `A${from + i}=${"x".repeat(100_000)}`]).flat();
    const large = image("large", { config: [variables(2, 0)] });
    expect(await refusal(large)).toMatchObject({
      status: 400,
      error: expect.stringMatching(/^config of the image: Env too large: 2000\d\d bytes \(limit 131072 bytes\)$/),
    });
    const huge = image("huge", { config: Array.from({ length: 3 }, (_, i) => variables(10, 10 * i)) });
    expect(await refusal(huge)).toMatchObject({
      status: 400,
      error_code: "IMAGE_INVALID",
      error: expect.stringMatching(/^configuration of the image too large: .* 30\d{5} bytes \(limit 262144\)$/),
    });
    expect((await daemon.call("GET", "/api/containers")).body.containers).toEqual([]);
  });
});

it("leaves nothing", async () => {
  expect(await daemon.stop()).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});
