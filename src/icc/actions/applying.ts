/**
 * Applies each acting payload to a container, through the verbs of its concern. A dry run validates the payload and changes
 * nothing.
 */
import type { z } from "zod";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { absolutePath } from "../../base/schema.ts";
import { argv, containerEnvironment, environmentBody } from "../../containers/schema.ts";
import type { Containers } from "../../containers/service.ts";
import type { FileAttributes, FileSession } from "../../engine/ports.ts";
import type { EnvPatch, ExecCommand, FilePatch, LifecycleAction, Payload, StatePatch } from "../envelope/envelope.ts";
import { invalid } from "../envelope/refusal.ts";
import { mediaType } from "../state/entries.ts";
import type { States } from "../state/service.ts";

/** A command that runs in a container. */
export interface ActionCommand {
  readonly argv: readonly string[];
  readonly timeout_ms: number;
  readonly workdir: string | null;
  readonly environment: Readonly<Record<string, string>>;
}

/** Result of a command. */
export interface CommandEnd {
  readonly job_id: string;
  /** Null: it was not seen to its end. */
  readonly exit_code: number | null;
  readonly stderr: string;
  readonly timed_out: boolean;
}

export interface ApplyingOptions {
  readonly containers: Containers;
  readonly states: States;
  readonly run: (
    tenant_id: string,
    container_id: string,
    command: ActionCommand,
    signal: AbortSignal,
  ) => Promise<CommandEnd>;
}

export interface Action {
  readonly tenant_id: string;
  readonly container_id: string;
  /** Sender. */
  readonly from: string;
  readonly msg_id: string;
  readonly payload: Payload;
  /** Checks alone. */
  readonly is_dry: boolean;
  /** Aborted when the daemon stops. */
  readonly signal: AbortSignal;
}

/** A file's whole content, in these media types. */
const CONTENT_TYPES = ["application/octet-stream", "text/plain", "application/json"];
const LIFECYCLE = ["start", "stop", "restart", "kill"] as const;

export class Applying {
  readonly #options: ApplyingOptions;

  constructor(options: ApplyingOptions) {
    this.#options = options;
  }

  /**
   * Applies an action. Resolves to what is to be said of it, mostly nothing. Rejects with INVALID_ARGUMENT for a bad payload, and
   * with the refusals of the verb: NOT_FOUND, NOT_RUNNING, WRONG_STATE, TIMEOUT and others.
   */
  apply(action: Action): Promise<string> {
    const { payload } = action;
    switch (payload.kind) {
      case "exec_command":
        return this.#exec(action, payload.value);
      case "file_patch":
        return this.#file(action, payload.value);
      case "env_patch":
        return this.#environment(action, payload.value);
      case "lifecycle_action":
        return this.#lifecycle(action, payload.value);
      case "state_patch":
        return this.#state(action, payload.value);
      default:
        return Promise.reject(invalid("payload", `is no action: ${payload.kind}`));
    }
  }

  async #exec({ tenant_id, container_id, is_dry, signal }: Action, command: ExecCommand): Promise<string> {
    const { containers, run } = this.#options;
    const { timeout_ms, workdir } = command;
    if (timeout_ms > LIMITS.exec_timeout_ms_max) {
      throw invalid("timeout_ms", `must be at most ${LIMITS.exec_timeout_ms_max}: ${timeout_ms}`);
    }
    const wanted: ActionCommand = {
      argv: checked(argv, command.argv, "argv"),
      timeout_ms: timeout_ms === 0 ? LIMITS.exec_timeout_ms_default : timeout_ms,
      workdir: workdir === "" ? null : checked(absolutePath, workdir, "workdir"),
      environment: checked(containerEnvironment, command.env, "env"),
    };
    if (is_dry) {
      const { state } = await containers.row(tenant_id, container_id);
      if (state === "running") return "";
      throw new AppError("NOT_RUNNING", `container '${container_id}' is not running: ${state}`);
    }
    const end = await run(tenant_id, container_id, wanted, signal);
    if (end.timed_out) throw new AppError("TIMEOUT", `killed at timeout_ms, job ${end.job_id}`);
    if (end.exit_code === null)
      throw new AppError("NOT_RESPONDING", `the connection to the command broke, job ${end.job_id}`);
    if (end.exit_code === 0) return "";
    const stderr = end.stderr.trim();
    return `exit code ${end.exit_code}, job ${end.job_id}${stderr === "" ? "" : `: ${stderr}`}`;
  }

  async #file({ tenant_id, container_id, is_dry }: Action, { path, content_type, patch }: FilePatch): Promise<string> {
    const plain = checked(absolutePath, path, "path");
    if (plain.includes("\0")) throw invalid("path", "must not contain a NUL character");
    if (plain.endsWith("/") || /(^|\/)\.\.?$/.test(plain)) throw invalid("path", "must name a file");
    if (!CONTENT_TYPES.includes(mediaType(content_type))) {
      throw invalid(
        "content_type",
        `is unknown: '${content_type.slice(0, 100)}' (known: ${CONTENT_TYPES.join(", ")})`,
        {
          details: { expected: CONTENT_TYPES },
        },
      );
    }
    const { session, close } = await this.#options.containers.openFiles(tenant_id, container_id);
    try {
      const attributes = await attributesAt(session, plain);
      const owner =
        attributes === null ? await this.#options.containers.findOwner(tenant_id, container_id, session) : null;
      if (is_dry) return "";
      // The directories that it lacks belong to the same.
      if (owner !== null) await session.setBase(plain.slice(0, plain.lastIndexOf("/") + 1), owner);
      await session.write(plain, patch, attributes ?? owner ?? {});
    } finally {
      close();
    }
    return "";
  }

  async #environment({ tenant_id, container_id, is_dry }: Action, { set, unset }: EnvPatch): Promise<string> {
    const { containers } = this.#options;
    const both = unset.find((name) => Object.hasOwn(set, name));
    if (both !== undefined) throw invalid("unset", `names a variable that is set too: ${both.slice(0, 64)}`);
    const gone = new Set(unset);
    const change = (before: Readonly<Record<string, string>>) => {
      const kept = Object.entries(before).filter(([name]) => !gone.has(name));
      // The merged environment has the bounds of a request.
      return checked(environmentBody, { environment: { ...Object.fromEntries(kept), ...set } }, "set").environment;
    };
    if (is_dry) change(await containers.environment(tenant_id, container_id));
    else await containers.setEnvironment(tenant_id, container_id, change);
    return "";
  }

  async #lifecycle({ tenant_id, container_id, is_dry }: Action, { action }: LifecycleAction): Promise<string> {
    const { containers } = this.#options;
    const verb = LIFECYCLE.find((one) => one === action);
    if (verb === undefined) {
      throw invalid("action", `is unknown: ${action.slice(0, 64)} (known: ${LIFECYCLE.join(", ")})`, {
        details: { expected: LIFECYCLE },
      });
    }
    const { state } = await containers.held(tenant_id, container_id);
    if (verb === "start" && state === "running") return "";
    if (is_dry) {
      if (verb === "start") await containers.checkStart(tenant_id, container_id);
      return "";
    }
    if (verb === "kill") await containers.kill(tenant_id, container_id);
    if (verb === "stop" || verb === "restart") {
      await containers.stop(tenant_id, container_id, LIMITS.stop_grace_ms_default);
    }
    if (verb === "start" || verb === "restart") await containers.start(tenant_id, container_id);
    return "";
  }

  /** The state of the container is the entry of its id among the tenant's states. */
  async #state({ tenant_id, container_id, from, msg_id, is_dry }: Action, patched: StatePatch): Promise<string> {
    const { content_type, patch } = patched;
    const patching = { content_type, patch, from, if_version: null, msg_id, is_dry };
    await this.#options.states.patch(tenant_id, { key: container_id, ...patching });
    return "";
  }
}

/** A file that is replaced keeps its mode and its owner. Null: there is none. */
async function attributesAt(session: FileSession, path: string): Promise<FileAttributes | null> {
  try {
    const { type, mode, uid, gid } = await session.stat(path);
    if (type === "file") return { mode: mode & 0o777, uid, gid };
    if (type !== "directory") return null;
  } catch (error) {
    if (error instanceof AppError && error.code === "NOT_FOUND") return null;
    throw error;
  }
  throw invalid("path", "is a directory");
}

function checked<Schema extends z.ZodType>(schema: Schema, value: unknown, path: string): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw invalid(path, result.error.issues[0]?.message ?? "is invalid");
}
