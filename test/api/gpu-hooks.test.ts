/** Hooks as nvidia-ctk writes them into CDI files: they change the root of a container before its command starts. */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CdiFiles } from "../support/cdi.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
const cdi = new CdiFiles();
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_CDI_DIRS: cdi.setting };
/** Path of the library in the container, as nvidia-ctk names it: by its version, without the names that programs load. */
const FOLDER = "/usr/local/test-driver/lib64";
const hook = (...args: string[]) => ({
  hookName: "createContainer",
  path: new URL("../support/cdi-hook.sh", import.meta.url).pathname,
  args: ["cdi-hook", ...args],
});
/** Results of the hooks that a program needs: the library by its soname and by its link, and the covered file. */
const CODE = `import ctypes; print([ctypes.CDLL(name).answer() for name in ("libtestgpu.so.1", "${FOLDER}/libtestgpu.so")])`;
const LOOK = `python3 -c '${CODE}' 2>&1; cat /proc/cmdline`;
/** The root, and whether the mount of it lets somebody write. */
const ROOT = "touch /x 2>&1; awk '$5 == \"/\" { print substr($6, 1, 2) }' /proc/self/mountinfo";

beforeAll(async () => {
  const library = `${cdi.shared}/libtestgpu.so.1.2.3`;
  writeFileSync(`${cdi.shared}/library.c`, "int answer(void) { return 42; }\n");
  const flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libtestgpu.so.1"];
  execFileSync("cc", [...flags, "-o", library, `${cdi.shared}/library.c`]);
  const mounts = [
    {
      hostPath: library,
      containerPath: `${FOLDER}/libtestgpu.so.1.2.3`,
      options: ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    },
  ];
  const hooks = [
    hook("create-symlinks", "libtestgpu.so.1", `${FOLDER}/libtestgpu.so`),
    hook("update-ldcache", FOLDER),
    hook("cover-proc-file", "/proc/cmdline", "covered"),
  ];
  cdi.write("test.json", cdi.value(undefined, { mounts, hooks }));
});
afterAll(async () => {
  await daemon.dispose();
  cdi.remove();
});

describe.each([
  ["crun", "auto"],
  ["crun", "off"],
  ["runc", "off"],
])("with %s, user namespaces %s, hooks that change the root", (runtime, namespaces) => {
  beforeAll(async () => {
    await daemon.start({ ...SETTINGS, HEARTH_OCI_RUNTIME: runtime, HEARTH_USER_NAMESPACES: namespaces });
  });
  afterAll(async () => {
    await daemon.stop();
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });

  it.each([false, true])("serve a container (read_only_root %s), and no other", async (read_only_root) => {
    const { container_id } = await containers.create({ name: "one", gpu_count: 1, read_only_root });
    expect(await containers.shell(container_id, LOOK)).toBe("[42, 42]\ncovered\n");
    expect(await containers.shell(container_id, ROOT)).toMatch(
      read_only_root ? /Read-only file system\nro\n$/ : /^rw\n$/,
    );
    const other = await containers.create({ name: "other", gpu_count: 1, read_only_root, user: "1000" });
    expect(await containers.shell(other.container_id, LOOK)).toBe("[42, 42]\ncovered\n");
    const plain = await containers.create({ name: "plain" });
    expect(await containers.shell(plain.container_id, "ldconfig -p | grep -c testgpu; cat /proc/cmdline")).toMatch(
      /^0\n(?!covered)/,
    );
    await containers.delete("one", "other", "plain");
  });

  it("serve an instance of a function, and no other", async () => {
    await daemon.deploy({ name: "own", handler: LOOK, gpu_count: 1 });
    expect(await daemon.invoke("own")).toMatchObject({ stdout: "[42, 42]\ncovered\n" });
    await daemon.deploy({ name: "root", handler: ROOT, gpu_count: 1 });
    expect((await daemon.invoke("root")).stdout).toMatch(/Read-only file system\nro\n$/);
    await daemon.deploy({ name: "none", handler: "cat /etc/ld.so.conf.d/* | grep -c test-driver; true" });
    expect((await daemon.invoke("none")).stdout).toBe("0\n");
    for (const one of (await daemon.call("GET", "/api/functions")).body.functions) {
      await daemon.call("DELETE", `/api/functions/${one.id}`);
    }
  });
});
