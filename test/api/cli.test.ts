/** The `hearth` command against a real daemon: what it prints, where, and how it exits. */
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { limitsText } from "../../src/base/limit-texts.ts";
import { settingsText } from "../../src/base/settings.ts";
import { displayWidth } from "../../src/cli/output/text.ts";
import { bare, operatorOf } from "../support/command.ts";
import { Daemon, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, hearthAs, out, answer } = operator;

const HIDE = "\x1b[?25l";
const SHOW = "\x1b[?25h";
const ERASE_BELOW = "\x1b[J";

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "2" });
  await out("create", "cat", "--handler", "cat", "--deploy");
  await out("create", "slow", "--handler", "sleep $(cat); echo done", "--deploy");
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

describe("a function's life", () => {
  it("begins as the daemon's greeting says, which can be pasted", async () => {
    const lines = daemon.output.split("\n").filter((line) => /^ {2}\S.*\bhello\b/.test(line));
    expect(lines.map((line) => line.includes("npx hearth"))).toEqual([true, true, false]);
    const env = { HEARTH_URL: "", HEARTH_KEY: "", HEARTH_BOOTSTRAP_KEY: KEY };
    const pasted = lines.join("\n").replaceAll("npx hearth", "hearth");
    const ended = await shell().bash(`set -e\n${pasted}`, { env });
    expect(ended).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^hello is active.*\nhello, world\n\{.*"hello, world/),
    });
  });

  it("goes through versions, by name and by id, with flags for what changes", async () => {
    const made = await answer("functions", "create", "life", "--handler", "echo one", "--env", "A=1", "--env", "B=2");
    expect(made).toMatchObject({ name: "life", state: "pending", environment: { A: "1", B: "2" } });
    expect(await answer("deploy", made.id)).toMatchObject({ state: "active" });
    const changes = ["--handler", "echo two", "--env", "C=3", "--unset-env", "A", "--cpu-limit-percent", "50"];
    expect(await answer("update", "life", ...changes, "--api-access", "--no-cleanup-on-exit")).toMatchObject({
      handler: "echo two",
      environment: { B: "2", C: "3" },
      cpu_limit_percent: 50,
      api_access: true,
      cleanup_on_exit: false,
      version: 2,
    });
    const cleared = ["--no-env", "--no-cpu-limit-percent", "--no-api-access", "--cleanup-on-exit"];
    expect(await answer("update", "life", ...cleared)).toMatchObject({
      environment: {},
      cpu_limit_percent: null,
      api_access: false,
      cleanup_on_exit: true,
      version: 3,
    });
    expect(await hearth("update", "life")).toMatchObject({
      code: 2,
      err: expect.stringContaining("nothing to update"),
    });
    expect((await answer("versions", "life")).versions.map((one: { version: number }) => one.version)).toEqual([
      3, 2, 1,
    ]);
    expect(await out("rollback", "life", "1")).toMatch(/^life is active, version 1 /);
    expect(await out("invoke", "life")).toBe("one\n");
    expect(await out("pause", "life")).toBe("life is paused\n");
    expect(await hearth("invoke", "life")).toMatchObject({ code: 1, err: expect.stringContaining("[WRONG_STATE]") });
    expect(await out("resume", "life")).toMatch(/^life is active/);
    expect(await out("delete", "life")).toBe("life is deleted\n");
    expect(await hearth("get", "life")).toMatchObject({ code: 1, out: "" });
  });

  it("takes a handler and variables from files", async () => {
    writeFileSync(join(shell().home, "handler.sh"), 'echo "$A-$B"\necho end\n');
    writeFileSync(join(shell().home, ".env"), 'A="from file" # a comment\nB=2\n');
    await out("create", "files", "--handler-file", "handler.sh", "--env-file", ".env", "--env", "B=3", "--deploy");
    expect(await out("invoke", "files")).toBe("from file-3\nend\n");
    expect(await hearth("create", "x", "--handler-file", "nope")).toMatchObject({
      code: 2,
      err: expect.stringContaining("no such file: nope"),
    });
  });
});

describe("invoke", () => {
  const bytes = "a\x1b[31mred\x1b[0m\ttab\r\nüber 日本\n";

  it("takes the payload from an argument, a file or standard input, and passes it as it is", async () => {
    writeFileSync(join(shell().home, "payload"), bytes);
    expect(await out("invoke", "cat", bytes)).toBe(bytes);
    expect(await out("invoke", "cat", "--file", "payload")).toBe(bytes);
    expect(await shell().run(["invoke", "cat"], { stdin: bytes })).toEqual({ code: 0, out: bytes, err: "" });
    expect((await shell().run(["invoke", "cat", "-"], { stdin: bytes })).out).toBe(bytes);
    expect((await shell().run(["invoke", "cat", "word"], { stdin: "not this" })).out).toBe("word");
    expect(await out("invoke", "cat", "--", "--json")).toBe("--json");
    expect(await shell().run(["invoke", "cat"], { stdin: Buffer.from([0xff, 0xfe]) })).toMatchObject({
      code: 2,
      err: expect.stringContaining("standard input is not UTF-8 text"),
    });
    expect((await hearth("invoke", "cat", "x", "--file", "payload")).code).toBe(2);
  });

  it("keeps output and error output apart and says with its exit code how the call went", async () => {
    await out("create", "fails", "--handler", "echo out; echo err >&2; exit $CODE", "--env", "CODE=7", "--deploy");
    expect(await hearth("invoke", "fails")).toEqual({
      code: 1,
      out: "out\n",
      err: "err\nhearth: failed: exited with 7\n",
    });
    expect((await hearth("invoke", "fails", "--exit-code")).code).toBe(7);
    expect((await hearth("invoke", "fails", "--exit-code", "--env", "CODE=42")).code).toBe(42);
    expect(await hearth("invoke", "fails", "--env", "CODE=0")).toMatchObject({ code: 0, err: "err\n" });
    const { code, out: record, err } = await hearth("invoke", "fails", "--json");
    expect([code, err, JSON.parse(record)]).toEqual([
      1,
      "",
      expect.objectContaining({ stdout: "out\n", exit_code: 7 }),
    ]);
    expect(await hearth("invoke", "slow", "5", "--timeout-seconds", "1")).toMatchObject({
      code: 1,
      err: expect.stringContaining("timeout"),
    });
  });

  it("shows on request where the time went", async () => {
    const { err } = await hearth("invoke", "cat", "x", "-v");
    expect(err).toMatch(/^success · (cold|warm) · .* ms · version 1 · inv_\w+\n {2}queue .*\n(.*\n)* {2}handler .*█/);
  });
});

describe("what calls left", () => {
  it("is listed, shown, and printed in order of time", async () => {
    await out("create", "noisy", "--handler", "read x; echo line $x; echo $x >&2", "--deploy");
    for (const word of ["one", "two"]) await out("invoke", "noisy", `${word}\n`);
    const { invocations } = await answer("invocations", "noisy");
    expect(invocations.map(({ stdout }: { stdout: string }) => stdout)).toEqual(["line two\n", "line one\n"]);
    expect(await out("invocations", "noisy", invocations[0].invocation_id)).toMatch(/\n {2}\| line two\n {2}! two\n$/);
    const logs = await out("logs", "noisy");
    expect(logs.match(/^ {2}[|!] .*$/gm)).toEqual(["  | line one", "  ! one", "  | line two", "  ! two"]);
    expect(logs).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d {2}inv_\w+ {2}success {2}v1 /);
    expect(await hearth("logs", "noisy", "--limit", "1")).toMatchObject({
      out: expect.not.stringContaining("one"),
      err: expect.stringContaining("--limit shows more"),
    });
  });

  it("is followed until Ctrl-C, each call once", async () => {
    await out("create", "followed", "--handler", "cat", "--deploy");
    await out("invoke", "followed", "first");
    const follow = shell().start("hearth", ["logs", "followed", "--follow"]);
    await follow.shows(/\| first/);
    for (const word of ["second", "third"]) await out("invoke", "followed", word);
    await follow.shows(/\| third/);
    follow.child.kill("SIGINT");
    const { code, out: text } = await follow.ended;
    expect([code, text.match(/\| .*/g)]).toEqual([0, ["| first", "| second", "| third"]]);
  });
});

describe("what goes wrong", () => {
  it("is told with what was probably meant", async () => {
    expect(await hearth("invoke", "caat", "x")).toMatchObject({
      code: 1,
      out: "",
      err: expect.stringMatching(/^hearth: .*'caat'.* \[NOT_FOUND\]\n {2}did you mean 'cat'\?\n {2}request req_/),
    });
    expect((await hearth("get", "slwo")).err).toContain("did you mean 'slow'?");
    expect(await hearth("fn", "invok")).toMatchObject({
      code: 2,
      err: expect.stringContaining("did you mean invoke?"),
    });
    expect(await hearth("ls", "--jsn")).toMatchObject({
      code: 2,
      err: expect.stringContaining("did you mean --json?"),
    });
    expect(await hearth("ls", "--limit", "many")).toMatchObject({ code: 2, err: expect.stringContaining("'many'") });
    expect(await hearth("get")).toMatchObject({ code: 2, err: expect.stringContaining("'function'") });
    expect((await hearth("invoke", "cat", "two", "words")).err).toContain(
      "\n  usage: hearth invoke <function> [payload]\n",
    );
    expect(await hearth("tenants")).toMatchObject({ code: 2, out: "", err: expect.stringContaining("Usage:") });
    expect(await hearth("help", "invoke")).toMatchObject({ code: 0, out: expect.stringContaining("hearth invoke") });
    expect(await hearth("help", "settings")).toMatchObject({ code: 0, err: "", out: settingsText() });
    expect(await hearth("help", "limits")).toMatchObject({ code: 0, err: "", out: limitsText() });
    expect(await out("help", "volumes", "cp")).toContain("hearth volumes cp");
    expect(await hearth("help", "nothing")).toMatchObject({ code: 2, err: expect.stringContaining("'nothing'") });
    expect(await hearth()).toMatchObject({ code: 0, err: "", out: expect.stringContaining("Exit codes: 0") });
  });

  it("is told with the command that helps, ready to be copied", async () => {
    await out("create", "it's new", "--handler", "cat");
    const helps = async (...args: string[]) => (await hearth(...args)).err.split("\n")[1]?.trim();
    expect(await helps("invoke", "it's new")).toBe("to deploy it: hearth deploy 'it'\\''s new'");
    expect(await helps("create", "cat", "--handler", "x")).toBe("to change it: hearth update cat");
    expect(await helps("rollback", "cat", "99")).toBe("to list the versions: hearth versions cat");
    await out("delete", "it's new");
  });

  it("says which daemon and whose key", async () => {
    const nobody = await hearth("ls", "--url", "http://127.0.0.1:1");
    expect(nobody).toMatchObject({
      code: 3,
      err: expect.stringMatching(/no daemon answers at http:\/\/127.0.0.1:1\n.*--url\n/),
    });
    const unknown = await shell().run(["ls"], { env: { HEARTH_KEY: "wrong" } });
    expect(unknown).toMatchObject({
      code: 1,
      err: expect.stringMatching(/UNAUTHORIZED[\s\S]*the key came from HEARTH_KEY/),
    });
    expect(unknown.err).not.toContain("wrong");
    const reader = (await out("keys", "create", "reader", "--scopes", "read", "--expires", "1h")).trim();
    expect(await shell().run(["pause", "cat", "--key-file", "-"], { stdin: reader })).toMatchObject({
      code: 1,
      err: expect.stringMatching(/lacks the scope 'write'[\s\S]*the key came from --key-file/),
    });
    // Every user of the machine can read arguments: a key there is refused, and not shown once more.
    for (const args of [["--key", reader], [`--key=${reader}`]]) {
      const refused = await hearth("list", ...args);
      expect(refused).toMatchObject({ code: 2, err: expect.stringContaining("use --key-file <file>, or HEARTH_KEY") });
      expect(refused.err).not.toContain(reader);
    }
    // A key that may not read gets no suggestions, and the same refusal.
    const caller = (await out("keys", "create", "caller", "--scopes", "invoke")).trim();
    const { code, err } = await hearthAs(caller, "invoke", "caat");
    expect([code, err]).toEqual([1, expect.not.stringContaining("did you mean")]);
  });

  it("is JSON on standard error with --json, as the API says it", async () => {
    const refused = await hearth("get", "nope", "--json");
    expect([refused.code, refused.out, JSON.parse(refused.err)]).toEqual([
      1,
      "",
      expect.objectContaining({ error_code: "NOT_FOUND", request_id: expect.stringMatching(/^req_/) }),
    ]);
    expect(JSON.parse((await hearth("bogus", "--json")).err)).toMatchObject({ error_code: "USAGE" });
    const nobody = await hearth("ls", "--json", "--url", "http://127.0.0.1:1");
    expect([nobody.code, JSON.parse(nobody.err).error_code]).toEqual([3, "UNREACHABLE"]);
  });

  it("never writes what would drive the terminal, whoever named it", async () => {
    const evil = "evil\u202egnp";
    await answer(
      "create",
      evil,
      "--handler",
      "printf '\\033[2J\\n'",
      "--description",
      "\x1b]0;title\x07\x9b2J",
      "--deploy",
    );
    await out("invoke", evil);
    const shown = [
      await out("ls"),
      await out("get", evil),
      await out("invocations", evil),
      await out("get", evil, "--json"),
      (await hearth("rollback", evil, "9")).err,
      (await hearth("create", evil, "--handler", "x")).err,
      (await hearth("get", "\x1b[2J")).err,
    ].join("");
    expect(shown).toContain("evil\\u202egnp");
    expect(shown).toContain("\\x1b]0;title\\x07\\x9b2J");
    expect(shown).not.toMatch(/[^\P{Cc}\n]|\u202e/u);
    // A record of many lines on a terminal; a pipe gets what the handler has written.
    const { out: logs } = await shell().terminal(`hearth logs '${evil}'`).ended;
    expect([logs.includes("| \\x1b[2J"), logs.includes("\x1b[2J")]).toEqual([true, false]);
    expect(await out("logs", evil)).toContain("| \x1b[2J\n");
    await out("delete", evil);
  });

  it("is nothing when the reader goes away", async () => {
    const line = "set -o pipefail; hearth ls | true; echo $?; hearth --help | head -1";
    expect(await shell().bash(line)).toEqual({ code: 0, out: expect.stringMatching(/^0\nUsage/), err: "" });
  });
});

describe("on a terminal", () => {
  it("tables have colours and its width, and colours are switched by NO_COLOR and FORCE_COLOR", async () => {
    await out("create", "日本語の関数", "--handler", `echo ${"long ".repeat(40)}`);
    for (const columns of [100, 60, 40]) {
      const { out: text } = await shell().terminal("hearth ls", columns).ended;
      expect(text).toContain("\x1b[1mNAME");
      const widths = bare(text).trimEnd().split("\n").map(displayWidth);
      expect(Math.max(...widths), `of ${columns}`).toBeLessThanOrEqual(columns);
    }
    expect((await shell().terminal("NO_COLOR=1 hearth ls").ended).out).not.toContain("\x1b[");
    expect(await out("ls")).not.toContain("\x1b[");
    expect((await shell().run(["ls"], { env: { FORCE_COLOR: "1" } })).out).toContain("\x1b[1mNAME");
  });

  it("what takes a while has a spinner, which leaves nothing behind", async () => {
    const { out: text } = await shell().terminal("hearth invoke slow 1").ended;
    const [hidden, spinning, shown] = [text.indexOf(HIDE), text.indexOf("calling slow"), text.lastIndexOf(SHOW)];
    expect([hidden >= 0, spinning > hidden, shown > spinning]).toEqual([true, true, true]);
    expect(bare(text.slice(text.lastIndexOf("\x1b[0K")))).toBe("done\n");
    expect((await shell().run(["invoke", "slow", "0.5"])).err).toBe("");
  });

  it("Ctrl-C ends a call with 130 and gives the cursor back", async () => {
    const call = shell().terminal("hearth invoke slow 5; echo code $?");
    await call.shows(/calling slow/);
    call.child.stdin.write("\x03");
    const { out: text } = await call.ended;
    expect(text).toContain(SHOW);
    expect(bare(text)).toContain("code 130");
    expect(text).not.toContain("done");
  });

  it("the pool is drawn in place until Ctrl-C, and in lines where there is no terminal", async () => {
    const watch = shell().terminal("hearth pool cat --watch; echo code $?", 50);
    await watch.shows(/Ctrl-C ends[\s\S]*Ctrl-C ends/);
    expect(watch.out).toContain(`A\r${ERASE_BELOW}`);
    await out("invoke", "cat", "x");
    await watch.shows(/calls +\d+ +[1-9][\d.]*\/s|calls +\d+ +0\.[1-9]\/s/);
    watch.child.stdin.write("\x03");
    const { out: text } = await watch.ended;
    expect(text.lastIndexOf(SHOW)).toBeGreaterThan(text.lastIndexOf(HIDE));
    expect(bare(text)).toContain("code 0");
    const lines = shell().start("hearth", ["pool", "--watch"]);
    await lines.shows(/^(warming=\d+ ready=\d+ .*\n){2}/);
    lines.child.kill("SIGINT");
    expect(await lines.ended).toMatchObject({ code: 0, out: expect.not.stringContaining("\x1b"), err: "" });
  });
});

describe("the command itself", () => {
  it("shows on one screen how the daemon is", async () => {
    const text = await out("status");
    expect(text).toMatch(/is ok at http[\s\S]*from HEARTH_URL[\s\S]*from HEARTH_KEY[\s\S]*cells/);
    expect(text.split("\n").length).toBeLessThan(24);
    expect(await answer("status")).toMatchObject({
      health: { status: "ok" },
      system: { node_id: expect.any(String) },
      pool: {},
    });
    expect(await answer("pool")).toMatchObject({ total_count: expect.any(Number) });
    expect(await out("pool")).toMatch(/calls running +\d+\n[\s\S]*cells +\d+\n[\s\S]*cells of shell +\d+\n/);
  });

  it("completes names of functions in bash", async () => {
    await out("create", "two words", "--handler", "cat");
    const complete = (...words: string[]) =>
      shell().bash(
        `eval "$(hearth completion bash)"; COMP_WORDS=(hearth ${words.join(" ")}); COMP_CWORD=${words.length}
         _hearth; printf '%s\\n' "\${COMPREPLY[@]}"`,
      );
    // It gives up on a daemon that does not answer within a second.
    await expect.poll(async () => (await complete("invoke", "slo")).out).toBe("slow\n");
    await expect.poll(async () => (await complete("fn", "get", "two")).out).toBe("two\\ words\n");
    expect((await complete("rollb")).out).toBe("rollback\n");
    const beside = await shell().bash("touch slow.txt");
    expect(beside.code).toBe(0);
    expect((await complete("invoke", "-f", "slo")).out).toBe("slow.txt\n");
    const quiet = await shell().run(["__complete", "--", "--url", "http://127.0.0.1:1", "invoke", ""]);
    expect(quiet).toEqual({ code: 0, out: "", err: "" });
  });

  it("runs under another Node, by the link that a global installation is", async () => {
    const PATH = `${shell().bin_dir}:/usr/local/bin:/usr/bin:/bin`;
    expect(await shell().run(["--version"], { env: { PATH } })).toMatchObject({ code: 0, out: "0.1.0\n" });
    expect((await shell().run(["invoke", "nope"], { env: { PATH } })).code).toBe(1);
  });

  it("runs no compiled code of the directory that it is called in", async () => {
    const { bin_dir, home } = shell();
    const env = { XDG_CACHE_HOME: "./bin/cache" };
    expect((await shell().run(["--version"], { env })).code).toBe(0);
    expect([existsSync(join(bin_dir, "cache")), existsSync(join(home, ".cache/hearth"))]).toEqual([false, true]);
  });

  it("hands what follows bench to the bench", async () => {
    expect(await hearth("bench", "--only", "nonsense")).toMatchObject({
      code: 1,
      err: expect.stringContaining("no bench 'nonsense'"),
    });
    expect(await out("bench", "--help")).toContain("npm run bench");
  });
});
