/** `hearth init`, `deploy` and `diff` of folders against a real daemon. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Tree, writeTree } from "../support/code.ts";
import { operatorOf } from "../support/command.ts";
import { Daemon, freePort } from "../support/daemon.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, out, answer } = operator;

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "2" });
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

const file = (...path: string[]) => join(shell().home, ...path);

const folder = (name: string, files: Tree) => writeTree(file(name), files);
const toml = (name: string, more = "") =>
  `function = "${name}"\nruntime = "nodejs"\nhandler = "index.mjs#handler"\n${more}`;
const returns = (value: string) => `export const handler = (payload) => (${value});\n`;

describe("a first function", () => {
  it("is a folder of the user's own in three commands, in every runtime", async () => {
    const answers: Readonly<Record<string, string | object>> = {
      nodejs: { message: "Hello, you!" },
      python: { greeting: "Hello, you!" },
      custom: { message: "Hello, you!" },
      shell: "Hello, you!\n",
    };
    for (const [runtime, wanted] of Object.entries(answers)) {
      const name = `my-${runtime}`;
      const made = await hearth("init", name, "--runtime", runtime);
      expect(made).toMatchObject({ code: 0, out: expect.stringContaining("hearth.toml, .hearthignore, ") });
      const next = made.err.split("\n").filter((line) => line.startsWith("  hearth "));
      expect(next).toEqual([`  hearth deploy ${name}`, `  hearth invoke ${name} '{"name":"Ada"}'`]);
      const deployed = await hearth("deploy", name);
      expect(deployed).toMatchObject({ code: 0, out: `${name} is active, version 1 (created)\n` });
      expect(deployed.err).toBe(`to call it: ${next[1]?.trim()}\n`);
      const called = (await out("invoke", name, '{"name":"you"}')).replaceAll("\r", "");
      if (typeof wanted === "string") expect(called).toBe(wanted);
      else expect(JSON.parse(called)).toMatchObject(wanted);
    }
    expect(statSync(file("my-shell", "run.sh")).mode & 0o777).toBe(0o755);
  });

  it("is made without a daemon, and replaces no file", async () => {
    const env = { HEARTH_URL: `http://127.0.0.1:${await freePort()}`, HEARTH_KEY: "" };
    const made = await shell().run(["init", "alone", "--name", "other"], { env });
    expect(made.code).toBe(0);
    const lines = readFileSync(file("alone", "hearth.toml"), "utf8").split("\n");
    expect(lines[0]).toBe(`#:schema ${env.HEARTH_URL}/api/schemas/hearth.toml.json`);
    expect(lines).toContain('function = "other"');
    const before = readdirSync(file("alone"));
    unlinkSync(file("alone", "payload.json"));
    const again = await shell().run(["init", "alone"], { env });
    expect(again).toMatchObject({ code: 2, err: expect.stringContaining("already has hearth.toml, .hearthignore, ") });
    expect(existsSync(file("alone", "payload.json"))).toBe(false);
    expect(before).toContain("payload.json");
    expect(await hearth("init", "bad", "--name", "a\nb")).toMatchObject({
      code: 2,
      err: expect.stringContaining('invalid name of a function: "a\\nb"'),
    });
    expect(await hearth("init", "bad", "--runtime", "cobol")).toMatchObject({ code: 2 });
    expect(existsSync(file("bad"))).toBe(false);
  });

  it("has a schema for editors, which needs no key", async () => {
    const response = await fetch(`${daemon.url}/api/schemas/hearth.toml.json`);
    expect([response.status, await response.json()]).toMatchObject([200, { title: "hearth.toml" }]);
  });
});

describe("hearth deploy", () => {
  it("makes a version of what has changed, and none of the same", async () => {
    folder("life", { "hearth.toml": toml("life"), "index.mjs": returns("1") });
    expect(await out("deploy", "life")).toBe("life is active, version 1 (created)\n");
    expect(await out("deploy", "./life/")).toBe("life is unchanged, version 1\n");
    folder("life", { "index.mjs": returns("2") });
    expect(await out("deploy", "life", "--note", "two")).toBe("life is active, version 2 (updated: code)\n");
    folder("life", { "hearth.toml": toml("life", "timeout_seconds = 9\n[environment]\nA = '1'\n"), ".env": "B=2" });
    const fields = "environment, timeout_seconds";
    const dry = await out("deploy", "life", "--dry-run");
    expect(dry).toBe(`life: update\n  environment: {} -> {"A":"1"}\n  timeout_seconds: 30 -> 9\n`);
    expect(await out("deploy", "life")).toBe(`life is active, version 3 (updated: ${fields})\n`);
    expect(await out("invoke", "life")).toBe("2\n");
    expect((await out("versions", "life", "2", "3")).split("\n")).toEqual([
      '  environment: {} -> {"A":"1"}',
      "  timeout_seconds: 30 -> 9",
      "",
    ]);
    expect(await out("versions", "life", "1", "v2")).toBe("  code\n  ~ index.mjs\n");
    expect(await out("versions", "life", "2")).toMatch(/^note +two$/m);
    expect(await hearth("versions", "life", "9")).toMatchObject({
      code: 1,
      err: expect.stringContaining("[NOT_FOUND]"),
    });
    expect((await shell().bash("hearth code life 1 | tar -xzO --wildcards '*index.mjs'")).out).toBe(returns("1"));
    expect(await out("code", "life", "--output", "life.tgz")).toMatch(/ written to life.tgz\n$/);
    expect(await hearth("code", "life", "--output", "life.tgz")).toMatchObject({ code: 2 });
    const { versions } = await answer("versions", "life");
    expect(versions.map(({ note }: { note: string | null }) => note)).toEqual([null, "two", null]);
    await out("pause", "life");
    expect(await out("deploy", "life")).toBe("life is active, version 3 (activated)\n");
    expect((await answer("deploy", "life")).functions).toMatchObject([{ name: "life", action: "unchanged" }]);
  });

  it("uploads nothing that the tenant has uploaded before, whatever is in the folder", async () => {
    const uploads = async (): Promise<number> => {
      const { body } = await daemon.call("GET", "/api/audit?limit=1000");
      return body.entries.filter(({ operation }: { operation: string }) => operation === "uploadCode").length;
    };
    const files = {
      "index.mjs": returns("1"),
      "no-mode.sh": "#!/bin/sh\n",
      "ü/日本": "3",
      big: "b".repeat(700_000),
      one: "#",
    };
    folder("same", { "hearth.toml": toml("same"), ...files });
    mkdirSync(file("same", "empty"));
    symlinkSync("../index.mjs", file("same", "ü", "link"));
    chmodSync(file("same", "one"), 0o755);
    const before = await uploads();
    await out("deploy", "same");
    expect(await uploads()).toBe(before + 1);
    utimesSync(file("same", "index.mjs"), 1, 1);
    expect(await out("deploy", "same")).toBe("same is unchanged, version 1\n");
    expect((await hearth("diff", "same")).code).toBe(0);
    expect(await uploads()).toBe(before + 1);
    folder("same", { "index.mjs": returns("2") });
    await out("deploy", "same");
    expect(await uploads()).toBe(before + 2);
    folder("same", { "index.mjs": returns("1") });
    expect(await out("deploy", "same")).toBe("same is active, version 3 (updated: code)\n");
    expect(await uploads()).toBe(before + 2);
  });

  it("takes a word for a folder only if that has a hearth.toml", async () => {
    await out("create", "plain", "--handler", "cat");
    expect(await out("deploy", "plain")).toMatch(/^plain is active, version 1 /);
    mkdirSync(file("empty"));
    expect(await hearth("deploy", "empty")).toMatchObject({ code: 1, err: expect.stringContaining("hearth init") });
    expect(await hearth("deploy", "./empty")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/no hearth\.toml in .*\/empty\n {2}create one with: hearth init \.\/empty/),
    });
    expect(await hearth("deploy")).toMatchObject({ code: 2, err: expect.stringContaining("hearth init --runtime") });
    expect(await hearth("deploy", "plain", "--build")).toMatchObject({
      code: 2,
      err: expect.stringContaining("--build needs a folder with hearth.toml"),
    });
  });

  it("shows why a version cannot be loaded, and leaves the one before", async () => {
    folder("broken", { "hearth.toml": toml("broken"), "index.mjs": returns("1") });
    await out("deploy", "broken");
    folder("broken", { "index.mjs": 'throw new TypeError("no luck");\n' });
    const failed = await hearth("deploy", "broken");
    expect(failed).toMatchObject({ code: 1, out: "" });
    expect(failed.err).toMatch(/TypeError: no luck \[HANDLER_FAILED\]\n[\s\S]* {2}\| .*function\/index\.mjs:1:/);
    expect(await out("invoke", "broken")).toBe("1\n");
    folder("broken", { "hearth.toml": toml("broken", "\n[smoke]\npaylod = 1\n") });
    expect(await hearth("deploy", "broken")).toMatchObject({
      code: 2,
      err: expect.stringContaining("broken/hearth.toml:6: unknown key: \"paylod\"\n  did you mean 'payload'?"),
    });
    folder("broken", { "hearth.toml": toml("broken", "memory_limit_mb = 1\n"), "index.mjs": returns("1") });
    expect(await hearth("deploy", "broken")).toMatchObject({
      code: 1,
      err: expect.stringContaining("broken/hearth.toml:4: memory_limit_mb: expected at least 256"),
    });
    folder("broken", { "hearth.toml": toml("broken").replace("index.mjs", "missing.mjs") });
    expect(await hearth("deploy", "broken")).toMatchObject({
      code: 1,
      err: expect.stringContaining("the code has no file 'missing.mjs'"),
    });
  });

  it("names the rule that left out the handler's file", async () => {
    const built = toml("left").replace("index.mjs", "dist/index.mjs");
    folder("left", { "hearth.toml": built, ".gitignore": "x\ndist\n", "dist/index.mjs": returns("1"), "a.js": "" });
    const refused = await hearth("deploy", "left");
    expect(refused).toMatchObject({ code: 1, out: "" });
    expect(refused.err).toContain("handler: the code has no file 'dist/index.mjs' [INVALID_ARGUMENT]\n");
    const hint = "  .gitignore:2 ('dist') leaves out 'dist/index.mjs'; to keep it, write '!/dist' into .hearthignore\n";
    expect(refused.err).toContain(hint);
    folder("left", { ".hearthignore": "!/dist\n" });
    expect((await hearth("deploy", "left")).code).toBe(0);
    // A command that exists, with a file that does not: only the start shows it.
    const server = 'function = "served"\nruntime = "custom"\nhandler = "python3 ./server.py"\n[smoke]\n';
    folder("served", { "hearth.toml": server, ".hearthignore": "*.py\n", "server.py": "", "a.txt": "" });
    const failed = await hearth("deploy", "served");
    expect(failed.err).toContain("[HANDLER_FAILED]");
    expect(failed.err).toContain("  .hearthignore:1 ('*.py') leaves out 'server.py'; to keep it, change that line\n");
  });

  it("activates a version only if its smoke call succeeds", async () => {
    const handler = "export const handler = ({ n }) => { if (n > 1) throw new Error('n is ' + n); return n; };\n";
    folder("smoke", { "hearth.toml": toml("smoke", "[smoke]\npayload = { n = 1 }\n"), "index.mjs": handler });
    expect(await out("deploy", "smoke")).toContain("version 1 (created)");
    folder("smoke", { "hearth.toml": toml("smoke", "[smoke]\npayload = { n = 2 }\n"), "index.mjs": `${handler}//\n` });
    const failed = await hearth("deploy", "smoke");
    expect(failed).toMatchObject({ code: 1, err: expect.stringContaining("n is 2") });
    expect(await out("deploy", "smoke", "--smoke", '{"n":0}')).toContain("version 2 (updated: code)");
  });

  it("gives secrets as variables and files, by name", async () => {
    await shell().run(["secrets", "set", "TOKEN"], { stdin: "s3cret" });
    const more = 'secrets = ["TOKEN"]\n[environment]\nVALUE = { secret = "TOKEN" }\n';
    const read = 'import { readFileSync } from "node:fs";\n';
    const value = '[process.env.VALUE, readFileSync("/run/secrets/TOKEN", "utf8")]';
    folder("secret", { "hearth.toml": toml("secret", more), "index.mjs": read + returns(value) });
    expect(await out("deploy", "secret")).toContain("version 1 (created)");
    expect(JSON.parse(await out("invoke", "secret"))).toEqual(["s3cret", "s3cret"]);
    expect(await out("deploy", "secret")).toContain("unchanged");
  });

  it("deploys the functions of one hearth.toml together, all or none", async () => {
    const both = (two: string) =>
      `[[functions]]\ndirectory = "a"\n${toml("first")}\n[[functions]]\ndirectory = "${two}"\n${toml("second")}`;
    folder("both", { "hearth.toml": both("b"), "a/index.mjs": returns('"a"'), "b/index.mjs": "throw 1;\n" });
    expect(await hearth("deploy", "both")).toMatchObject({ code: 1, out: "" });
    expect(await hearth("get", "first")).toMatchObject({ code: 1, err: expect.stringContaining("[NOT_FOUND]") });
    folder("both", { "b/index.mjs": returns('"b"') });
    const lines = "first is active, version 1 (created)\nsecond is active, version 1 (created)\n";
    expect(await out("deploy", "both")).toBe(lines);
    expect([await out("invoke", "first"), await out("invoke", "second")]).toEqual(['"a"\n', '"b"\n']);
    // From the same files.
    folder("both", { "hearth.toml": both("a") });
    expect(await out("deploy", "both")).toBe(
      "first is unchanged, version 1\nsecond is active, version 2 (updated: code)\n",
    );
    expect(await hearth("deploy", "both", "--smoke", "1")).toMatchObject({ code: 2 });
  });

  it("passes names with line breaks, links in the folder and ten thousand files", async () => {
    folder("odd", { "hearth.toml": toml("odd"), "new\nline/ü": "odd", "index.mjs": "" });
    symlinkSync("new\nline", file("odd", "link"));
    folder("odd", {
      "index.mjs": `import { readFileSync, readdirSync } from "node:fs";
export const handler = () => [readFileSync("link/ü", "utf8"), readdirSync("many").length];\n`,
    });
    mkdirSync(file("odd", "many"));
    for (let i = 0; i < 10_000; i++) writeFileSync(file("odd", "many", String(i)), "");
    expect(await out("deploy", "odd")).toContain("(created)");
    expect(JSON.parse(await out("invoke", "odd"))).toEqual(["odd", 10_000]);
    symlinkSync("/etc", file("odd", "etc"));
    expect(await hearth("deploy", "odd")).toMatchObject({
      code: 2,
      err: expect.stringContaining("link leads out of the folder: etc -> /etc"),
    });
  });

  it("ends with an exit code when the daemon goes away during the upload, and leaves nothing when it is killed", async () => {
    folder("cut", { "hearth.toml": toml("cut"), "index.mjs": returns("1"), noise: "n".repeat(20_000_000) });
    const begun = Promise.withResolvers<() => void>();
    const unknown = JSON.stringify({ error: "code not found", error_code: "NOT_FOUND", hint: null, retry_after: null });
    const server = createServer((incoming, answer) => {
      if (incoming.url?.endsWith("/renew")) answer.writeHead(404, { "content-type": "application/json" }).end(unknown);
      else incoming.once("data", () => begun.resolve(() => incoming.destroy()));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      const address = server.address();
      const env = { HEARTH_URL: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}` };
      const running = shell().start("hearth", ["deploy", "cut"], { env });
      (await begun.promise)();
      expect(await running.ended).toMatchObject({ code: 3, out: "" });
    } finally {
      server.closeAllConnections();
      server.close();
    }
    const killed = shell().start("hearth", ["deploy", "cut"]);
    killed.child.kill("SIGKILL");
    await killed.ended;
    expect(await out("deploy", "cut")).toContain("version 1 (created)");
  });
});

describe("hearth diff", () => {
  it("shows the settings and files that a deployment would change, and exits like diff(1)", async () => {
    folder("other", { "hearth.toml": toml("other"), "index.mjs": returns("1"), gone: "" });
    const fresh = await hearth("diff", "other");
    expect(fresh).toMatchObject({ code: 1, out: "other: create\n  + gone\n  + index.mjs\n" });
    expect(await hearth("get", "other")).toMatchObject({ code: 1 });
    await out("deploy", "other");
    expect(await hearth("diff", "other")).toMatchObject({ code: 0, out: "other: unchanged\n" });
    rmSync(file("other", "gone"));
    folder("other", { "hearth.toml": toml("other", "max_instances = 3\n"), "index.mjs": returns("2"), "new/x": "" });
    expect(await hearth("diff", "other")).toEqual({
      code: 1,
      out: `other: update
  code
  max_instances: 10 -> 3
  - gone
  ~ index.mjs
    @@ -1 +1 @@
    -${returns("1").trim()}
    +${returns("2").trim()}
  + new/x
`,
      err: "",
    });
    const { code, out: text } = await hearth("diff", "other", "--json");
    expect([code, JSON.parse(text).functions[0].files.length]).toEqual([1, 3]);
    expect(await answer("get", "other")).toMatchObject({ version: 1 });
  });
});
