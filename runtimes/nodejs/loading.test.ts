/** How the runtime nodejs loads what compilers and people write, and what it shows of errors. */
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { NodejsProcess } from "../../test/support/nodejs-process.ts";
import { callHead, resultOf } from "../../test/support/resident-requests.ts";
import { type BindHead, STATUS } from "../envelope.ts";

const started: NodejsProcess[] = [];

async function start(files: Readonly<Record<string, string>>, bind: Partial<BindHead> = {}) {
  const process = await NodejsProcess.start(files, bind);
  started.push(process);
  return process;
}

/** A certificate of its own, as PEM. */
function certificate(): { readonly cert: string } {
  const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null -subj /CN=own -days 2";
  return { cert: execFileSync("openssl", words.split(" "), { stdio: ["ignore", "pipe", "ignore"] }).toString() };
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

describe("a variable that Node reads at its start", () => {
  const bound = (code: string, more: Readonly<Record<string, string>>, files = {}) =>
    start({ "index.mjs": code, ...files }, { environment: { PATH: process.env.PATH ?? "", ...more } });

  it("NODE_OPTIONS loads modules first, and sets flags", async () => {
    const code = `export const handler = () => [globalThis.early, Error.stackTraceLimit, process.noDeprecation, process.env.NODE_OPTIONS];`;
    const NODE_OPTIONS = '-r ./one.cjs --import=two --import "./a b.mjs"  --stack_trace_limit=3 --no-deprecation';
    const files = {
      "one.cjs": "globalThis.early = ['one'];",
      "node_modules/two/package.json": '{"exports":{"import":"./two.mjs","require":"./two.cjs"}}',
      "node_modules/two/two.mjs": "globalThis.early.push('two');",
      "node_modules/two/two.cjs": "globalThis.early.push('other');",
      "a b.mjs": "await 1; globalThis.early.push('three');",
    };
    const one = await bound(code, { NODE_OPTIONS }, files);
    expect(resultOf(await one.call())).toEqual([["one", "two", "three"], 3, true, NODE_OPTIONS]);
  });

  const STARTED = `import { readFileSync } from "node:fs"; import { getHeapStatistics } from "node:v8";
    export const handler = (payload) => ({
      heap_mb: Math.round(getHeapStatistics().heap_size_limit / 2 ** 20), length: payload?.length, early: globalThis.early,
      started: readFileSync("/proc/self/environ", "utf8").split("\\0").filter((one) => /^(LD_|MALLOC_)/.test(one)),
      own: Object.keys(process.env).filter((name) => /^(LD_|MALLOC_|NODE_|HEARTH_)/.test(name)).sort(),
    });`;

  it.each([
    ["--max-old-space-size=100 --max-semi-space-size=1", 103],
    ["--max_old_space_size=200 --max-semi-space-size=2 --import=./early.mjs", 206],
    ["--dns-result-order ipv4first --max-semi-space-size=1 --max-old-space-size=150 -C own", 153],
  ])("NODE_OPTIONS=%s is that of the process", async (NODE_OPTIONS, heap_mb) => {
    const files = { "early.mjs": "globalThis.early = 1;" };
    const one = await bound(STARTED, { NODE_OPTIONS }, files);
    expect(resultOf(await one.call())).toEqual({
      ...{ heap_mb, started: [], own: ["NODE_OPTIONS"] },
      ...(NODE_OPTIONS.includes("early") ? { early: 1 } : {}),
    });
  });

  it("of the loader and of malloc is there when the process starts, and no request is lost", async () => {
    const variables = { LD_LIBRARY_PATH: "/function/lib", MALLOC_ARENA_MAX: "2" };
    const one = await bound(STARTED, variables);
    // As the daemon may: before the bind is answered, in several frames.
    const [first, second] = await Promise.all([
      one.resident.call(callHead({}), JSON.stringify("x".repeat(300_000))),
      one.resident.call(callHead({}), JSON.stringify("y".repeat(7))),
    ]);
    const started = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
    expect([first, second].map((answer) => resultOf(answer))).toMatchObject([
      { length: 300_000, started, own: Object.keys(variables) },
      { length: 7 },
    ]);
    expect(readdirSync(one.resident.directory)).toEqual([]);
  });

  it("stands for a process that ends as any other", async () => {
    const code =
      "import { setTimeout } from 'node:timers/promises'; export const handler = async (signal) => { process.kill(process.pid, signal); await setTimeout(5000); };";
    for (const signal of ["SIGTERM", "SIGKILL"]) {
      const one = await bound(code, { NODE_OPTIONS: "--max-old-space-size=100" });
      expect((await one.call(signal)).ended).toBe("cancelled");
      expect(await one.resident.ended).toMatchObject({ code: null, signal });
    }
    const exits = await bound("export const handler = () => process.reallyExit(7);", { MALLOC_ARENA_MAX: "1" });
    await exits.call();
    expect(await exits.resident.ended).toMatchObject({ code: 7 });
    const full =
      "const kept = []; export const handler = () => { for (;;) kept.push(new Array(1e5).fill(kept.length)); };";
    const grows = await bound(full, { NODE_OPTIONS: "--max-old-space-size=64" });
    const { stderr } = await grows.call();
    expect(stderr + grows.resident.own.stderr).toMatch(/heap limit/);
  });

  it("that Node refuses at its start refuses the version, with Node's words", async () => {
    const one = await bound("export const handler = () => 1;", { NODE_OPTIONS: "--dns-result-order=never" });
    const { ended, stderr } = await one.bound;
    expect(await one.resident.ended).toMatchObject({ code: 1, signal: null });
    expect([ended, stderr + one.resident.own.stderr]).toEqual([
      "cancelled",
      expect.stringContaining("--dns-result-order"),
    ]);
  });

  it("NODE_OPTIONS maps stacks to their sources", async () => {
    const map = { version: 3, sources: ["own.ts"], names: [], mappings: "AAAA" };
    const encoded = Buffer.from(JSON.stringify(map)).toString("base64");
    const code = `export const handler = () => { throw new Error("no"); };\n//# sourceMappingURL=data:application/json;base64,${encoded}`;
    const one = await bound(code, { NODE_OPTIONS: "--enable-source-maps" });
    expect((await one.call()).stderr).toContain("own.ts:1");
  });

  it.each([["NODE_EXTRA_CA_CERTS"], ["NODE_OPTIONS"]])("%s with what does not exist is refused", async (name) => {
    const one = await bound("export const handler = () => 1;", { [name]: "--import=./missing.mjs" });
    expect((await one.bound).status).toBe(STATUS.not_loaded);
  });

  it("NODE_EXTRA_CA_CERTS adds certificates", async () => {
    const code = `import { getCACertificates } from "node:tls";
      export const handler = () => getCACertificates("default").length;`;
    const plain = resultOf(await (await bound(code, {})).call());
    const { cert } = certificate();
    const one = await bound(code, { NODE_EXTRA_CA_CERTS: "own.pem" }, { "own.pem": cert });
    expect(resultOf(await one.call())).toBe(plain + 1);
    const none = await bound(code, { NODE_EXTRA_CA_CERTS: "own.pem" }, { "own.pem": "nothing" });
    expect(resultOf(await none.bound)).toMatchObject({ type: "VariableNotSupported" });
  });

  it("NODE_PATH names folders of modules", async () => {
    const files = { "index.cjs": "exports.handler = () => require('own');", "lib/own.js": "module.exports = 'own';" };
    const one = await start(files, { handler: "index.cjs", environment: { NODE_PATH: "lib" } });
    expect(resultOf(await one.call())).toBe("own");
  });

  it.each([
    ["NODE_OPTIONS", "--no-such-flag", "has a flag that cannot be set: --no-such-flag"],
    ["NODE_OPTIONS", "--inspect=0.0.0.0", "has a flag that cannot be set: --inspect"],
    ["NODE_OPTIONS", "--stack-size=4000", "has a flag that cannot be set: --stack-size"],
    ["NODE_OPTIONS", "--max-old-space-size=64 --permission", "has a flag that cannot be set: --permission"],
    ["NODE_OPTIONS", "--import", "has --import without a value"],
    ["NODE_DEBUG", "net", "is read when a process starts, and has no effect here"],
  ])("%s=%s is refused", async (name, value, why) => {
    const one = await bound("export const handler = () => 1;", { [name]: value });
    const answer = await one.bound;
    expect([answer.status, resultOf(answer).type]).toEqual([STATUS.not_loaded, "VariableNotSupported"]);
    expect(resultOf(answer).message).toContain(`${name} ${why}`);
  });
});

describe("TypeScript that is more than types", () => {
  const PARTS = `enum Color { Red, Blue = 5 }
namespace Own { export const three = 3; }
class Pair { constructor(private readonly one: number, public two = 2) {} get sum(): number { return this.one + this.two; } }
`;
  const VALUE = "[Color.Blue, Own.three, new Pair(1).sum]";

  it.each([
    ["index.ts", `${PARTS}export function handler() { return ${VALUE}; }`, {}],
    ["index.mts", `${PARTS}export default () => ${VALUE};`, {}],
    ["index.cts", `${PARTS}exports.handler = () => ${VALUE};`, {}],
    ["index.ts", `${PARTS}export = { handler: () => ${VALUE} };`, {}],
    [
      "index.ts",
      `import { parts } from "./parts.ts"; export const handler = () => parts;`,
      { "parts.ts": `${PARTS}export const parts = ${VALUE};` },
    ],
    [
      "index.ts",
      `import parts = require("./parts.ts"); export = { handler: () => parts };`,
      { "package.json": '{"type":"commonjs"}', "parts.ts": `${PARTS}module.exports = ${VALUE};` },
    ],
    [
      "index.ts",
      `import { parts } from "./parts.ts"; export const handler = () => parts;`,
      { "package.json": '{"type":"module"}', "parts.ts": `${PARTS}export const parts = ${VALUE};` },
    ],
  ])("is compiled: %s %#", async (file, code, more) => {
    const process = await start({ [file]: code, ...more } as Record<string, string>, { handler: file });
    const bound = await process.bound;
    expect([bound.status, bound.stderr]).toEqual([STATUS.returned, ""]);
    const answer = await process.call();
    expect([resultOf(answer), answer.stderr]).toEqual([[5, 3, 3], ""]);
  });

  it("names places of the source", async () => {
    const code = `${PARTS}\n\nexport function handler(): never {\n  throw new Error(String(Color.Red));\n}`;
    const process = await start({ "index.ts": code }, { handler: "index.ts" });
    expect((await process.call()).stderr).toMatch(/at handler \(.*index\.ts:7:9\)/);
  });

  it("is left to Node where it has types alone, whatever its strings say", async () => {
    const code = 'export const handler = (a: string): string => a + " enum Color { } namespace a { ";';
    const process = await start({ "index.ts": code }, { handler: "index.ts" });
    expect(resultOf(await process.call("x"))).toBe("x enum Color { } namespace a { ");
  });

  it("with a syntax error names its place", async () => {
    const process = await start({ "index.ts": `${PARTS}export const handler = ( => 1;` }, { handler: "index.ts" });
    const bound = await process.bound;
    expect(bound.status).toBe(STATUS.not_loaded);
    expect(resultOf(bound).message).toMatch(/\(index\.ts, line 4\)$/);
  });
});

describe("TypeScript with decorators", () => {
  const STANDARD = `enum Color { Red = 3 }
function logged(method: (...args: number[]) => unknown, context: ClassMethodDecoratorContext) {
  return function (this: unknown, ...args: number[]) { return [context.kind, String(context.name), method.apply(this, args)]; };
}
const named = (name: string) => (target: object, context: ClassDecoratorContext) => void Object.assign(target, { label: name + context.kind });

@named("a ")
class Sum {
  constructor(private readonly one: number = 1) {}
  @logged sum(two: number): number { return this.one + two + Color.Red; }

  fail(): never {
    throw new Error("no");
  }
}
`;
  const LEGACY = `const seen: unknown[] = [];
const noted = (target: object, key: string, descriptor: PropertyDescriptor) => void seen.push(["method", key, typeof descriptor.value]);
const injected = (target: object, key: string, index: number) => void seen.push(["parameter", key, index]);
@((target: Function) => void seen.push(["class", target.name]))
class Service {
  @noted run(first: string, @injected second: string) { return first + second; }
}
`;
  const EXPERIMENTAL = '{ // as tsc reads it\n "compilerOptions": { "experimentalDecorators": true, }, }';
  const sum = ["a class", ["method", "sum", 6]];
  const service = [
    "ab",
    [
      ["parameter", "run", 1],
      ["method", "run", "function"],
      ["class", "Service"],
    ],
  ];
  const ends = { sum: "[(Sum as any).label, new Sum().sum(2)]", service: 'new Service().run("a", "b"), seen' };

  it.each([
    ["index.ts", `${STANDARD}export const handler = () => ${ends.sum};`, {}, sum],
    ["index.mts", `import "./unused.mts";\n${STANDARD}export default () => ${ends.sum};`, { "unused.mts": "" }, sum],
    ["index.cts", `${STANDARD}exports.handler = () => ${ends.sum};`, {}, sum],
    [
      "index.ts",
      `${STANDARD}export const handler = () => ${ends.sum};`,
      { "package.json": '{"type":"commonjs"}' },
      sum,
    ],
    [
      "src/index.ts",
      `${LEGACY}export const handler = () => [${ends.service}];`,
      { "tsconfig.json": EXPERIMENTAL },
      service,
    ],
    [
      "index.ts",
      `import { Service, seen } from "./lib/service.ts"; export const handler = () => [${ends.service}];`,
      {
        "lib/service.ts": `${LEGACY}export { Service, seen };`,
        "tsconfig.json": '{"extends": "./base.json"}',
        "base.json": EXPERIMENTAL,
      },
      service,
    ],
  ])("is compiled: %s %#", async (file, code, more, result) => {
    const process = await start({ [file]: code, ...more } as Record<string, string>, { handler: file });
    const bound = await process.bound;
    expect([bound.status, bound.stderr]).toEqual([STATUS.returned, ""]);
    expect(resultOf(await process.call())).toEqual(result);
  });

  it("names places of the source", async () => {
    const code = `${STANDARD}export const handler = () => new Sum().fail();`;
    const process = await start({ "src/index.ts": code }, { handler: "src/index.ts" });
    expect((await process.call()).stderr).toMatch(
      /at Sum\.fail \(.*\/src\/index\.ts:13:11\)\n\s+at handler \(.*index\.ts:16:/,
    );
  });

  it("with a syntax error names its place", async () => {
    const process = await start({ "index.ts": `${STANDARD}export const handler = ( => 1;` }, { handler: "index.ts" });
    const bound = await process.bound;
    expect([bound.status, resultOf(bound).type]).toEqual([STATUS.not_loaded, "SyntaxError"]);
    expect(resultOf(bound).message).toBe('Unexpected "=>" (index.ts, line 16)');
    expect(bound.stderr).toContain("index.ts:16\nexport const handler = ( => 1;\n");
  });

  it("is refused where its tsconfig.json asks for metadata of types", async () => {
    const config = '{"compilerOptions":{"experimentalDecorators":true,"emitDecoratorMetadata":true}}';
    const files = { "tsconfig.json": '{"extends": ["./base"]}', "base.json": config };
    const own = await start({ ...files, "index.ts": `${LEGACY}export const handler = 1;` }, { handler: "index.ts" });
    expect(resultOf(await own.bound)).toMatchObject({
      type: "DecoratorMetadataNotSupported",
      message: expect.stringMatching(/\/base\.json sets emitDecoratorMetadata.*\/index\.ts has decorators/),
    });
    // A file without decorators needs none, nor does an option in a comment ask for it.
    const plain = { ...files, "index.ts": "export const handler = (): number => 1;" };
    expect(resultOf(await (await start(plain, { handler: "index.ts" })).call())).toBe(1);
    const noted = { "tsconfig.json": `// "emitDecoratorMetadata": true\n${EXPERIMENTAL}` };
    const code = `${LEGACY}export const handler = () => 1;`;
    expect(resultOf(await (await start({ ...noted, "index.ts": code }, { handler: "index.ts" })).call())).toBe(1);
  });

  it.each(["/**\n * @param a {@link b}\n */", 'const mail = "a, @b"; const css = `\n@media print {}`;'])(
    "is not needed to serve: %j",
    async (text) => {
      const process = await start(
        { "index.ts": `${text}\nexport const handler = (n: number): number => n;` },
        { handler: "index.ts" },
      );
      expect(resultOf(await process.call("7"))).toBe(7);
    },
  );
});

describe("TypeScript that imports what Node does not find", () => {
  const color = "export const color: string = 'blue';";
  const shown = (name: string) => `import { color } from "${name}"; export const handler = () => color;`;
  const COMMONJS = { "package.json": '{"type":"commonjs"}' };
  const required = (name: string) => `const { color } = require("${name}"); exports.handler = (): string => color;`;
  const config = (options: object, more: object = {}) => JSON.stringify({ ...more, compilerOptions: options });
  const ALIAS = config({ paths: { "@/*": ["./missing/*", "./src/*"], "#own": ["./src/color.ts"], "*": ["./no/*"] } });

  it.each<[file: string, code: string, files: Record<string, string>]>([
    ["index.ts", shown("./lib/color.js"), { "lib/color.ts": color }],
    ["index.mts", shown("./lib/color.mjs?once#1"), { "lib/color.mts": color }],
    ["index.ts", shown("./color.cjs"), { "color.cts": "exports.color = 'blue' as string;" }],
    ["index.ts", shown("./lib/my%20color.js"), { "lib/my color.ts": `enum Own { A }\n${color}` }],
    ["index.ts", `export const handler = async () => (await import("./color.js")).color;`, { "color.ts": color }],
    ["index.cts", required("./lib/color.js"), { ...COMMONJS, "lib/color.ts": "exports.color = 'blue' as string;" }],
    ["index.cts", required("./color"), { "color.ts": color }],
    ["src/index.ts", required("../lib"), { ...COMMONJS, "lib/index.ts": "exports.color = 'blue' as string;" }],
    ["index.ts", shown("./lib/color"), { "lib/color.ts": color, "lib/color/index.ts": "throw new Error();" }],
    ["index.ts", shown("./color.service"), { "color.service.ts": color }],
    ["index.ts", shown("./color"), { "color.js": "export const color = 'blue';", "color.d.ts": "export const a: 1;" }],
    ["index.ts", shown("./lib"), { "lib/index.ts": 'export * from "./color.js";', "lib/color.ts": color }],
    ["src/index.ts", shown(".."), { "index.ts": color }],
    ["src/index.ts", shown("@/color"), { "tsconfig.json": ALIAS, "src/color.ts": color }],
    ["src/index.ts", shown("@/color.js"), { "tsconfig.json": ALIAS, "src/color.ts": color }],
    ["index.ts", shown("#own"), { "tsconfig.json": ALIAS, "src/color.ts": color }],
    ["index.cts", required("@/color"), { "tsconfig.json": ALIAS, "src/color.ts": color }],
    [
      "src/index.ts",
      shown("lib/color"),
      { "tsconfig.json": '\ufeff{ // own\n "compilerOptions": { "baseUrl": "src", }, }', "src/lib/color.ts": color },
    ],
    [
      "packages/one/index.ts",
      shown("$lib/a/color"),
      {
        "packages/one/tsconfig.json": config({}, { extends: ["../../other.json", "../../base"] }),
        "other.json": config({ paths: { "$lib/*": ["no/*"] } }),
        // biome-ignore lint/suspicious/noTemplateCurlyInString: as tsc has it.
        "base.json": config({ paths: { "$lib/*": ["no/*"], "$lib/a/*": ["${configDir}/lib/*"] } }),
        "packages/one/lib/color.ts": color,
      },
    ],
  ])("finds what tsc finds: %s: %s", async (handler, code, files) => {
    const process = await start({ [handler]: code, ...files }, { handler });
    const bound = await process.bound;
    expect([bound.status, bound.stderr]).toEqual([STATUS.returned, ""]);
    expect(resultOf(await process.call())).toBe("blue");
  });

  it.each<[name: string, code: string, files: Record<string, string>]>([
    ["a file before its source", shown("./color.js"), { "color.js": "export const color = 'blue';", "color.ts": "" }],
    [
      "a package before an alias",
      shown("own"),
      {
        "node_modules/own/index.js": "exports.color = 'blue';",
        "tsconfig.json": config({ paths: { own: ["./own.ts"] } }),
        "own.ts": "",
      },
    ],
    [
      "what the function resolves itself",
      `import Module, { createRequire } from "node:module"; const own = Module as any; const resolve = own._resolveFilename;
       own._resolveFilename = (name: string, ...rest: unknown[]) => resolve(name === "own" ? import.meta.dirname + "/own.cjs" : name, ...rest);
       export const handler = () => createRequire(import.meta.url)("own").color;`,
      { "own.cjs": "exports.color = 'blue';" },
    ],
  ])("leaves to Node %s", async (_name, code, files) => {
    const process = await start({ "index.ts": code, ...files }, { handler: "index.ts" });
    expect(resultOf(await process.call())).toBe("blue");
  });

  it.each<[name: string, files: Record<string, string>, message: RegExp]>([
    [
      "./lib/colour.js",
      { "lib/color.ts": color },
      /^Cannot find module '\S+\/lib\/colour\.js' imported from \S+index\.ts/,
    ],
    ["@/colour", { "tsconfig.json": ALIAS, "src/color.ts": color }, /^Cannot find package '@\/colour' imported from/],
    ["types", { "tsconfig.json": config({ paths: { types: ["./types.d.ts"] } }), "types.d.ts": "" }, /package 'types'/],
    ["./color.js", { "color.js/none.js": "", "tsconfig.json": "{" }, /^Directory import '\S+\/color\.js' is not supp/],
    // Modules in JavaScript say what they mean.
    [
      "./lib.mjs",
      { "lib.mjs": "import './color';", "color.ts": color },
      /module '\S+\/color' imported from \S+lib\.mjs/,
    ],
  ])("says of %s what Node says if there is nothing", async (name, files, message) => {
    const process = await start({ "index.ts": shown(name), ...files }, { handler: "index.ts" });
    const bound = await process.bound;
    expect([bound.status, resultOf(bound).message]).toEqual([STATUS.not_loaded, expect.stringMatching(message)]);
  });
});
