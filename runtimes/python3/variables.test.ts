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
    ["PYTHONPATH", "/own:/more", "[path for path in sys.path if path in ('/own', '/more')]", ["/own", "/more"]],
    ["PYTHONDONTWRITEBYTECODE", "1", "sys.dont_write_bytecode", true],
    ["PYTHONFAULTHANDLER", "1", "__import__('faulthandler').is_enabled()", true],
    ["PYTHONTRACEMALLOC", "5", "__import__('tracemalloc').get_traceback_limit()", 5],
    ["PYTHONASYNCIODEBUG", "1", "__import__('asyncio').new_event_loop().get_debug()", true],
    ["PYTHONBREAKPOINT", "os.getpid", "breakpoint() == os.getpid()", true],
    ["PYTHONBREAKPOINT", "0", "breakpoint()", null],
    ["PYTHONDEVMODE", "1", "sys.flags.dev_mode", true],
    ["PYTHONIOENCODING", "utf-8", "sys.stdout.errors", "backslashreplace"],
    ["PYTHONIOENCODING", "UTF_8:replace", "sys.stdout.errors", "replace"],
    ["PYTHONMALLOC", "debug", "sys.flags.isolated", 0],
    ["TZ", "Asia/Tokyo", "__import__('time').tzname[0]", "JST"],
    ["LC_ALL", "C.UTF-8", "__import__('locale').setlocale(0)", "C.UTF-8"],
    ["LANG", "xx_XX.UTF-8", "[__import__('locale').getpreferredencoding(False), sys.flags.isolated]", ["utf-8", 1]],
    ["LC_CTYPE", "de_DE.ISO-8859-1", "sys.flags.isolated", 0],
    ["LANG", "de_DE@euro", "sys.flags.isolated", 0],
    ["SSL_CERT_FILE", "/dev/null", "__import__('ssl').create_default_context().get_ca_certs()", []],
    ["LD_PRELOAD", "libm.so.6", "'/libm.so.6' in open('/proc/self/maps').read()", true],
    ["LD_LIBRARY_PATH", "/own", "[os.environ['LD_LIBRARY_PATH'], sys.flags.isolated]", ["/own", 0]],
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

  it("PYTHONIOENCODING is refused if it is no UTF-8, and says what becomes of characters that have none", async () => {
    const code = "def handler(payload, context): print('a\\ud800b')";
    const { bound } = await functions.load(code, { environment: { PATH, PYTHONIOENCODING: "latin-1" } });
    expect(JSON.parse(String(bound.content))).toEqual({
      type: "VariableNotSupported",
      message: "PYTHONIOENCODING has an encoding that output of functions cannot have: latin-1 (expected utf-8)",
    });
    expect((await (await loaded(code, { PYTHONIOENCODING: ":replace" })).call()).stdout).toBe("a?b\n");
    const strict = await (await loaded(code, { PYTHONIOENCODING: "utf-8:strict" })).call();
    expect(JSON.parse(String(strict.content)).type).toBe("UnicodeEncodeError");
  });

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
