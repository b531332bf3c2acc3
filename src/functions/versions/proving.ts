/**
 * The proof of a version before it becomes active: its instances start, a resident process loads its handler, and its smoke
 * call ends as expected. A proof never changes the active version.
 */
import type { Pool } from "../../../pool/index.ts";
import type { Clock } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Traces } from "../../base/trace.ts";
import { secretNames } from "../calls/bindings.ts";
import type { Call } from "../calls/calling.ts";
import type { Ending, Outcome } from "../calls/outcome.ts";
import type { Groups, Opening } from "../groups.ts";
import type { FunctionRecord, Smoke } from "../schema.ts";
import { groupKey, prepare } from "../target.ts";

/** The part of the concern of secrets that proofs use. */
export interface NamedSecrets {
  /** Resolves to those of the names of which the tenant has no secret. */
  missing(tenant_id: string, names: readonly string[]): Promise<readonly string[]>;
}

export interface ProvingOptions {
  readonly pool: Pool<Call, Outcome>;
  readonly groups: Groups;
  readonly secrets: NamedSecrets;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly traces: Traces;
}

export class Proving {
  readonly #options: ProvingOptions;

  constructor(options: ProvingOptions) {
    this.#options = options;
  }

  /** Returns the number of instances that a version needs ready, at least `least`: one to show that it loads its handler. */
  countFor(record: FunctionRecord, least: number, smoke: Smoke | null): number {
    const isShown = smoke !== null || prepare(record).runtime.serving.kind === "resident";
    return Math.min(record.max_instances, Math.max(record.min_instances, least, isShown ? 1 : 0));
  }

  /**
   * Waits until the open group of a version has its minimum, then checks the handler and runs the smoke call. Rejects with
   * START_FAILED, QUOTA_EXCEEDED, HANDLER_FAILED, or with what a drop of the group says.
   */
  async prove(opening: Opening, count: number, smoke: Smoke | null): Promise<void> {
    const { groups } = this.#options;
    const { record } = opening;
    if (count > 0) await groups.warm(record);
    const fault = groups.faultOf(record);
    if (fault !== null) throw await this.#refusal(record, fault.error_message ?? "cannot load the handler", fault);
    if (smoke !== null) await this.#smoke(opening, smoke);
  }

  async #smoke({ record, settings = null }: Opening, smoke: Smoke): Promise<void> {
    const { pool, clock, ids, traces } = this.#options;
    const timeout_ms = (smoke.timeout_seconds ?? record.timeout_seconds) * 1000;
    const call: Call = {
      target: { ...prepare(record, settings), function_seq: 0 },
      invocation_id: ids.next("smoke"),
      environment: {},
      payload: smoke.payload,
      timeout_ms,
      ends_ms: Number.POSITIVE_INFINITY,
      depth: 0,
      trace: traces.begin(undefined, undefined),
    };
    const deadline_ms = clock.monotonicMs() + timeout_ms;
    const outcome = await pool.submit(groupKey(record.id, record.version), call, { deadline_ms });
    if (outcome.status === smoke.expect_status) return;
    const reason = outcome.error_message === null ? "" : `: ${outcome.error_message}`;
    const text = `smoke call: expected ${smoke.expect_status}, got ${outcome.status}${reason}`;
    throw await this.#refusal(record, text, outcome, smoke);
  }

  async #refusal(
    record: FunctionRecord,
    text: string,
    { stdout, stderr, exit_code, status }: Ending,
    smoke?: Smoke,
  ): Promise<AppError> {
    // The reason stands at the end of the standard error.
    const said = `${stdout}${stderr}`.slice(-LIMITS.error_output_length_max).toWellFormed();
    const details = { exit_code, output: said === "" ? null : said };
    const [missing] = await this.#options.secrets.missing(record.tenant_id, secretNames(record));
    const step = missing === undefined ? "correct the function" : `set the secret with hearth secrets set ${missing}`;
    return new AppError("HANDLER_FAILED", text, {
      details: smoke === undefined ? details : { ...details, expected: [smoke.expect_status], received: status },
      hint: `${step}, then deploy again; a version that is active stays active`,
    });
  }
}
