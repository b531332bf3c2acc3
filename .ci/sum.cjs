/**
 * `again <report>`: prints the files of a report of vitest that are to be run once more, one a line. `sum <code> <report>…`: prints
 * the failed tests and the sum over all reports; the file `<report>.again` beside a report takes the place of its files there.
 */
const { existsSync, readFileSync } = require("node:fs");
const { relative } = require("node:path");

const RETRIED_MAX = 3;

const read = (path) => JSON.parse(readFileSync(path, "utf8"));
const pathOf = ({ name }) => relative(process.cwd(), name);
const hasFailed = ({ status, assertionResults }) =>
  status === "failed" || assertionResults.some((test) => test.status === "failed");
/** Vitest ended before the file, or inside of it. */
const isDropped = (result) =>
  !hasFailed(result) &&
  (result.assertionResults.length === 0 || result.assertionResults.some((test) => test.status === "pending"));
/** All its tests were skipped: it would have begun after the deadline, or this machine cannot run it. */
const isLate = ({ assertionResults }) =>
  assertionResults.length > 0 && assertionResults.every((test) => test.status === "skipped");
const pathsOf = (results) => [...new Set(results.map(pathOf))];

/** Too many failures are no noise: then nothing is run again. */
function again(report) {
  const { testResults } = read(report);
  const failed = pathsOf(testResults.filter(hasFailed));
  if (failed.length > RETRIED_MAX) return [];
  return [...new Set([...failed, ...pathsOf(testResults.filter(isDropped))])];
}

function sum(code, reports) {
  let passed = 0;
  /** One line for each, last before the sum: a log is cut in the middle. */
  const failures = [];
  const retried = [];
  const late = [];
  for (const path of reports) {
    const first = read(path);
    if (first.testResults.length === 0 && first.numFailedTests > 0) failures.push(`${path}: no report`);
    const second = existsSync(`${path}.again`) ? read(`${path}.again`) : null;
    const repeated = new Set(second === null ? [] : again(path));
    for (const result of first.testResults.filter(hasFailed)) {
      if (repeated.has(pathOf(result))) retried.push(...failuresOf(result));
    }
    const counted = [
      ...first.testResults.filter((result) => !repeated.has(pathOf(result))),
      ...(second?.testResults ?? []),
    ];
    for (const result of counted) {
      passed += result.assertionResults.filter(({ status }) => status === "passed").length;
      if (hasFailed(result)) failures.push(...failuresOf(result));
      else if (isLate(result)) late.push(pathOf(result));
      else if (isDropped(result)) failures.push(`${pathOf(result)}: not run`);
    }
  }
  // An error outside any test fails the run too.
  if (code !== "0" && failures.length === 0) failures.push("an error outside any test");
  for (const line of new Set(late)) console.log(`NOT RUN ${line}`);
  for (const line of new Set(retried)) console.log(`RETRIED ${line}`);
  for (const line of failures) console.log(`FAILED ${line}`);
  console.log(`${passed} passed, ${failures.length} failed`);
  return failures.length === 0 && passed > 0 ? 0 : 1;
}

/** A file that broke before its first test counts as one failure. */
function failuresOf(result) {
  const own = result.assertionResults.filter((test) => test.status === "failed");
  if (own.length === 0) return [`${pathOf(result)}: ${result.message.split("\n")[0]}`];
  return own.map((test) => [pathOf(result), ...test.ancestorTitles, test.title].join(" > "));
}

const [verb, ...args] = process.argv.slice(2);
if (verb === "again") for (const path of again(args[0])) console.log(path);
else process.exitCode = sum(args[0], args.slice(1));
