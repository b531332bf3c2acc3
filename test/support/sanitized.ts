/** Set-up file of the project `sanitized`: a report of ASan or UBSan fails the test in which it was made. */
import { afterAll, afterEach } from "vitest";
import { takeReport } from "./helper.ts";

function refuseReport(): void {
  const report = takeReport();
  if (report !== null) throw new Error(report);
}

afterEach(refuseReport);
afterAll(refuseReport);
