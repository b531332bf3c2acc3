/** One message, or one command, for many containers of a tenant. A target that fails is a result, not a refusal. */
import type { Clock } from "../base/clock.ts";
import { AppError, publicText } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import { rewriteEnvelope } from "./envelope/envelope.ts";
import { refuse } from "./envelope/refusal.ts";
import type { Accepted, Content, Publishing, Sender, SentBy } from "./publishing.ts";

export interface BroadcastTargets {
  readonly container_ids?: readonly string[] | null | undefined;
  readonly include_non_running?: boolean | undefined;
  readonly limit?: number | null | undefined;
}

export interface BroadcastResult {
  readonly target: string;
  readonly msg_id: string;
  readonly result: Accepted | null;
  readonly error: string | null;
}

export interface BroadcastCommand {
  readonly command: readonly string[];
  readonly timeout_ms?: number | null | undefined;
  readonly workdir?: string | null | undefined;
  readonly capture_output: boolean;
  readonly detach: boolean;
}

export interface CommandResult {
  readonly container_id: string;
  readonly job_id: string | null;
  readonly exit_code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly timed_out: boolean;
  readonly error: string | null;
}

/** Who asks for a command. */
export interface CommandAsked {
  readonly tenant_id: string;
  readonly by: SentBy;
  readonly request_id: string;
}

/** Result of a command in one container. */
export type Ran = Omit<CommandResult, "container_id" | "error">;

export interface BroadcastsOptions {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly publishing: Publishing;
  /** Ids of the tenant's containers, the newest first, at most so many. */
  readonly containersOf: (
    tenant_id: string,
    options: { readonly isRunning: boolean; readonly count_max: number },
  ) => Promise<readonly string[]>;
  /** The state of a container. Rejects with NOT_FOUND. */
  readonly stateOf: (tenant_id: string, container_id: string) => Promise<string>;
  readonly run: (
    asked: CommandAsked,
    container_id: string,
    command: BroadcastCommand,
    signal: AbortSignal,
  ) => Promise<Ran>;
}

/** The job has the output. */
const OMITTED = `the outputs of the broadcast exceed ${LIMITS.broadcast_output_bytes_max} bytes; read this one from its job`;

/** Works on all items, a bounded number at the same time; results have the order of the items. */
async function each<Item, Result>(
  items: readonly Item[],
  at_once: number,
  work: (item: Item, index: number) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = new Array(items.length);
  const entries = items.entries();
  const worker = async (): Promise<void> => {
    for (const [i, item] of entries) results[i] = await work(item, i);
  };
  await Promise.all(Array.from({ length: Math.min(at_once, items.length) }, worker));
  return results;
}

const copyId = (msg_id: string, index: number): string => `${msg_id}-${index + 1}`;

/** Throws INVALID_ARGUMENT if the id of a copy would be longer than an id may be. */
function checkIds(msg_id: string, count: number): void {
  const suffix = copyId("", Math.max(count, 1) - 1);
  const max = LIMITS.icc_id_bytes_max - suffix.length;
  if (Buffer.byteLength(msg_id) > max) refuse("msg_id", `must be at most ${max} bytes: copies have '${suffix}' added`);
}

export class Broadcasts {
  readonly #options: BroadcastsOptions;

  constructor(options: BroadcastsOptions) {
    this.#options = options;
  }

  /** Publishes a copy of a message to each target. Rejects as `Publishing.prepare` for the message itself. */
  async publish(sender: Sender, content: Content, targets: BroadcastTargets) {
    const { publishing, clock, ids } = this.#options;
    const { tenant_id } = sender;
    const names = await this.#targets(tenant_id, targets);
    const model = await publishing.check(sender, content);
    checkIds(model.envelope.msg_id, names.length);
    const request_id = model.envelope.request_id || ids.next("req");
    const sent_at = Math.floor(clock.epochMs());
    const causation_id = model.envelope.causation_id || model.envelope.msg_id;
    const at_once = Math.floor(LIMITS.broadcast_bytes_at_once / model.bytes.byteLength);
    const results = await each(
      names,
      Math.min(Math.max(at_once, 1), LIMITS.broadcast_copies_at_once),
      async (target, i): Promise<BroadcastResult> => {
        const msg_id = copyId(model.envelope.msg_id, i);
        try {
          const address = await publishing.resolve(tenant_id, target);
          const to = address.text;
          if (targets.include_non_running !== true && address.kind === "container")
            await this.#checkRuns(tenant_id, to);
          const changes = { msg_id, request_id, causation_id, sent_at, seq: 0, to, stream_key: to };
          const envelope = { ...model.envelope, ...changes };
          const bytes = rewriteEnvelope(model.bytes, changes);
          const result = await publishing.send(tenant_id, { ...model, envelope, bytes, address });
          return { target, msg_id, result, error: null };
        } catch (error) {
          return { target, msg_id, result: null, error: publicText(error) };
        }
      },
    );
    const failed = results.filter(({ error }) => error !== null).length;
    return { request_id, accepted: results.length - failed, failed, results };
  }

  /** Runs a command in each target, a few at the same time. `succeeded` counts targets in which it ran. */
  async run(asked: CommandAsked, command: BroadcastCommand, targets: BroadcastTargets, signal: AbortSignal) {
    const names = await this.#targets(asked.tenant_id, targets);
    let output_left = LIMITS.broadcast_output_bytes_max;
    const results = await each(names, LIMITS.broadcast_commands_at_once, async (target): Promise<CommandResult> => {
      const ran = await this.#runIn(asked, target, command, signal);
      output_left -= Buffer.byteLength(ran.stdout) + Buffer.byteLength(ran.stderr);
      return output_left >= 0 ? ran : { ...ran, stdout: "", stderr: "", error: ran.error ?? OMITTED };
    });
    const failed = results.filter(({ error }) => error !== null).length;
    return { succeeded: results.length - failed, failed, results };
  }

  /** Throws NOT_RUNNING. */
  async #checkRuns(tenant_id: string, container_id: string): Promise<void> {
    const state = await this.#options.stateOf(tenant_id, container_id);
    if (state === "running") return;
    throw new AppError(
      "NOT_RUNNING",
      `container '${container_id}' is not running: ${state} (expected running, or include_non_running)`,
    );
  }

  async #runIn(asked: CommandAsked, target: string, command: BroadcastCommand, signal: AbortSignal) {
    const nothing = { job_id: null, exit_code: null, stdout: "", stderr: "", timed_out: false };
    if (signal.aborted) return { container_id: target, ...nothing, error: "the client left" };
    try {
      return { container_id: target, ...(await this.#options.run(asked, target, command, signal)), error: null };
    } catch (error) {
      return { container_id: target, ...nothing, error: publicText(error) };
    }
  }

  /** Names without blanks and duplicates, or all containers. */
  async #targets(tenant_id: string, targets: BroadcastTargets): Promise<readonly string[]> {
    const { container_ids = null, include_non_running = false, limit } = targets;
    const count_max = Math.min(limit ?? LIMITS.broadcast_targets_max, LIMITS.broadcast_targets_max);
    if (container_ids === null) {
      return this.#options.containersOf(tenant_id, { isRunning: !include_non_running, count_max });
    }
    const names = container_ids.map((name) => name.trim()).filter((name) => name !== "");
    return [...new Set(names)].slice(0, count_max);
  }
}
