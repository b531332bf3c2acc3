/**
 * CDI files of harmless devices for a daemon under test, in a directory of their own: nodes of this machine's fuse, autofs and
 * loop-control under other names, which no container may open by itself.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { stringify } from "yaml";

/** Major and minor numbers of the devices, by name. */
const DEVICES: Readonly<Record<string, readonly [major: number, minor: number]>> = {
  "0": [10, 229],
  "1": [10, 235],
  "GPU-2af3": [10, 237],
};

export class CdiFiles {
  readonly directory = mkdtempSync("/var/tmp/hearth-cdi-");
  /** Files that devices share, and where hooks leave a note. */
  readonly shared = `${this.directory}/shared`;

  constructor() {
    // Containers mount the content of the directory.
    chmodSync(this.directory, 0o755);
    for (const path of [this.shared, this.path("first"), this.path("second"), this.path("nodes")]) mkdirSync(path);
    writeFileSync(`${this.shared}/libgpu.so`, "a library");
    // Hooks in a user namespace are another user of this machine.
    writeFileSync(`${this.shared}/hooks`, "");
    chmodSync(`${this.shared}/hooks`, 0o666);
    for (const [name, [major, minor]] of Object.entries(DEVICES)) {
      execFileSync("mknod", ["-m", "600", this.node(name), "c", String(major), String(minor)]);
    }
    execFileSync("mknod", ["-m", "666", this.node("ctl"), "c", "1", "3"]);
  }

  /** Value of HEARTH_CDI_DIRS. */
  get setting(): string {
    return `${this.path("first")},${this.path("second")}`;
  }

  path(name: string): string {
    return `${this.directory}/${name}`;
  }

  node(name: string): string {
    return `${this.path("nodes")}/${name}`;
  }

  /** Device of a file: its node at /dev/test-gpu<suffix>, and more edits. */
  device(name: string, edits: object = {}, suffix = name.toLowerCase()): object {
    const deviceNodes = [{ path: `/dev/test-gpu${suffix}`, hostPath: this.node(name) }];
    return { name, containerEdits: { deviceNodes, env: [`GPU_${suffix.replace(/\W/g, "_")}=yes`], ...edits } };
  }

  /** A file's value, of two devices unless given. */
  value(devices: readonly object[] = [this.device("0"), this.device("1"), this.all()], edits: object = {}): object {
    return {
      cdiVersion: "0.6.0",
      kind: "nvidia.com/gpu",
      devices,
      containerEdits: {
        env: ["GPU_DRIVER=test"],
        deviceNodes: [{ path: "/dev/test-ctl", hostPath: this.node("ctl") }],
        mounts: [
          {
            hostPath: `${this.shared}/libgpu.so`,
            containerPath: "/lib/test/libgpu.so",
            options: ["ro", "nosuid", "bind"],
          },
        ],
        hooks: ["createRuntime", "createContainer"].map((hookName) => ({
          hookName,
          path: "/bin/sh",
          args: ["sh", "-c", `cat > /dev/null; echo "${hookName} $MARK" >> ${this.shared}/hooks`],
          env: ["PATH=/usr/bin:/bin", "MARK=ran"],
        })),
        ...edits,
      },
    };
  }

  /** The device `all`, which nvidia-ctk adds. */
  all(): object {
    const deviceNodes = ["0", "1"].map((name) => ({ path: `/dev/test-gpu${name}`, hostPath: this.node(name) }));
    return { name: "all", containerEdits: { deviceNodes } };
  }

  /** Writes a value as JSON or YAML, by the name. */
  write(name: string, value: object, directory = "first"): void {
    const text = name.endsWith(".json") ? JSON.stringify(value) : stringify(value);
    writeFileSync(`${this.path(directory)}/${name}`, text);
  }

  unlink(name: string, directory = "first"): void {
    rmSync(`${this.path(directory)}/${name}`, { recursive: true });
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}
