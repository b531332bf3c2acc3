/** Numbers of containers on this node. */
import type { Store } from "../store/store.ts";
import { CONTAINER_STATES, type ContainerState } from "./states.ts";

/** Counts the containers of all tenants by state; a state without containers has 0. */
export async function containerCounts(store: Store): Promise<ReadonlyMap<ContainerState, number>> {
  const rows = await store.read("SELECT state, count(*) AS count FROM containers GROUP BY state");
  const found = new Map(rows.map(({ state, count }) => [String(state), Number(count)]));
  return new Map(CONTAINER_STATES.map((state) => [state, found.get(state) ?? 0]));
}
