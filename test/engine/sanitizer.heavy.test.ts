/** The sanitized build of helper.ts: an error ends the program, and its report with the line reaches the tests. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compileSanitized, isSanitized, removeSanitized, takeReport } from "../support/helper.ts";

/** Resets its signals first, as the helper does. */
const PROGRAM = `
#include <signal.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
  volatile char *heap = malloc((size_t)argc + 2), stack[4] = {0};
  volatile int large = 0x7fffffff;
  if (argc == 1) return 0;
  if (*argv[1] == 'h') return heap[argc + 2];
  if (*argv[1] == 's') return stack[argc + 2];
  if (*argv[1] == 'a') abort();
  return large + argc > 0;
}
`;

let directory: string;

beforeAll(() => {
  directory = mkdtempSync("/var/tmp/hearth-sanitizer-");
  writeFileSync(join(directory, "faulty.c"), PROGRAM);
});
afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
  // The project `sanitized` removes its builds itself.
  if (!isSanitized) removeSanitized();
});

const run = (argv: readonly string[]) => spawnSync(compileSanitized("faulty", [join(directory, "faulty.c")]), argv);

it.each([
  ["heap", "heap-buffer-overflow", 9],
  ["stack", "ILL", 10],
  ["abort", "ABRT", 11],
  ["overflow of an integer", "ILL", 12],
])("reports an error of kind %s", (kind, what, line) => {
  expect(run([kind]).status).toBe(99);
  const report = takeReport();
  expect(report).toContain(what);
  expect(report).toContain(`main at faulty.c:${line}`);
  expect(takeReport()).toBeNull();
});

it("reports nothing of a program without errors", () => {
  expect(run([]).status).toBe(0);
  expect(takeReport()).toBeNull();
});
