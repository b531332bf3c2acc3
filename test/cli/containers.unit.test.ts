/** What the words and flags of containers and volumes mean, without a daemon. */
import { describe, expect, it } from "vitest";
import { statusOf } from "../../src/cli/containers/containers.ts";
import { commandOf, deadline } from "../../src/cli/containers/exec.ts";
import { filterOf } from "../../src/cli/containers/filters.ts";
import { egressOf, fieldsOf, healthOf } from "../../src/cli/containers/run.ts";
import { cpuPercent } from "../../src/cli/containers/stats.ts";
import { environmentOf } from "../../src/cli/functions/function-fields.ts";
import { frames } from "../../src/cli/session/frames.ts";
import { meterText } from "../../src/cli/session/meter.ts";
import type { ContainerRecord } from "../../src/cli/session/session.ts";
import { megabytes, moment, seconds } from "../../src/cli/session/verb.ts";
import { cpus, networkName, publishedPort, restartPolicy } from "../../src/cli/verbs/containers.ts";
import { parsePlace, renaming } from "../../src/cli/volumes/copy.ts";
import { TarBytes } from "../../src/cli/volumes/tar-bytes.ts";
import { tarEnd, tarHeader } from "../../src/engine/files/tar.ts";

async function* pieces(...texts: string[]): AsyncGenerator<Buffer> {
  for (const text of texts) yield Buffer.from(text);
}

describe("words of containers", () => {
  it("name a place by a colon, unless they begin as a path does", () => {
    expect(parsePlace("box:/a:b")).toEqual({ name: "box", path: "/a:b" });
    expect(parsePlace("box:a")).toEqual({ name: "box", path: "/a" });
    for (const path of ["/box:/a", "./box:/a", "../x:y", "box", "-", "a/b:c"]) expect(parsePlace(path)).toBeNull();
  });

  it("have a command behind --, or without it", () => {
    expect(commandOf(["--", "ls", "--", "-l"])).toEqual(["ls", "--", "-l"]);
    expect(commandOf(["ls", "-l"])).toEqual(["ls", "-l"]);
  });

  it("give a command an hour, and a detached one no end, unless they say", () => {
    expect([deadline({}), deadline({ detach: true })]).toEqual([3_600_000, undefined]);
    expect([deadline({ timeout: 5 }), deadline({ timeout: 5, detach: true })]).toEqual([5_000, 5_000]);
  });

  it("publish a port with what stands before and behind it", () => {
    expect(publishedPort("80")).toEqual({ container_port: 80 });
    expect(publishedPort("8080:80/udp")).toEqual({ container_port: 80, host_port: 8080, protocol: "udp" });
    expect(publishedPort("0.0.0.0:8080:80")).toEqual({
      container_port: 80,
      host_port: 8080,
      host_address: "0.0.0.0",
    });
    for (const wrong of ["", "a:b", "80/sctp", "1:2:3"]) expect(() => publishedPort(wrong)).toThrow("expected");
  });

  it("say what is reached, how much and how long", () => {
    expect(egressOf(undefined)).toBeUndefined();
    expect(egressOf(["off"])).toBe("off");
    expect(egressOf(["10.0.0.0/8,192.0.2.1:443/tcp", "192.0.2.2"])).toHaveLength(3);
    expect([megabytes("512"), megabytes("512m"), megabytes("2G")]).toEqual([512, 512, 2048]);
    expect([seconds("90"), seconds("12h")]).toEqual([90, 43_200]);
    expect([moment("10m"), moment("2026-11-21T12:00Z")]).toEqual([600, "2026-11-21T12:00:00.000Z"]);
    for (const wrong of ["1t", "-1", ""]) expect(() => megabytes(wrong)).toThrow("expected");
  });
});

describe("flags as docker has them", () => {
  it("are taken where hearth has what they mean, and refused with its own where not", () => {
    expect(["no", "always", "on-failure", "unless-stopped"].map(restartPolicy)).toEqual([
      ...["no", "always", "on-failure", "always"],
    ]);
    expect(() => restartPolicy("on-failure:3")).toThrow("not counted; expected no, on-failure or always");
    for (const wrong of ["never", "on-failure-3", "toString", ""])
      expect(() => restartPolicy(wrong)).toThrow(/^expected/);
    expect([cpus("0.5"), cpus("2")]).toEqual([50, 200]);
    for (const wrong of ["0", "-1", "two"]) expect(() => cpus(wrong)).toThrow("expected");
    expect(networkName("nonesuch")).toBe("nonesuch");
    expect(() => networkName("none")).toThrow("--egress off");
    expect(() => networkName("host")).toThrow("-p <port>");
  });

  it("filter a list by name, id, status and label", () => {
    const one = { name: "web-1", container_id: "ctr_aaaa", state: "exited", labels: { app: "web", "a=b": "c" } };
    const matches = (...given: string[]) => filterOf(given).matches(one as unknown as ContainerRecord);
    for (const given of [["name=eb-"], ["name=x", "name=web"], ["id=ctr_aa"], ["label=app"], ["label=app=web"]])
      expect([given, matches(...given)]).toEqual([given, true]);
    for (const given of [["name=x"], ["name=web", "label=none"], ["label=app="], ["id=aaaa"], ["label=toString"]])
      expect([given, matches(...given)]).toEqual([given, false]);
    expect([filterOf(["status=exited"]).hasStatus, filterOf(["name=a"]).hasStatus]).toEqual([true, false]);
    for (const wrong of ["ancestor=x", "name", "=x", "toString=x"])
      expect(() => filterOf([wrong])).toThrow(`unknown filter: '${wrong}'`);
    expect(() => filterOf(["status=paused"])).toThrow("unknown state: 'paused'");
  });

  it("take a variable of the caller by its name alone, for a container and no function", async () => {
    const own = (name: string) => ({ HOME: "/root=x", EMPTY: "" })[name];
    const given = { env: ["HOME", "A=1", "NONE", "EMPTY"] };
    expect(await environmentOf(given, own)).toEqual({ HOME: "/root=x", A: "1", EMPTY: "" });
    await expect(environmentOf(given)).rejects.toThrow("expects NAME=VALUE");
    await expect(environmentOf({ env: ["=x"] }, own)).rejects.toThrow("expects NAME=VALUE");
  });
});

describe("flags of hearth run for images", () => {
  it("describe the health check, and leave the image's where they say nothing", () => {
    expect(healthOf({})).toBeUndefined();
    expect(healthOf({ healthcheck: true })).toBeUndefined();
    expect(healthOf({ healthcheck: false })).toBe("none");
    expect(healthOf({ healthCmd: "test -e /x", healthInterval: 5 })).toMatchObject({
      command: ["/bin/sh", "-c", "test -e /x"],
      interval_seconds: 5,
    });
    expect(healthOf({ healthRestart: true })).toMatchObject({ on_unhealthy: "restart" });
    expect(() => healthOf({ healthcheck: false, healthRetries: 1 })).toThrow("--no-healthcheck");
  });

  it("replace the entrypoint, or remove it", async () => {
    expect((await fieldsOf({})).entrypoint).toBeUndefined();
    expect((await fieldsOf({ entrypoint: "" })).entrypoint).toEqual([]);
    expect(await fieldsOf({ entrypoint: "/x", user: "app", stopSignal: "INT" })).toMatchObject({
      entrypoint: ["/x"],
      user: "app",
      stop_signal: "INT",
    });
  });
});

describe("the status of a container", () => {
  const NOW = 1_800_000_000;
  const ended = (seconds_ago: number, fields: object = {}) => {
    const exited_at = new Date((NOW - seconds_ago) * 1000).toISOString();
    const record = { state: "exited", exit_code: 0, oom_killed: false, exited_at, restart_count: 0, ...fields };
    return statusOf(record as Parameters<typeof statusOf>[0], NOW);
  };

  it("has the exit code and the time of the exit, as a sentence continues", () => {
    expect([ended(0), ended(9), ended(7_300, { exit_code: 137, oom_killed: true })]).toEqual([
      "exited with 0 just now",
      "exited with 0, 9 s ago",
      "exited with 137 (out of memory), 2 h ago",
    ]);
    const started_at = new Date((NOW - 60) * 1000).toISOString();
    const running = (restart_count: number) => ended(0, { state: "running", started_at, restart_count });
    expect([0, 1, 2].map(running)).toEqual(["up 1 min", "up 1 min, restarted 1 time", "up 1 min, restarted 2 times"]);
    const health = { status: "unhealthy" };
    expect(ended(0, { state: "running", started_at, health })).toBe("up 1 min (unhealthy)");
    expect(ended(9, { error_message: "unhealthy: 3 failed health checks" })).toBe("exited with 0 (unhealthy), 9 s ago");
  });
});

describe("what comes", () => {
  it("is taken apart by lines, wherever a piece ends", async () => {
    const found: unknown[] = [];
    for await (const frame of frames(pieces('{"a"', ':1}\n{"a":2}\n{"a":"\\n', '"}\n'))) found.push(frame);
    expect(found).toEqual([{ a: 1 }, { a: 2 }, { a: "\n" }]);
  });

  it("is counted in an archive by what is in files, however it is cut", () => {
    const entry = { link: "", mode: 0o644, uid: 0, gid: 0, mtime_ms: 0 };
    const archive = Buffer.concat([
      tarHeader({ ...entry, type: "directory", name: "d/", size: 0 }),
      tarHeader({ ...entry, type: "file", name: `d/${"x".repeat(200)}`, size: 700 }),
      Buffer.alloc(1024, "0"),
      tarHeader({ ...entry, type: "link", name: "d/b", link: "d/a", size: 0 }),
      tarHeader({ ...entry, type: "file", name: "d/c", size: 3 }),
      Buffer.alloc(512, "0"),
      tarEnd(),
    ]);
    for (const length of [1, 511, 513, 10_000]) {
      const content = new TarBytes();
      for (let at = 0; at < archive.length; at += length) content.add(archive.subarray(at, at + length));
      expect(content.bytes).toBe(703);
    }
    const large = new TarBytes();
    large.add(tarHeader({ ...entry, type: "file", name: "large", size: 2 ** 40 }));
    expect(large.bytes).toBe(2 ** 40);
  });

  it("is shown as a part of what is expected, and as a rate", () => {
    expect(meterText(1024, null)).toBe("1 KiB");
    expect(meterText(512, 1024)).toBe(`[${"#".repeat(10)}${" ".repeat(10)}]  50 %  512 B of 1 KiB`);
    expect(meterText(2048, 1024)).toContain("100 %");
    expect(cpuPercent(500_000, 1_000)).toBe(50);
    expect(cpuPercent(-5, 1_000)).toBe(0);
    expect(cpuPercent(5, 0)).toBeNull();
    expect(renaming("a,b&c\\d")).toBe("--transform=s,.*,a\\,b\\&c\\\\d,rSH");
  });
});
