/** The files of a folder that a build gets: .dockerignore, the build file, and how they are packed. */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { buffer } from "node:stream/consumers";
import { afterEach, describe, expect, it } from "vitest";
import { scanContext } from "../../src/cli/project/build-context.ts";
import { tarOf } from "../../src/cli/project/tar-writer.ts";

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function folderOf(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync("/var/tmp/hearth-context-");
  folders.push(root);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return root;
}
const scan = (root: string, buildfile: string | null = null, directory = "/") =>
  scanContext(root, buildfile, directory);
const pathsOf = (root: string, buildfile: string | null = null) =>
  scan(root, buildfile).entries.map(({ path }) => path);

describe("the files of a build", () => {
  it("are all but those that .dockerignore leaves out, which keeps itself and the build file", () => {
    const root = folderOf({
      Dockerfile: "FROM alpine\n",
      ".dockerignore": "# files of the editor\n*\n!src\nsrc/**/*.log\n!src/kept.log\n/node_modules\n",
      ".git/config": "x",
      "node_modules/a/index.js": "x",
      "notes.txt": "x",
      "src/a.ts": "x",
      "src/deep/b.ts": "x",
      "src/deep/b.log": "x",
      "src/kept.log": "x",
      "Src/upper.ts": "x",
    });
    expect(pathsOf(root)).toEqual([
      ...[".dockerignore", "Dockerfile", "src", "src/a.ts", "src/deep", "src/deep/b.ts", "src/kept.log"],
    ]);
  });

  it("follow the ignore file of the build file itself, if there is one", () => {
    const root = folderOf({
      "build/web.Dockerfile": "FROM alpine\n",
      "build/web.Dockerfile.dockerignore": "build\n*.md\n",
      ".dockerignore": "*.ts\n",
      "a.ts": "x",
      "a.md": "x",
    });
    expect(pathsOf(root, "build/web.Dockerfile")).toEqual([
      ...[".dockerignore", "a.ts", "build/web.Dockerfile", "build/web.Dockerfile.dockerignore"],
    ]);
  });

  it("name the build file by its path in the folder, wherever it is looked for", () => {
    const root = folderOf({ Containerfile: "FROM alpine\n", "ci/Dockerfile": "FROM alpine\n" });
    expect(scan(root).buildfile_path).toBe("Containerfile");
    expect(scan(root, "ci/Dockerfile").buildfile_path).toBe("ci/Dockerfile");
    expect(scan(root, "Dockerfile", join(root, "ci")).buildfile_path).toBe("ci/Dockerfile");
    expect(scan(root, join(root, "Containerfile")).buildfile_path).toBe("Containerfile");
    expect(() => scan(root, "/etc/passwd")).toThrow("the build file is outside of the folder: /etc/passwd");
    expect(() => scan(root, "none")).toThrow("no such build file: none");
    expect(() => scan(folderOf({ a: "x" }))).toThrow(/no Dockerfile or Containerfile in/);
    expect(() => scan("/no/such/folder")).toThrow("no such folder: /no/such/folder");
  });

  it("are packed with their modes, times and links, also those that lead out", async () => {
    const root = folderOf({ Dockerfile: "FROM alpine\n", "bin/run": "#!/bin/sh\n", secret: "x" });
    chmodSync(join(root, "bin/run"), 0o755);
    chmodSync(join(root, "secret"), 0o600);
    utimesSync(join(root, "secret"), 1_000_000_000, 1_000_000_000);
    symlinkSync("/etc/passwd", join(root, "out"));
    execFileSync("mkfifo", [join(root, "pipe")]);
    const found = scan(root);
    expect(found.skipped).toEqual(["pipe"]);
    const listed = execFileSync("tar", ["-tvf", "-", "--numeric-owner"], {
      input: await buffer(tarOf(found)),
      env: { ...process.env, TZ: "UTC" },
    }).toString();
    expect(listed).toMatch(/^-rwxr-xr-x 0\/0 +10 .* bin\/run$/m);
    expect(listed).toMatch(/^-rw------- 0\/0 +1 2001-09-09 01:46 secret$/m);
    expect(listed).toMatch(/^lrwxrwxrwx 0\/0 +0 .* out -> \/etc\/passwd$/m);
    expect(listed).not.toContain("pipe");
  });
});
