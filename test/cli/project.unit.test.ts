/** hearth.toml, which files of a folder are code, and how they are packed and compared. No daemon is asked. */
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { RUNTIMES, runtimeOf } from "../../runtimes/index.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { scanContext } from "../../src/cli/project/build-context.ts";
import { changesOf } from "../../src/cli/project/diff.ts";
import { checkSize, ruleAgainst, scan } from "../../src/cli/project/files.ts";
import { SCHEMA_PATH } from "../../src/cli/project/init.ts";
import { BUILD_KEYS, OWN_KEYS, SENT_KEYS, SMOKE_KEYS } from "../../src/cli/project/keys.ts";
import { readProject } from "../../src/cli/project/project.ts";
import { RUNTIME_EXAMPLES } from "../../src/cli/project/runtime-examples.ts";
import { packedFiles } from "../../src/cli/project/tar-files.ts";
import { tarOf } from "../../src/cli/project/tar-writer.ts";
import { unified } from "../../src/cli/project/text-diff.ts";
import { ApiError } from "../../src/client/client.ts";
import { projectFunction, projectSchema } from "../../src/functions/project-schema.ts";
import { smoke } from "../../src/functions/schema.ts";
import { deployFunctions } from "../../src/functions/versions/schema.ts";
import { ROUTES } from "../support/routes.ts";

const home = mkdtempSync(join(tmpdir(), "hearth-project-"));
afterAll(() => rmSync(home, { recursive: true }));
const counter = { count: 0 };

/** A new folder with these files; a name with a slash at the end is a folder. */
function folder(files: Readonly<Record<string, string>>): string {
  const root = join(home, String(counter.count++));
  mkdirSync(root);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(path.endsWith("/") ? join(root, path) : dirname(join(root, path)), { recursive: true });
    if (!path.endsWith("/")) writeFileSync(join(root, path), content);
  }
  return root;
}

function withBuildFile(root: string): string {
  writeFileSync(join(root, "Dockerfile"), "FROM scratch\n");
  return root;
}

const paths = (root: string) => scan(root).entries.map(({ path }) => path);
const MINIMAL = 'function = "hello"\nhandler = "cat"\n';

async function packed(root: string): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const piece of tarOf(scan(root))) all.push(piece);
  return Buffer.concat(all);
}

describe("the keys of hearth.toml", () => {
  it("are the fields of a deployment's function, but for its code and note", () => {
    const { element } = deployFunctions.shape.functions;
    const elsewhere = ["name", "cluster_id", "source_code", "code_sha256", "note"];
    const wanted = Object.keys(element.shape).filter((field) => !elsewhere.includes(field));
    expect(Object.keys(SENT_KEYS).sort()).toEqual(wanted.sort());
    expect(Object.keys(SMOKE_KEYS).sort()).toEqual(Object.keys(smoke.shape).sort());
  });

  it("are those of the schema for editors, which hearth init names", () => {
    const { shape } = projectFunction;
    expect(Object.keys(shape).sort()).toEqual(Object.keys({ ...OWN_KEYS, ...SENT_KEYS }).sort());
    expect(Object.keys(shape.build.unwrap().shape).sort()).toEqual(Object.keys(BUILD_KEYS).sort());
    expect(JSON.stringify(projectSchema())).not.toContain('"null"},');
    expect(projectSchema()).toMatchObject({
      $schema: "http://json-schema.org/draft-07/schema#",
      anyOf: [{ required: ["function", "handler"], additionalProperties: false }, { required: ["functions"] }],
    });
    expect(ROUTES.map(({ path }) => path)).toContain(SCHEMA_PATH);
  });

  it("have a schema that accepts each runtime by name and by alias, as the API does", () => {
    const accepted = z.toJSONSchema(projectFunction.shape.runtime, { io: "input" }).enum;
    const names = [...RUNTIMES.values()].flatMap(({ name, aliases }) => [name, ...aliases]);
    expect(accepted).toEqual(names);
    expect(names).toEqual(expect.arrayContaining(["node", "python"]));
    for (const name of names) {
      expect(projectFunction.shape.runtime.parse(name)).toBe(runtimeOf(name)?.name);
    }
  });

  it("have an example of each runtime, whose handler the runtime accepts", () => {
    expect(RUNTIME_EXAMPLES.map(({ runtime }) => runtime).sort()).toEqual([...RUNTIMES.keys()].sort());
    for (const { runtime, aliases, handler } of RUNTIME_EXAMPLES) {
      expect(aliases).toEqual(RUNTIMES.get(runtime)?.aliases);
      expect(RUNTIMES.get(runtime)?.complaint(handler)).toBeNull();
    }
  });
});

describe("hearth.toml", () => {
  const read = (text: string, more: Readonly<Record<string, string>> = {}) =>
    readProject(folder({ "hearth.toml": text, ...more }));
  const rejected = async (text: string): Promise<{ message: string; hint: string | null }> => {
    const failure = await read(text).then(
      () => null,
      (error: { message: string; hint: string | null }) => error,
    );
    return { message: failure?.message.replace(/^.*\/(hearth\.toml)/, "$1") ?? "", hint: failure?.hint ?? null };
  };

  it("describes a function with all that the API takes, and its test payload", async () => {
    const text = `${MINIMAL}runtime = "shell"
memory_limit_mb = 512
egress = ["203.0.113.0/24:443/tcp"]
[environment]
A = "1"
B = { secret = "KEY" }
[smoke]
payload = { n = [1, 2.5, true] }
[build]
command = "make"
egress = "off"
`;
    const { functions, root } = await read(text, { "payload.json": "{}" });
    expect(functions).toEqual([
      {
        name: "hello",
        described: {
          name: "hello",
          handler: "cat",
          runtime: "shell",
          memory_limit_mb: 512,
          egress: ["203.0.113.0/24:443/tcp"],
          environment: { A: "1", B: { secret: "KEY" } },
          smoke: { payload: { n: [1, 2.5, true] } },
        },
        directory: root,
        build: { command: "make", egress: "off", memory_limit_mb: null },
        payload_file: join(root, "payload.json"),
      },
    ]);
    expect(deployFunctions.safeParse({ functions: functions.map(({ described }) => described) }).success).toBe(true);
  });

  it("describes several functions, each with its own folder", async () => {
    const text = `[[functions]]\n${MINIMAL}directory = "a"\n[[functions]]\nfunction = "b"\nhandler = "cat"\n`;
    const { functions, root } = await read(text, { "a/x": "" });
    expect(functions.map(({ name, directory }) => [name, directory])).toEqual([
      ["hello", join(root, "a")],
      ["b", root],
    ]);
  });

  it("names file, line, key and what was expected for each mistake", async () => {
    const cases: readonly (readonly [string, string, string?])[] = [
      [`${MINIMAL}handlr = 1\n`, 'hearth.toml:3: unknown key: "handlr"', "did you mean 'handler'?"],
      [`${MINIMAL}name = "x"\n`, 'hearth.toml:3: unknown key: "name"', "did you mean 'function'?"],
      [`${MINIMAL}memory_limit_mb = "1g"\n`, "hearth.toml:3: memory_limit_mb: expected a number, got a string"],
      [`${MINIMAL}timeout_seconds = 1979-05-27\n`, "hearth.toml:3: timeout_seconds: expected a number, got a date"],
      [`${MINIMAL}[environment]\nA = 1\n`, "hearth.toml:4: environment.A: expected a string or { secret"],
      [`${MINIMAL}[smoke]\n\nexpect = "x"\n`, 'hearth.toml:5: unknown key: "expect"', "did you mean 'expect_status'?"],
      ['function = "a"\n', "hearth.toml: missing key: handler"],
      [`[[functions]]\n${MINIMAL}[[functions]]\nfunction = "b"\n`, "hearth.toml:4: missing key: handler"],
      [`[[functions]]\n${MINIMAL}[[functions]]\n${MINIMAL}`, "hearth.toml:5: function: name used twice: 'hello'"],
      [`runtime = "nodejs"\n[[functions]]\n${MINIMAL}`, 'hearth.toml:1: key beside [[functions]]: "runtime"'],
      ["functions = []\n", "hearth.toml:1: functions: expected at least one"],
      ["a = \n", "hearth.toml:1: invalid TOML"],
      [`${MINIMAL}handler = "twice"\n`, "hearth.toml:3: invalid TOML"],
      [`${MINIMAL}__proto__ = 1\n`, "hearth.toml"],
      [`${MINIMAL}directory = "../.."\n`, "hearth.toml:3: directory: leaves the folder: ../.."],
      [`${MINIMAL}directory = "/etc"\n`, "hearth.toml:3: directory: leaves the folder: /etc"],
      [`${MINIMAL}directory = "missing"\n`, "hearth.toml:3: directory: no such folder"],
      [`${MINIMAL}payload = "missing"\n`, "hearth.toml:3: payload: no such file"],
    ];
    for (const [text, message, hint] of cases) {
      const told = await rejected(text);
      expect(told.message, text).toContain(message);
      if (hint !== undefined) expect(told.hint).toBe(hint);
    }
  });

  it("is refused early if it is large, deep or has too many functions", async () => {
    expect((await rejected(`# ${"x".repeat(LIMITS.cli_project_bytes_max)}`)).message).toContain("too large (limit");
    expect((await rejected(`a = ${"[".repeat(50_000)}${"]".repeat(50_000)}`)).message).toContain("invalid TOML");
    expect((await rejected(`${"a.".repeat(50_000)}a = 1`)).message).not.toBe("");
    const many = Array.from({ length: 33 }, (_, i) => `[[functions]]\nfunction = "f${i}"\nhandler = "cat"\n`);
    expect((await rejected(many.join(""))).message).toContain("too many functions: 33 (limit 32)");
  });

  it("leads a refusal of the API back to its line", async () => {
    const project = await read(`[[functions]]\n${MINIMAL}\n[functions.smoke]\ntimeout_seconds = 0\n`);
    const body = {
      error: "functions.0.smoke.timeout_seconds: expected at least 1, received 0",
      error_code: "INVALID_ARGUMENT",
      hint: null,
    } as ApiError["body"];
    const message = "smoke.timeout_seconds: expected at least 1, received 0 [INVALID_ARGUMENT]";
    expect(project.refusal(new ApiError(400, body))).toMatchObject({
      message: expect.stringMatching(new RegExp(`hearth\\.toml:6: ${message.replace(/[[\]]/g, "\\$&")}$`)),
    });
    const other = new ApiError(503, null);
    expect(project.refusal(other)).toBe(other);
  });

  it("is missed with the command that makes one", async () => {
    await expect(readProject(folder({}))).rejects.toMatchObject({
      message: expect.stringContaining("no hearth.toml in"),
      hint: expect.stringContaining("hearth init"),
    });
    await expect(readProject(join(home, "missing"))).rejects.toMatchObject({
      message: expect.stringMatching(/^no such/),
    });
  });
});

describe("the code of a folder", () => {
  it("leaves out what .gitignore and .hearthignore name, also in folders below, and what is never code", () => {
    const root = folder({
      "hearth.toml": MINIMAL,
      ".gitignore": "*.log\n/build/\n!keep.log\n",
      ".hearthignore": "docs/\n*.md\n",
      ".env": "SECRET=1",
      ".env.local": "SECRET=1",
      ".git/config": "x",
      "a.mjs": "",
      "a.log": "",
      "keep.log": "",
      "README.md": "",
      "build/x": "",
      "docs/x": "",
      "lib/.gitignore": "generated\n",
      "lib/generated": "",
      "lib/build/x": "",
      "lib/__pycache__/x.pyc": "",
      "lib/used.py": "",
      "lib/used.py~": "",
    });
    expect(paths(root)).toEqual(["a.mjs", "keep.log", "lib", "lib/build", "lib/build/x", "lib/used.py"]);
  });

  it("keeps dependencies that .gitignore names, whole, unless .hearthignore names them", () => {
    const files = {
      ".gitignore": "node_modules\nsite-packages/\ndist\n",
      "node_modules/dep/.gitignore": "lib\n",
      "node_modules/dep/lib/dist/x.js": "",
      "site-packages/dep/x.py": "",
      "dist/x": "",
    };
    expect(paths(folder(files)).filter((path) => /\.(js|py)$|^dist/.test(path))).toEqual([
      "node_modules/dep/lib/dist/x.js",
      "site-packages/dep/x.py",
    ]);
    const without = paths(folder({ ...files, ".hearthignore": "node_modules\n!dist\n" }));
    expect(without).toEqual(["dist", "dist/x", "site-packages", "site-packages/dep", "site-packages/dep/x.py"]);
  });

  it("keeps what is never code if .hearthignore says so", () => {
    expect(paths(folder({ ".hearthignore": "!.env\n", ".env": "A=1", ".env.local": "" }))).toEqual([".env"]);
  });

  it("keeps nothing below a folder that a rule leaves out, as git does", () => {
    const files = { "build/keep.js": "", "a.js": "" };
    expect(paths(folder({ ...files, ".gitignore": "build/\n!build/keep.js\n" }))).toEqual(["a.js"]);
    expect(paths(folder({ ...files, ".hearthignore": "build/\n!build/keep.js\n" }))).toEqual(["a.js"]);
    expect(paths(folder({ ...files, ".hearthignore": "BUILD/\n*.JS\n" }))).toEqual(["a.js", "build", "build/keep.js"]);
  });

  it("is refused for a name or a link that is not UTF-8, unless a rule leaves it out", () => {
    const bytes = (root: string, path: string) => Buffer.concat([Buffer.from(`${root}/`), Buffer.from(path, "latin1")]);
    const hint = "rename it, or name it in .hearthignore";
    for (const path of ["caf\xe9.js", "d\xff/", "ok\xe9/x.js"]) {
      const root = folder({ "a.js": "" });
      mkdirSync(path.endsWith(".js") ? bytes(root, path.replace(/[^/]*$/, "")) : bytes(root, path), {
        recursive: true,
      });
      if (path.endsWith(".js")) writeFileSync(bytes(root, path), "");
      const shown = path.split("/")[0]?.replace("\xe9", "\\xe9").replace("\xff", "\\xff");
      const refused = expect.objectContaining({ message: `name is not UTF-8: ${shown}`, hint });
      expect(() => scan(root)).toThrow(refused);
      expect(() => scanContext(withBuildFile(root), null, root)).toThrow(/^name is not UTF-8: /);
      writeFileSync(join(root, ".hearthignore"), "*[!a-z.]*\nDockerfile\n");
      expect(paths(root)).toEqual(["a.js"]);
    }
    const root = folder({ "a.js": "" });
    symlinkSync(Buffer.from("x\xe9", "latin1"), join(root, "link"));
    expect(() => scan(root)).toThrow(
      expect.objectContaining({ message: "target of a link is not UTF-8: x\\xe9", hint }),
    );
    expect(() => scanContext(withBuildFile(root), null, root)).toThrow(/^target of a link is not UTF-8: /);
  });

  it("leaves out a virtual environment of Python, and of one that .hearthignore keeps the programs alone", () => {
    const lib = "lib/python3.11/site-packages/dep.py";
    for (const name of [".venv", "tools/env"]) {
      const root = folder({
        "a.py": "",
        [`${name}/pyvenv.cfg`]: "home = /usr/bin\n",
        [`${name}/${lib}`]: "",
        "b/bin/x": "",
      });
      mkdirSync(join(root, name, "bin"));
      symlinkSync("/usr/bin/python3", join(root, name, "bin/python3"));
      symlinkSync("lib", join(root, name, "lib64"));
      expect(paths(root).filter((path) => /\.py$|bin/.test(path))).toEqual(["a.py", "b/bin", "b/bin/x"]);
      expect(scan(root).environments).toEqual([name]);
      expect(ruleAgainst(root, `${name}/bin/python3`)).toMatchObject({ file: null, path: name });
      writeFileSync(join(root, ".hearthignore"), `!/${name}\n`);
      expect(paths(root)).toEqual(expect.arrayContaining([`${name}/${lib}`, `${name}/lib64`]));
      expect(paths(root)).not.toContain(`${name}/bin`);
      writeFileSync(join(root, ".hearthignore"), `!/${name}\n!bin\n`);
      expect(() => scan(root)).toThrow(`link leads out of the folder: ${name}/bin/python3 -> /usr/bin/python3`);
    }
  });

  it("names the rule that leaves out a path, or a folder above it", () => {
    const root = folder({
      ".gitignore": "# comment\ndist/\n*.log\n",
      "dist/a/x.js": "",
      "b.log": "",
      ".env": "",
      "c.js": "",
    });
    expect(ruleAgainst(root, "dist/a/x.js")).toEqual({ file: ".gitignore", line: 2, text: "dist/", path: "dist" });
    expect(ruleAgainst(root, "b.log")).toMatchObject({ line: 3, path: "b.log" });
    expect(ruleAgainst(root, ".env")).toMatchObject({ file: null, path: ".env" });
    for (const path of ["c.js", "missing.log", "c.js/x"]) expect(ruleAgainst(root, path)).toBeNull();
  });

  it("follows no link: one inside of the folder stays a link, one that leads out is refused", () => {
    const root = folder({ "a/x": "content", "b/": "" });
    symlinkSync("../a/x", join(root, "b/in"));
    symlinkSync("a", join(root, "folder"));
    expect(scan(root).entries.filter(({ type }) => type === "link")).toMatchObject([
      { path: "b/in", target: "../a/x" },
      { path: "folder", target: "a" },
    ]);
    for (const target of ["/etc", "../../etc/passwd", "..", join(root, "a")]) {
      const bad = folder({ x: "" });
      symlinkSync(target, join(bad, "evil"));
      expect(() => scan(bad)).toThrow(`link leads out of the folder: evil -> ${target}`);
      writeFileSync(join(bad, ".hearthignore"), "evil\n");
      expect(paths(bad)).toEqual(["x"]);
    }
  });

  it("names what is neither file, folder nor link, and never waits for it", () => {
    const root = folder({ x: "" });
    execFileSync("mkfifo", [join(root, "pipe")]);
    expect(scan(root)).toMatchObject({ skipped: ["pipe"], entries: [{ path: "x" }] });
  });

  it("is refused before anything is sent if it is empty or too large", () => {
    expect(() => checkSize(scan(folder({ "hearth.toml": "" })))).toThrow("the folder has no files");
    const root = folder({ small: "x", "large.bin": "" });
    execFileSync("truncate", ["-s", "257M", join(root, "large.bin")]);
    expect(() => checkSize(scan(root))).toThrow("the folder is too large: 257 MiB (limit 256 MiB)");
  });

  it("has the same fingerprint until something changes", () => {
    const root = folder({ "a/x": "1", y: "2" });
    const before = scan(root).fingerprint;
    expect(scan(root).fingerprint).toBe(before);
    chmodSync(join(root, "y"), 0o755);
    const executable = scan(root).fingerprint;
    expect(executable).not.toBe(before);
    writeFileSync(join(root, ".env"), "ignored");
    expect(scan(root).fingerprint).toBe(executable);
  });
});

describe("the archive of code", () => {
  const long = `${"deep/".repeat(30)}${"n".repeat(120)}.txt`;
  const files = { x: "1", "new\nline": "2", "ü/日本": "3", [long]: "long", "empty/": "", big: "b".repeat(700_000) };

  it("is what tar(1) reads, whatever the names, and the same for the same files", async () => {
    const root = folder(files);
    symlinkSync("x".repeat(150), join(root, "link"));
    chmodSync(join(root, "x"), 0o755);
    const archive = await packed(root);
    expect((await packed(root)).equals(archive)).toBe(true);
    const into = folder({});
    const ended = spawnSync("tar", ["-x", "-C", into], { input: archive });
    expect([ended.status, ended.stderr.toString()]).toEqual([0, ""]);
    const shape = (code: ReturnType<typeof scan>) => code.entries;
    expect(shape(scan(into))).toEqual(shape(scan(root)));
  });

  it("is read back with the same files, also as GNU tar writes it", async () => {
    const root = folder(files);
    const own = await packedFiles(tarOf(scan(root)));
    const gnu = execFileSync("tar", ["-c", "-f", "-", "--format=gnu", "-C", root, "."], { maxBuffer: 1e8 });
    const read = await packedFiles(
      (async function* () {
        for (let at = 0; at < gnu.length; at += 777) yield gnu.subarray(at, at + 777);
      })(),
    );
    expect(changesOf(own, read)).toEqual([]);
    expect([...own.keys()].sort()).toEqual(
      Object.keys(files)
        .filter((name) => !name.endsWith("/"))
        .sort(),
    );
    await expect(
      packedFiles(
        (async function* () {
          yield gnu.subarray(0, 2_000);
        })(),
      ),
    ).rejects.toThrow("ends too early");
  });

  it("fails if a file shrinks or becomes a link meanwhile", async () => {
    const root = folder({ x: "12345", y: "1" });
    const code = scan(root);
    const all = async () => {
      for await (const _ of tarOf(code));
    };
    writeFileSync(join(root, "x"), "1");
    await expect(all()).rejects.toThrow("file changed while it was read: x");
    rmSync(join(root, "x"));
    symlinkSync("/etc/passwd", join(root, "x"));
    await expect(all()).rejects.toThrow("file changed while it was read: x");
  });
});

describe("the difference of two codes", () => {
  it("lists added, removed and changed files, with the lines of small texts as diff(1) has them", async () => {
    const [one, other] = [
      folder({ same: "1", gone: "", text: "a\nb\nc\nd\ne\nf\ng\nh\n", bin: "\0a", mode: "" }),
      folder({ same: "1", "new/file": "", text: "a\nb\nC\nd\ne\nf\ng\nh\ni\n", bin: "\0b", mode: "" }),
    ];
    chmodSync(join(other, "mode"), 0o755);
    const changes = changesOf(await packedFiles(tarOf(scan(one))), await packedFiles(tarOf(scan(other))));
    const { stdout } = spawnSync("diff", ["-u", join(one, "text"), join(other, "text")], { encoding: "utf8" });
    expect(changes).toEqual([
      { path: "bin", change: "changed", lines: [] },
      { path: "gone", change: "removed", lines: [] },
      { path: "mode", change: "changed", lines: [] },
      { path: "new/file", change: "added", lines: [] },
      { path: "text", change: "changed", lines: stdout.trimEnd().split("\n").slice(2) },
    ]);
  });

  it("is nothing for equal texts, and all for texts without a common line", () => {
    expect(unified(["a", "b"], ["a", "b"])).toEqual([]);
    expect(unified([], ["a"])).toEqual(["@@ -0,0 +1 @@", "+a"]);
    expect(unified(["a"], ["b"])).toEqual(["@@ -1 +1 @@", "-a", "+b"]);
  });
});
