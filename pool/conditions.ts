/** The conditions that callers of the pool wait for (`watches.ts`), and the errors of these waits and of refused calls. */
import { AppError } from "../src/base/errors.ts";
import { dropRefusal, quotaReason, usedUpReason } from "./policy.ts";
import type { PoolEffect, RefuseEffect } from "./protocol.ts";
import type { PoolState } from "./states.ts";
import type { Condition } from "./watches.ts";

/** Why the starts of a group ended. */
export type GiveUp = Pick<PoolEffect & { readonly type: "gave_up" }, "reason" | "code">;

export function refusal(effect: Pick<RefuseEffect, "code" | "reason" | "retry_after" | "state">): AppError {
  const { code, reason, retry_after, state } = effect;
  return new AppError(code, reason, {
    ...(retry_after === undefined ? {} : { retry_after }),
    ...(state === undefined ? {} : { details: { state } }),
    // Devices are free when their holder ends, which no time tells.
    ...(code === "CAPACITY_FULL" && retry_after === undefined ? { retryable: false } : {}),
  });
}

/** A dropped group's last instance is gone. */
export function goneCondition(state: PoolState, group: string, deadline_ms: number): Condition {
  return {
    check: (resolve, reject) => {
      const found = state.groups.get(group);
      if (found === undefined) resolve();
      else if (found.dropped === null) reject(new AppError("INTERNAL", `${group} was set again during its removal`));
    },
    late: () => {
      const left = state.groups.get(group)?.members.size ?? 0;
      return new AppError("INTERNAL", `${group} still has ${left} instances after ${deadline_ms} ms`);
    },
  };
}

/** A group has its minimum of instances that serve. `giveUps`: why groups ran out of start attempts. */
export function warmCondition(
  state: PoolState,
  group: string,
  giveUps: ReadonlyMap<string, GiveUp>,
  deadline_ms: number,
): Condition {
  return {
    check: (resolve, reject) => {
      const found = state.groups.get(group);
      if (found === undefined) {
        reject(new AppError("NOT_FOUND", `${group} has no instances here`));
        return;
      }
      const { dropped, owner, memory_mb, min_instances } = found;
      if (dropped !== null || state.is_draining) {
        reject(refusal(dropRefusal(dropped ?? "shutdown", group)));
      } else if (found.live_count - found.counts.warming >= min_instances) {
        resolve();
      } else {
        // Another try helps against the second only.
        const beyond = owner && quotaReason(owner, memory_mb, min_instances);
        const why = giveUps.get(group);
        if (beyond !== null) reject(new AppError("QUOTA_EXCEEDED", beyond));
        else if (why !== undefined)
          reject(
            refusal({
              code: why.code ?? "START_FAILED",
              reason: `cannot start an instance of ${group}: ${why.reason}`,
            }),
          );
      }
    },
    late: () => {
      const why = delayReason(state, group);
      return new AppError("START_FAILED", `${group} not warm after ${deadline_ms} ms: ${why}`);
    },
  };
}

/** Returns the reason why a group has not reached its minimum yet. */
function delayReason(state: PoolState, key: string): string {
  const group = state.groups.get(key);
  const owner = group?.owner ?? null;
  if (group !== undefined && owner !== null && group.wanted_count < group.asked_count) {
    return usedUpReason(owner, owner.taken);
  }
  const why = state.room > 0 ? "starts take longer" : "instance limit or memory budget of the node reached";
  return group?.last_error ?? why;
}
