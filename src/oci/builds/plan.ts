/** The stages of a build file, and those of them that a target needs. */
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { invalidLine, readBuildFile } from "./build-file.ts";
import { type Instruction, instructionOf } from "./instructions.ts";
import { expand, newTextBudget, ownValue } from "./variables.ts";

export type Base =
  | { readonly type: "scratch" }
  | { readonly type: "stage"; readonly index: number }
  | { readonly type: "image"; readonly reference: string };

export interface Stage {
  readonly index: number;
  /** In lower case. */
  readonly name: string | null;
  readonly base: Base;
  /** FROM is the first. */
  readonly instructions: readonly Instruction[];
  /** Of COPY --from and of mounts, as written. */
  readonly sources: ReadonlyMap<string, Base>;
}

export interface Plan {
  /** All that the target needs, it among them as the last one. */
  readonly stages: readonly Stage[];
  readonly target: Stage;
  /** Values of arguments before the first FROM. */
  readonly globals: ReadonlyMap<string, string>;
  readonly escape_char: string;
  /** Instructions of all stages. */
  readonly steps_count: number;
}

export interface PlanRequest {
  readonly source: string;
  readonly arguments: Readonly<Record<string, string>>;
  /** Name or number; null: the last one. */
  readonly target: string | null;
  /** `linux/amd64` */
  readonly platform: string;
}

/** Arguments that tools set: commands have them, also where no stage declares them. */
export const PREDEFINED = new Set(
  ["HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"].flatMap((name) => [name, name.toLowerCase()]),
);

/** Arguments that name the platform, for FROM and for stages that declare them. */
export function platformArguments(platform: string): ReadonlyMap<string, string> {
  const [os = "", architecture = "", variant = ""] = platform.split("/");
  const fields = Object.entries({ PLATFORM: platform, OS: os, ARCH: architecture, VARIANT: variant });
  return new Map(fields.flatMap(([name, value]) => ["TARGET", "BUILD"].map((kind) => [`${kind}${name}`, value])));
}

/** Throws INVALID_ARGUMENT with the number of the line. */
export function planOf(request: PlanRequest): Plan {
  const { instructions: raw, escape_char } = readBuildFile(request.source);
  const instructions = raw.map((one) => instructionOf(one, escape_char));
  const first = instructions.findIndex(({ kind }) => kind === "from");
  if (first < 0) throw new AppError("INVALID_ARGUMENT", "build file has no FROM");
  const globals = globalsOf(instructions.slice(0, first), request, escape_char);
  const stages: Stage[] = [];
  for (const group of groups(instructions.slice(first)))
    stages.push(stageOf(group, stages, { request, globals, escape_char }));
  const target = targetOf(stages, request.target);
  const needed = neededFor(target, stages);
  checkArguments(request, instructions);
  const steps_count = needed.reduce((sum, stage) => sum + stage.instructions.length, 0);
  return { stages: needed, target, globals, escape_char, steps_count };
}

function globalsOf(before: readonly Instruction[], { arguments: given, platform }: PlanRequest, escape_char: string) {
  const globals = new Map(platformArguments(platform));
  const budget = newTextBudget();
  for (const one of before) {
    if (one.kind !== "arg") throw invalidLine(one.line, "only ARG may stand before FROM");
    for (const { name, value } of one.entries) {
      const words = { escape_char, line: one.line, value: (other: string) => globals.get(other), budget };
      const found = ownValue(given, name) ?? (value === null ? undefined : expand(value, words));
      if (found !== undefined) globals.set(name, found);
    }
  }
  return globals;
}

function groups(instructions: readonly Instruction[]): Instruction[][] {
  const all: Instruction[][] = [];
  for (const one of instructions) {
    if (one.kind === "from") all.push([one]);
    else all.at(-1)?.push(one);
  }
  return all;
}

interface Surroundings {
  readonly request: PlanRequest;
  readonly globals: ReadonlyMap<string, string>;
  readonly escape_char: string;
}

function stageOf(instructions: readonly Instruction[], earlier: readonly Stage[], around: Surroundings): Stage {
  const { request, globals, escape_char } = around;
  const [from] = instructions;
  if (from?.kind !== "from") throw new AppError("INVALID_ARGUMENT", "build file has no FROM");
  if (earlier.length >= LIMITS.build_stages_max) {
    throw invalidLine(from.line, `too many stages (limit ${LIMITS.build_stages_max})`);
  }
  const words = { escape_char, line: from.line, value: (name: string) => globals.get(name), budget: newTextBudget() };
  const platform = from.platform === null ? "" : expand(from.platform, words);
  if (platform !== "" && platform !== request.platform) {
    throw invalidLine(from.line, `FROM --platform=${platform}: this node builds for ${request.platform}`);
  }
  if (from.name !== null && earlier.some(({ name }) => name === from.name)) {
    throw invalidLine(from.line, `two stages have the name ${from.name}`);
  }
  const base = expand(from.base, words);
  if (base === "") throw invalidLine(from.line, "FROM names no image");
  const byName = earlier.find(({ name }) => name === base.toLowerCase());
  const sources = new Map<string, Base>();
  for (const one of instructions) {
    for (const source of sourcesOf(one)) sources.set(source, sourceOf(source, one, earlier));
  }
  return {
    index: earlier.length,
    name: from.name,
    base:
      byName !== undefined
        ? { type: "stage", index: byName.index }
        : base === "scratch"
          ? { type: "scratch" }
          : { type: "image", reference: base },
    instructions,
    sources,
  };
}

/** What an instruction takes files from beside the context. */
function sourcesOf(one: Instruction): readonly string[] {
  if (one.kind === "copy") return one.from === null ? [] : [one.from];
  return one.kind === "run" ? one.mounts.flatMap(({ from }) => from ?? []) : [];
}

function sourceOf(from: string, { kind, line }: Instruction, earlier: readonly Stage[]): Base {
  if (from.includes("$")) throw invalidLine(line, "COPY --from must not have variables");
  const found = /^\d+$/.test(from) ? earlier[Number(from)] : earlier.find(({ name }) => name === from.toLowerCase());
  if (found !== undefined) return { type: "stage", index: found.index };
  if (/^\d+$/.test(from)) {
    const written = kind === "copy" ? `COPY --from=${from}` : `RUN --mount=from=${from}`;
    throw invalidLine(line, `${written}: no earlier stage has this number`);
  }
  if (from === "scratch") return { type: "scratch" };
  return { type: "image", reference: from };
}

function targetOf(stages: readonly Stage[], target: string | null): Stage {
  const found =
    target === null
      ? stages.at(-1)
      : (stages.find(({ name }) => name === target.toLowerCase()) ??
        (/^\d+$/.test(target) ? stages[Number(target)] : undefined));
  if (found !== undefined) return found;
  throw new AppError("INVALID_ARGUMENT", `target_stage: unknown stage '${target}'`, {
    details: { expected: stages.map(({ name, index }) => name ?? String(index)), received: target },
  });
}

function neededFor(target: Stage, stages: readonly Stage[]): Stage[] {
  const needed = new Set<number>();
  const visit = (stage: Stage): void => {
    if (needed.has(stage.index)) return;
    needed.add(stage.index);
    for (const base of [stage.base, ...stage.sources.values()]) {
      const other = base.type === "stage" ? stages[base.index] : undefined;
      if (other !== undefined) visit(other);
    }
  };
  visit(target);
  return stages.filter(({ index }) => needed.has(index));
}

/** An argument that nothing declares is a mistake in its name. */
function checkArguments({ arguments: given }: PlanRequest, instructions: readonly Instruction[]): void {
  const declared = new Set(
    instructions.flatMap((one) => (one.kind === "arg" ? one.entries.map(({ name }) => name) : [])),
  );
  const unknown = Object.keys(given).find((name) => !declared.has(name) && !PREDEFINED.has(name));
  if (unknown === undefined) return;
  throw new AppError("INVALID_ARGUMENT", `build_args: the build file declares no argument ${unknown.slice(0, 100)}`, {
    details: { expected: [...declared].slice(0, 20), received: unknown.slice(0, 100) },
  });
}
