/** How the runtime nodejs loads what compilers and people write, and what it shows of errors. */
import { afterEach, describe, expect, it } from "vitest";
import { NodejsProcess } from "../../test/support/nodejs-process.ts";
import { resultOf } from "../../test/support/resident-requests.ts";
import { type BindHead, STATUS } from "../envelope.ts";

const started: NodejsProcess[] = [];

async function start(files: Readonly<Record<string, string>>, bind: Partial<BindHead> = {}) {
  const process = await NodejsProcess.start(files, bind);
  started.push(process);
  return process;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
});

describe("a module that a compiler made CommonJS", () => {
  const MARK = 'Object.defineProperty(exports, "__esModule", { value: true });';

  it.each([
    ["its default export", `${MARK} exports.default = () => "default";`, "index.cjs", "default"],
    ["its default export, named", `${MARK} exports.default = () => "default";`, "index.cjs#default", "default"],
    [
      "its default before a handler",
      `${MARK} exports.handler = () => "h"; exports.default = () => "d";`,
      "index.cjs",
      "d",
    ],
    ["its handler", `${MARK} exports.handler = () => "handler";`, "index.cjs", "handler"],
    [
      "its handler beside a default of another kind",
      `${MARK} exports.default = 1; exports.handler = () => "h";`,
      "index.cjs",
      "h",
    ],
    ["its other export", `${MARK} exports.other = () => "other";`, "index.cjs#other", "other"],
    ["a plain function", 'module.exports = () => "plain";', "index.cjs", "plain"],
    ["a plain property", 'module.exports = { default: 1, handler: () => "plain" };', "index.cjs", "plain"],
  ])("serves with %s", async (_name, code, handler, result) => {
    const process = await start({ "index.cjs": code }, { handler });
    expect(resultOf(await process.call())).toBe(result);
  });
});

describe("the stack of an error", () => {
  const OWN = /runtimes\/nodejs\/inside|node:internal\/(async_local_storage|stream_base)/;

  it.each([
    ["thrown", "function inner() { throw new RangeError('no'); } export function handler() { inner(); }"],
    [
      "rejected",
      "async function inner() { await 1; throw new RangeError('no'); } export async function handler() { await inner(); }",
    ],
    [
      "with properties",
      "function inner() { throw Object.assign(new RangeError('no'), { code: 7 }); } export function handler() { inner(); }",
    ],
    [
      "as a cause",
      "function inner() { throw new Error('yes', { cause: new RangeError('no') }); } export function handler() { inner(); }",
    ],
    [
      "logged",
      "function inner() { return new RangeError('no'); } export function handler(_, { log }) { log.error('x', inner()); }",
    ],
    [
      "with a callback",
      "function inner() { throw new RangeError('no'); } export function handler(a, b, callback) { inner(); }",
    ],
  ])("%s shows the function's frames, and none of the runtime", async (_name, code) => {
    const process = await start({ "index.mjs": code });
    const { stderr } = await process.call();
    expect(stderr).toMatch(/RangeError: no/);
    expect(stderr).toMatch(/at (async )?(inner|handler|Module.handler) \(file:.*index\.mjs/);
    expect(stderr).not.toMatch(OWN);
    if (_name === "with properties") expect(stderr).toMatch(/ \{\n {2}code: 7\n\}\n$/);
  });

  it("of a module that throws shows no frame of the runtime", async () => {
    const process = await start({ "index.mjs": "function inner() { throw new RangeError('no'); } inner();" });
    const bound = await process.bound;
    expect(bound.status).toBe(STATUS.not_loaded);
    expect(bound.stderr).toMatch(/at inner \(file:.*index\.mjs/);
    expect(bound.stderr).not.toMatch(OWN);
  });
});
