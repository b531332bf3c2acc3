import { describe, expect, it } from "vitest";
import { causeOf } from "../../src/nightly/failures.ts";

const SETPRIV = "setpriv --pdeathsig failed with exit code 1";

describe("causes of failed builds of profiles", () => {
  it.each([
    ["writing blob: processing tar file(write /usr/lib/x.so: no space left on device): exit status 1", "no space left"],
    ["E: You don't have enough free space in /var/cache/apt/archives/.", "no space left"],
    [
      "E: Failed to fetch http://deb.example/x.deb  Could not connect to 127.0.0.1:9 (Connection refused)",
      "not reachable",
    ],
    ["Err:1 http://deb.example bookworm InRelease\n  |   Temporary failure resolving 'deb.example'", "not reachable"],
    ["E: Unable to locate package chromium", "lack a package"],
    ["dpkg: error: unable to create file: Read-only file system", "read-only"],
    ["apt-get install failed with SIGKILL", "was killed"],
  ])("name the remedy for: %s", (line, error) => {
    const cause = causeOf(SETPRIV, `  | ${line}\n  | buildah --root failed with exit code 1\n`);
    expect(cause.error).toContain(error);
    expect(cause.hint).toContain("build again");
  });

  it("name a full disk before the downloads that it made fail", () => {
    const output = "  | E: Failed to fetch http://deb.example/x.deb  No space left on device\n";
    expect(causeOf(SETPRIV, output).error).toContain("no space left");
  });

  it("name the refusal before a build that the disk has no room for", () => {
    const message = "not enough disk space in /images: 445 MiB free (at least 1024 MiB)";
    expect(causeOf(message, `hearth set-up: ${message}\n`).error).toContain("no space left");
  });

  it("are the last line of the build if no remedy is known", () => {
    expect(causeOf(SETPRIV, "  | rg /usr/bin/rg\n  | tool 'lacks-a-thing' is not in the image\n")).toEqual({
      error: "tool 'lacks-a-thing' is not in the image",
      hint: null,
    });
    const failed = "  | sh: 1: lacks-a-thing: not found\n  | chroot /merged failed with exit code 1\n";
    expect(causeOf(SETPRIV, failed).error).toBe("sh: 1: lacks-a-thing: not found");
    expect(causeOf("set-up ended with SIGKILL", "").error).toBe("a process of the build was killed");
    expect(causeOf("unknown profile: 'x'", "").error).toBe("unknown profile: 'x'");
  });
});
