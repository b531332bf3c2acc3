/** Handlers of AWS Lambda in the runtime nodejs: their context, and answers by callback. */
import { afterEach, describe, expect, it } from "vitest";
import { NodejsProcess } from "../../test/support/nodejs-process.ts";
import { resultOf } from "../../test/support/resident-requests.ts";
import { STATUS } from "../envelope.ts";

const started: NodejsProcess[] = [];

async function serve(code: string, concurrency = 1) {
  const process = await NodejsProcess.start({ "index.mjs": code }, { concurrency });
  started.push(process);
  expect((await process.bound).status).toBe(STATUS.returned);
  return process;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
});

it("the context has the names of AWS Lambda", async () => {
  const process = await serve(`export const handler = async (event, context) => {
    const { awsRequestId, functionName, functionVersion, memoryLimitInMB, invokedFunctionArn, logGroupName, logStreamName } = context;
    context.callbackWaitsForEmptyEventLoop = false;
    const left = context.getRemainingTimeInMillis();
    return { awsRequestId, functionName, functionVersion, memoryLimitInMB, invokedFunctionArn, logGroupName, logStreamName,
      hasTime: left > 0 && left <= 20000 };
  };`);
  expect(resultOf(await process.call("{}", { invocation_id: "inv_7" }))).toEqual({
    awsRequestId: "inv_7",
    functionName: "hello",
    functionVersion: "3",
    memoryLimitInMB: "256",
    invokedFunctionArn: "arn:aws:lambda:local:000000000000:function:hello:3",
    logGroupName: "/aws/lambda/hello",
    logStreamName: "3",
    hasTime: true,
  });
});

describe("a handler with a callback", () => {
  it.each([
    ["called later", "(event, context, callback) => { setTimeout(() => callback(null, event), 1); }", 1],
    ["called at once", "(event, context, callback) => { callback(undefined, event); }", 1],
    ["called twice", "(event, context, callback) => { callback(null, event); callback(new Error('late')); }", 1],
    ["and a returned value", "(event, context, callback) => event", 1],
    ["and a promise", "async (event, context, callback) => event", 1],
    ["called before its promise", "async (event, context, callback) => { callback(null, event); }", 1],
    ["in calls at a time", "(event, context, callback) => { setTimeout(callback, 1, null, event); }", 8],
  ])("%s answers with its value", async (_name, code, concurrency) => {
    const process = await serve(`export const handler = ${code};`, concurrency);
    const answers = await Promise.all(
      Array.from({ length: concurrency }, (_, n) => process.call({ n: n + 1 }).then(resultOf)),
    );
    expect(answers).toEqual(answers.map((_, n) => ({ n: n + 1 })));
  });

  it.each([
    ["with an error", "(event, context, callback) => { setTimeout(callback, 1, new RangeError('no')); }", "RangeError"],
    ["with a text", "(event, context, callback) => { callback('no'); }", "string"],
    [
      "after it threw",
      "(event, context, callback) => { setTimeout(callback, 1); throw new TypeError('no'); }",
      "TypeError",
    ],
    ["after its promise failed", "async (event, context, callback) => { throw new TypeError('no'); }", "TypeError"],
  ])("called %s fails", async (_name, code, type) => {
    const process = await serve(`export const handler = ${code};`);
    const answer = await process.call();
    expect([answer.status, resultOf(answer)]).toEqual([STATUS.failed, { type, message: "no" }]);
  });

  it("called with nothing has no result", async () => {
    const process = await serve("export const handler = (event, context, callback) => { callback(); };");
    const answer = await process.call();
    expect([answer.status, resultOf(answer)]).toEqual([STATUS.returned, undefined]);
  });

  it("that it never calls is no success", async () => {
    const late = await serve("export const handler = (event, context, callback) => {};");
    expect((await late.call("", { deadline_ms: Date.now() + 300 })).status).toBe(STATUS.timed_out);
    const empty = await serve("export const handler = async (event, context, callback) => {};");
    const answer = await empty.call();
    expect([answer.status, resultOf(answer).type]).toEqual([STATUS.failed, "CallbackNotCalled"]);
  });
});
