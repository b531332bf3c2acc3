/** Copies of the files of runtimes, as instances see them. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { installRuntimeFiles } from "../../src/functions/runtime-files.ts";

const directories: string[] = [];
afterEach(() => {
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
});

const PATHS = ["main.py", "lib/deep/more.py"];

/** A checkout's files under umask 077, and an empty data directory. */
function checkout(): { from: string; into: string } {
  const root = mkdtempSync(join(tmpdir(), "hearth-runtime-"));
  directories.push(root);
  const from = join(root, "inside");
  mkdirSync(join(from, "lib/deep"), { recursive: true });
  for (const path of PATHS) writeFileSync(join(from, path), `# ${path}\n`);
  for (const path of PATHS) chmodSync(join(from, path), 0o600);
  for (const path of ["", "lib", "lib/deep"]) chmodSync(join(from, path), 0o700);
  return { from, into: join(root, "runtimes") };
}

const modeOf = (...path: string[]): number => statSync(join(...path)).mode & 0o777;

describe("the copy of a runtime's files", () => {
  it("is readable by every user if the checkout was made under umask 077", () => {
    const { from, into } = checkout();
    const { path } = installRuntimeFiles("python3", [from], into);
    for (const name of PATHS) {
      expect([modeOf(path, name), readFileSync(join(path, name), "utf8")]).toEqual([0o644, `# ${name}\n`]);
    }
    expect([[], ["lib"], ["lib", "deep"]].map((names) => modeOf(path, ...names))).toEqual([0o755, 0o755, 0o755]);
  });

  it("has programs that every user may run, which belong to its digest", () => {
    const { from, into } = checkout();
    const program = join(from, "../program");
    writeFileSync(program, "#!/bin/true\n", { mode: 0o600 });
    const { digest: bare } = installRuntimeFiles("python3", [from], into);
    const { path, digest } = installRuntimeFiles("python3", [from], into, { compiler: program });
    expect([modeOf(path, "compiler"), modeOf(path, "main.py")]).toEqual([0o755, 0o644]);
    expect([readFileSync(join(path, "compiler"), "utf8"), digest === bare]).toEqual(["#!/bin/true\n", false]);
    writeFileSync(join(path, "compiler"), "#!/bin");
    chmodSync(join(path, "compiler"), 0o644);
    expect(installRuntimeFiles("python3", [from], into, { compiler: program }).digest).toBe(digest);
    expect([modeOf(path, "compiler"), readFileSync(join(path, "compiler"), "utf8")]).toEqual([0o755, "#!/bin/true\n"]);
  });

  it("is repaired if it was cut or closed, and keeps its digest", () => {
    const { from, into } = checkout();
    const made = installRuntimeFiles("python3", [from], into);
    writeFileSync(join(made.path, "main.py"), "");
    chmodSync(join(made.path, "lib/deep/more.py"), 0o600);
    chmodSync(join(made.path, "lib"), 0o700);
    expect(installRuntimeFiles("python3", [from], into)).toEqual(made);
    expect(readFileSync(join(made.path, "main.py"), "utf8")).toBe("# main.py\n");
    expect([modeOf(made.path, "lib"), modeOf(made.path, "lib/deep/more.py")]).toEqual([0o755, 0o644]);
  });

  it("has another name for other files, and replaces earlier copies of its runtime alone", () => {
    const { from, into } = checkout();
    const earlier = installRuntimeFiles("python3", [from], into);
    const other = installRuntimeFiles("nodejs", [from], into);
    writeFileSync(join(from, "main.py"), "# changed\n");
    const later = installRuntimeFiles("python3", [from], into);
    expect([later.digest === earlier.digest, later.path === earlier.path]).toEqual([false, false]);
    expect(readdirSync(into).map((name) => join(into, name))).toEqual([other.path, later.path]);
    expect(existsSync(earlier.path)).toBe(false);
  });

  it("holds the files of a second directory, which its digest covers", () => {
    const { from, into } = checkout();
    const compiled = join(into, "..", "compiled");
    mkdirSync(join(compiled, "__pycache__"), { recursive: true });
    writeFileSync(join(compiled, "__pycache__/main.pyc"), "1");
    const alone = installRuntimeFiles("python3", [from], into).digest;
    const both = installRuntimeFiles("python3", [from, compiled], into);
    expect(readFileSync(join(both.path, "__pycache__/main.pyc"), "utf8")).toBe("1");
    writeFileSync(join(compiled, "__pycache__/main.pyc"), "2");
    const later = installRuntimeFiles("python3", [from, compiled], into).digest;
    expect(new Set([alone, both.digest, later]).size).toBe(3);
  });
});
