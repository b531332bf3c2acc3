/** Changes between two snapshots, from what `btrfs receive --dump` prints. */
import { describe, expect, it } from "vitest";
import { SendDump } from "../../src/engine/storage/send-dump.ts";

/** The touched paths as `before > after`, and `*` for what may have only other times. */
function play(...lines: string[]): string[] {
  const dump = new SendDump();
  for (const line of lines) dump.line(line);
  return [...dump.touched()].map(
    ({ before, path, isTimesAlone, isOpaqueChanged }) =>
      `${before ?? ""} > ${path ?? ""}${isTimesAlone ? " *" : ""}${isOpaqueChanged ? " opaque" : ""}`,
  );
}

describe("a dump", () => {
  it("names new, changed and removed paths", () => {
    expect(
      play(
        "snapshot        ./s2                            uuid=a transid=8",
        "update_extent   ./s2/d/f                      offset=0 len=6",
        "utimes          ./s2/d/f                      atime=x",
        "utimes          ./s2/d                        atime=x",
        "unlink          ./s2/d/gone",
        "mkfile          ./s2/o257-8-0",
        "rename          ./s2/o257-8-0                 dest=./s2/d/new",
        "chmod           ./s2/d/new                    mode=600",
      ),
    ).toEqual(["d/gone > ", "d > d *", "d/f > d/f", " > d/new"]);
  });

  it("follows directories that are renamed, with what is in them", () => {
    expect(
      play(
        "rename          ./s2/d50                      dest=./s2/e50",
        "update_extent   ./s2/e50/f                    offset=0 len=6",
        "unlink          ./s2/e50/g",
        "rename          ./s2/e50/h                    dest=./s2/e50/i",
        "mkdir           ./s2/o300-8-0",
        "rename          ./s2/o300-8-0                 dest=./s2/d50",
        "mkfile          ./s2/d50/f",
      ),
    ).toEqual(["d50/g > ", "d50 > e50", "d50/f > e50/f", "d50/h > e50/i", " > d50", " > d50/f"]);
  });

  it("reads names with spaces, newlines and bytes that are no text", () => {
    expect(
      play(
        "mkfile          ./s2/o1-8-0",
        "rename          ./s2/o1-8-0                 dest=./s2/a\\ b\\nc\\303\\251",
        "symlink         ./s2/l\\ =\\\\             dest=/x\\ y",
        "link            ./s2/h                      dest=d/f",
      ),
    ).toEqual([" > a b\nc\xc3\xa9", " > l =\\", " > h"]);
  });

  it("tells a directory that hides what is below it", () => {
    expect(play("set_xattr       ./s2/upper/d                  name=trusted.overlay.opaque data=y len=1")).toEqual([
      "upper/d > upper/d * opaque",
    ]);
  });
});
