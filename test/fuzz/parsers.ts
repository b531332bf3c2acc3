/**
 * The harnesses of the helper's parsers (test/fuzz/minit), compiled from the helper's own sources, and the corpora. They
 * run without privileges, and what would reach beyond their process is replaced (stubs.h).
 */
import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { helperSourceDir } from "../../src/installation/paths.js";

const HERE = join(import.meta.dirname, "minit");
const UID = 65_123;

interface Harness {
  readonly name: string;
  /** The sources beside those that the harness itself includes. */
  readonly sources: readonly string[];
  readonly flags: readonly string[];
}

export const HARNESSES: readonly Harness[] = [
  {
    name: "frames",
    sources: [
      ...["attach", "mounts", "overlay", "unmount", "loop", "snapshots", "storage-pool", "storage-wire"],
      ...["netns", "netlink", "conntrack", "pid1", "identity", "exec-output", "resident-frames"],
    ],
    flags: [],
  },
  { name: "requests", sources: ["file-tree", "place", "jail", "frame"], flags: ["-DFUZZ_FILES"] },
  { name: "adapter", sources: ["adapter-call", "http", "json", "frame"], flags: [] },
];

/** libFuzzer is part of clang. Where only files are replayed, any compiler does. */
const COMPILERS = {
  fuzzer: ["clang", "-fsanitize=fuzzer,address,undefined"],
  replay: ["cc", "-fsanitize=address,undefined", join(HERE, "replay.c")],
};
/** Without warnings: the helper's build shows them, and here half of each source is unused. */
const FLAGS = "-std=gnu11 -O1 -g -fno-sanitize-recover=all -w -include stubs.h".split(" ");

export function compileHarness(directory: string, harness: Harness, kind: keyof typeof COMPILERS): string {
  const { name, sources, flags } = harness;
  const target = join(directory, name);
  const own = readdirSync(join(HERE, name)).filter((file) => file.endsWith(".c"));
  const helper = helperSourceDir();
  const files = [
    ...own.map((file) => join(HERE, name, file)),
    join(HERE, "stubs.c"),
    ...sources.map((source) => join(helper, `${source}.c`)),
  ];
  const [compiler = "cc", ...more] = COMPILERS[kind];
  execFileSync(compiler, [...FLAGS, ...flags, ...more, `-I${HERE}`, `-I${helper}`, "-o", target, ...files]);
  chmodSync(target, 0o755);
  return target;
}

/** Directories of one test file: for compiled harnesses, and in memory for the tree of `minit files`. */
export function harnessDirectories(): { readonly directory: string; readonly root: string } {
  const made = { directory: "", root: "" };
  beforeAll(() => {
    made.directory = mkdtempSync("/var/tmp/hearth-fuzz-");
    chmodSync(made.directory, 0o755);
    made.root = harnessDirectory(mkdtempSync("/dev/shm/hearth-fuzz-"));
  });
  afterAll(() => {
    for (const path of Object.values(made)) rmSync(path, { recursive: true, force: true });
  });
  return made;
}

/** Makes a directory that a harness may write to. */
export function harnessDirectory(path: string): string {
  mkdirSync(path, { recursive: true });
  if (process.getuid?.() === 0) chownSync(path, UID, UID);
  return path;
}

/** Returns options of a child that runs a harness: without privileges, with `root` as the tree of `minit files`. */
export function harnessOptions(root: string) {
  const env = { PATH: process.env.PATH, FUZZ_ROOT: root };
  return process.getuid?.() === 0 ? { env, uid: UID, gid: UID } : { env };
}

export function corpusDirectory(name: string): string {
  return join(import.meta.dirname, "corpus", name);
}

export function corpusFiles(name: string): string[] {
  return readdirSync(corpusDirectory(name))
    .sort()
    .map((file) => join(corpusDirectory(name), file));
}
