/** The rules for targets of mounts, and the order in which the OCI runtime makes mounts. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { nestedTargets, plainPath, targetProblem } from "../../src/base/mount-targets.ts";
import { bareSpec, containerConfig, type Placement } from "../../src/engine/bundles/container.ts";
import { groupMounts } from "../../src/engine/bundles/group-mounts.ts";
import { arrangeMounts, type OciMount } from "../../src/engine/bundles/mounts.ts";
import type { ContainerSpec } from "../../src/engine/ports.ts";

const at = (destination: string): OciMount => ({ destination, type: "bind", source: "/x", options: [] });
const PLACEMENT: Placement = {
  ...{ run: "a.1", image_id: "i", rootfs: "/r", minit: "/m", etc: "/e", trust: null, slot_index: 0 },
  ...{
    netns: "/n",
    user: null,
    cgroup: "/g",
    visible_groups: { mode: "v2", controllers: [] },
    filter: { bpf_base64: "" },
    has_socket_limit: false,
    mounts: [],
    socket: null,
    gpus: null,
  },
};

/** Destinations of the mounts of a container, in their order. */
function destinations(mounts: readonly string[], more: Partial<ContainerSpec> = {}): string[] {
  const placed = { ...PLACEMENT, mounts: mounts.map((target) => ({ source: "/v", target })) };
  const volumes = mounts.map((target) => ({ id: "v", target }));
  const config = containerConfig({ ...bareSpec("a"), volumes, ...more }, placed) as { mounts: OciMount[] };
  return config.mounts.map(({ destination }) => destination);
}

describe("a target", () => {
  it.each([
    "/dev",
    "/dev/",
    "/dev/init",
    "/dev/shm",
    "/dev/pts/0",
    "/proc",
    "/proc/1/root",
    "/sys",
    "/sys/fs/cgroup",
    "/",
    "/etc",
    "/etc/hosts",
    "/etc/hosts/x",
    "/etc/resolv.conf",
    "/usr",
    "/bin",
    "/lib64",
    "//dev",
    "/./dev",
    "/x/../dev",
    "/x/..",
    "/x/",
    "/x//y",
    "/x/.",
    "dev",
    "",
    "/x\0y",
    `/${"x".repeat(LIMITS.path_bytes_max)}`,
  ])("is refused: %j", (target) => {
    expect(targetProblem(target)).toMatch(/^(must|exceeds)/);
    expect(() => destinations([target])).toThrow(/^mount target /);
    expect(() => destinations([], { tmpfs: [{ target }] })).toThrow(/^mount target /);
  });

  it.each([
    "/data",
    "/run",
    "/run/secrets",
    "/tmp",
    "/var/lib/apt",
    "/usr/local/cargo",
    "/etc/nginx",
    "/device",
    "/...",
    "/a/..b",
  ])("is taken: %s", (target) => expect(targetProblem(target)).toBeNull());

  it("is plain without doubled and final slashes", () => {
    expect([plainPath("//a/./b//"), plainPath("/"), plainPath("/a/../b")]).toEqual(["/a/b", "/", null]);
  });

  it("is at or below another", () => {
    expect(nestedTargets(["/a", "/ab", "/b/c"])).toBeNull();
    expect(nestedTargets(["/b/c", "/a", "/b"])).toEqual({ inner: "/b/c", outer: "/b" });
    expect(nestedTargets(["/a", "/a"])).toEqual({ inner: "/a", outer: "/a" });
  });
});

describe("the mounts of a container", () => {
  it("are the kernel's first and minit last, with outer directories in memory before inner ones", () => {
    const found = destinations(["/data", "/run/x"], { tmpfs: [{ target: "/run/secrets" }, { target: "/run" }] });
    expect(found.slice(0, 6)).toEqual(["/proc", "/dev", "/dev/shm", "/sys", "/sys/fs/cgroup", "/dev/pts"]);
    expect(found.at(-1)).toBe("/dev/init");
    expect(found.indexOf("/run")).toBeLessThan(found.indexOf("/run/secrets"));
    expect(found.indexOf("/run/secrets")).toBeLessThan(found.indexOf("/run/x"));
  });

  it.each([
    [["/a", "/a/b"], []],
    [["/a/b", "/a"], []],
    [["/run"], ["/run/secrets"]],
    [["/run/secrets"], ["/run/secrets"]],
  ])("are refused where one hides another: %j over %j", (mounts, tmpfs) => {
    expect(() => destinations(mounts, { tmpfs: tmpfs.map((target) => ({ target })) })).toThrow(/must not be/);
  });

  it("have a volume in the place of a directory in memory of a read-only root", () => {
    const found = destinations(["/run", "/tmp/data"], { read_only_root: true });
    expect(found.filter((path) => path === "/run")).toHaveLength(1);
    expect(found.indexOf("/tmp")).toBeLessThan(found.indexOf("/tmp/data"));
  });

  it.each([
    [{ mode: "v2", controllers: [] } as const, [["/sys/fs/cgroup/p/run", "/sys/fs/cgroup"]]],
    [
      { mode: "hybrid", controllers: ["memory", "cpu"] } as const,
      [
        ["tmpfs", "/sys/fs/cgroup"],
        ["/sys/fs/cgroup/memory/p/run", "/sys/fs/cgroup/memory"],
        ["/sys/fs/cgroup/cpu/p/run", "/sys/fs/cgroup/cpu"],
      ],
    ],
  ])("show its own groups read-only: %j", (groups, expected) => {
    const found = groupMounts(groups, "/p/run");
    expect(found.map(({ source, destination }) => [source, destination])).toEqual(expected);
    for (const { options } of found)
      expect(options).toEqual(expect.arrayContaining(["ro", "nosuid", "nodev", "noexec"]));
  });

  it("never hide minit, whoever names the target", () => {
    const groups = { kernel: [], memory: [], files: [], owned: [], gpus: [], minit: at("/dev/init") };
    for (const destination of ["/dev", "/dev/init", "/", "/x/../dev"]) {
      expect(() => arrangeMounts({ ...groups, files: [at(destination)] })).toThrow("/dev/init");
      expect(() => arrangeMounts({ ...groups, gpus: [at(destination)] })).toThrow("/dev/init");
    }
    expect(arrangeMounts({ ...groups, gpus: [at("/dev/nvidia0")] }).at(-1)?.destination).toBe("/dev/init");
  });
});
