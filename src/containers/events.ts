/** Changes of containers in the store: each is written in one batch with its event. */
import type { Events } from "../events/service.ts";
import type { Guard, Statement } from "../store/store.ts";
import { stateChanged } from "./admission.ts";
import type { HealthStatus } from "./health/schema.ts";
import type { ContainerRow, ContainerRows, MoveFields } from "./rows.ts";
import { type ContainerState, type ContainerVerb, containerStates } from "./states.ts";

/** Event type of each state that a container reaches. */
const EVENTS: Readonly<Record<ContainerState, string>> = {
  created: "created",
  starting: "starting",
  running: "started",
  exited: "died",
  error: "failed",
};

export function eventOf(
  { id, name, tenant_id }: ContainerRow,
  event_type: string,
  state: ContainerState,
  exit_code?: number | null,
) {
  const data = { name, state, ...(exit_code === undefined ? {} : { exit_code }) };
  return { tenant_id, event: { name: "container_update" as const, event_type, container_id: id, data } };
}

/** Event of a change of health: it leaves the state as it is. */
export function healthEvent(
  { id, name, tenant_id, state }: ContainerRow,
  health: HealthStatus,
  failing_streak: number,
) {
  const data = { name, state, health, failing_streak };
  return {
    tenant_id,
    event: { name: "container_update" as const, event_type: "health_status", container_id: id, data },
  };
}

export class ContainerChanges {
  readonly #events: Events;
  readonly #rows: ContainerRows;

  constructor({ events, rows }: { readonly events: Events; readonly rows: ContainerRows }) {
    this.#events = events;
    this.#rows = rows;
  }

  /**
   * Moves the state together with `checks`, whose refusals it throws. Throws WRONG_STATE when the verb is not legal or
   * somebody else moved it meanwhile.
   */
  async move(row: ContainerRow, verb: ContainerVerb, fields: MoveFields, checks: readonly Guard[] = []): Promise<void> {
    const to = containerStates.next(row.state, verb);
    const moved = { statement: this.#rows.move(row.id, row.state, to, fields), refusal: () => stateChanged(verb) };
    await this.writeAll([...checks, moved], eventOf(row, EVENTS[to], to, fields.exit_code));
  }

  /** Throws the refusal of the check that was missed. */
  async writeAll(checks: readonly Guard[], told: ReturnType<typeof eventOf>): Promise<void> {
    const conflict = await this.write(
      checks.map(({ statement }) => statement),
      told,
    );
    if (conflict !== null) throw checks[conflict]?.refusal();
  }

  /** Returns the number of the statement that was missed, or null. */
  async write(statements: readonly Statement[], told: ReturnType<typeof eventOf>): Promise<number | null> {
    const { conflict } = await this.#events.write(statements, told.tenant_id, [told.event], { durable: true });
    return conflict;
  }
}
