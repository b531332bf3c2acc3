/** Handlers of AWS Lambda in the runtime python3: their context, and what they log without a handler of `logging`. */
import { afterEach, describe, expect, it } from "vitest";
import { PythonFunctions } from "../../test/support/python-function.ts";

const functions = new PythonFunctions();

afterEach(() => functions.end());

it.each([
  ["def", 1],
  ["async def", 1],
  ["def", 4],
])("the context of a %s handler has the names of AWS Lambda, with %i calls at a time", async (keyword, concurrency) => {
  const function_ = await functions.loaded(
    `
NAMES = ("aws_request_id", "function_name", "function_version", "memory_limit_in_mb", "invoked_function_arn",
         "log_group_name", "log_stream_name", "client_context", "identity")
${keyword} handler(event, context):
    return {**{name: getattr(context, name) for name in NAMES}, "has_time": 0 < context.get_remaining_time_in_millis() <= 20000}`,
    { concurrency },
  );
  expect(await function_.value("{}", { invocation_id: "inv_7" })).toEqual({
    aws_request_id: "inv_7",
    function_name: "hello",
    function_version: "3",
    memory_limit_in_mb: "256",
    invoked_function_arn: "arn:aws:lambda:local:000000000000:function:hello:3",
    log_group_name: "/aws/lambda/hello",
    log_stream_name: "3",
    client_context: null,
    identity: null,
    has_time: true,
  });
});

describe("logging without a handler", () => {
  const TIME = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`;
  const line = (level: string, id: string, message: string) => `\\[${level}\\]\t${TIME}\t${id}\t${message}\n`;
  const INFO = "import logging\nlogger = logging.getLogger()\nlogger.setLevel(logging.INFO)\n";

  it.each([
    ["def", 1, ""],
    ["def", 4, ""],
    ["async def", 1, ""],
    // asyncio was imported first, and `logging` as one of its deferred modules.
    ["async def", 4, "from _hearth import deferred; deferred.load('asyncio')\n"],
  ])("has the level of its logger and the id of its call: %s, %i at a time", async (keyword, concurrency, first) => {
    const code = `${first}${INFO}logger.info("loaded")
${keyword} handler(event, context):
    logger.info("got %s", event); logging.getLogger("own.part").debug("not this"); logger.error("bad")`;
    const function_ = await functions.loaded(code, { concurrency });
    expect(function_.bound.stderr).toMatch(new RegExp(`^${line("INFO", "", "loaded")}$`));
    const ids = ["inv_1", "inv_2", "inv_3"];
    const answers = await Promise.all(
      (concurrency === 1 ? ids.slice(0, 1) : ids).map((id) => function_.call(`"${id}"`, { invocation_id: id })),
    );
    for (const [n, { stderr }] of answers.entries()) {
      const id = `inv_${n + 1}`;
      expect(stderr).toMatch(new RegExp(`^${line("INFO", id, `got ${id}`)}${line("ERROR", id, "bad")}$`));
    }
  });

  it("prints warnings and worse by default, with tracebacks, in threads too", async () => {
    const function_ = await functions.loaded(`
import logging, threading
logger = logging.getLogger(__name__)
def work():
    try: 1 / 0
    except ZeroDivisionError: logger.exception("threaded")
def handler(event, context):
    logger.info("not this"); logger.warning("this")
    thread = threading.Thread(target=work); thread.start(); thread.join()`);
    const { stderr } = await function_.call();
    const error = `${line("ERROR", "inv_1", "threaded")}Traceback [^]*ZeroDivisionError: division by zero\n`;
    expect(stderr).toMatch(new RegExp(`^${line("WARNING", "inv_1", "this")}${error}$`));
  });

  it.each([
    ["logging.basicConfig(level=logging.INFO)", "INFO:root:x\n"],
    ["logging.basicConfig(level=logging.DEBUG, force=True, format='%(message)s!')", "x!\n"],
    ["logging.getLogger().setLevel('INFO'); logging.info('first')", "INFO:root:x\n"],
    [
      `import logging.config; logging.config.dictConfig({"version": 1, "root": {"level": "INFO", "handlers": ["own"]},
    "formatters": {"own": {"format": "own %(message)s"}}, "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}}})`,
      "own x\n",
    ],
    ["logging.lastResort = None; logging.raiseExceptions = False", ""],
  ])("gives way to what the function sets up: %s", async (setup, printed) => {
    const function_ = await functions.loaded(
      `import logging\n${setup}\ndef handler(event, context): logging.getLogger().info("x")`,
    );
    expect((await function_.call()).stderr).toBe(printed);
  });
});
