/** The classes of the pool: which are known, and the cells that each of them lacks. */
import { type Owner, PoolClass, type Reserve } from "./records.ts";

/** The fields of the pool's state about its classes; `states.ts` describes them. */
interface ClassState {
  readonly classes: Map<string, PoolClass>;
  readonly reserve: Reserve;
  unmet_count: number;
  readonly servable: Set<PoolClass>;
  readonly stirred: Set<Owner>;
  readonly delaying: Set<PoolClass>;
}

/** Returns the class of that key; a new one unless it is known. */
export function classOf(state: Pick<ClassState, "classes">, key: string): PoolClass {
  let found = state.classes.get(key);
  if (found === undefined) {
    found = new PoolClass(key);
    state.classes.set(key, found);
  }
  return found;
}

/** Forgets a class without groups, instances and demand for cells (S5). */
export function forgetClass(state: ClassState, of: PoolClass): void {
  if (of.member_count > 0 || state.reserve.classes.has(of)) return;
  state.classes.delete(of.key);
  state.delaying.delete(of);
}

/** Recomputes how many instances a class lacks, after a change of its stock or of its groups' wants. */
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

/** Reviews the owners that wait for a free start: from now on, groups get starts by turns alone. */
function stirDelayed(state: ClassState): void {
  for (const of of state.delaying) {
    for (const owner of of.delayed) state.stirred.add(owner);
    of.delayed.clear();
  }
  state.delaying.clear();
}
