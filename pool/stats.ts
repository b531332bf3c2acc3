/** Counts of a group and of the whole pool, as their readers see them. */
import type { ClassStatus, GroupStatus, PoolTotals } from "./protocol.ts";
import type { Group, PoolClass } from "./records.ts";
import type { PoolState } from "./states.ts";

const NOTHING = { warming: 0, ready: 0, busy: 0, recycling: 0, terminating: 0 };

function wireCounts(counts: typeof NOTHING): Omit<GroupStatus, "calls_running" | "queued_count" | "last_error"> {
  const { warming, ready, busy, recycling, terminating } = counts;
  return {
    warming_count: warming,
    ready_count: ready,
    busy_count: busy,
    recycling_count: recycling,
    terminating_count: terminating,
    total_count: warming + ready + busy + recycling + terminating,
  };
}

export function statusOf(group: Group | null): GroupStatus {
  return {
    ...wireCounts(group?.counts ?? NOTHING),
    calls_running: group?.calls_running ?? 0,
    queued_count: group?.queue.size ?? 0,
    last_error: group?.last_error ?? null,
  };
}

/** An owner without limits has no record of its own: its groups are counted then. */
export function ownerUseOf(state: PoolState, key: string): { readonly count: number; readonly mb: number } {
  const owner = state.owners.get(key);
  if (owner !== undefined) return { count: owner.live_count, mb: owner.live_mb };
  const groups = [...state.groups.values()].filter(({ policy }) => policy.owner === key);
  return {
    count: groups.reduce((sum, { live_count }) => sum + live_count, 0),
    mb: groups.reduce((sum, { live_count, memory_mb }) => sum + live_count * memory_mb, 0),
  };
}

export function totalsOf(state: PoolState): PoolTotals {
  return {
    ...wireCounts(state.counts),
    cells: state.counts.cell,
    cells_starting: state.counts.spare,
    calls_running: state.calls_running,
    queued: state.calls.size,
    ...state.tally,
    classes: [...state.reserve.classes].map(classStatusOf),
  };
}

function classStatusOf({ key, share, cells, spares, cell_hit_count, cell_miss_count }: PoolClass): ClassStatus {
  return {
    class: key,
    cells_target: share,
    cells: cells.size,
    cells_starting: spares.size,
    cell_hit_count,
    cell_miss_count,
  };
}
