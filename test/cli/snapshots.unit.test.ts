/** Lineages, outcomes of forks and flags of snapshots as the command line reads and draws them, without a daemon. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { changeLine, leftOut } from "../../src/cli/snapshots/file-changes.ts";
import { type ForkOutcome, outcomeText } from "../../src/cli/snapshots/fork-text.ts";
import { lineageTree } from "../../src/cli/snapshots/lineage.ts";
import { modesOf } from "../../src/cli/snapshots/snapshots.ts";

const paint = (_: unknown, text: string) => text;

const outcome = (fields: Partial<ForkOutcome> = {}): ForkOutcome => ({
  ...{ name: "try-1", container_id: "ctr_1", exit_code: 0, duration_ms: 1_250, timed_out: false, error: null },
  ...{ stdout: "", stderr: "", stdout_truncated: false, stderr_truncated: false, changes: null },
  ...fields,
});

describe("the lineage", () => {
  const node = (snapshot_id: string, parent_snapshot_id: string | null, name: string | null = null) => ({
    ...{ snapshot_id, parent_snapshot_id, name, container_id: null, created_at: 100, depth: 0 },
  });
  const container = (name: string, snapshot_id: string, kind: "source" | "clone" | "fork") => ({
    ...{ container_id: name, name, state: "running" as const, snapshot_id, kind, parent_container_id: null },
  });
  const draw = (nodes: ReturnType<typeof node>[], containers: ReturnType<typeof container>[] = []) =>
    lineageTree({ snapshot_id: "a", nodes, containers, is_truncated: false }, { now: 160, paint });

  it("is a tree of snapshots with the containers before the later snapshots", () => {
    const nodes = [node("a", null, "first"), node("b", "a"), node("c", "b"), node("d", "a")];
    const containers = [
      container("box", "c", "source"),
      container("twin", "a", "fork"),
      container("x\n", "d", "clone"),
    ];
    expect(draw(nodes, containers).split("\n")).toEqual([
      "a first  1 min ago",
      "├── twin  fork, running",
      "├── b  1 min ago",
      "│   └── c  1 min ago",
      "│       └── box  source, running",
      "└── d  1 min ago",
      "    └── x\\n  clone, running",
      "",
    ]);
  });

  it("has a root for each snapshot whose parent is missing, and any depth", () => {
    expect(draw([node("b", "deleted"), node("c", null)])).toBe("b  1 min ago\nc  1 min ago\n");
    const chain = Array.from({ length: 500 }, (_, i) => node(`s${i}`, i === 0 ? null : `s${i - 1}`));
    expect(draw(chain).split("\n")).toHaveLength(501);
  });
});

describe("the outcome of a fork", () => {
  it("is its exit code and duration, and its output with a mark for each stream", () => {
    expect(outcomeText(outcome({ stdout: "a\tb\n", stderr: "\x1b[2J\n" }), paint)).toBe(
      "try-1 exited with 0 after 1.3 s\n  | a  b\n  ! \\x1b[2J\n",
    );
    expect(outcomeText(outcome({ exit_code: 143, timed_out: true, duration_ms: 12 }), paint)).toBe(
      "try-1 exited with 143 (timeout) after 12 ms\n",
    );
    expect(outcomeText(outcome({ exit_code: null, error: "no such file" }), paint)).toBe(
      "try-1 failed: no such file\n",
    );
  });

  it("shows a bounded number of lines", () => {
    const count = LIMITS.cli_fork_output_lines_max;
    const text = outcomeText(outcome({ stdout: "x\n".repeat(count + 3) }), paint);
    expect(text.split("\n")).toHaveLength(count + 3);
    expect(text).toContain("  … 3 more lines\n");
    const cut = outcomeText(outcome({ stdout: "x\n".repeat(count + 1), stdout_truncated: true }), paint);
    expect(cut).toContain("  … 1 more line (output truncated)\n");
  });
});

describe("changed paths", () => {
  const change = (path: string, kind: "added" | "changed" | "deleted", renamed_from: string | null = null) => ({
    ...{ path, change: kind, type: "file" as const, size_bytes: 1, renamed_from },
  });

  it("have a mark each, and their number where some are left out", () => {
    expect(changeLine(change("/a\n", "deleted"), paint)).toBe("D /a\\n\n");
    expect(changeLine(change("/b", "added", "/a"), paint)).toBe("A /b (renamed from /a)\n");
    const count = LIMITS.cli_fork_changes_max + 2;
    const changes = Array.from({ length: count }, (_, i) => change(`/${i}`, "changed"));
    const found = { changes, added_count: 0, changed_count: count + 3, deleted_count: 0, is_truncated: true };
    expect(leftOut(found)).toBe(3);
    const text = outcomeText(outcome({ changes: found }), paint);
    expect(text).toContain(`  C /${LIMITS.cli_fork_changes_max - 1}\n  … and 5 more\n`);
    expect(outcomeText(outcome({ error: "late" }), paint)).toContain("; changed paths unknown: late\n");
  });
});

describe("flags of a snapshot", () => {
  it("name its consistency, network and volumes", () => {
    const none = { consistency_mode: undefined, network_mode: undefined, volume_mode: undefined, volumes: undefined };
    expect(modesOf({})).toEqual(none);
    expect(modesOf({ appConsistent: true, network: "preserve_ns", volume: ["a", "b"] })).toEqual({
      ...{ consistency_mode: "app-consistent", network_mode: "preserve_ns" },
      ...{ volume_mode: "include_named", volumes: ["a", "b"] },
    });
    expect(modesOf({ allVolumes: true })).toEqual({ ...none, volume_mode: "include_all_allowed" });
    expect(() => modesOf({ allVolumes: true, volume: ["a"] })).toThrow("exclude each other");
  });
});
