/**
 * The largest files first, or the smallest: by turns, so that a deadline cuts off the same files only every other time.
 * Vitest gives no other order without durations of an earlier run.
 */
import { statSync } from "node:fs";
import { BaseSequencer, type TestSpecification } from "vitest/node";

const isReversed = Math.floor(Date.now() / 1_000) % 2 === 1;

export class EitherEnd extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const size = ({ moduleId }: TestSpecification): number => statSync(moduleId).size;
    const sorted = [...files].sort((a, b) => size(b) - size(a));
    return isReversed && process.env.HEARTH_TEST_DEADLINE !== undefined ? sorted.reverse() : sorted;
  }
}
