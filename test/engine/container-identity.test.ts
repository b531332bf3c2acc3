/** `minit container` with a user: names in files of the container, hostile ones too, and what commands then may do. */
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock as clock } from "../../src/base/clock.ts";
import { readExitRecord, SegmentedLog } from "../../src/engine/containers/log.ts";
import { runExec, shutdown } from "../../src/engine/minit/container-client.ts";
import type { RunRequest } from "../../src/engine/ports.ts";
import { type Container, ENVIRONMENT, Native } from "../support/native.ts";

let native: Native;

beforeAll(async () => {
  native = await Native.start();
});

afterAll(() => native?.stop());

const defaults: RunRequest & { output_bytes_max: number } = {
  argv: [],
  environment: ENVIRONMENT,
  working_directory: "/",
  timeout_ms: 20_000,
  grace_ms: 0,
  output_bytes_max: 1024 * 1024,
  is_stream: false,
};

/** How the container ended, and what it had logged. */
async function endOf(container: Container) {
  const { exit_code } = await native.endSpawn(container.ended);
  const log = await new SegmentedLog(async () => container.log_paths, clock).tail({ limit: 100 });
  return { exit_code, record: await readExitRecord(container.exit_path), log };
}

describe("commands of a container with a user", () => {
  const FACTS = 'echo "$(id -u) $(id -g) $(id -G) $HOME"';
  const PASSWD = [
    "root:x:0:0:root:/root:/bin/sh",
    "app:x:1500:1501:An app:/home/app:/bin/sh",
    "2500:x:77:78::/named:/bin/sh",
    "homeless:x:1600:1600:::",
    "broken:x:one:two:::",
    "high:x:70000:1:::",
    "short",
  ];
  const GROUP = [
    "root:x:0:",
    "app:x:1501:",
    "staff:x:1502:other,app",
    "wheel:x:1503:app",
    "mapped:x:1504:apple,snapp",
    "staff:x:1505:app",
    "huge:x:70000:app",
  ];

  /** Binds of a passwd and a group file of these lines. */
  function files(passwd = PASSWD.join("\n"), group = GROUP.join("\n")): string[] {
    const name = `${native.directory}/${randomBytes(6).toString("hex")}`;
    writeFileSync(`${name}.passwd`, passwd);
    writeFileSync(`${name}.group`, group);
    return [`mount --bind ${name}.passwd /etc/passwd`, `mount --bind ${name}.group /etc/group`];
  }
  const factsOf = async (user: string, mounts = files(), flags: readonly string[] = []) => {
    const options = { mounts, flags: ["--user", user, "--home", ...flags], env: ENVIRONMENT };
    const ended = await endOf(await native.container(["sh", "-c", FACTS], options));
    return { ...ended, text: ended.log.map(({ message }) => message).join("\n") };
  };

  it.each([
    ["app", "1500 1501 1501 1502 1503 1505 /home/app"],
    ["1500", "1500 1501 1501 1502 1503 1505 /home/app"],
    ["app:staff", "1500 1502 1502 /home/app"],
    ["app:1509", "1500 1509 1509 /home/app"],
    ["1234", "1234 0 0 /"],
    ["1234:app", "1234 1501 1501 /"],
    ["1234:5", "1234 5 5 /"],
    // A name of digits is a name first.
    ["2500", "77 78 78 /named"],
    ["homeless", "1600 1600 1600 /"],
    ["0:staff", "0 1502 1502 /root"],
  ])("given as %s run as %s", async (user, expected) => {
    const { text, exit_code } = await factsOf(user);
    expect([text, exit_code]).toEqual([expected, 0]);
  });

  it.each([
    ["nobody-here", "minit: user 'nobody-here' not found in /etc/passwd"],
    ["app:none", "minit: group 'none' not found in /etc/group"],
    ["broken", "minit: user 'broken' not found in /etc/passwd"],
    ["short", "minit: user 'short' not found in /etc/passwd"],
    ["high", "minit: user id out of range: 70000 (limit 65535)"],
    ["1:70000", "minit: group id out of range: 70000 (limit 65535)"],
    ["99999999999999999999", "minit: user id out of range: 4294967295 (limit 65535)"],
  ])("are not started as %s", async (user, message) => {
    const { text, exit_code, record } = await factsOf(user);
    expect([text, exit_code]).toEqual([message, 126]);
    expect(record).toMatchObject({ exit_code: 126, is_started: false, has_command: true });
  });

  it("are not started without a main command either", async () => {
    const container = await native.container(null, { mounts: files(), flags: ["--user", "none", "--home"] });
    expect(await endOf(container)).toMatchObject({ exit_code: 126, record: { is_started: false, has_command: true } });
  });

  it.each([
    ["a device", "mount --bind /dev/zero /etc/passwd", "not a regular file"],
    ["a pipe", "mkfifo /tmp/pipe && mount --bind /tmp/pipe /etc/passwd", "not a regular file"],
    [
      "a large file",
      "head -c 1100000 /dev/zero | tr '\\0' a > /tmp/large && mount --bind /tmp/large /etc/passwd",
      "larger than 1 MiB",
    ],
  ])("run by number, and not by name, where /etc/passwd is %s", async (_, mount, why) => {
    expect((await factsOf("1234", [mount])).text).toBe("1234 0 0 /");
    expect((await factsOf("app", [mount])).text).toBe(`minit: user 'app' not found in /etc/passwd: ${why}`);
  });

  it("survive files of any bytes", async () => {
    for (let i = 0; i < 20; i++) {
      const bytes = (count: number): Buffer => {
        const drawn = randomBytes(count);
        // Mostly the characters that mean something.
        return Buffer.from(drawn.map((byte, at) => (at % 3 === 0 ? byte : ":\n,app0x\0".charCodeAt(byte % 9))));
      };
      const mounts = files(bytes(3_000).toString("latin1"), bytes(3_000).toString("latin1"));
      expect([0, 126]).toContain((await factsOf("app", mounts)).exit_code);
    }
  });

  it("of a user in too many groups are not started", async () => {
    const lines = Array.from({ length: 300 }, (_, i) => `g${i}:x:${2_000 + i}:app`);
    const { text } = await factsOf("app", files(PASSWD.join("\n"), lines.join("\n")));
    expect(text).toBe("minit: too many groups of the user: more than 256");
  });

  it("have no capability, own their pipes and terminals, and end when they are asked to", async () => {
    const options = { mounts: files(), flags: ["--user", "app", "--home"] };
    const container = await native.container(["sh", "-c", "echo out > /dev/stdout; exec sleep 1000"], options);
    const as = (script: string, rest: Partial<typeof defaults> = {}) =>
      runExec(container.path, { ...defaults, argv: ["sh", "-c", script], ...rest }, clock).exited;
    const said = async (script: string, rest: Partial<typeof defaults> = {}) =>
      (await as(script, rest)).stdout.toString();
    expect(await said(FACTS)).toBe("1500 1501 1501 1502 1503 1505 /home/app\n");
    expect(await said(FACTS, { environment: [...ENVIRONMENT, "HOME=/given"] })).toMatch(/ \/given\n$/);
    expect(await said("grep -E '^Cap(Eff|Prm|Inh|Amb)' /proc/self/status")).toMatch(/^(Cap...:\t0+\n){4}$/);
    expect(await said("echo written > /dev/stdout")).toBe("written\n");
    expect(await said("stat -c %u $(tty)", { terminal: { cols: 80, rows: 24 } })).toBe("1500\r\n");
    expect(await said("kill -9 1; kill -9 $PPID; echo alive")).toBe("alive\n");
    expect(await as("trap '' TERM; sleep 1000", { timeout_ms: 50 })).toMatchObject({ timed_out: true });
    await shutdown(container.path, 5_000, clock);
    const { log } = await endOf(container);
    expect(log.map(({ message }) => message)).toContain("out");
  });

  it("get the runtime's HOME only if it is theirs", async () => {
    const env = [...ENVIRONMENT, "HOME=/runtime"];
    const homeOf = async (flags: readonly string[]) =>
      (await endOf(await native.container(["sh", "-c", "echo $HOME"], { mounts: files(), env, flags }))).log[0]
        ?.message;
    expect(await homeOf([])).toBe("/runtime");
    expect(await homeOf(["--home"])).toBe("/runtime");
    expect(await homeOf(["--home", "--no-home"])).toBe("/root");
    expect(await homeOf(["--user", "app", "--home", "--no-home"])).toBe("/home/app");
  });
});
