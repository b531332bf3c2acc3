/** Set-up file of the project `sanitized`: a report of ASan or UBSan fails the test in which it was made. */
import { afterAll, afterEach } from "vitest";
import { removeSanitized, takeReport } from "./helper.ts";

function refuseReport(): void {
  const report = takeReport();
  if (report !== null) throw new Error(report);
}

afterEach(refuseReport);
// The first to be registered is the last to run: the helpers of the file have ended.
afterAll(() => {
  try {
    refuseReport();
  } finally {
    removeSanitized();
  }
});
