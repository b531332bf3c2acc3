/** An API container as the engine holds it while it runs. */
import type { ControlConnection } from "../minit/container-client.ts";
import type { ExitRecord, LiveContainer } from "../ports/containers.ts";

export interface RunningContainer extends LiveContainer {
  readonly control: ControlConnection;
  /** Ids outside less ids inside: 0 without a user namespace. */
  readonly first_id: number;
  /** Where its minit listens. */
  readonly socket_path: string;
}

/** Of one whose first process was killed before it could say. */
export const KILLED: Omit<ExitRecord, "ended_at_ms"> = {
  exit_code: 137,
  signal: 9,
  asked: false,
  has_command: true,
  is_started: true,
};
