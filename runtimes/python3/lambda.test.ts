/** Handlers of AWS Lambda in the runtime python3: their context. */
import { afterEach, expect, it } from "vitest";
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
