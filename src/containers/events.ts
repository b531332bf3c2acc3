/** Events of the changes of containers. */
import type { ContainerRow } from "./rows.ts";
import type { ContainerState } from "./states.ts";

export function eventOf(
  { id, name, tenant_id }: ContainerRow,
  event_type: string,
  state: ContainerState,
  exit_code?: number | null,
) {
  const data = { name, state, ...(exit_code === undefined ? {} : { exit_code }) };
  return { tenant_id, event: { name: "container_update" as const, event_type, container_id: id, data } };
}

/** Event type of each state that a container reaches. */
export const EVENTS: Readonly<Record<ContainerState, string>> = {
  created: "created",
  starting: "starting",
  running: "started",
  exited: "died",
  error: "failed",
};
