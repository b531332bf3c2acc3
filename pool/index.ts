/** The pool's one door: everything else in this folder is its own business. */
export { Pool } from "./driver.ts";
export type {
  ClassStatus,
  DropReason,
  GroupOptions,
  GroupPolicy,
  GroupStatus,
  Invoked,
  InvokeInfo,
  Launcher,
  OwnerLimits,
  PoolEvent,
  PoolOptions,
  PoolSettings,
  PoolTotals,
  RemoveReason,
  SubmitOptions,
} from "./protocol.ts";
export { INSTANCE_MACHINE, type InstanceState, type InstanceVerb } from "./records.ts";
