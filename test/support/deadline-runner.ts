/**
 * Skips files whole that would begin after `HEARTH_TEST_DEADLINE` (seconds since the Unix epoch): CI ends a run at its own limit, and
 * a run that it ends tells nothing. Without the variable every file runs.
 */
import type { RunnerTask, RunnerTestFile } from "vitest";
import { VitestTestRunner } from "vitest/runners";

const DEADLINE_S = Number(process.env.HEARTH_TEST_DEADLINE ?? Number.POSITIVE_INFINITY);

/** A task and all below it, which are skipped. */
function skipped(task: RunnerTask): RunnerTask[] {
  task.mode = "skip";
  return [task, ...("tasks" in task ? task.tasks.flatMap(skipped) : [])];
}

// biome-ignore lint/style/noDefaultExport: vitest takes the default export of a runner.
export default class DeadlineRunner extends VitestTestRunner {
  /** Vitest puts it there: it tells the main process. */
  declare onTaskUpdate: (packs: readonly unknown[], events: readonly unknown[]) => Promise<void>;

  async onCollected(files: RunnerTestFile[]): Promise<void> {
    if (Date.now() / 1_000 < DEADLINE_S) return;
    const all = files.flatMap(skipped);
    await this.onTaskUpdate(
      all.map(({ id }) => [id, { state: "skip" }, {}]),
      [],
    );
  }
}
