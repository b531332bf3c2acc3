/** Variables that an interpreter of the runtime python3 reads at its start. */
import { afterEach, describe, expect, it } from "vitest";
import { PythonFunctions } from "../../test/support/python-function.ts";

const functions = new PythonFunctions();

afterEach(() => functions.end());

const PATH = "/usr/bin:/bin";
const loaded = (code: string, environment: Readonly<Record<string, string>>, more = {}) =>
  functions.loaded(code, { environment: { PATH, ...environment }, ...more });

describe("a variable that Python reads at its start", () => {
  it.each([
    ["PYTHONHASHSEED", "0", "hash('a')", null],
    ["PYTHONOPTIMIZE", "1", "__debug__", false],
    ["PYTHONUTF8", "1", "sys.flags.utf8_mode", 1],
    ["PYTHONINTMAXSTRDIGITS", "9000", "sys.get_int_max_str_digits()", 9000],
    ["MALLOC_ARENA_MAX", "1", "os.environ['MALLOC_ARENA_MAX']", "1"],
    ["PYTHONPATH", "/own", "[sys.path.count('/own'), sys.flags.isolated]", [1, 1]],
    ["PYTHON_VERSION", "3.11.2", "sys.flags.isolated", 1],
    ["PYTHONUNBUFFERED", "1", "sys.flags.isolated", 1],
  ])("%s=%s has its effect", async (name, value, expression, expected) => {
    const code = `import os, sys\nvalue = ${expression.replace("hash('a')", "str(hash('a'))")}\ndef handler(payload, context): return value`;
    const one = await loaded(code, { [name]: value });
    expect(await one.value()).toEqual(name === "PYTHONHASHSEED" ? await hashOf(code) : expected);
  });

  /** The same interpreter in another process. */
  const hashOf = async (code: string) => (await loaded(code, { PYTHONHASHSEED: "0" })).value();

  it("PYTHONWARNINGS shows warnings, or makes them errors", async () => {
    const code =
      "import warnings\ndef handler(payload, context): warnings.warn('old', DeprecationWarning); return 'no'";
    const shown = await (await loaded(code, { PYTHONWARNINGS: "always" })).call();
    expect(shown.stderr).toContain("DeprecationWarning: old");
    const failed = await (await loaded(code, { PYTHONWARNINGS: "error" })).call();
    expect(failed.content.toString()).toBe('{"type":"DeprecationWarning","message":"old"}');
  });

  it.each([
    ["def", 1],
    ["async def", 1],
    ["def", 4],
  ])(
    "leaves a %s handler its calls, output, modules and variables, with %i at a time",
    async (keyword, concurrency) => {
      const code = `import os, sys, json
${keyword} handler(payload, context):
    print(payload)
    return [len(payload), os.environ["PYTHONHASHSEED"], os.environ.get("PYTHONPATH"), sys.argv, len(sys.path) == len(set(sys.path)),
        os.get_inheritable(3), [name for name in sys.path if "inside" in name]]`;
      const variables = { PYTHONHASHSEED: "1", PYTHONPATH: "/own" };
      const one = await loaded(code, variables, { concurrency });
      const [first, second] = [() => one.call("a"), () => one.call("b".repeat(200_000))] as const;
      // minit gives a process no more calls at a time than its version serves.
      const calls = concurrency === 1 ? [await first(), await second()] : await Promise.all([first(), second()]);
      for (const [i, length] of [1, 200_000].entries()) {
        const [own, ...others] = JSON.parse(String(calls[i]?.content));
        expect([own, ...others.slice(0, 2), ...others.slice(3)]).toEqual([length, "1", "/own", true, false, []]);
        expect(calls[i]?.stdout.length).toBe(length + 1);
      }
    },
  );

  it("that no start survives fails the bind", async () => {
    const { bound } = await functions.load("def handler(payload, context): pass", {
      environment: { PATH, PYTHONHASHSEED: "none" },
    });
    expect(bound.ended).toBe("cancelled");
  });

  it("leaves a fault of the module to the answer", async () => {
    const { bound } = await functions.load("raise KeyError(hash)", { environment: { PATH, PYTHONHASHSEED: "1" } });
    expect(bound.stderr).toContain("KeyError");
  });
});
