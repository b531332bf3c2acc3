/**
 * Stages as steps: each instruction that changes files is a step with a key, all others change the settings of the image.
 *
 * T1. The key of a step is the digest of everything that its result depends on: the tenant, the key of the files that it begins
 *     with, its command with environment, user and directory, and of a copy what is copied. Two steps with one key have the
 *     same result, or differ only in what their commands did differently.
 * T2. The key is known before anything runs, so that a build runs no step whose result is kept.
 * T3. Values of secrets are in no key, but the names of those that the request gives to a step are: without them the command does
 *     something else. A step that reads a secret is repeated when its command changes, not its secret.
 */
import { createHash } from "node:crypto";
import { posix } from "node:path";
import { PATH_INSIDE, unlessRoot } from "../../base/container-environment.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { invalidLine } from "./build-file.ts";
import { isUrl, type RemoteFile, remoteFile } from "./downloads.ts";
import { isGit } from "./git/source.ts";
import { type CopyInstruction, type Instruction, type RunInstruction, triggered } from "./instructions.ts";
import { checkMode } from "./mode.ts";
import { checkNested, type RunMount, runMount, SCRIPT_FILE } from "./mounts.ts";
import type { Base, Plan, Stage } from "./plan.ts";
import { Settings } from "./settings.ts";
import { PIVOT } from "./source-files.ts";
import { expand, expandVariables, newTextBudget, ownValue, type TextBudget, type Words } from "./variables.ts";

/** Version of the executor: another one has other results for the same steps. */
const VERSION = 3;
const CHECKSUM = /^sha256:([0-9a-f]{64})$/i;
/** As BuildKit: the first digits will do. */
const COMMIT_CHECKSUM = /^([0-9a-f]{7,40})$/i;
const MOUNTS_MAX = [
  ["cache", LIMITS.build_cache_mounts_max],
  ["bind", LIMITS.build_bind_mounts_max],
] as const;

/** A mount, and the files that it shows or begins with. */
export type StepMount = RunMount & { readonly files?: MountFiles };

export interface MountFiles {
  /** Null: the context. */
  readonly from: Base | null;
  /** Relative to the root of `from`. */
  readonly source: string;
  /** T1: what they are. */
  readonly key: unknown;
}

export interface RunStep {
  readonly type: "run";
  readonly argv: readonly string[];
  /** Content of the file that argv names; null: the command is none of the build file's scripts. */
  readonly script: string | null;
  readonly environment: Readonly<Record<string, string>>;
  readonly user: string | null;
  readonly working_directory: string;
  readonly mounts: readonly StepMount[];
  /** Names of the secrets of its mounts that the request gives (T3). */
  readonly secrets: readonly string[];
  readonly has_network: boolean;
}

export interface CopyStep {
  readonly type: "copy";
  /** Archives among the sources are unpacked, and among the files of URLs. */
  readonly unpacks: { readonly sources: boolean; readonly urls: boolean };
  readonly from: Base | null;
  /** Relative to the root of what is copied from, or patterns of such paths. */
  readonly sources: readonly string[];
  readonly urls: readonly RemoteFile[];
  readonly documents: readonly { readonly name: string; readonly content: string }[];
  /** Absolute. */
  readonly target: string;
  /** The target is a directory, whatever is there. */
  readonly is_directory: boolean;
  readonly owner: string | null;
  /** As `--chmod` has it; null: modes stay. */
  readonly mode: string | null;
  /** Links on the way to the target are replaced by directories. */
  readonly is_link: boolean;
  /** Sources keep the directories of their path behind `/./`, or all of it. */
  readonly has_parents: boolean;
  /** Patterns of what is left out, relative to the source or to where its path is kept from. */
  readonly excludes: readonly string[];
}

/** What says which files are copied. */
export type CopySources = Pick<CopyStep, "from" | "sources" | "has_parents" | "excludes">;

/** Makes the directory unless it is there. */
export interface DirectoryStep {
  readonly type: "directory";
  readonly path: string;
}

export interface Step {
  readonly key: string;
  readonly work: RunStep | CopyStep | DirectoryStep;
  readonly text: string;
  readonly line: number;
  /** Of all steps of the build, from 1 on. */
  readonly number: number;
}

export interface HistoryLine {
  readonly created_by: string;
  readonly has_files: boolean;
  /** Of the files after the step; null: the instruction changes no files. */
  readonly key: string | null;
}

export interface EvaluatedStage {
  readonly index: number;
  /** Null: its root is empty at first. */
  readonly image_id: string | null;
  /** The stage whose files it begins with, if any. */
  readonly parent: EvaluatedStage | null;
  readonly steps: readonly Step[];
  /** Of its files at the end. */
  readonly key: string;
  readonly settings: Settings;
  /** Its arguments and its parents', by their names. */
  readonly args: ReadonlyMap<string, string>;
  /** Of all its instructions and its parents'. */
  readonly history: readonly HistoryLine[];
}

export interface BaseImage {
  readonly image_id: string;
  readonly config_json: string;
}

export interface Evaluation {
  readonly tenant_id: string;
  readonly plan: Plan;
  readonly arguments: Readonly<Record<string, string>>;
  /** Finds, or pulls, the image of a base. */
  readonly image: (reference: string) => Promise<BaseImage>;
  /** Digest of what a step copies from the context. */
  readonly contextDigest: (step: CopySources, line: number) => Promise<string>;
  /** Digest of the file of a URL. */
  readonly downloadKey: (file: RemoteFile) => Promise<string>;
  readonly egress: unknown;
  /** Names of secrets in the request. */
  readonly secrets: readonly string[];
}

export function digestOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex");
}

/** True if a stage, or one that it begins with, changes files: without, it has those of its image and no root of its own. */
export function changesFiles({ steps, parent }: Pick<EvaluatedStage, "steps" | "parent">): boolean {
  return steps.length > 0 || (parent !== null && changesFiles(parent));
}

/** Evaluates all stages of a plan, by their index. Throws INVALID_ARGUMENT and what finding an image throws. */
export async function evaluate(evaluation: Evaluation): Promise<ReadonlyMap<number, EvaluatedStage>> {
  const done = new Map<number, EvaluatedStage>();
  const counter = { number: 0, budget: newTextBudget() };
  for (const stage of evaluation.plan.stages) {
    done.set(stage.index, await new StageEvaluation(evaluation, stage, done, counter).run());
  }
  return done;
}

class StageEvaluation {
  readonly #evaluation: Evaluation;
  readonly #stage: Stage;
  readonly #earlier: ReadonlyMap<number, EvaluatedStage>;
  readonly #counter: { number: number; readonly budget: TextBudget };
  readonly #steps: Step[] = [];
  readonly #history: HistoryLine[] = [];
  readonly #args = new Map<string, string>();
  #settings = Settings.empty();
  #key = "";

  constructor(
    evaluation: Evaluation,
    stage: Stage,
    earlier: ReadonlyMap<number, EvaluatedStage>,
    counter: { number: number; readonly budget: TextBudget },
  ) {
    this.#evaluation = evaluation;
    this.#stage = stage;
    this.#earlier = earlier;
    this.#counter = counter;
  }

  async run(): Promise<EvaluatedStage> {
    const { image_id, parent } = await this.#begin();
    const triggers = this.#takeTriggers();
    for (const [i, instruction] of this.#stage.instructions.entries()) {
      this.#counter.number++;
      await this.#apply(instruction);
      if (i === 0) for (const trigger of triggers) await this.#apply(trigger);
    }
    const history = [...(parent?.history ?? []), ...this.#history];
    return {
      ...{ index: this.#stage.index, image_id, parent, history },
      ...{ steps: this.#steps, key: this.#key, settings: this.#settings, args: this.#args },
    };
  }

  /** What the stage or image below has for this stage, and for none above it. */
  #takeTriggers(): readonly Instruction[] {
    const { triggers } = this.#settings;
    const line = this.#stage.instructions[0]?.line ?? 1;
    if (triggers.length > LIMITS.build_instructions_max) {
      throw invalidLine(line, `too many instructions for the next build (limit ${LIMITS.build_instructions_max})`);
    }
    this.#settings.triggers = [];
    return triggers.map((trigger) => triggered(trigger, this.#evaluation.plan.escape_char, line));
  }

  async #begin(): Promise<Pick<EvaluatedStage, "image_id" | "parent">> {
    const { base } = this.#stage;
    const { tenant_id, image } = this.#evaluation;
    if (base.type === "stage") {
      const parent = this.#earlier.get(base.index) ?? null;
      if (parent === null) throw new AppError("INVALID_ARGUMENT", `stage refers to a later stage: ${base.index}`);
      this.#settings = parent.settings.copy();
      for (const [name, value] of parent.args) this.#args.set(name, value);
      this.#key = parent.key;
      return { image_id: parent.image_id, parent };
    }
    const found = base.type === "image" ? await image(base.reference) : null;
    if (found !== null) this.#settings = Settings.of(found.config_json);
    this.#key = digestOf([VERSION, tenant_id, "base", found?.image_id ?? null]);
    return { image_id: found?.image_id ?? null, parent: null };
  }

  async #apply(instruction: Instruction): Promise<void> {
    const settings = this.#settings;
    const words = this.#words(instruction.line);
    let has_files = false;
    switch (instruction.kind) {
      case "arg":
        for (const { name, value } of instruction.entries) this.#declare(name, value, words);
        break;
      case "env": {
        // All see the variables as they were before the instruction.
        const values = instruction.pairs.map(({ name, value }) => [expand(name, words), expand(value, words)] as const);
        for (const [name, value] of values) settings.environment.set(name, value);
        this.#checkEnvironment(instruction.line);
        break;
      }
      case "label":
        for (const { name, value } of instruction.pairs) settings.labels.set(expand(name, words), expand(value, words));
        break;
      case "run":
        this.#add(instruction, await this.#runStep(instruction, words));
        has_files = true;
        break;
      case "copy": {
        const step = this.#copyStep(instruction, words);
        const urls: string[] = [];
        for (const file of step.urls) urls.push(await this.#evaluation.downloadKey(file));
        const source = await this.#sourceKey(step, instruction.line);
        this.#add(instruction, step, urls.length === 0 ? source : [source, urls]);
        has_files = true;
        break;
      }
      case "workdir":
        settings.working_directory = this.#absolute(expand(instruction.value, words));
        this.#add(instruction, { type: "directory", path: settings.working_directory });
        has_files = true;
        break;
      case "volume":
        for (const word of instruction.words) settings.volumes.add(expand(word, words));
        break;
      case "expose":
        for (const word of instruction.words) settings.expose(expand(word, words), instruction.line);
        break;
      case "onbuild":
        settings.triggers = [...settings.triggers, instruction.trigger];
        break;
      case "none":
        break;
      case "from":
        break;
      default:
        this.#set(instruction, words);
    }
    if (instruction.kind !== "none" && instruction.kind !== "from") {
      const created_by = instruction.text.slice(0, LIMITS.path_bytes_max);
      this.#history.push({ created_by, has_files, key: has_files ? this.#key : null });
    }
  }

  /** Instructions that set one setting. */
  #set(instruction: Instruction, words: Words): void {
    const settings = this.#settings;
    if (instruction.kind === "user") settings.user = expand(instruction.value, words) || null;
    else if (instruction.kind === "stopsignal") settings.stop_signal = expand(instruction.value, words);
    else if (instruction.kind === "cmd") settings.setCommand(instruction.command);
    else if (instruction.kind === "entrypoint") settings.setEntrypoint(instruction.command);
    else if (instruction.kind === "shell") settings.shell = instruction.argv;
    else if (instruction.kind === "healthcheck")
      settings.setHealth(instruction.command, instruction.flags, instruction.line);
  }

  #words(line: number): Words {
    const value = (name: string) =>
      this.#settings.environment.get(name) ?? this.#args.get(name) ?? (name === "PATH" ? PATH_INSIDE : undefined);
    return { escape_char: this.#evaluation.plan.escape_char, line, value, budget: this.#counter.budget };
  }

  #declare(name: string, value: string | null, words: Words): void {
    const { arguments: given, plan } = this.#evaluation;
    const found = ownValue(given, name) ?? (value === null ? plan.globals.get(name) : expand(value, words));
    if (found === undefined) return;
    this.#args.set(name, found);
    this.#checkEnvironment(words.line);
  }

  #checkEnvironment(line: number): void {
    const all = [...this.#settings.environment, ...this.#args];
    const bytes = all.reduce((sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value) + 2, 0);
    if (all.length > LIMITS.environment_entries_max || bytes > LIMITS.environment_bytes_max) {
      throw invalidLine(
        line,
        `environment and arguments too large (limit ${LIMITS.environment_bytes_max} bytes, ${LIMITS.environment_entries_max} variables)`,
      );
    }
  }

  #absolute(path: string): string {
    return posix.resolve(this.#settings.working_directory, path);
  }

  async #runStep({ command, mounts: texts, has_network }: RunInstruction, words: Words): Promise<RunStep> {
    const settings = this.#settings;
    const { line } = words;
    const given = new Set(this.#evaluation.secrets);
    const { working_directory } = settings;
    const all = texts.map((one) => runMount(one, { expand: (text) => expand(text, words), working_directory, line }));
    checkNested(all, line);
    for (const [type, limit] of MOUNTS_MAX) {
      if (all.filter((mount) => mount.type === type).length > limit)
        throw invalidLine(line, `too many ${type} mounts (limit ${limit})`);
    }
    const wanted = all.filter((mount) => mount.type === "secret");
    const missing = wanted.find(({ id, is_required }) => is_required && !given.has(id));
    if (missing !== undefined) throw invalidLine(line, `the request names no secret ${missing.id}`);
    const mounts: StepMount[] = [];
    for (const mount of all) mounts.push(await this.#withFiles(mount, line));
    return {
      type: "run",
      ...("script" in command
        ? { argv: [SCRIPT_FILE], script: command.script }
        : { argv: settings.argv(command), script: null }),
      environment: { ...Object.fromEntries(this.#args), ...Object.fromEntries(settings.environment) },
      user: unlessRoot(settings.user),
      working_directory,
      mounts,
      secrets: wanted.map(({ id }) => id).filter((id) => given.has(id)),
      has_network,
    };
  }

  async #withFiles(mount: RunMount, line: number): Promise<StepMount> {
    if ((mount.type !== "bind" && mount.type !== "cache") || mount.origin === null) return mount;
    const { from: written, source } = mount.origin;
    const from = written === null ? null : this.#source(written, line);
    const key = await this.#sourceKey(
      { from, sources: [literalPattern(source)], has_parents: false, excludes: [] },
      line,
    );
    return { ...mount, files: { from, source, key } };
  }

  #copyStep(instruction: CopyInstruction & { readonly line: number }, words: Words): CopyStep {
    const target = expand(instruction.target, words);
    const mode = instruction.mode === null ? null : expand(instruction.mode, words);
    if (mode !== null) checkMode(mode, words.line);
    const { has_parents, is_link } = instruction;
    const count = instruction.sources.length + instruction.documents.length;
    const is_directory = target === "." || target === ".." || /\/\.{0,2}$/.test(target);
    if (count > 1 && !is_directory)
      throw invalidLine(
        words.line,
        `COPY target not a directory: '${target}' (several sources need a target that ends with /)`,
      );
    const from = instruction.from === null ? null : this.#source(instruction.from, words.line);
    const sources = instruction.sources.map((source) => expand(source, words));
    const isRemote = (source: string) => instruction.keyword === "ADD" && isUrl(source);
    const [remote, local] = [sources.filter(isRemote), sources.filter((source) => !isRemote(source))];
    const checksum = this.#checksum(instruction, remote, words);
    return {
      type: "copy",
      unpacks: {
        sources: instruction.is_unpacked ?? instruction.keyword === "ADD",
        urls: instruction.is_unpacked ?? false,
      },
      from,
      sources: local.map((source) => sourcePath(source, words.line, has_parents)),
      urls: remote.map((url) => remoteFile(url, checksum, (why) => invalidLine(words.line, why))),
      documents: instruction.documents.map(({ name, content, is_expanded }) => ({
        name,
        content: is_expanded ? expandVariables(content, words) : content,
      })),
      target: this.#absolute(target),
      is_directory,
      owner: instruction.owner === null ? null : expand(instruction.owner, words),
      ...{ mode, is_link, has_parents },
      excludes: instruction.excludes.map((pattern) => expand(pattern, words)),
    };
  }

  /** Of a file SHA-256, of git a commit or how it begins, as hexadecimal digits. */
  #checksum({ checksum, sources }: CopyInstruction, remote: readonly string[], words: Words): string | null {
    if (checksum === null) return null;
    const [form, expected] = remote.some(isGit)
      ? [COMMIT_CHECKSUM, "7 to 40 digits of a commit"]
      : [CHECKSUM, "sha256:…"];
    const [, digits = null] = form.exec(expand(checksum, words)) ?? [];
    if (digits === null)
      throw invalidLine(words.line, `malformed checksum: '${checksum.slice(0, 100)}' (expected ${expected})`);
    if (remote.length !== 1 || sources.length !== 1)
      throw invalidLine(words.line, "ADD --checksum needs one URL as its source");
    return digits.toLowerCase();
  }

  /** Of COPY --from. Only those of triggers are unknown to the plan: a stage that is made before, or an image. */
  #source(from: string, line: number): Base {
    const known = this.#stage.sources.get(from);
    if (known !== undefined) return known;
    const stages = this.#evaluation.plan.stages.filter(({ index }) => this.#earlier.has(index));
    const found = stages.find(({ name, index }) => name === from.toLowerCase() || String(index) === from);
    if (found !== undefined) return { type: "stage", index: found.index };
    if (from === "scratch") return { type: "scratch" };
    if (/^\d+$|\$/.test(from)) throw invalidLine(line, `COPY --from=${from.slice(0, 100)}: no such stage is made`);
    return { type: "image", reference: from };
  }

  /** T1: what is copied. */
  async #sourceKey(step: CopySources, line: number): Promise<unknown> {
    if (step.from === null) {
      return step.sources.length === 0 ? null : ["context", await this.#evaluation.contextDigest(step, line)];
    }
    if (step.from.type === "stage") return ["stage", this.#earlier.get(step.from.index)?.key];
    if (step.from.type === "image") return ["image", (await this.#evaluation.image(step.from.reference)).image_id];
    throw invalidLine(line, "scratch has no files");
  }

  #add({ text, line }: Instruction, work: Step["work"], source: unknown = null): void {
    const { tenant_id, egress } = this.#evaluation;
    const network = work.type === "run" ? egress : null;
    // A relative target and a working directory are in the absolute path.
    this.#key = digestOf([VERSION, tenant_id, this.#key, work, source, network]);
    this.#steps.push({ key: this.#key, work, text, line, number: this.#counter.number });
  }
}

/** A pattern that matches a path alone. */
const literalPattern = (path: string): string => path.replace(/[*?[\\]/g, "\\$&");

/** A source relative to the root, which `..` does not leave. `/./` marks where the kept part of a path begins. */
function sourcePath(source: string, line: number, has_parents: boolean): string {
  const at = has_parents ? source.indexOf(PIVOT) : -1;
  if (at >= 0) {
    const kept = sourcePath(source.slice(at + PIVOT.length), line, false);
    return `${sourcePath(source.slice(0, at), line, false)}${PIVOT}${kept}`;
  }
  if (source.includes("\0")) throw invalidLine(line, "a source contains a NUL character");
  if (source.length > LIMITS.build_pattern_length_max) throw invalidLine(line, "a source is too long");
  return posix.resolve("/", source).slice(1);
}
