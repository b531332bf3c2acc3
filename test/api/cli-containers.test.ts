/** The verbs of containers and volumes, through the `hearth` command against a real daemon. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { operatorOf } from "../support/command.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, out, answer } = operator;
const inside = (line: string) => out("exec", "box", "--", "sh", "-c", line);

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await out("run", "-d", "--name", "box", "--env", "A=1", "--label", "stage=test");
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

describe("run", () => {
  it("prints what its command writes, exits with its code, and removes it with --rm", async () => {
    const line = "echo one; sleep 0.3; echo two >&2; exit 5";
    expect(await hearth("run", "--rm", "--name", "once", "--", "sh", "-c", line)).toEqual({
      code: 5,
      out: "one\n",
      err: "two\n",
    });
    expect((await hearth("inspect", "once")).code).toBe(1);
  });

  it("says why a command could not be started", async () => {
    const why = (word: string) => `hearth: the container could not be started: ${word}: No such file or directory\n`;
    const run = (...words: string[]) => hearth("run", "--rm", "--name", "none", "--", ...words);
    expect(await run("/no/such/command")).toEqual({ code: 127, out: "", err: why("/no/such/command") });
    // It may be meant as an image.
    const hint = "if alpine:3.20 is an image: hearth run --rm --image alpine:3.20 --oci -- ls -l\n";
    expect(await run("alpine:3.20", "ls", "-l")).toEqual({ code: 127, out: "", err: `${why("alpine:3.20")}${hint}` });
    const parted = await run("alpine:3.20", "--", "ls", "-l");
    expect(parted.err).toBe(`${why("alpine:3.20")}${hint}`);
    // Also where nobody waits for its end: at the start, and in a log that has nothing else.
    const behind = await hearth("run", "-d", "--name", "behind", "--", "/no/such");
    const meant = await hearth("run", "-d", "--name", "meant", "--", "alpine");
    expect(meant.err).toContain("if alpine is an image: hearth run -d --image alpine --oci\n");
    await hearth("rm", "meant");
    expect(behind).toEqual({ code: 127, out: expect.stringMatching(/^behind is exited/), err: why("/no/such") });
    for (const words of [["start"], ["logs"], ["logs", "-f"], ["logs", "--json"]]) {
      const told = await hearth(...words, "behind");
      expect([words, told.code, told.err]).toEqual([words, words[0] === "start" ? 127 : 0, why("/no/such")]);
    }
    await hearth("rm", "behind");
  });

  it("exits as shells do where a further command cannot be started, and says why", async () => {
    await hearth("run", "-d", "--name", "further");
    const exec = (...words: string[]) => hearth("exec", "further", "--", ...words);
    const why = (what: string) => `hearth: the command cannot be started: ${what}\n`;
    expect(await exec("/no/such")).toEqual({ code: 127, out: "", err: why("/no/such: No such file or directory") });
    expect(await exec("/etc/passwd")).toEqual({ code: 126, out: "", err: why("/etc/passwd: Permission denied") });
    expect(await exec("sh", "-c", "exit 127")).toEqual({ code: 127, out: "", err: "" });
    await hearth("rm", "-f", "further");
  });

  it("takes no flag of the command, and refuses one that it does not know", async () => {
    expect(await hearth("run", "--rm", "--", "df", "-h", "/tmp")).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^Filesystem/),
    });
    const sized = await hearth("run", "--shm-size", "1g", "--", "df", "-h", "/dev/shm");
    expect(sized).toMatchObject({
      code: 2,
      out: "",
      err: expect.stringMatching(/^hearth: unknown option '--shm-size'\n/),
    });
    const server = await hearth("run", "--dns", "8.8.8.8", "--", "true");
    expect(server).toMatchObject({ code: 2, err: expect.stringMatching(/^hearth: --dns has no value: '8.8.8.8'\n/) });
  });

  it("takes the flags of docker whose meaning it has", async () => {
    const flags = ["--cpus", "0.5", "-m", "256m", "--restart", "unless-stopped", "-e", "SHOWN", "-e", "NONE_SUCH"];
    const line = "echo one; echo two; echo $SHOWN $(env | grep -c NONE_SUCH); exec sleep 1000";
    const words = ["run", "-d", "--name", "dock", "--label", "own=dock", ...flags, "--", "sh", "-c", line];
    expect(await shell().run(words, { env: { SHOWN: "from here" } })).toMatchObject({ code: 0 });
    expect(await answer("inspect", "dock")).toMatchObject({
      ...{ cpu_limit_percent: 50, memory_limit_mb: 256, restart: "always", labels: { own: "dock" } },
    });
    await expect.poll(() => out("logs", "--tail", "1", "dock")).toBe("from here 0\n");
    expect(await out("logs", "-n", "2", "dock")).toBe("two\nfrom here 0\n");
    const { container_id } = await answer("inspect", "dock");
    for (const filter of ["name=doc", "label=own=dock"])
      expect(await out("ps", "-q", "--filter", filter)).toBe(`${container_id}\n`);
    expect((await hearth("kill", "-s", "TERM", "dock")).err).toMatch(/SIGKILL[\s\S]*hearth stop/);
    expect(await out("kill", "--signal", "KILL", "dock")).toMatch(/^dock exited with 137/);
    expect(await out("ps", "-q", "-f", "name=dock")).toBe("");
    expect(await out("ps", "-q", "-f", "name=dock", "-f", "status=exited")).toBe(`${container_id}\n`);
    await out("rm", "dock");
    expect(await hearth("run", "--network", "none", "--", "true")).toMatchObject({
      ...{ code: 2, err: expect.stringContaining("--egress off") },
    });
    expect(await hearth("run", "--cpu", "50", "--cpus", "1", "--", "true")).toMatchObject({ code: 2 });
    expect(await out("images", "-q")).toBe("");
  });

  it("hints at its own flags, where the API hints at fields", async () => {
    const refused = await hearth("run", "-d", "--gpus", "1");
    expect(refused).toMatchObject({ code: 1, err: expect.stringMatching(/\[CAPACITY_FULL\]\n {2}leave --gpus out/) });
    const unknown = await hearth("run", "-d", "--image", "docker.io/library/alpine");
    expect(unknown).toMatchObject({
      code: 1,
      err: expect.stringMatching(/ {2}for an OCI image, pull it by hearth pull and give --oci/),
    });
  });

  it("makes a root that cannot be written to with --read-only", async () => {
    const ran = await hearth("run", "--rm", "--read-only", "--name", "ro", "--", "touch", "/file");
    expect(ran).toMatchObject({ code: 1, err: expect.stringContaining("Read-only file system") });
  });

  it("stops it at Ctrl-C", async () => {
    const running = shell().start("hearth", ["run", "--name", "long", "--", "sh", "-c", "echo up; exec sleep 100"]);
    await running.shows(/up/);
    running.child.kill("SIGINT");
    expect(await running.ended).toMatchObject({ code: 130, err: expect.stringContaining("stopping long") });
    expect(await answer("inspect", "long")).toMatchObject({ state: "exited", exit_code: 143 });
    await out("rm", "long");
  });

  it("runs a shell on a terminal, and removes the container after it", async () => {
    const terminal = shell().terminal("hearth run -it --rm --name term");
    await terminal.shows(/term:\/# /);
    terminal.child.stdin.write("stty size; exit 3\n");
    expect(await terminal.ended).toMatchObject({ code: 3, out: expect.stringContaining("24 80") });
    expect((await hearth("inspect", "term")).code).toBe(1);
  });
});

describe("exec", () => {
  it("keeps the streams apart, passes standard input, and exits with the command's code", async () => {
    expect(await hearth("exec", "box", "--", "sh", "-c", "echo out $A; echo err >&2; exit 7")).toEqual({
      code: 7,
      out: "out 1\n",
      err: "err\n",
    });
    expect((await shell().run(["exec", "-i", "box", "wc", "-c"], { stdin: "hello\n" })).out).toBe("6\n");
    expect(await hearth("exec", "--timeout", "1", "box", "--", "sleep", "60")).toMatchObject({
      code: 143,
      err: expect.stringContaining("timeout"),
    });
    expect((await hearth("exec", "-e", "B=2", "-w", "/etc", "box", "--", "sh", "-c", "pwd; echo $B")).out).toBe(
      "/etc\n2\n",
    );
  });

  it("gives a command a terminal, with its variables and its directory", async () => {
    const line = `hearth exec -it -e "B=two words" -w /etc box -- sh -c 'pwd; echo "$B"; tty; exit 4'`;
    const ended = await shell().terminal(line).ended;
    expect(ended).toMatchObject({ code: 4, out: expect.stringMatching(/^\/etc\s+two words\s+\/dev\/pts/) });
    expect((await hearth("exec", "-it", "box")).code).toBe(2);
  });

  it("leaves a terminal by Ctrl-P Ctrl-Q, and goes back to it", async () => {
    const terminal = shell().terminal("hearth exec -it box");
    await terminal.shows(/box:\/# /);
    terminal.child.stdin.write("X=kept\n\x10\x11");
    const { out: left } = await terminal.ended;
    const id = /hearth attach (sess_\w+)/.exec(left)?.[1] ?? "";
    expect(await out("terminals", "list", "box")).toMatch(new RegExp(`^${id} +ctr_\\w+ +idle `, "m"));
    await expect.poll(() => out("__complete", "terminals", "close", "sess_")).toContain(id);
    const back = shell().terminal(`hearth attach ${id}`);
    back.child.stdin.write("echo was $X; exit 2\n");
    expect(await back.ended).toMatchObject({ code: 2, out: expect.stringContaining("was kept") });
  });

  it("lists and closes terminals", async () => {
    const ids: string[] = [];
    for (const _ of [1, 2]) {
      const { body } = await daemon.call("POST", "/api/terminal/sessions", { container_id: "box" });
      ids.push(body.session_id);
    }
    const listed = await answer("terminals", "list");
    expect(listed.sessions.map(({ session_id }: { session_id: string }) => session_id)).toEqual([...ids].reverse());
    expect(await out("terminals", "close", ...ids)).toBe(ids.map((id) => `${id} is closed\n`).join(""));
    await eventually("both have ended", async () => (await answer("terminals", "list")).sessions.length === 0);
    expect(await out("terminals", "list")).toBe("");
    expect((await hearth("terminals", "close", "sess_none")).code).toBe(1);
  });
});

describe("a container's life", () => {
  it("is listed, stopped, started, renamed and removed, by name and by id", async () => {
    const made = await answer("run", "-d", "--name", "life");
    expect(await out("ps")).toMatch(/^life +running +up /m);
    expect(await out("stop", "-t", "1", "life")).toMatch(/^life exited with \d+( just now|, \d+ s ago)\n$/);
    expect(await out("ps")).not.toContain("life");
    expect(await out("ps", "-a", "-q")).toContain(made.container_id);
    expect(await out("start", made.container_id)).toMatch(/^life is running/);
    expect(await out("rename", "life", "live")).toBe("life is now live\n");
    expect(await hearth("rm", "live")).toMatchObject({ code: 1, err: expect.stringContaining("hearth rm -f live") });
    expect(await out("rm", "-f", "live")).toBe("live is removed\n");
  });

  it("is restarted, waited for, and asked for its ports", async () => {
    await out(
      "run",
      "-d",
      "--name",
      "turns",
      "-p",
      "80",
      "--",
      "sh",
      "-c",
      "echo begun; trap 'exit 7' TERM; sleep 1000 & wait",
    );
    const { ports } = await answer("inspect", "turns");
    expect(await out("port", "turns")).toBe(`80/tcp -> 127.0.0.1:${ports[0].host_port}\n`);
    expect((await hearth("port", "box")).err).toContain("box publishes no port");
    expect(await out("restart", "-t", "1", "turns")).toMatch(/^turns is running/);
    await expect.poll(() => out("logs", "turns")).toBe("begun\nbegun\n");
    const waiting = shell().start("hearth", ["wait", "turns"]);
    const stopped = await out("stop", "turns");
    const code = /exited with (\d+)/.exec(stopped)?.[1];
    expect(await waiting.ended).toMatchObject({ code: 0, out: `${code}\n` });
    expect(await out("wait", "turns", "turns")).toBe(`${code}\n${code}\n`);
    expect(await out("container", "restart", "turns")).toMatch(/^turns is running/);
    await out("rm", "-f", "turns");
    expect((await hearth("wait", "turns")).code).toBe(1);
    const { command } = await answer("version");
    expect(await out("version")).toMatch(new RegExp(`^command ${command}\\ndaemon {2}${command}, at http`));
    expect(await out("info")).toContain(`hearth ${command} is ok`);
  });

  it("is changed together with others', of which one that is refused stops none", async () => {
    for (const verb of [["rm"], ["containers", "rm"]]) {
      for (const name of ["first", "last"]) await out("run", "--name", name, "--", "true");
      const removed = await hearth(...verb, "first", "box", "boxx", "last");
      expect(removed).toMatchObject({ code: 1, out: "first is removed\nlast is removed\n" });
      expect(removed.err).toMatch(
        /^hearth: box is running\n {2}.*hearth rm -f box\nhearth: .*'boxx'.*\n {2}did you mean 'box'/,
      );
    }
    await out("stop", "-t", "0", "box");
    const started = await hearth("start", "nobody", "box");
    expect(started).toMatchObject({ code: 1, out: expect.stringMatching(/^box is running/) });
    // What would meet all of them alike ends it.
    const keyless = await shell().run(["rm", "box", "first"], { env: { HEARTH_KEY: "none" } });
    expect(keyless.err.match(/UNAUTHORIZED/g)).toHaveLength(1);
    const nobody = await hearth("exec", "bix", "--", "ls");
    expect(nobody).toMatchObject({ code: 1, err: expect.stringContaining("did you mean 'box'?") });
    const none = "no image whose reference contains 'ls': hearth images lists all\n";
    expect(await hearth("images", "ls")).toEqual({ code: 0, out: "", err: none });
    expect(await hearth("rmi", "none:1", "none:2")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/none:1[\s\S]*none:2/),
    });
  });

  it("is seen in its log, its processes and what it uses", async () => {
    const script = "echo first; until [ -e /go ]; do sleep 0.1; done; echo last; exit 1";
    await out("run", "-d", "--name", "talks", "--", "sh", "-c", script);
    expect(await out("top", "talks")).toContain("sh -c");
    expect(await out("stats", "--no-stream", "box")).toMatch(/^box +\d+\.\d %/m);
    const follow = shell().start("hearth", ["logs", "-f", "talks"]);
    await follow.shows(/first/);
    await out("exec", "talks", "--", "touch", "/go");
    expect(await follow.ended).toMatchObject({ code: 0, out: "first\nlast\n" });
    expect(await out("logs", "--limit", "1", "talks")).toBe("last\n");
    expect((await answer("logs", "talks")).logs).toHaveLength(2);
    await out("rm", "talks");
  });
});

describe("cp", () => {
  it("copies files and directories both ways, with the rules of cp", async () => {
    const home = shell().home;
    mkdirSync(join(home, "site/deep"), { recursive: true });
    writeFileSync(join(home, "site/deep/a.txt"), "a\n");
    writeFileSync(join(home, "run.sh"), "echo ran\n", { mode: 0o755 });
    await out("cp", "site", "box:/root");
    await out("cp", "site/.", "box:/srv/new");
    expect(await out("cp", "run.sh", "box:/root/other,name&.sh")).toMatch(/^9 B copied to /);
    expect(await inside("cat /root/site/deep/a.txt /srv/new/deep/a.txt; '/root/other,name&.sh'")).toBe("a\na\nran\n");
    await out("cp", "box:/root/site", "back");
    await out("cp", "box:/root/site", ".");
    expect(await out("cp", "box:/root/other,name&.sh", "there.sh")).toBe("9 B copied to there.sh\n");
    expect(readFileSync(join(home, "back/deep/a.txt"), "utf8")).toBe("a\n");
    expect(statSync(join(home, "there.sh")).mode & 0o777).toBe(0o755);
    const { out: names } = await shell().bash(
      "hearth cp box:/root/site - | tar -t; tar -c site | hearth cp - box:/tar",
    );
    expect(names).toContain("deep/a.txt");
    expect(await inside("cat /tar/site/deep/a.txt")).toBe("a\n");
    expect((await hearth("cp", "nope", "box:/root")).code).toBe(2);
    expect((await hearth("cp", "a", "b")).code).toBe(2);
    expect((await hearth("cp", "box:/nope", "x")).code).toBe(1);
    expect(existsSync(join(home, "x"))).toBe(false);
  });
});

describe("completion", () => {
  it("offers containers and files to cp", async () => {
    const complete = async (...words: string[]) =>
      (
        await shell().bash(
          `touch boxes; eval "$(hearth completion bash)"; COMP_WORDS=(hearth ${words.join(" ")}); COMP_CWORD=${words.length}
           _hearth; printf '%s\\n' "\${COMPREPLY[@]}"`,
        )
      ).out;
    // It gives up on a daemon that does not answer within a second.
    await expect.poll(() => complete("cp", "bo")).toBe("boxes\nbox:\n");
    await expect.poll(() => complete("cp", "boxes", "bo")).toBe("boxes\nbox:\n");
    expect(await complete("volumes", "cp", "bo")).toBe("boxes\n");
  });
});

describe("volumes", () => {
  it("are made, filled, looked at and deleted", async () => {
    await out("volumes", "create", "data", "--quota", "1g");
    expect(await out("volumes", "list")).toMatch(/^data +\S+ +1 GiB/m);
    const bytes = Buffer.from([0, 255, 10]);
    expect((await shell().run(["volumes", "put", "data:/n/a"], { stdin: bytes })).code).toBe(0);
    expect(await out("volumes", "ls", "data:/n")).toMatch(/-0644 +3 B .* a$/m);
    writeFileSync(join(shell().home, "text"), "text\n");
    await out("volumes", "cp", "text", "data:/n");
    expect(await out("volumes", "cat", "data:/n/text")).toBe("text\n");
    expect(await hearth("volumes", "rm", "data:/n")).toMatchObject({ code: 1, err: expect.stringContaining("-r") });
    await out("volumes", "rm", "-r", "data:/n");
    expect(await out("volume", "ls")).toMatch(/^data +active/m);
    const meant = await hearth("volumes", "rm", "data");
    expect(meant).toMatchObject({ code: 2, err: expect.stringContaining("hearth volumes delete data\n") });
    expect(await out("volumes", "rename", "data", "kept")).toBe("data is now kept\n");
    expect(await out("volumes", "delete", "kept")).toBe("kept is deleted\n");
    await eventually("no volume is left", async () => (await answer("volumes", "list")).volumes.length === 0);
  });
});

describe("diagnose", () => {
  const CHECKS = "running link address route neighbour gateway forwarding rules egress dns".split(" ");
  /** Rows of the table by check. The name server of the machine is the machine's matter. */
  const results = (text: string) =>
    Object.fromEntries([...text.matchAll(/^(\w+) +(ok|failed|mended) /gm)].map(([, name, result]) => [name, result]));
  const link = async () => (await answer("diagnose", "linked")).network.veth_host as string;
  const break_ = async () => execFileSync("ip", ["link", "set", await link(), "down"]);

  it("shows address, link and traffic, and each check with its result", async () => {
    await out("run", "-d", "--name", "linked", "--egress", "192.0.2.0/24:443/tcp");
    const { ip_address } = await answer("inspect", "linked");
    const { out: text, err, code } = await hearth("diagnose", "linked");
    expect(text).toMatch(new RegExp(`^address +${ip_address.replaceAll(".", "\\.")}$`, "m"));
    expect(text).toMatch(/^link +eth0 \([0-9a-f:]{17}, mtu \d+\) on h\S+$/m);
    expect(text).toMatch(/^egress +192\.0\.2\.0\/24:443\/tcp$/m);
    expect(text).toMatch(/^traffic +\d+ bytes in, \d+ bytes out$/m);
    const { dns, ...found } = results(text);
    expect(Object.keys(results(text))).toEqual(CHECKS);
    expect(new Set(Object.values(found))).toEqual(new Set(["ok"]));
    if (dns === "ok") expect([err, code]).toEqual(["", 0]);
    else expect([err, code]).toEqual([expect.stringContaining("a check failed: dns"), 1]);
  });

  it("exits with 1 and names what failed, with the command that mends it", async () => {
    await break_();
    const failed = await hearth("diagnose", "linked");
    expect(failed.code).toBe(1);
    expect(results(failed.out)).toMatchObject({ running: "ok", link: "failed", route: "failed", gateway: "failed" });
    expect(failed.err).toMatch(/^hearth: checks failed: link, .*\n {2}mend it: hearth diagnose --mend linked\n$/);
    const json = await hearth("diagnose", "linked", "--json");
    const { ok, checks, network } = JSON.parse(json.out);
    expect([json.code, ok, network.container_id]).toEqual([1, false, (await answer("inspect", "linked")).container_id]);
    expect(checks.find(({ name }: { name: string }) => name === "link").ok).toBe(false);
  });

  it("mends with --mend what failed, and says of each check whether it was mended", async () => {
    const mended = await hearth("diagnose", "linked", "--mend");
    const { dns, ...found } = results(mended.out);
    expect(found).toMatchObject({ running: "ok", link: "mended", route: "mended", gateway: "mended" });
    expect(Object.values(found)).not.toContain("failed");
    expect(mended.code).toBe(dns === "failed" ? 1 : 0);
    expect(results((await hearth("diagnose", "linked")).out)).toMatchObject({ link: "ok", gateway: "ok" });
  });

  it("says that a stopped container does not run, and mends nothing of it", async () => {
    await out("stop", "-t", "0", "linked");
    const stopped = await hearth("diagnose", "linked");
    expect([stopped.code, results(stopped.out)]).toEqual([1, { running: "failed" }]);
    expect(stopped.out).toMatch(/^link +none$/m);
    expect(stopped.err).toMatch(/\n {2}start it: hearth start linked\n$/);
    expect(await hearth("diagnose", "linked", "--mend")).toMatchObject({
      code: 1,
      err: expect.stringContaining("[NOT_RUNNING]"),
    });
    expect(await hearth("diagnose", "missing")).toMatchObject({ code: 1, err: expect.stringContaining("missing") });
    await out("rm", "linked");
  });
});
