/** Names of environment variables that begin with `HEARTH_`: one that means nothing is a setting with a typing error. */
import { AppError } from "./errors.ts";
import { didYouMean } from "./suggest.ts";

const PREFIX = "HEARTH_";
/** Those of the command line and of commands inside containers, and the failpoint of tests. */
const OTHERS = new Set([
  "HEARTH_URL",
  "HEARTH_KEY",
  "HEARTH_PROFILE",
  "HEARTH_FAILPOINT",
  "HEARTH_PAYLOAD",
  "HEARTH_INVOCATION_ID",
  "HEARTH_FUNCTION_NAME",
  "HEARTH_FUNCTION_VERSION",
  "HEARTH_DEADLINE_MS",
]);
/** Of this project's tests and benchmarks. */
const TESTS = /^HEARTH_(TEST|FUZZ|BENCH)_/;

/** Throws INVALID_ARGUMENT for a variable that is no setting, with the nearest one. An empty variable is not set. */
export function checkVariables(
  environment: Readonly<Record<string, string | undefined>>,
  settings: Readonly<Record<string, { readonly variable: string }>>,
): void {
  const names = Object.values(settings).map(({ variable }) => variable);
  const known = new Set(names);
  const unknown = Object.keys(environment).find(
    (name) =>
      name.startsWith(PREFIX) && environment[name] && !known.has(name) && !OTHERS.has(name) && !TESTS.test(name),
  );
  if (unknown === undefined) return;
  const bare = (name: string) => name.slice(PREFIX.length);
  const meant = didYouMean(bare(unknown), names.map(bare))?.replace(/'([^']*)'/g, `'${PREFIX}$1'`);
  throw new AppError("INVALID_ARGUMENT", `unknown setting ${unknown}${meant === undefined ? "" : `, ${meant}`}`, {
    hint: "rename or unset the variable; npx hearth help settings lists the settings",
  });
}
