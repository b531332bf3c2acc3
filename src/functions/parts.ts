/** Shared parts of the verbs of the function concern. */
import { type Caller, lacksScope, type Scope } from "../base/caller.ts";
import type { Clock } from "../base/clock.ts";
import type { KeyedMutex } from "../base/concurrency.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Quotas } from "../base/tenant-limits.ts";
import type { CodeStore } from "../code/service.ts";
import type { NewEvent } from "../events/schema.ts";
import type { Events } from "../events/service.ts";
import type { Store } from "../store/store.ts";
import type { Classes } from "./classes.ts";
import type { Groups } from "./groups.ts";
import type { FunctionRows } from "./rows.ts";
import type { FunctionRecord, Smoke } from "./schema.ts";
import type { TargetCache } from "./target.ts";
import type { Checks } from "./versions/checks.ts";
import type { VersionImages } from "./versions/images.ts";
import type { Proving } from "./versions/proving.ts";

/** The tenant and the credential that make a version. */
export type Author = Pick<Caller, "tenant_id" | "key_id" | "scopes">;

/** A smoke call is a call: throws FORBIDDEN without the scope `invoke`. */
export function checkSmoke({ scopes }: Pick<Author, "scopes">, smoke: Smoke | null | undefined): void {
  if (smoke != null && !scopes.includes("invoke")) throw lacksScope("invoke");
}

/** Scopes that code may be given: it must not manage keys, by which it would stay in the API past its call. */
const API_SCOPES: readonly Scope[] = ["read", "invoke", "write"];

/** Returns the scopes that the calls of a version have in the API: at most those of its maker. */
export function apiScopes(
  { scopes }: Pick<Author, "scopes">,
  { api_access }: Pick<FunctionRecord, "api_access">,
): Scope[] {
  return api_access ? API_SCOPES.filter((scope) => scopes.includes(scope)) : [];
}

/** The parts that every verb uses. */
export interface FunctionParts {
  readonly store: Store;
  readonly classes: Classes;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly events: Events;
  readonly quotas: Quotas;
  readonly rows: FunctionRows;
  readonly targets: TargetCache;
  readonly groups: Groups;
  readonly proving: Proving;
  readonly checks: Checks;
  readonly images: VersionImages;
  readonly code: CodeStore;
  /** Changes of a function, by its id (V4). */
  readonly changes: KeyedMutex;
  /** Moves of a function's state or pointer together with its groups, by its id. */
  readonly moves: KeyedMutex;
}

/** Returns the event of a change. */
export function functionEvent(
  event_type: string,
  { id, name, state, version, error_message = null }: ToldFunction,
): NewEvent {
  const error = error_message === null ? {} : { error: error_message.slice(0, LIMITS.operation_message_length_max) };
  return {
    name: "function_update",
    event_type,
    data: { function_id: id, function_name: name, state, version, ...error },
  };
}
type ToldFunction = Pick<FunctionRecord, "id" | "name" | "state" | "version"> &
  Partial<Pick<FunctionRecord, "error_message">>;
