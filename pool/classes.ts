/** The classes of the pool: which are known, and the cells that each of them lacks. */
import { type Owner, PoolClass, type Reserve } from "./records.ts";

/** What the pool's state knows of its classes; `states.ts` describes the fields. */
interface ClassState {
  readonly classes: Map<string, PoolClass>;
  readonly reserve: Reserve;
  unmet_count: number;
  readonly servable: Set<PoolClass>;
  readonly stirred: Set<Owner>;
  readonly delaying: Set<PoolClass>;
}

/** The class of that key; a new one unless it is known. */
export function classOf(state: Pick<ClassState, "classes">, key: string): PoolClass {
  let found = state.classes.get(key);
  if (found === undefined) {
    found = new PoolClass(key);
    state.classes.set(key, found);
  }
  return found;
}

/** Forgets a class that nothing is of any more (S5). */
export function forgetClass(state: ClassState, of: PoolClass): void {
  if (of.member_count > 0 || state.reserve.classes.has(of)) return;
  state.classes.delete(of.key);
  state.delaying.delete(of);
}

/** Recomputes what a class lacks, after its stock or what its groups want has changed. */
export function recount(state: ClassState, of: PoolClass): void {
  const { stock, wanted_count } = of;
  const unmet = Math.max(0, wanted_count - stock);
  const before = state.unmet_count;
  state.unmet_count += unmet - of.unmet_count;
  if (before === 0 && state.unmet_count > 0) stirDelayed(state);
  of.unmet_count = unmet;
  if (stock > 0 && wanted_count > 0) state.servable.add(of);
  else state.servable.delete(of);
}

/** Looks again at owners that wait for a free start: there is none any more, only turns. */
function stirDelayed(state: ClassState): void {
  for (const of of state.delaying) {
    for (const owner of of.delayed) state.stirred.add(owner);
    of.delayed.clear();
  }
  state.delaying.clear();
}
