/** Code caches of the runtime nodejs: made at the first bind of a version, used at the next, and harmless when they are wrong. */
import { mkdtempSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deserialize, serialize } from "node:v8";
import { zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { afterEach, describe, expect, it } from "vitest";
import type { Tree } from "../../test/support/code.ts";
import { NodejsProcess } from "../../test/support/nodejs-process.ts";
import { resultOf } from "../../test/support/resident-requests.ts";
import { type BindHead, STATUS } from "../envelope.ts";
import { nodejs } from "./index.ts";

const FILES = {
  "index.ts": 'import { twice } from "./more.mjs";\nexport const handler = (n: number): number => twice(n);\n',
  "more.mjs": "export const twice = (n) => 2 * n;\n",
};
const MAKES: Partial<BindHead> = { handler: "index.ts", code_cache: true };
const NO_CACHE = new Uint8Array();
/** Node's own notes on its compile cache, in the output of the process. */
const noting = (argv: readonly string[]) => ["/usr/bin/env", "NODE_DEBUG_NATIVE=COMPILE_CACHE", ...argv];
const started: NodejsProcess[] = [];

afterEach(async () => {
  await Promise.all(started.splice(0).map((process) => process.end()));
});

/** Binds a process; `code`: directory of the files. Node finds a module's cache by its path. */
async function bind(head: Partial<BindHead>, cache: Uint8Array, code?: string, files: Tree = FILES) {
  const process = await NodejsProcess.start(files, head, noting, cache, code);
  started.push(process);
  const bound = await process.bound;
  expect([bound.status, bound.stderr]).toEqual([STATUS.returned, expect.anything()]);
  expect(resultOf(await process.call(21))).toBe(42);
  return { process, made: bound.content, notes: bound.stderr + process.resident.own.stderr };
}

const USED =
  /(?:retrieving transpile cache|code cache) for (?<kind>\w+) \S*\/(?<name>[\w.]+?)(?:\.\.\.success| was accepted)/g;

/** Caches that the process used, each as what it holds and the name of the file. */
const usedBy = (notes: string): string[] => {
  const used = [...notes.matchAll(USED)].map(({ groups }) => `${groups?.kind} ${groups?.name}`);
  return [...new Set(used)].sort();
};

describe("a code cache", () => {
  it("is wanted for TypeScript and for much code", () => {
    const wanted = (handler: string, bytes: number) => nodejs.hasCodeCache?.(handler, bytes);
    expect([wanted("a.ts", 10), wanted("b/a.mts#x", 10), wanted("a.cts", 10)]).toEqual([true, true, true]);
    expect([wanted("a.mjs", 10), wanted("a.ts.js", 10), wanted("a.mjs#ts", 10)]).toEqual([false, false, false]);
    expect(wanted("a.mjs", 1_000_000)).toBe(true);
  });

  it("is made at a bind that asks for one, and spares the next process the types and the compilation", async () => {
    const code = mkdtempSync(join(tmpdir(), "code-"));
    const plain = await bind({ handler: "index.ts" }, NO_CACHE, code);
    expect([plain.made.length, usedBy(plain.notes)]).toEqual([0, []]);
    const first = await bind(MAKES, NO_CACHE, code);
    expect([first.made.length > 0, usedBy(first.notes)]).toEqual([true, []]);
    const next = await bind({ handler: "index.ts" }, first.made, code);
    expect([next.made.length, usedBy(next.notes)]).toEqual([
      0,
      ["ESM index.ts", "ESM more.mjs", "StrippedTypeScript index.ts"],
    ]);
    for (const { process } of [first, next]) expect(readdirSync(process.resident.directory)).toEqual([]);
  });

  it("spares the next process the compiler of decorators", async () => {
    const noted = "const noted = (value: unknown, context: DecoratorContext) => value;\n";
    const files = { "index.ts": `${noted}@noted class A {}\nexport const handler = (n: number): number => 2 * n;\n` };
    const code = mkdtempSync(join(tmpdir(), "code-"));
    const first = await bind(MAKES, NO_CACHE, code, files);
    const without = (argv: readonly string[]) => argv.map((word) => (word.endsWith("/esbuild") ? "/missing" : word));
    for (const [cache, status] of [
      [first.made, STATUS.returned],
      [NO_CACHE, STATUS.not_loaded],
    ] as const) {
      const process = await NodejsProcess.start(files, { handler: "index.ts" }, without, cache, code);
      started.push(process);
      expect((await process.bound).status).toBe(status);
    }
  });

  it("of another source is not used", async () => {
    const code = mkdtempSync(join(tmpdir(), "code-"));
    const { made } = await bind(MAKES, NO_CACHE, code);
    const other = { ...FILES, "more.mjs": "export const twice = (n) => n + n;\n" };
    const { notes } = await bind({ handler: "index.ts" }, made, code, other);
    expect(usedBy(notes)).toEqual(["ESM index.ts", "StrippedTypeScript index.ts"]);
  });

  const bomb = (raw_bytes: number) => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(raw_bytes);
    return Buffer.concat([length, zstdCompressSync(Buffer.alloc(512 << 20))]);
  };
  const packed = (content: object) => Buffer.concat([Buffer.alloc(4, 1), zstdCompressSync(serialize(content))]);

  it.each([
    ["of random bytes", Buffer.from("not a cache at all")],
    ["of one byte", Buffer.alloc(1)],
    ["of half a gigabyte of zeros", bomb(1 << 20)],
    ["that claims four gigabytes", bomb(0xffff_ffff)],
    ["of another Node", packed({ tag: "x", files: [] })],
    ["without a list of files", packed({ tag: "x" })],
  ])("%s harms nothing", async (_what, cache) => {
    const { notes } = await bind({ handler: "index.ts" }, cache);
    expect(usedBy(notes)).toEqual([]);
  });

  it("whose files are altered, or have paths for names, is not used", async () => {
    const code = mkdtempSync(join(tmpdir(), "code-"));
    const { made } = await bind(MAKES, NO_CACHE, code);
    const { tag, files } = deserialize(zstdDecompressSync(made.subarray(4))) as {
      tag: string;
      files: [string, Buffer][];
    };
    const altered = files.map(([name, content]) => [name, Buffer.from(content).fill(0x41, content.length >> 1)]);
    const raw = serialize({ tag, files: [...altered, ["../../index.ts", Buffer.from("throw 1")]] });
    const length = Buffer.alloc(4);
    length.writeUInt32LE(raw.length);
    const { notes } = await bind({ handler: "index.ts" }, Buffer.concat([length, zstdCompressSync(raw)]), code);
    expect(usedBy(notes)).toEqual([]);
  });

  it("is not made where memory is short, or the function forbids it", async () => {
    expect((await bind({ ...MAKES, memory_limit_mb: 64 }, NO_CACHE)).made.length).toBe(0);
    const environment = { NODE_DISABLE_COMPILE_CACHE: "1" };
    expect((await bind({ ...MAKES, environment }, NO_CACHE)).made.length).toBe(0);
  });
});
