/**
 * The `nodejs` runtime: a handler is an exported function of a JavaScript or TypeScript file in the version's code. Each
 * cell starts one Node process (inside/main.mjs) before any function is known; README.md has the contract of handlers.
 */
import { pathComplaint, textComplaint } from "../handlers.ts";
import { CODE_INSIDE, RUNTIME_INSIDE, type Runtime } from "../runtime.ts";

/**
 * The heap of a process is configured when it starts, before the function's memory limit is known. So V8 may grow up to
 * the largest limit of a function, and inside/memory.mjs keeps it below the limit that came with the bind. A small young
 * generation makes this possible: V8 sizes it for large machines otherwise.
 */
const FLAGS = ["--max-old-space-size=16384", "--max-semi-space-size=4"];

/** Directories that cleanup empties. */
const SCRATCH = ["/tmp", "/dev/shm"];

/** The compiler of TypeScript with decorators, for this machine's processor: one static program. */
const COMPILER = "esbuild";
const COMPILER_PATH = new URL(`../../node_modules/@esbuild/linux-${process.arch}/bin/esbuild`, import.meta.url)
  .pathname;

/** Path of the helper in every instance. */
const MINIT_INSIDE = "/dev/init";

const PATHS = [CODE_INSIDE, `${RUNTIME_INSIDE}/${COMPILER}`, MINIT_INSIDE, ...SCRATCH];
const ARGUMENTS = [...FLAGS, `${RUNTIME_INSIDE}/main.mjs`, ...PATHS];
/** Path of Node in the profile, and in instances of other images. */
const NODE = "/usr/local/bin/node";
const FOREIGN_NODE = "/dev/node";
/** Paths of glibc's loader, which are fixed by the processor's ABI. */
const LOADERS = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

const HANDLER = /^(?<file>[^#]+\.(?:mjs|js|cjs|ts|mts|cts))(?:#(?<name>.*))?$/su;
const TYPESCRIPT = /\.[mc]?ts(?:#|$)/u;
/** Code from which a cache saves more than its transport costs. Removing types costs 30 ms, however small the file. */
const CACHED_CODE_BYTES_MIN = 64 * 1024;
const EXPORT_NAME = /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u;
const PATH_BYTES_MAX = 1024;

export const nodejs: Runtime = {
  name: "nodejs",
  aliases: ["node"],
  profile: "prod",
  about: "an exported function of a JavaScript or TypeScript file, as path/to/file.mjs#export",
  // An image's own Node may be of any version.
  foreign: {
    needs: [{ one_of: LOADERS, complaint: "has no glibc, which Node needs (musl images, such as alpine, have none)" }],
    argv: [FOREIGN_NODE, ...ARGUMENTS],
    files: { [FOREIGN_NODE]: NODE },
  },
  directory: new URL("inside", import.meta.url).pathname,
  programs: { [COMPILER]: COMPILER_PATH },
  hasProtocol: false,
  needsCode: true,
  hasCodeCache: (handler, code_size_bytes) => TYPESCRIPT.test(handler) || code_size_bytes >= CACHED_CODE_BYTES_MIN,
  serving: {
    kind: "resident",
    argv: [NODE, ...ARGUMENTS],
    open_timeout_ms: 10_000,
  },
  program(handler) {
    const { file } = HANDLER.exec(handler)?.groups ?? {};
    return file === undefined ? null : { kind: "file", path: file };
  },
  complaint(handler) {
    const complaint = textComplaint(handler);
    if (complaint !== null) return complaint;
    const { file, name } = HANDLER.exec(handler)?.groups ?? {};
    if (file === undefined) return "is not of the form path/to/file.mjs#export (.mjs, .js, .cjs, .ts, .mts or .cts)";
    if (name !== undefined && !EXPORT_NAME.test(name)) return `names an export that is no identifier: ${name}`;
    if (Buffer.byteLength(file) > PATH_BYTES_MAX) return `names a path above ${PATH_BYTES_MAX} bytes`;
    return pathComplaint(file);
  },
};
