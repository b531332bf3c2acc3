/**
 * `hearth fork <container> -- <command>`: the command runs in copies of a container, which are deleted after it.
 *
 * T1. Whatever ends it (the command, a failure, Ctrl-C), all copies and the snapshot are deleted unless --keep is given.
 *     The command names those that it cannot delete; the daemon deletes them after a day.
 * T2. The copies are known by id before they exist, so that an interrupt between misses none.
 */
import { each } from "../../base/concurrency.ts";
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import type { Client } from "../../client/client.ts";
import { deadline } from "../containers/exec.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { shellWord, visible } from "../output/text.ts";
import { EXIT } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import { type Flags, isRefusal, type Session } from "../session/session.ts";
import { type ForkOutcome, outcomeText } from "./fork-text.ts";
import { type CopyItem, labelsOf, modesOf, noteWarnings } from "./snapshots.ts";

const EXECUTION = { execution: "async" as const };

/** Label of a volume that was copied for a container: the container's id. */
const VOLUME_LABEL = "hearth.copied_for";

interface Copy {
  readonly name: string;
  readonly container_id: string | null;
  readonly error: string | null;
}

export async function runInForks(session: Session, name: string, command: string[], flags: Flags): Promise<void> {
  const trial = new Trial(session, await session.tenantClient(LIMITS.cli_call_timeout_ms), flags);
  const outcomes = await trial.run(await session.containerId(name), name, command);
  const { snapshot_id } = trial;
  const isKept = flags.keep === true;
  if (isKept && session.flags.json !== true) session.terminal.note(`snapshot ${snapshot_id} and the copies are kept`);
  if (outcomes === null) {
    process.exitCode = EXIT.interrupted;
    return;
  }
  session.show({ snapshot_id, is_kept: isKept, forks: outcomes }, () =>
    outcomes.map((outcome) => outcomeText(outcome, session.terminal.paint)).join(""),
  );
  process.exitCode = outcomes.every(({ exit_code }) => exit_code === 0) ? EXIT.success : EXIT.refused;
}

class Trial {
  readonly #session: Session;
  readonly #client: Client;
  readonly #flags: Flags;
  readonly #interrupt = new AbortController();
  /** T2. */
  readonly #container_ids: string[] = [];
  snapshot_id: string | null = null;

  constructor(session: Session, client: Client, flags: Flags) {
    this.#session = session;
    this.#client = client;
    this.#flags = flags;
  }

  /** Null if Ctrl-C ended it. */
  async run(container_id: string, name: string, command: string[]): Promise<ForkOutcome[] | null> {
    const session = this.#session;
    const onInterrupt = (): void => {
      if (this.#interrupt.signal.aborted) process.exit(EXIT.interrupted);
      this.#interrupt.abort();
      if (this.#flags.keep !== true) session.terminal.note("deleting the copies; Ctrl-C again leaves them");
    };
    session.interrupt_exit_code = null;
    process.on("SIGINT", onInterrupt);
    try {
      const outcomes = await this.#steps(container_id, name, command);
      return this.#isInterrupted ? null : outcomes;
    } finally {
      // T1.
      if (this.#flags.keep !== true) await session.terminal.progress("deleting the copies", this.#cleanUp());
      process.off("SIGINT", onInterrupt);
      session.interrupt_exit_code = EXIT.interrupted;
    }
  }

  get #isInterrupted(): boolean {
    return this.#interrupt.signal.aborted;
  }

  async #steps(container_id: string, name: string, command: string[]): Promise<ForkOutcome[]> {
    const snapshot_id = await this.#takeSnapshot(container_id, name);
    if (this.#isInterrupted) return [];
    const copies = await this.#clone(snapshot_id, name);
    const outcomes = new Map<Copy, ForkOutcome>();
    const running = each(copies, LIMITS.cli_forks_at_once, async (copy) => {
      if (!this.#isInterrupted) outcomes.set(copy, await this.#runIn(copy, command, snapshot_id));
    });
    await this.#session.terminal.progress(`running in ${counted(copies.length, "copy", "copies")}`, running);
    return copies.flatMap((copy) => outcomes.get(copy) ?? []);
  }

  async #takeSnapshot(container_id: string, name: string): Promise<string> {
    const ttl_seconds = this.#flags.keep === true ? undefined : LIMITS.cli_fork_seconds;
    const body = { ...modesOf(this.#flags), ttl_seconds };
    const asked = { params: { container_id }, query: EXECUTION, body };
    const answer = await this.#client.request("POST /api/containers/:container_id/snapshot", asked);
    if ("snapshot_id" in answer) this.snapshot_id = answer.snapshot_id;
    const operation = await succeeded(this.#session, accepted(answer), `taking a snapshot of ${name}`);
    noteWarnings(this.#session, operation);
    return this.snapshot_id ?? "";
  }

  async #clone(snapshot_id: string, name: string): Promise<Copy[]> {
    const flags = this.#flags;
    const body = {
      ...{ name: flags.name as string | undefined, count: flags.count as number | undefined },
      ...{ labels: labelsOf(flags), resume_policy: "immediate" as const },
      ttl_seconds: (flags.ttl as number | undefined) ?? (flags.keep === true ? undefined : LIMITS.cli_fork_seconds),
    };
    const asked = { params: { snapshot_id }, query: EXECUTION, body };
    const answer = await this.#client.request("POST /api/snapshots/:snapshot_id/clone", asked);
    if ("container_ids" in answer) this.#container_ids.push(...answer.container_ids);
    // Not interrupted: a copy can be deleted when it is complete.
    const { items } = await succeeded(this.#session, accepted(answer), `starting copies of ${name}`);
    if (items === null) return this.#onlyCopy();
    return (items as unknown as readonly CopyItem[]).map(({ name, container_id = null, error = null }) => ({
      ...{ name, container_id, error },
    }));
  }

  /** The copy of a request for one, whose operation may have no items. */
  async #onlyCopy(): Promise<Copy[]> {
    const [container_id = ""] = this.#container_ids;
    const asked = { params: { container_id } };
    const { name } = await this.#client.request("GET /api/containers/:container_id", asked);
    return [{ name, container_id, error: null }];
  }

  async #runIn({ name, container_id, error }: Copy, command: string[], since: string): Promise<ForkOutcome> {
    const nothing = { stdout: "", stderr: "", stdout_truncated: false, stderr_truncated: false, timed_out: false };
    const failed = { name, container_id, exit_code: null, duration_ms: null, changes: null, ...nothing };
    if (container_id === null) return { ...failed, error };
    const { signal } = this.#interrupt;
    const params = { container_id };
    const body = { command, timeout_ms: deadline(this.#flags) };
    try {
      const ended = await this.#client.request("POST /api/containers/:container_id/exec", { params, body, signal });
      const { exit_code, stdout, stderr, stdout_truncated, stderr_truncated, timed_out, execution_time_ms } = ended;
      const outcome = {
        ...{ name, container_id, exit_code, duration_ms: execution_time_ms, timed_out },
        ...{ stdout, stderr, stdout_truncated, stderr_truncated },
      };
      try {
        const asked = { params, query: { since }, signal };
        const changes = await this.#client.request("GET /api/containers/:container_id/changes", asked);
        return { ...outcome, changes, error: null };
      } catch (thrown) {
        return { ...outcome, changes: null, error: textOf(thrown) };
      }
    } catch (thrown) {
      return { ...failed, error: textOf(thrown) };
    }
  }

  /** T1. Never rejects. */
  async #cleanUp(): Promise<void> {
    await each(this.#container_ids, LIMITS.cli_forks_at_once, async (container_id) => {
      const params = { container_id };
      await this.#remove(`hearth rm -f ${container_id}`, () =>
        this.#client.request("DELETE /api/containers/:container_id", { params }),
      );
    });
    await this.#remove("hearth volumes list", () => this.#removeVolumes());
    const { snapshot_id } = this;
    if (snapshot_id === null) return;
    const params = { snapshot_id };
    await this.#remove(`hearth snapshot rm ${snapshot_id}`, () =>
      this.#client.request("DELETE /api/snapshots/:snapshot_id", { params }),
    );
  }

  /** Volumes that were copied with a container are labelled with its id. */
  async #removeVolumes(): Promise<void> {
    if (this.#flags.volume === undefined && this.#flags.allVolumes !== true) return;
    const isOwn = new Set(this.#container_ids);
    const { volumes } = await readList("volumes", undefined, (query) =>
      this.#client.request("GET /api/volumes", { query }),
    );
    const copied = volumes.filter(({ labels }) => isOwn.has(labels[VOLUME_LABEL] ?? ""));
    await each(copied, LIMITS.cli_forks_at_once, async ({ name }) => {
      const asked = { params: { name }, query: { execution: "sync" as const } };
      await this.#remove(`hearth volumes delete ${shellWord(name)}`, () =>
        this.#client.request("DELETE /api/volumes/:name", asked),
      );
    });
  }

  /** A thing that is missing counts as removed. */
  async #remove(command: string, removal: () => Promise<unknown>): Promise<void> {
    try {
      await removal();
    } catch (error) {
      if (isRefusal(error, "NOT_FOUND")) return;
      this.#session.terminal.note(`not deleted: ${visible(textOf(error))}; to delete it: ${command}`);
    }
  }
}

const textOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));
