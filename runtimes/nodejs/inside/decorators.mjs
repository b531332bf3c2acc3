/**
 * TypeScript with decorators, which neither Node nor its own compiler takes: esbuild compiles such a file, in the cell, by the
 * nearest tsconfig.json. It is a program beside these files and runs once per file, 10 to 30 ms; a code cache keeps what it made.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { RuntimeError } from "./errors.mjs";
import { configOf, optionOf } from "./tsconfig.mjs";

/** Modules of Node that only versions with decorators load. */
const builtin = (name) => process.getBuiltinModule(name);

/**
 * An `@` where a decorator may stand: at the beginning of a line, or behind what ends a clause, but not a tag of JSDoc. A file that
 * has one without need is compiled all the same.
 */
const DECORATOR =
  /(?:^|[({[,;=}]|\*\/|\b(?:export|default|return)\b)[ \t]*@(?!(?:code|inheritDoc|link|literal|see)\w*\b)[\p{ID_Start}$_(]/mu;

const OPTIONS = [
  ...[
    "--loader:.ts=ts",
    "--loader:.mts=ts",
    "--loader:.cts=ts",
    "--platform=node",
    "--target=node24",
    "--charset=utf8",
  ],
  ...["--sourcemap=inline", "--sources-content=false", "--log-level=error", "--color=false"],
];
const TIMEOUT_MS = 5000;
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
/** The head of an error and the place below it: `✘ [ERROR] text`, an empty line, `    file:line:column:`. */
const ERROR = /\[ERROR\] (?<text>[^\n]*)\n\n\s+[^\n]*?:(?<line>\d+):(?<column>\d+):\n/u;
const MAP = /^\/\/# sourceMappingURL=data:application\/json;base64,(?<map>[\w+/=]*)\s*$/mu;

export const hasDecorators = (source) => DECORATOR.test(source);

/** The error of a file that esbuild refuses, with its place at the head of the stack, as Node writes it. */
function refusal(path, source, { stderr, error, signal }) {
  const { text, line, column } = ERROR.exec(stderr ?? "")?.groups ?? {};
  if (text === undefined) {
    const why = error?.message ?? (signal === null ? (stderr ?? "").trim() : `killed by ${signal}`);
    return new RuntimeError("TypeScriptNotCompiled", `cannot compile the decorators of ${path}: ${why}`);
  }
  const complaint = new SyntaxError(text);
  const code = source.split("\n")[line - 1] ?? "";
  complaint.stack = `${path}:${line}\n${code}\n${" ".repeat(column)}^\n\nSyntaxError: ${text}`;
  return complaint;
}

/** Names the source in the map of a compiled file, which has it relative to the folder of the compiler. */
function withSource(code, url) {
  return code.replace(MAP, (_, map) => {
    const named = { ...JSON.parse(Buffer.from(map, "base64").toString()), sources: [url] };
    return `//# sourceMappingURL=data:application/json;base64,${Buffer.from(JSON.stringify(named)).toString("base64")}\n`;
  });
}

function compiled({ compiler, path, url, source, format }) {
  const config = configOf(dirname(path));
  const metadata = config === null ? null : optionOf(config, "emitDecoratorMetadata");
  if (metadata?.value === true) {
    const why = `${metadata.from} sets emitDecoratorMetadata, which is not supported, and ${path} has decorators`;
    throw new RuntimeError("DecoratorMetadataNotSupported", `${why}: compile the project with tsc, or unset it`);
  }
  const made = builtin("node:child_process").spawnSync(
    compiler,
    [path, ...OPTIONS, ...(format === "commonjs" ? ["--format=cjs"] : [])],
    {
      cwd: dirname(path),
      env: { GOMAXPROCS: "1" },
      encoding: "utf8",
      timeout: TIMEOUT_MS,
      maxBuffer: OUTPUT_BYTES_MAX,
    },
  );
  if (made.status !== 0) throw refusal(path, source, made);
  return withSource(made.stdout, url);
}

/**
 * Returns the JavaScript of a file with decorators: the one that an earlier process of the version made, if its code cache is there.
 * Throws a SyntaxError with the place, or a RuntimeError.
 */
export function compileDecorators(file) {
  const directory = builtin("node:module").getCompileCacheDir();
  if (directory === undefined) return compiled(file);
  const name = builtin("node:crypto")
    .createHash("sha256")
    .update(`${file.url}\0${file.format}\0${file.source}`)
    .digest("hex");
  const kept = join(directory, `decorators-${name}`);
  if (existsSync(kept)) return readFileSync(kept, "utf8");
  const code = compiled(file);
  try {
    writeFileSync(kept, code);
  } catch {
    // No room: the next process compiles it too.
  }
  return code;
}
