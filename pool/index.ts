/** The pool's one door: everything else in this folder is its own business. */
export { type GroupOptions, Pool, type PoolOptions, type SubmitOptions } from "./driver.ts";
export type {
  DropReason,
  GroupPolicy,
  GroupStatus,
  Invoked,
  InvokeInfo,
  Launcher,
  OwnerLimits,
  PoolEvent,
  PoolTotals,
  RemoveReason,
} from "./protocol.ts";
export { INSTANCE_MACHINE, type InstanceState, type InstanceVerb } from "./records.ts";
export type { PoolSettings } from "./states.ts";
