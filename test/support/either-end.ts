/**
 * Vitest's own order, or its reverse under a deadline, by chance: then a deadline does not always cut off the same files.
 */
import { BaseSequencer, type TestSpecification } from "vitest/node";

export class EitherEnd extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return process.env.HEARTH_TEST_DEADLINE !== undefined && Math.random() < 0.5 ? sorted.reverse() : sorted;
  }
}
