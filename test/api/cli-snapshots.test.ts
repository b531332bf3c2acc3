/** The verbs of snapshots, clones and forks, through the `hearth` command against a real daemon. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { operatorOf } from "../support/command.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, hearthAs, out, answer } = operator;
const inside = (name: string, line: string) => out("exec", name, "--", "sh", "-c", line);

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await out("run", "-d", "--name", "box", "--label", "stage=test");
});
afterEach(async () => {
  const { snapshots } = await answer("snapshot", "ls");
  for (const { snapshot_id, pinned } of snapshots) {
    if (pinned) await out("snapshot", "unpin", snapshot_id);
    await out("snapshot", "rm", snapshot_id);
  }
  const others = (await out("ps", "-a")).match(/^(?!NAME|box )\S+/gm) ?? [];
  for (const name of others) await out("rm", "-f", name);
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

describe("snapshots", () => {
  it("are taken, listed, inspected, pinned and deleted, by name and by id", async () => {
    const made = await answer("snapshot", "create", "box", "--name", "first", "-l", "stage=a", "--ttl", "1h");
    expect(made).toMatchObject({ name: "first", labels: { stage: "a" }, ttl_seconds: 3_600 });
    expect(await out("snapshot", "create", "box", "--name", "second")).toMatch(
      /^second \(snp_\w+\) is taken: \d.* B, the container paused for \d.* ms\n$/,
    );
    const listed = await out("snapshots", "ls");
    expect(listed).toMatch(/^NAME +SOURCE +AGE +SIZE +PINNED +ID +PARENT\n/);
    expect(listed).toMatch(new RegExp(`^second +box .* ${made.snapshot_id}\n`, "m"));
    expect(await out("snap", "ls", "--container", "box", "-l", "stage=a", "-q")).toBe(`${made.snapshot_id}\n`);
    expect((await answer("snap", "ls", "-l", "stage=a", "-l", "stage=b")).snapshots).toEqual([]);
    expect(await out("snapshot", "inspect", "first")).toMatch(/^exclusive_bytes +\d/m);
    expect(await out("snapshot", "pin", "first", "second")).toBe("first is pinned\nsecond is pinned\n");
    const pinned = await hearth("snapshot", "rm", "first");
    expect(pinned).toMatchObject({ code: 1, err: expect.stringContaining("hearth snapshot unpin first") });
    await out("snapshot", "unpin", "first", "second");
    expect(await out("snapshot", "rm", made.snapshot_id, "second")).toMatch(
      /^snp_\w+ is deleted\nsecond is deleted\n$/,
    );
    expect((await hearth("snapshot", "ls")).err).toBe("no snapshots: hearth snapshot create <container>\n");
  });

  it("are suggested when a name is close, and refused when a name is ambiguous", async () => {
    for (const name of ["same", "same", "first"]) await out("snapshot", "create", "box", "--name", name);
    expect(await hearth("snapshot", "inspect", "fist")).toMatchObject({
      code: 1,
      err: expect.stringContaining("did you mean 'first'?"),
    });
    expect(await hearth("snapshot", "inspect", "same")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/'same' is ambiguous: 2 snapshots have it\n {2}give an id, the newest first: snp_/),
    });
    await expect.poll(() => out("__complete", "clone", "fi")).toBe("first\tsnapshot\n");
  });

  it("include the volumes that flags name", async () => {
    await out("volumes", "create", "data");
    await out("run", "-d", "--name", "with", "-v", "data:/data");
    const ended = await hearth("snapshot", "create", "with");
    expect(ended.err).toContain("volume 'data' at /data is not included");
    const named = await answer("snapshot", "create", "with", "--volume", "data");
    expect(named).toMatchObject({ volume_mode: "include_named", volumes: [{ name: "data", target: "/data" }] });
    const all = await answer("snapshot", "create", "with", "--all-volumes", "--network", "preserve_ns");
    expect(all).toMatchObject({ volume_mode: "include_all_allowed", network_mode: "preserve_ns" });
    expect((await hearth("snapshot", "create", "with", "--volume", "data", "--all-volumes")).code).toBe(2);
    await inside("with", "echo one > /data/f");
    const ran = await out("fork", "with", "--all-volumes", "--", "sh", "-c", "cat /data/f; echo two > /data/f");
    expect(ran).toContain("  | one\n");
    expect(await inside("with", "cat /data/f")).toBe("one\n");
    expect((await answer("volumes", "list")).volumes).toHaveLength(1);
    await out("rm", "-f", "with");
    await out("volumes", "delete", "data");
  });

  it("show the output of a hook that failed", async () => {
    await out("run", "-d", "--name", "hooked");
    const hook = "/etc/hearth/pre-snapshot";
    await inside(
      "hooked",
      `mkdir /etc/hearth; printf '#!/bin/sh\\necho no space; exit 7\n' > ${hook}; chmod +x ${hook}`,
    );
    expect(await hearth("snapshot", "create", "hooked", "--app-consistent")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/exited with 7[\s\S]*\| no space/),
    });
  });

  it("are drawn as a tree with their containers", async () => {
    await out("snapshot", "create", "box", "--name", "first");
    await out("clone", "first", "--name", "again");
    await out("snapshot", "create", "again", "--name", "later");
    const drawn = (await out("snapshot", "lineage", "first"))
      .replace(/snp_\w+/g, "snp")
      .replace(/now|\d+ \w+ ago/g, "now");
    expect(drawn).toBe("snp first  now\n├── box  source, running\n└── snp later  now\n    └── again  clone, created\n");
  });

  it("are compared with each other and with a container", async () => {
    await inside("box", "echo one > /root/a; rm -f /root/b /root/c");
    await out("snapshot", "create", "box", "--name", "first");
    await inside("box", "echo two > /root/a; echo b > /root/b; mv /root/b /root/c");
    await out("snapshot", "create", "box", "--name", "second");
    expect(await out("snapshot", "diff", "first", "second")).toBe("C /root/a\nA /root/c\n");
    expect(await hearth("snapshot", "diff", "second", "second")).toEqual({ code: 0, out: "", err: "no differences\n" });
    await inside("box", "rm /root/c");
    expect(await out("changes", "box", "--since", "second")).toBe("D /root/c\n");
    expect(await out("changes", "box")).toContain("A /root/a\n");
    const part = await hearth("changes", "box", "--limit", "1", "--since", "first");
    expect(part).toMatchObject({ code: 0, out: "C /root/a\n" });
    expect((await answer("snapshot", "diff", "first", "second")).changed_count).toBe(1);
  });

  it("belong to the tenant of the key", async () => {
    const { tenant_id } = await answer("tenants", "create", "acme");
    const { key } = await answer("tenants", "keys", "create", tenant_id, "ci");
    await out("snapshot", "create", "box", "--name", "first");
    expect(await hearthAs(key, "snapshot", "ls")).toMatchObject({ code: 0, out: "" });
    expect(await hearthAs(key, "clone", "first")).toMatchObject({
      code: 1,
      err: expect.stringContaining("no snapshot"),
    });
  });
});

describe("images", () => {
  it("are made from a snapshot and from a container, and a snapshot is written as tar", async () => {
    await inside("box", "echo one > /root/a");
    await out("snapshot", "create", "box", "--name", "first");
    expect(await out("snapshot", "export", "first", "tools:1")).toMatch(/tools:1 is made\n$/);
    await inside("box", "echo two > /root/a");
    expect(await out("commit", "box", "tools:2")).toMatch(/tools:2 is made\n$/);
    for (const [tag, text] of [
      ["1", "one\n"],
      ["2", "two\n"],
    ]) {
      const ran = await out("run", "--rm", "--image", `tools:${tag}`, "--oci", "--", "cat", "/root/a");
      expect(ran).toBe(text);
    }
    await out("rmi", "tools:1", "tools:2");
    expect(await out("snapshot", "export", "first", "-o", "files.tar")).toMatch(/ saved to files.tar\n$/);
    const { out: listed } = await shell().bash("tar -xOf files.tar root/a ./root/a 2>/dev/null");
    expect(listed).toBe("one\n");
    expect((await hearth("snapshot", "export", "first", "x:1", "-o", "y")).code).toBe(2);
  });
});

describe("copies", () => {
  it("are made from a snapshot and from a container, and started on request", async () => {
    await inside("box", "echo one > /root/a");
    await out("snapshot", "create", "box", "--name", "first");
    await inside("box", "echo two > /root/a");
    expect(await out("clone", "first", "--name", "rest", "-l", "a=b")).toMatch(/^rest is created \(ctr_\w+\)\n$/);
    expect((await answer("inspect", "rest")).labels).toEqual({ a: "b" });
    expect(await out("clone", "first", "--name", "again", "--start")).toMatch(/^again is running, .* \(ctr_\w+\)\n$/);
    expect(await inside("again", "cat /root/a")).toBe("one\n");
    expect(await hearth("clone", "first", "--name", "again")).toMatchObject({
      code: 1,
      err: expect.stringContaining("hearth rm -f again"),
    });
    expect(await out("fork", "box", "--name", "twin", "--start")).toMatch(/^twin is running/);
    expect(await inside("twin", "cat /root/a")).toBe("two\n");
    expect(await out("fork", "box", "--name", "try-{n}", "-n", "3")).toMatch(/^(try-[123] is made \(ctr_\w+\)\n){3}$/);
    expect(await out("clone", "first", "--name", "many", "-n", "2", "--start")).toMatch(
      /^(many-[12] is made .*\n){2}$/,
    );
    expect(await inside("many-2", "cat /root/a")).toBe("one\n");
    const partly = await hearth("fork", "box", "--name", "try-{n}", "-n", "4");
    expect(partly).toMatchObject({ code: 1, out: expect.stringMatching(/^try-4 is made \(ctr_\w+\)\n$/) });
    expect(partly.err).toMatch(/^hearth: try-1: .*\[NAME_TAKEN\]\n/);
    expect((await hearth("fork", "box", "--keep")).code).toBe(2);
  });

  it("give a container the files of a snapshot back", async () => {
    await inside("box", "echo one > /root/a");
    await out("snapshot", "create", "box", "--name", "first");
    await inside("box", "echo two > /root/a");
    expect(await out("restore", "box", "first")).toBe("box has the files of first\n");
    expect(await inside("box", "cat /root/a")).toBe("one\n");
  });
});

describe("fork with a command", () => {
  const left = async () => [(await answer("snapshot", "ls")).snapshots, await out("ps", "-aq")];

  it("runs the command in every copy, prints what it did, and deletes all of them", async () => {
    const before = await left();
    const line = "echo out; echo err >&2; touch /root/new; [ $(hostname) != try-2 ]";
    const ran = await hearth("fork", "box", "--name", "try-{n}", "-n", "3", "--", "sh", "-c", line);
    expect(ran).toMatchObject({ code: 1, err: "" });
    for (const [name, code] of [
      ["try-1", 0],
      ["try-2", 1],
      ["try-3", 0],
    ]) {
      expect(ran.out).toMatch(
        new RegExp(`^${name} exited with ${code} after \\d.*s\n {2}\\| out\n {2}! err\n {2}A /root/new\n(try|$)`, "m"),
      );
    }
    expect(await left()).toEqual(before);
    expect((await hearth("exec", "box", "--", "ls", "/root/new")).code).not.toBe(0);
  });

  it("returns one object with --json, and keeps the copies with --keep", async () => {
    const ended = await hearth("fork", "--json", "--keep", "-n", "2", "--name", "kept", "box", "--", "hostname");
    const kept = JSON.parse(ended.out);
    expect(kept).toMatchObject({
      is_kept: true,
      forks: [
        { name: "kept-1", exit_code: 0, stdout: "kept-1\n", error: null },
        { name: "kept-2", exit_code: 0, stdout: "kept-2\n" },
      ],
    });
    expect(await answer("snapshot", "inspect", kept.snapshot_id)).toMatchObject({ ttl_seconds: null });
    expect(await inside("kept-2", "hostname")).toBe("kept-2\n");
  });

  it("names the command that does not exist", async () => {
    const ran = await hearth("fork", "box", "--name", "none", "--", "/no/such/command");
    expect(ran.code).toBe(1);
    expect(ran.out).toMatch(/^none (failed: |exited with 127)/);
  });

  it("deletes the copies at Ctrl-C", async () => {
    const before = await left();
    const running = shell().start("hearth", ["fork", "box", "-n", "2", "--", "sleep", "100"]);
    await eventually("the copies run", async () => (await out("ps", "-q")).split("\n").length === 4);
    running.child.kill("SIGINT");
    expect(await running.ended).toMatchObject({
      code: 130,
      out: "",
      err: expect.stringContaining("deleting the copies"),
    });
    expect(await left()).toEqual(before);
  });
});

describe("hearth deploy --from-container", () => {
  it("makes a function of a container, and further versions", async () => {
    await out("run", "-d", "--name", "tools");
    await inside("tools", "echo 'echo one: $(cat)' > /usr/local/bin/tool; chmod 755 /usr/local/bin/tool");
    expect(await hearth("deploy", "tool", "--from-container", "tools")).toMatchObject({
      code: 2,
      err: expect.stringContaining("--handler"),
    });
    const made = await out("deploy", "tool", "--from-container", "tools", "--handler", "sh /usr/local/bin/tool");
    expect(made).toMatch(/^tool is active/);
    expect(await out("invoke", "tool", "x")).toBe("one: x\n");
    await inside("tools", "echo 'echo two: $(cat)' > /usr/local/bin/tool");
    await out("deploy", "tool", "--from-container", "tools");
    expect(await out("invoke", "tool", "x")).toBe("two: x\n");
    expect((await answer("snapshot", "ls")).snapshots).toEqual([]);
    await out("rm", "-f", "tools");
    expect(await out("invoke", "tool", "y")).toBe("two: y\n");
  });
});

describe("schedules and snapshots of volumes", () => {
  it("are set, shown and ended", async () => {
    expect(await out("snapshot", "schedule", "box", "--every", "1h", "--keep", "24")).toBe(
      "box: a snapshot every 1 h, the newest 24 kept, next in 1 h\n",
    );
    expect(await answer("snapshot", "schedule", "box")).toMatchObject({ every_seconds: 3_600, keep: 24 });
    expect(await hearth("snapshot", "schedule", "box", "--keep", "1")).toMatchObject({ code: 2 });
    expect(await out("snapshot", "schedule", "box", "--off")).toBe("snapshots of box are no longer scheduled\n");
    expect(await hearth("snapshot", "schedule", "box")).toMatchObject({ code: 1 });
    await out("volumes", "create", "data");
    expect(await out("volumes", "schedule", "data", "--every", "1d", "--keep", "7")).toMatch(
      /^data: a snapshot every 1 d/,
    );
    expect(await out("volumes", "snapshot", "data", "--name", "v")).toMatch(/^snp_\w+ is taken/);
    expect(await out("clone", "v", "--name", "data-again")).toBe("volume data-again is made\n");
    for (const name of ["data", "data-again"]) await out("volumes", "delete", name);
  });
});
