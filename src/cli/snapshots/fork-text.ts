/** The outcome of a command in one copy of a container, as `hearth fork` prints it. */
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import type { Paint } from "../output/terminal.ts";
import { visible } from "../output/text.ts";
import { milliseconds } from "../output/time.ts";
import { changeLine, type FileChanges, leftOut } from "./file-changes.ts";

export interface ForkOutcome {
  readonly name: string;
  /** Null: the copy could not be made. */
  readonly container_id: string | null;
  /** Null: the command did not run; `error` has the reason. */
  readonly exit_code: number | null;
  readonly duration_ms: number | null;
  readonly timed_out: boolean;
  readonly stdout: string;
  readonly stderr: string;
  readonly stdout_truncated: boolean;
  readonly stderr_truncated: boolean;
  /** Since the snapshot that the copy is made from. Null: not known; then `error` has the reason. */
  readonly changes: FileChanges | null;
  readonly error: string | null;
}

/** A line with name, exit code and duration; below it the beginning of the output, and the paths that differ. */
export function outcomeText(outcome: ForkOutcome, paint: Paint): string {
  const out = marked(outcome.stdout, "|");
  const err = marked(outcome.stderr, "!");
  const lines = [...out, ...err];
  const shown = lines.slice(0, LIMITS.cli_fork_output_lines_max).map((line) => `  ${line}\n`);
  const left_count = lines.length - shown.length;
  const isCut = outcome.stdout_truncated || outcome.stderr_truncated;
  const more = left_count > 0 ? `  … ${counted(left_count, "more line")}${isCut ? " (output truncated)" : ""}\n` : "";
  return `${headLine(outcome, paint)}\n${shown.join("")}${more}${changesText(outcome.changes, paint)}`;
}

function changesText(found: FileChanges | null, paint: Paint): string {
  if (found === null) return "";
  const changes = found.changes.slice(0, LIMITS.cli_fork_changes_max);
  const left_count = leftOut({ ...found, changes });
  const more = left_count > 0 ? `  … and ${left_count} more\n` : "";
  return `${changes.map((change) => `  ${changeLine(change, paint)}`).join("")}${more}`;
}

function headLine({ name, exit_code, duration_ms, timed_out, error }: ForkOutcome, paint: Paint): string {
  if (exit_code === null) return `${visible(name)} ${paint("red", "failed")}: ${visible(error ?? "unknown")}`;
  const unknown = error === null ? "" : `; changed paths unknown: ${visible(error)}`;
  const code = paint(exit_code === 0 ? "green" : "red", `exited with ${exit_code}`);
  const why = timed_out ? " (timeout)" : "";
  return `${visible(name)} ${code}${why} after ${milliseconds(duration_ms ?? 0)}${unknown}`;
}

function marked(text: string, mark: string): string[] {
  if (text === "") return [];
  const lines = text.replace(/\n$/, "").split("\n");
  return lines.map((line) => `${mark} ${visible(line.replaceAll("\t", "  "))}`);
}
