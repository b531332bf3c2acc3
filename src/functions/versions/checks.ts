/** Checks of a version before anything of it runs: its code, its files and its command exist. */
import { posix } from "node:path";
import { CODE_INSIDE, RUNTIMES, type Runtime } from "../../../runtimes/index.ts";
import { AppError, invariant } from "../../base/errors.ts";
import type { Engine } from "../../engine/ports.ts";
import type { Classes } from "../classes.ts";
import { isModuleHandler } from "../foreign-handlers.ts";
import { type FunctionRecord, hasOwnImage, type VersionedFields } from "../schema.ts";
import { callDirectory, searchPath } from "../target.ts";
import type { ForeseenImage } from "./images.ts";
import { interpreterOf, SCRIPT_HEAD_BYTES } from "./scripts.ts";

const TYPE_MASK = 0o170000;
const DIRECTORY = 0o040000;
const EXECUTABLE = 0o111;

/** The part of the concern of code that checks use. */
export interface Code {
  /** Rejects with NOT_FOUND unless the tenant has code of this digest. */
  get(tenant_id: string, digest: string): Promise<{ readonly size_bytes: number }>;
  /**
   * Resolves to the type and permission bits of an entry of the tree, as stat(2) has them, links followed inside of the tree;
   * null if there is none.
   */
  modeOf(tenant_id: string, digest: string, path: string): Promise<number | null>;
  /** Resolves to the first bytes of a regular file of the tree, at most `bytes_max`, links followed inside of the tree. */
  headOf(tenant_id: string, digest: string, path: string, bytes_max: number): Promise<Buffer>;
}

export interface ChecksOptions {
  readonly engine: Engine;
  readonly classes: Classes;
  readonly code: Code;
}

/** The image of the version. While it is mounted, looks into it cost little. Without one, what needs it is not checked. */
type Pinned = Pick<ForeseenImage, "image" | "settings">;
type Version = VersionedFields & Pick<FunctionRecord, "tenant_id">;

function runtimeOfVersion(name: string): Runtime {
  const runtime = RUNTIMES.get(name);
  invariant(runtime !== undefined, `runtime ${name} exists`);
  return runtime;
}

function invalid(field: string, message: string, hint?: string): AppError {
  return new AppError("INVALID_ARGUMENT", `${field}: ${message}`, { hint });
}

function isInCode(path: string): boolean {
  return path === CODE_INSIDE || path.startsWith(`${CODE_INSIDE}/`);
}

export class Checks {
  readonly #options: ChecksOptions;

  constructor(options: ChecksOptions) {
    this.#options = options;
  }

  /**
   * Resolves to the version with the size of its code. Rejects with INVALID_ARGUMENT for unknown code, a missing directory, or
   * an image on which the runtime does not work.
   */
  async checked<Checked extends Version>(version: Checked, made: Pinned): Promise<Checked> {
    const { code_sha256, tenant_id } = version;
    let code_size_bytes: number | null = null;
    if (code_sha256 !== null) {
      try {
        code_size_bytes = (await this.#options.code.get(tenant_id, code_sha256)).size_bytes;
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== "NOT_FOUND") throw error;
        throw invalid("code_sha256", "no code of this digest has been uploaded");
      }
    }
    if (made.image !== null) {
      await this.#image(version, made);
      await this.#directory(version, made);
    }
    return { ...version, code_size_bytes };
  }

  /** Rejects with INVALID_ARGUMENT for a version that lacks code, or whose handler names what does not exist. */
  async deployable(version: Version & { readonly id: string | null }, made: Pinned): Promise<void> {
    const { runtime, code_sha256, id } = version;
    if (code_sha256 === null && runtimeOfVersion(runtime).needsCode) {
      throw new AppError("INVALID_ARGUMENT", `a function of the runtime ${runtime} needs code`, {
        hint:
          id === null
            ? "upload an archive of the code first and name its digest, or run hearth deploy in the folder"
            : `upload a tar or zip archive with PUT /api/functions/${id}/code, or run hearth deploy in its folder`,
      });
    }
    await this.#handler(version, made);
  }

  /** The programs that the runtime needs in an own image. */
  async #image(version: Version, made: Pinned): Promise<void> {
    if (!hasOwnImage(version)) return;
    for (const { one_of, complaint } of runtimeOfVersion(version.runtime).foreign.needs) {
      const modes = await Promise.all(one_of.map((path) => this.#modeOf(version, made, path)));
      if (modes.some((mode) => mode !== null && (mode & EXECUTABLE) !== 0)) continue;
      throw new AppError("INVALID_ARGUMENT", `image: '${version.image}' ${complaint}`, {
        hint: `choose another image, or another runtime than ${version.runtime}`,
      });
    }
  }

  async #directory(version: Version, made: Pinned): Promise<void> {
    const { working_directory } = version;
    // Code may follow.
    if (working_directory === null || (version.code_sha256 === null && isInCode(working_directory))) return;
    const mode = await this.#modeOf(version, made, working_directory);
    if (mode !== null && (mode & TYPE_MASK) === DIRECTORY) return;
    throw invalid("working_directory", `'${working_directory}' does not exist in the image or the code`);
  }

  /** The file or the command that the handler names. */
  async #handler(version: Version, made: Pinned): Promise<void> {
    if (made.image !== null) await this.#interpreter(version, made, version.handler, "the first line");
    const runtime = runtimeOfVersion(version.runtime);
    const named = runtime.program(version.handler, version.protocol);
    if (named === null) return;
    if (named.kind === "file") {
      if (version.code_sha256 === null) return;
      const mode = await this.#modeOf(version, made, posix.join(CODE_INSIDE, named.path));
      if (mode === null || (mode & TYPE_MASK) === DIRECTORY)
        throw invalid("handler", `the code has no file '${named.path}'`);
      return;
    }
    if (made.image === null) return;
    const { name, instead } = named;
    if (instead !== undefined && version.code_sha256 !== null) {
      const place = posix.join(CODE_INSIDE, instead);
      const mode = await this.#modeOf(version, made, place);
      if (mode !== null && (mode & TYPE_MASK) !== DIRECTORY) return this.#script(version, made, place);
    }
    const found = await this.#command(version, made, name);
    if (found.place !== null) return this.#script(version, made, found.place);
    const problem = found.isFile ? "file is not executable and does not begin with #!" : "command not found";
    throw invalid(
      "handler",
      `${problem}: ${name}`,
      isModuleHandler(version.handler)
        ? `choose the runtime nodejs or python3: a handler of ${version.runtime} is a command line`
        : undefined,
    );
  }

  /** Resolves to the program that a word of a command names; without one, to whether a file has its name. */
  async #command(version: Version, made: Pinned, name: string): Promise<{ place: string | null; isFile: boolean }> {
    const directory = callDirectory(version, made.settings);
    const path = searchPath(version, made.settings);
    const places = name.includes("/")
      ? [posix.resolve("/", directory, name)]
      : path.split(":").map((one) => posix.join(one, name));
    let isFile = false;
    for (const place of places) {
      const mode = await this.#modeOf(version, made, place);
      if (mode === null || (mode & TYPE_MASK) === DIRECTORY) continue;
      if ((mode & EXECUTABLE) !== 0) return { place, isFile: true };
      isFile = true;
    }
    return { place: null, isFile };
  }

  /** The interpreter of a script of the code. Programs of the image are the image's concern. */
  async #script(version: Version, made: Pinned, place: string): Promise<void> {
    const { code_sha256, tenant_id } = version;
    if (code_sha256 === null || !isInCode(place)) return;
    const file = place.slice(CODE_INSIDE.length + 1);
    const head = await this.#options.code.headOf(tenant_id, code_sha256, file, SCRIPT_HEAD_BYTES);
    await this.#interpreter(version, made, head.toString(), `the first line of '${file}'`);
  }

  async #interpreter(version: Version, made: Pinned, head: string, what: string): Promise<void> {
    const found = interpreterOf(head);
    if (found === null) return;
    if ("complaint" in found) {
      throw new AppError("INVALID_ARGUMENT", `handler: ${what} ${found.complaint}`, {
        hint: "write #!/path/of/interpreter, and end lines with a line feed alone (LF)",
      });
    }
    const { path, command } = found;
    const missing = (name: string) => invalid("handler", `${what} names an interpreter that does not exist: ${name}`);
    if ((await this.#command(version, made, path)).place === null) throw missing(path);
    // A version with a PATH of its own may find it elsewhere.
    if (command === null || version.environment.PATH !== undefined) return;
    if ((await this.#command(version, made, command)).place === null) throw missing(command);
  }

  /** Looks into the code for a path below /function, else into the image. */
  #modeOf(version: Version, { image }: Pinned, path: string): Promise<number | null> {
    const { engine, classes, code } = this.#options;
    const { code_sha256, tenant_id } = version;
    const clean = posix.resolve("/", path);
    if (!isInCode(clean)) {
      return engine.instances.modeOf(classes.made(version, hasOwnImage(version) ? image : null), clean);
    }
    if (code_sha256 === null) return Promise.resolve(null);
    return code.modeOf(tenant_id, code_sha256, clean.slice(CODE_INSIDE.length + 1));
  }
}
