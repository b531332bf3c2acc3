/** What commands of containers write and read through `hearth run` and `hearth exec`, byte for byte. */
import { createHash, randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { operatorOf } from "../support/command.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { refusalOf, TerminalTab } from "../support/socket.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, out, answer } = operator;
const MIB = 1024 * 1024;

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await out("run", "-d", "--name", "box");
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

const bash = (line: string) => shell().bash(`set -o pipefail; ${line}`);
const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
const state = async (name: string) => (await answer("inspect", name)).state;
const bytesOf = (tab: TerminalTab) => tab.bytes;

describe("the output of hearth run", () => {
  it("has every line, however many there are and however soon the command ends", async () => {
    expect(await bash("hearth run --rm -- seq 1 100000 | sha256sum; seq 1 100000 | sha256sum")).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^(\w+) {2}-\n\1 {2}-\n$/),
    });
    expect((await bash("hearth run --rm -- seq 1 3000000 | wc -l")).out).toBe("3000000\n");
    expect(await hearth("run", "--rm", "--", "true")).toEqual({ code: 0, out: "", err: "" });
  });

  it("has bytes as they are, the streams apart, and the exit code of the command", async () => {
    // The sum is of what was written inside, and goes to the other stream.
    const sum =
      "hearth run --rm --name sums -- bash -c 'head -c 10M /dev/urandom >/f; sha256sum </f >&2; cat /f; exit 9'";
    const { code, out: outer, err: inner } = await bash(`${sum} | sha256sum`);
    expect([code, outer]).toEqual([9, inner]);
    const odd = await bash("hearth run --rm -- printf 'a\\0b\\377\\n\\nno newline' | od -An -c | tr -d ' \\n'");
    expect(odd.out).toBe("a\\0b377\\n\\nnonewline");
    const apart = await hearth("run", "--rm", "--", "sh", "-c", "printf out; printf err >&2; exit 3");
    expect(apart).toEqual({ code: 3, out: "out", err: "err" });
    expect((await hearth("run", "--rm", "--", "sh", "-c", "kill -9 $$")).code).toBe(137);
  });

  it("waits for a slow reader, which gets all of it, and holds nobody else back", async () => {
    await out("run", "-d", "--name", "beside", "--", "sh", "-c", "until [ -e /go ]; do sleep 0.1; done; echo went");
    const line = "hearth run --name slow -- sh -c 'seq 1 2000000; echo done >/done; sleep 1000'";
    const running = shell().start("bash", [
      "-c",
      `${line} | (read x; until [ -e go ]; do sleep 0.1; done; head -n 1999999 | tail -n 1)`,
    ]);
    await eventually("it runs", async () => (await hearth("inspect", "slow")).out.includes("running"));
    await out("exec", "beside", "--", "touch", "/go");
    await eventually("the other ends", async () => (await state("beside")) === "exited");
    expect((await hearth("exec", "slow", "--", "test", "-e", "/done")).code).toBe(1);
    writeFileSync(join(shell().home, "go"), "");
    await running.shows(/^2000000$/m);
    expect((await hearth("exec", "slow", "--", "test", "-e", "/done")).code).toBe(0);
    await out("rm", "-f", "slow", "beside");
    await running.ended;
  });

  it("ends for a reader that goes away: the container goes on, and is removed with --rm", async () => {
    const first = await shell().bash("hearth run --name goes -- yes | head -n 1; echo ${PIPESTATUS[0]}");
    expect(first.out).toBe("y\n141\n");
    expect(await state("goes")).toBe("running");
    // Nobody is attached: its output goes to its log, at the log's pace.
    expect((await out("logs", "--limit", "3", "goes")).trim()).toBe("y\ny\ny");
    await out("rm", "-f", "goes");
    expect((await shell().bash("hearth run --rm --name went -- yes | head -n 1; echo ${PIPESTATUS[0]}")).out).toBe(
      "y\n141\n",
    );
    expect((await hearth("inspect", "went")).code).toBe(1);
  });

  it("leaves a container whose client was killed, with its later output in the log", async () => {
    const script = "echo first; until [ -e /go ]; do sleep 0.1; done; echo later; cat; echo over; sleep 1000";
    const running = shell().start("hearth", ["run", "-i", "--name", "orphan", "--", "sh", "-c", script]);
    await running.shows(/first/);
    running.child.kill("SIGKILL");
    await running.ended;
    await out("exec", "orphan", "--", "touch", "/go");
    // Its input has ended with its client.
    await eventually("all is logged", async () => (await out("logs", "orphan")) === "first\nlater\nover\n");
    await out("rm", "-f", "orphan");
  });

  it("passes standard input, with its end", async () => {
    const bytes = randomBytes(5 * MIB);
    const sum = (await shell().run(["run", "-i", "--rm", "--", "sha256sum"], { stdin: bytes })).out;
    expect(sum).toBe(`${sha256(bytes)}  -\n`);
    expect((await shell().run(["run", "-i", "--rm", "--", "sh"], { stdin: "echo $((6 * 7)); exit 4\n" })).code).toBe(4);
    // Without -i there is none.
    expect((await shell().run(["run", "--rm", "--", "cat"], { stdin: "lost" })).out).toBe("");
    // A command that leaves it unread.
    expect((await shell().run(["run", "-i", "--rm", "--", "true"], { stdin: bytes })).code).toBe(0);
    expect((await hearth("run", "-i", "-d", "--", "cat")).code).toBe(2);
    expect((await hearth("run", "-i", "--restart", "always", "--", "cat")).code).toBe(2);
  });

  it("is in the log too, which says how much of it was too fast", async () => {
    // Whether a command is too fast, and at its end, depends on what else the machine does.
    const told = await eventually("a gap is in the log", async () => {
      await bash("hearth run --name fast -- sh -c 'yes | head -c 200M' >/dev/null");
      const { logs } = await answer("logs", "--limit", "10000", "fast");
      await out("rm", "fast");
      return logs.find(({ message }: { message: string }) => message !== "y") ?? null;
    });
    expect(told).toMatchObject({
      stream: "stderr",
      message: expect.stringMatching(/^minit: \d+ log lines were left out/),
    });
  });

  it("is followed in the log over restarts, without a gap that is not told", async () => {
    const script = "[ -e /once ] && exit 0; touch /once; seq 1 30000; exit 1";
    const ran = await hearth("run", "--rm", "--restart", "on-failure", "--", "sh", "-c", script);
    expect(ran.code).toBe(0);
    expect(ran.out.split("\n")).toHaveLength(30_001);
  });

  it("is told to be lost when the daemon ends, and not waited for", async () => {
    const running = shell().start("hearth", ["run", "--name", "stays", "--", "sh", "-c", "echo up; exec sleep 1000"]);
    await running.shows(/up/);
    await daemon.stop();
    await daemon.start({ HEARTH_CELLS: "0" });
    expect(await running.ended).toMatchObject({
      code: 3,
      err: expect.stringMatching(/stays, which still runs(.|\n)+hearth logs -f stays/),
    });
    expect((await daemon.call("GET", "/api/containers/by-name/stays")).body).toMatchObject({ state: "running" });
    await daemon.call("DELETE", "/api/containers/stays");
  });
});

describe("the socket of a command", () => {
  const open = (path: string) => TerminalTab.open(`${daemon.url}${path}`, KEY, undefined, "command");

  it("attaches one client at a time, and the next after it", async () => {
    const script = "while sleep 0.05; do echo tick; done";
    await daemon.call("POST", "/api/containers", { name: "ticks", command: ["sh", "-c", script], attach: true });
    const path = "/ws/containers/ticks/attach";
    const first = await open(path);
    await eventually("it ticks", () => bytesOf(first) > 0);
    const refused = await refusalOf(`${daemon.url.replace("http", "ws")}${path}`, { "x-api-key": KEY }, "command");
    expect(refused).toMatchObject({ status: 409, body: { error_code: "IN_USE" } });
    first.socket.close();
    const second = await eventually("the second is let in", () => open(path).catch(() => null));
    await eventually("it ticks there", () => bytesOf(second) > 0);
    await daemon.call("DELETE", "/api/containers/ticks");
    await eventually("it is told of the end", () => second.code !== null);
    expect(second.frames.at(-1)).toMatchObject({ type: "exit", code: 137 });
  });

  it("leaves the input to a client that asks for it, and output to those who may run commands", async () => {
    const keyOf = async (...scopes: string[]) =>
      (await daemon.call("POST", "/api/tenants/default/api-keys", { name: scopes.join("-"), scopes })).body.key;
    const command = ["sh", "-c", "echo up; cat; echo over"];
    await daemon.call("POST", "/api/containers", { name: "reads", command, attach: true, stdin: true });
    const path = "/ws/containers/reads/attach";
    const url = `${daemon.url.replace("http", "ws")}${path}`;
    for (const scopes of [["read"], ["write"], ["read", "write"]]) {
      const refused = await refusalOf(url, { "x-api-key": await keyOf(...scopes) }, "command");
      expect([scopes, refused.status, refused.body.error_code]).toEqual([scopes, 403, "FORBIDDEN"]);
    }
    const looking = await TerminalTab.open(`${daemon.url}${path}`, await keyOf("invoke"), undefined, "command");
    await eventually("it looks", () => looking.output.includes("up\n"));
    looking.socket.send(Buffer.from("\0forged\n"));
    looking.socket.send('{"type":"stdin_end"}');
    looking.socket.close();
    const writing = await eventually("the next is let in", () => open(`${path}?stdin=true`).catch(() => null));
    writing.socket.send(Buffer.from("\0own\n"));
    await eventually("it comes back", () => writing.output.includes("own\n"));
    writing.socket.send('{"type":"stdin_end"}');
    await eventually("it has ended", () => writing.code !== null);
    expect(writing.output.replaceAll("\u0001", "")).toBe("own\nover\n");
    // Who attaches to a running service and takes nothing does not stop it for long.
    expect((await out("exec", "box", "--", "cat", "/proc/1/cmdline")).split("\0")).toContain("--stall");
    await daemon.call("DELETE", "/api/containers/reads");
  });

  it("gives what waits to the log where nobody attaches", async () => {
    await daemon.call("POST", "/api/containers", { name: "alone", command: ["echo", "hello"], attach: true });
    await eventually("it has ended", async () => {
      const { body } = await daemon.call("GET", "/api/containers/alone");
      return body.state === "exited";
    });
    expect(await daemon.call("GET", "/api/containers/alone/logs")).toMatchObject({
      body: { logs: [{ message: "hello" }] },
    });
    await daemon.call("DELETE", "/api/containers/alone");
  });

  it("refuses what has no command, and frames that are none", async () => {
    const url = `${daemon.url.replace("http", "ws")}/ws/containers/box/attach`;
    expect(await refusalOf(url, { "x-api-key": KEY }, "command")).toMatchObject({
      status: 409,
      body: { error_code: "WRONG_STATE" },
    });
    for (const sent of ["{}", '{"type":"stdin_end"}', '{"type":"start","command":[]}', Buffer.from([0, 1]), "x"]) {
      const tab = await open("/ws/containers/box/exec");
      tab.socket.send(sent);
      await eventually("it is closed", () => tab.code !== null);
      expect(tab.frames).toEqual([expect.objectContaining({ type: "error", code: "INVALID_ARGUMENT" })]);
    }
  });
});

describe("hearth exec -i", () => {
  it("passes standard input without a bound, and its end", async () => {
    const line =
      "head -c 200M /dev/urandom >big && tar c big | hearth exec -i box tar x -C /tmp && sha256sum <big && hearth exec box -- sh -c 'sha256sum </tmp/big; rm /tmp/big'";
    expect((await bash(line)).out).toMatch(/^(\w+) {2}-\n\1 {2}-\n$/);
    const bytes = randomBytes(3 * MIB);
    writeFileSync(join(shell().home, "bytes"), bytes);
    expect((await bash("hearth exec -i box -- cat <bytes | sha256sum")).out).toBe(`${sha256(bytes)}  -\n`);
    expect((await shell().run(["exec", "-i", "box", "cat"])).code).toBe(0);
  });

  it("passes it as it comes, and ends with the command that leaves it unread", async () => {
    const running = shell().start("hearth", [
      "exec",
      "-i",
      "box",
      "--",
      "sh",
      "-c",
      "read a; echo got $a; read b; exit 6",
    ]);
    running.child.stdin.write("one\n");
    await running.shows(/got one/);
    running.child.stdin.write("two\n");
    expect((await running.ended).code).toBe(6);
    const refused = await shell().run(["exec", "-i", "box", "/no/such"], { stdin: "x" });
    expect(refused).toMatchObject({ code: 127, err: expect.stringContaining("/no/such: No such file") });
  });

  it("ends the command with its client", async () => {
    const running = shell().start("hearth", ["exec", "-i", "box", "--", "sh", "-c", "echo up; exec sleep 98765"]);
    await running.shows(/up/);
    running.child.kill("SIGKILL");
    await eventually("it is gone", async () => !(await out("top", "box")).includes("98765"));
  });
});

describe("hearth exec --user", () => {
  it.each([
    ["nobody", "65534:65534"],
    ["1234", "1234:0"],
    ["1234:77", "1234:77"],
    ["nobody:daemon", "65534:1"],
    ["root", "0:0"],
  ])("runs as %s", async (user, ids) => {
    expect(await out("exec", "-u", user, "box", "--", "sh", "-c", 'echo "$(id -u):$(id -g)"')).toBe(`${ids}\n`);
    expect((await shell().run(["exec", "-i", "-u", user, "box", "--", "id", "-u"])).out).toBe(`${ids.split(":")[0]}\n`);
  });

  it("refuses a user that the container lacks", async () => {
    const refused = await hearth("exec", "-u", "nosuch", "box", "--", "id");
    expect(refused).toMatchObject({
      code: 126,
      err: expect.stringContaining("user 'nosuch' not found in /etc/passwd"),
    });
    expect((await hearth("exec", "-u", "a b", "box", "--", "id")).code).toBe(1);
  });
});

describe("hearth cp", () => {
  const inside = (line: string) => out("exec", "box", "--", "sh", "-c", line);

  it("never puts a file in the place of a directory, or of its own a directory in that of a file", async () => {
    await inside(
      "mkdir -p /w/file /w/deep/sub /src/name /src/sub; echo x >/src/file; echo x >/src/sub/inner; ln -s / /src/link",
    );
    const made =
      "mkdir -p up/deep here/file there/sub/inner links/link over; echo up >file; echo up >up/deep/sub; echo mine >over/name";
    expect((await shell().bash(made)).code).toBe(0);
    for (const [from, to] of [
      ["file", "box:/w"],
      ["up/.", "box:/w"],
      ["box:/src/file", "here"],
      ["box:/src/.", "there"],
      ["box:/src/.", "links"],
      ["box:/src/.", "over"],
    ] as const) {
      const refused = await hearth("cp", from, to);
      expect([from, to, refused.code, refused.err]).toEqual([
        from,
        to,
        expect.toSatisfy((code) => code > 0),
        expect.stringMatching(/directory/),
      ]);
    }
    expect(await inside("find /w -type d | sort")).toBe("/w\n/w/deep\n/w/deep/sub\n/w/file\n");
    const kept = await shell().bash("find here/file there/sub/inner links/link -maxdepth 0 -type d; cat over/name");
    expect(kept.out).toBe("here/file\nthere/sub/inner\nlinks/link\nmine\n");
    expect((await hearth("cp", "box:/src/.", "fresh")).code).toBe(0);
    // Once more over what is there already.
    expect((await hearth("cp", "box:/src/.", "fresh")).code).toBe(0);
  });

  it("skips pipes, sockets and devices with a warning, both ways", async () => {
    const long = `${"d".repeat(120)}/${"n".repeat(120)}`;
    const made = `mkdir -p odd/${"d".repeat(120)}; cd odd; mkfifo fifo '${long}'; mknod null c 1 3; echo a >a; echo z >z; python3 -c '
import socket
socket.socket(socket.AF_UNIX).bind("sock")'`;
    expect((await shell().bash(made)).code).toBe(0);
    const up = await hearth("cp", "odd", "box:/odd");
    expect(up.code).toBe(0);
    for (const word of [
      "fifo: it is a pipe",
      `${long}: it is a pipe`,
      "null: it is a device",
      "sock: it is a socket",
    ]) {
      expect(up.err).toContain(`skipped ./${word}\n`);
    }
    expect(await inside("cd /odd && find . -type f | sort | xargs cat; find . ! -type f ! -type d")).toBe("a\nz\n");
    await inside(`cd /odd && mkfifo one && mkfifo '${long}' && ln -s /nowhere link`);
    const down = await hearth("cp", "box:/odd", "down");
    expect([down.code, down.err]).toEqual([0, expect.stringMatching(/^skipped fifo one$/m)]);
    expect(down.err).toContain(`skipped fifo ${long}\n`);
    expect((await shell().bash("cd down; cat a z; find . ! -type f ! -type d")).out).toBe("a\nz\n./link\n");
    // An archive on standard input, in any format, alike.
    const packs = [
      "tar c --format=gnu",
      "tar c --format=pax",
      "tar cz --format=pax",
      "tar c --format=gnu --mtime=@1.5",
    ] as const;
    for (const [n, pack] of packs.entries()) {
      const sent = await bash(`cd odd && ${pack} --exclude sock . | hearth cp - box:/in${n}`);
      expect([pack, sent.code]).toEqual([pack, 0]);
      for (const word of ["fifo: it is a pipe", `${long}: it is a pipe`, "null: it is a device"]) {
        expect(sent.err).toContain(`skipped ./${word}\n`);
      }
      expect(await inside(`cd /in${n} && find . -type f | sort | xargs cat; find . ! -type f ! -type d`)).toBe(
        "a\nz\n",
      );
    }
    // Other readers of the archive see no more of it than a comment.
    expect(await bash("hearth cp box:/odd - | tar -t | grep -c one")).toMatchObject({ out: "0\n", err: "" });
  });

  it("refuses what is itself a pipe, a socket or a device", async () => {
    for (const [from, to] of [
      ["odd/fifo", "box:/x"],
      ["/dev/null", "box:/x"],
      ["odd/sock", "box:/"],
    ] as const) {
      const refused = await hearth("cp", from, to);
      expect([from, refused.code, refused.err]).toEqual([from, 2, expect.stringMatching(/pipe|socket|device/)]);
    }
    for (const path of ["/odd/one", "/dev/null"]) {
      const refused = await hearth("cp", `box:${path}`, "x");
      expect(refused).toMatchObject({
        code: 1,
        err: expect.stringMatching(/not a file or directory: .*\[INVALID_ARGUMENT\]/),
      });
    }
  });
});

describe("a shell without a terminal", () => {
  it("ends at once, and the user is told why", async () => {
    const hint = "bash ended at once: it has no terminal and no input; for a shell: hearth run -it";
    const detached = await hearth("run", "-d", "--name", "shelled", "--", "bash");
    expect(detached).toMatchObject({ code: 0, err: expect.stringContaining(`${hint} -- bash`) });
    await eventually("it has ended", async () => (await state("shelled")) === "exited");
    const waited = await hearth("run", "--rm", "--", "bash");
    expect(waited).toMatchObject({ code: 0, out: "", err: expect.stringContaining(`${hint} --rm -- bash`) });
    expect((await hearth("run", "--rm", "--", "sh", "-c", "true")).err).toBe("");
    await out("rm", "shelled");
  });
});
