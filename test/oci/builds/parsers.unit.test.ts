/** Our parser of build files against others: the structure of 200 made-up files, and the values of 300 instructions each. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { DockerfileParser, type Instruction, type JSONInstruction } from "dockerfile-ast";
import { expect, it } from "vitest";
import { buildahCommand, readDirectories } from "../../../src/installation/paths.js";
import { jsonOf, type RawInstruction, readBuildFile } from "../../../src/oci/builds/build-file.ts";
import { instructionOf } from "../../../src/oci/builds/instructions.ts";
import { expand, newTextBudget } from "../../../src/oci/builds/variables.ts";
import { Maker } from "./made-files.ts";

const FILES = 200;
const VALUES = 300;
const SEED = 20_261_128;

/**
 * What both parsers tell of an instruction. dockerfile-ast 0.7 splits at white space without a look at quotes, loses spaces in
 * texts of JSON, and counts the lines of here-documents as arguments: words are compared without those.
 */
interface Told {
  readonly keyword: string;
  readonly line: number;
  readonly flags: readonly (readonly [string, string | null])[];
  readonly words: readonly string[];
  readonly json: readonly string[] | null;
  readonly documents: readonly string[];
}

function ours({ keyword, line, flags, text, documents }: RawInstruction): Told {
  return {
    ...{ keyword, line },
    flags: flags.map(({ name, value }) => [name, value]),
    words: text.split(/\s+/),
    json: jsonOf(text),
    documents: documents.map(({ name }) => name),
  };
}

type Other = Instruction &
  Partial<Pick<JSONInstruction, "getFlags" | "getJSONStrings">> & { getHeredocs?: () => object[] };

function theirs(of: Instruction): Told {
  const one = of as Other;
  const documents = (one.getHeredocs?.() ?? []).map((document) =>
    (document as { getName: () => string | null }).getName(),
  );
  const words = one.getArguments().map((argument) => argument.getValue());
  const isJson = words[0]?.startsWith("[") === true && one.getJSONStrings !== undefined;
  const opening = words.slice(0, documents.length + 1);
  return {
    ...{ keyword: one.getKeyword(), line: one.getRange().start.line + 1 },
    flags: (one.getFlags?.() ?? []).map((flag) => [flag.getName(), flag.getValue()]),
    words: documents.length > 0 ? opening : words,
    json: isJson ? (one.getJSONStrings?.().map((text) => text.getJSONValue()) ?? null) : null,
    documents: documents.filter((name) => name !== null),
  };
}

it(`tells the same of ${FILES} made-up files as dockerfile-ast`, () => {
  const make = new Maker(SEED);
  const files = Array.from({ length: FILES }, () => make.file());
  const seen = new Set<string>();
  for (const file of files) {
    const own = readBuildFile(file).instructions.map(ours);
    // It takes a mark at the beginning for a part of the first word.
    const other = DockerfileParser.parse(file.replace(/^\uFEFF/, ""))
      .getInstructions()
      .map(theirs);
    expect(own, file).toEqual(other);
    for (const { keyword, flags, json, documents } of own)
      seen.add(`${keyword} ${flags.length} ${json !== null} ${documents.length}`);
  }
  // The corpus has something of everything.
  expect(seen.size).toBeGreaterThan(15);
  for (const [what, pattern] of [
    ["continued lines", /[\\`] *\r?\n/],
    ["comments in them", /[\\`] *\r?\n *#/],
    ["empty lines in them", /[\\`] *\r?\n\s*\r?\n/],
    ["another escape character", /escape *= *`/i],
    ["lines of Windows", /\r\n/],
    ["a mark at the beginning", /^\uFEFF/],
  ] as const)
    expect(files.filter((file) => pattern.test(file)).length, what).toBeGreaterThan(5);
});

it(`gives ${VALUES} labels and variables the values that buildah gives them`, () => {
  const make = new Maker(SEED);
  const values = Array.from({ length: VALUES }, () => make.value());
  const lines = ["FROM scratch", "ENV A=set E=", ...values.map((value, i) => `LABEL l${i}=${value}`)];
  const variables: Readonly<Record<string, string>> = { A: "set", E: "" };
  const budget = newTextBudget();
  const own = readBuildFile(lines.join("\n"))
    .instructions.map((raw) => instructionOf(raw, "\\"))
    .flatMap((one) => (one.kind === "label" ? one.pairs.map((pair) => ({ ...pair, line: one.line })) : []))
    .map(({ name, value, line }) => [
      name,
      expand(value, { escape_char: "\\", line, value: (variable) => variables[variable], budget }),
    ]);
  expect(Object.fromEntries(own)).toEqual(labelsOf(lines.join("\n")));
});

it(`gives ${VALUES} substitutions the values that bash gives them`, () => {
  const make = new Maker(SEED);
  const made = Array.from({ length: VALUES }, () => make.substitution());
  const budget = newTextBudget();
  const own = made.map(({ value, text }) => expand(text, { escape_char: "\\", line: 1, value: () => value, budget }));
  const script = made.map(({ value, text }) => `V='${value}'; printf '%s\\n' "${text}"`).join("\n");
  const said = execFileSync("bash", ["-c", script]).toString().split("\n");
  expect(own).toEqual(said.slice(0, -1));
});

/** The labels of the image that buildah makes of a build file. */
function labelsOf(source: string): Record<string, string> {
  const [program = "", ...flags] = buildahCommand(readDirectories(process.env, []).image_dir);
  const buildah = (...args: string[]) =>
    execFileSync(program, [...flags, ...args], { stdio: "pipe" })
      .toString()
      .trim();
  const directory = mkdtempSync("/var/tmp/hearth-parsers-");
  try {
    writeFileSync(`${directory}/Dockerfile`, source);
    const id = buildah("bud", "--quiet", "--layers=false", directory);
    try {
      const { OCIv1 } = JSON.parse(buildah("inspect", "--type", "image", id));
      const { "io.buildah.version": _version, ...labels } = OCIv1.config.Labels;
      return labels;
    } finally {
      buildah("rmi", id);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
