/**
 * Makes versions active, of one function or of several at once: all or none. The next versions are warmed before, calls under
 * way finish on the version that they began with, and the version left behind keeps its instances for a while.
 *
 * V1. Versions and pointers are written in one batch, after all versions are proven: a failure changes nothing.
 * V2. A group is open before a pointer can lead to it, and retired only after no new call is led to it.
 * V3. A version that is made begins without instances: those of an attempt that failed, which had its number, are gone.
 * V4. Changes of one function (deploy, PUT, rollback, deployments) take turns from beginning to end; pause and delete do not
 *     wait for them, and end what is being warmed.
 */
import { together } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import type { Guard, Statement } from "../../store/store.ts";
import type { Opening } from "../groups.ts";
import { type FunctionParts, functionEvent } from "../parts.ts";
import { guards, refusalOf } from "../quota.ts";
import type { FunctionRecord, Smoke } from "../schema.ts";

/** A change of one function: another version, another state, or its creation. */
export interface Plan {
  /** The function before the change; null: the change creates it. */
  readonly from: FunctionRecord | null;
  /** The function after the change, also its state. Only an active function is warmed and serves calls. */
  readonly opening: Opening;
  readonly smoke: Smoke | null;
  /** True if the version is not stored yet. */
  readonly makes_version: boolean;
  readonly event_type: string;
  /** The tenant must have the image of the version; null: it needs none of the tenant's. */
  readonly use: Guard | null;
  /** They conflict if the function is not `from` any more. */
  statements(): readonly Statement[];
}

export function changedMeanwhile(): AppError {
  return new AppError("WRONG_STATE", "cannot update the function: its state changed at the same time", {
    hint: "read the function and retry",
  });
}

/** Returns the refusal with the name of the function in its text. */
export function naming(name: string, error: AppError): AppError {
  const { code, message, details, hint, retry_after } = error;
  return new AppError(code, `function '${name}': ${message}`, {
    cause: error,
    ...(details === null ? {} : { details }),
    ...(hint === null ? {} : { hint }),
    ...(retry_after === null ? {} : { retry_after }),
  });
}

const isServing = ({ opening }: Plan): boolean => opening.record.state === "active";

export class Activation {
  readonly #parts: FunctionParts;

  constructor(parts: FunctionParts) {
    this.#parts = parts;
  }

  /** Runs `work` when all other changes of these functions are over (V4); none begins before its end. */
  exclusively<Result>(ids: readonly string[], work: () => Promise<Result>): Promise<Result> {
    return inTurn(this.#parts.changes, ids, work);
  }

  /** Returns what must hold when plans are committed: the limits of the tenant, and that it has the code and the images. */
  guards(tenant_id: string, plans: readonly Plan[]): Guard[] {
    const { quotas, code } = this.#parts;
    const new_count = plans.filter(({ from }) => from === null).length;
    const digests = new Set(plans.map(({ opening }) => opening.record.code_sha256));
    const codes = [...digests].flatMap((digest) => (digest === null ? [] : [code.guard(tenant_id, digest)]));
    const images = plans.flatMap(({ use }) => (use === null ? [] : [use]));
    return [...guards(quotas, tenant_id, new_count), ...codes, ...images];
  }

  /**
   * Proves all versions, commits them, and lets go of those before. Calls follow a pointer as soon as it is committed; this
   * resolves when all are on the disk too. Throws HANDLER_FAILED, START_FAILED, QUOTA_EXCEEDED, WRONG_STATE.
   */
  async run(plans: readonly Plan[], quota: readonly Guard[]): Promise<void> {
    const { moves, store, clock, log } = this.#parts;
    const begun_ms = clock.monotonicMs();
    const since = () => Math.round((clock.monotonicMs() - begun_ms) * 1000) / 1000;
    const ids = plans.map(({ opening }) => opening.record.id);
    try {
      await together(...plans.map((plan) => this.#proved(plan, plans.length > 1)));
      failpoint("functions.version.warmed");
      const warmed_ms = since();
      await inTurn(moves, ids, async () => {
        await this.#commit(plans, quota);
        failpoint("functions.version.moved");
        for (const plan of plans) this.#follow(plan);
        const moved_ms = since();
        await store.write([], { durable: true });
        for (const { from, opening } of plans) {
          const [function_id, to] = [opening.record.id, opening.record.version];
          log.info("active version changed", { function_id, from: from?.version ?? null, to, warmed_ms, moved_ms });
        }
      });
    } catch (error) {
      // Without the text of the error, which may be a handler's.
      const error_code = error instanceof AppError ? error.code : "INTERNAL";
      for (const { opening } of plans) {
        const { id: function_id, version } = opening.record;
        log.warn("version not activated", { function_id, version, error_code, ms: since() });
      }
      await inTurn(moves, ids, () => together(...plans.map((plan) => this.#settle(plan))));
      throw error;
    }
  }

  /** Like `#prove`; a refusal names the function if it is one of several. */
  async #proved(plan: Plan, isOneOfMany: boolean): Promise<void> {
    try {
      await this.#prove(plan);
    } catch (error) {
      if (!isOneOfMany || !(error instanceof AppError)) throw error;
      throw naming(plan.opening.record.name, error);
    }
  }

  /** Opens the group of what will serve with the instances that it needs, and proves the version. */
  async #prove(plan: Plan): Promise<void> {
    const { groups, moves, rows, proving } = this.#parts;
    const { from, opening, smoke } = plan;
    const { record: next } = opening;
    if (!isServing(plan) && smoke === null) return;
    const count = proving.countFor(next, from?.state === "active" ? groups.heirCount(from) : 0, smoke);
    // V3.
    if (plan.makes_version) await groups.clear(next);
    await moves.run(next.id, async () => {
      if (from !== null) {
        const { record } = await rows.found(from.tenant_id, from.id);
        if (record.state !== from.state) throw changedMeanwhile();
      }
      groups.open(opening, count);
    });
    try {
      await proving.prove(opening, count, smoke);
    } catch (cause) {
      // A pause or a deletion ended the warming.
      if (cause instanceof AppError && ["WRONG_STATE", "NOT_FOUND"].includes(cause.code)) throw changedMeanwhile();
      if (!(cause instanceof AppError) || cause.code !== "START_FAILED") throw cause;
      const stays = from === null ? "" : `; version ${from.version} stays active`;
      const text = `cannot warm version ${next.version}${stays}: ${errorText(cause)}`;
      throw new AppError("START_FAILED", text, { cause, retry_after: 1 });
    }
  }

  async #commit(plans: readonly Plan[], quota: readonly Guard[]): Promise<void> {
    const { events, targets } = this.#parts;
    const [first] = plans;
    if (first === undefined) return;
    const statements = [...quota.map(({ statement }) => statement), ...plans.flatMap((plan) => plan.statements())];
    const told = plans.map(({ event_type, opening }) => functionEvent(event_type, opening.record));
    const { conflict } = await events
      .write(statements, first.opening.record.tenant_id, told)
      .finally(() => plans.forEach(({ opening }) => void targets.forget(opening.record)));
    if (conflict !== null) throw refusalOf(quota, conflict) ?? changedMeanwhile();
  }

  /** The groups follow what has been committed. */
  #follow(plan: Plan): void {
    const { groups } = this.#parts;
    const { from, opening, smoke } = plan;
    if (!isServing(plan)) {
      if (smoke !== null) groups.discard(opening.record);
      return;
    }
    groups.open(opening);
    if (from?.state === "active" && from.version !== opening.record.version) groups.retire(from);
  }

  /**
   * Makes the groups follow the store after a failure: the store may have moved the pointer before it failed. A version that
   * was not committed leaves no instances, because the next one of its number may have other limits.
   */
  async #settle(plan: Plan): Promise<void> {
    const { groups, rows } = this.#parts;
    const { record: next } = plan.opening;
    if (!isServing(plan)) {
      if (plan.smoke !== null) groups.discard(next);
      return;
    }
    try {
      const row = await rows.byId(next.tenant_id, next.id);
      if (row?.record.version === next.version && row.record.state === next.state) {
        this.#follow({ ...plan, opening: { ...plan.opening, record: row.record } });
      } else if (
        row !== null &&
        row.record.version !== next.version &&
        (await rows.version(row, next.version)) !== null
      ) {
        groups.retire(next);
      } else {
        groups.discard(next);
      }
    } catch {
      // The caller gets the first failure.
      groups.retire(next);
    }
  }
}

/** Runs `work` while it has the turn of each key. All callers take turns in the same order of keys: no two of them deadlock. */
function inTurn<Result>(
  mutex: FunctionParts["changes"],
  keys: readonly string[],
  work: () => Promise<Result>,
): Promise<Result> {
  const [first, ...others] = [...keys].sort();
  return first === undefined ? work() : mutex.run(first, () => inTurn(mutex, others, work));
}
