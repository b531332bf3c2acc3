/** A registry on loopback in place of docker.io, with an image alpine:3.20 of a few files of this machine. */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { machinePlatform } from "../../src/oci/platform.ts";
import { type MadeImage, makeImage, TestRegistry } from "./registry.ts";

const PROGRAMS = { "/bin/sh": "/bin/dash", "/bin/sleep": "/bin/sleep", "/bin/cat": "/bin/cat" };

/** The libraries that a program loads, its loader among them. */
function librariesOf(program: string): string[] {
  const lines = execFileSync("ldd", [program]).toString().split("\n");
  return lines.flatMap((line) => /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1] ?? []);
}

/** Makes the tar of a root file system with a shell. */
export function shellRoot(): Buffer {
  const root = mkdtempSync("/var/tmp/hearth-alpine-");
  // Instances are no root.
  chmodSync(root, 0o755);
  try {
    const files = new Map(Object.entries(PROGRAMS));
    for (const program of Object.values(PROGRAMS))
      for (const library of librariesOf(program)) files.set(library, library);
    files.set("/etc/os-release", "/etc/os-release");
    for (const [path, source] of files) {
      mkdirSync(join(root, dirname(path)), { recursive: true });
      copyFileSync(source, join(root, path));
    }
    for (const path of ["tmp", "etc", "root"]) mkdirSync(join(root, path), { recursive: true });
    return execFileSync("tar", ["-c", "--owner=0", "--group=0", "--mtime=@0", "-C", root, "."], {
      maxBuffer: 64 * 1024 * 1024,
    });
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

/** Makes an image with a shell; more layers come above it. */
export function shellImage(above: readonly Buffer[] = [], config: object = {}): MadeImage {
  const { architecture } = machinePlatform();
  return makeImage({ layers: [shellRoot(), ...above], architecture, config });
}

export interface Alpine {
  readonly registry: TestRegistry;
  /** Of a daemon that asks the registry in place of docker.io. */
  readonly settings: { readonly HEARTH_REGISTRY_MIRRORS: string };
}

export async function startAlpine(): Promise<Alpine> {
  const registry = await new TestRegistry().start();
  registry.add("library/alpine", "3.20", shellImage());
  return { registry, settings: { HEARTH_REGISTRY_MIRRORS: `docker.io=${registry.host}` } };
}
