/** Composes the parts that sign people in, and those that confine credentials to containers. */
import type { Clock } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import type { Ids } from "./base/ids.ts";
import type { Containers } from "./containers/service.ts";
import type { ContainerOf } from "./http/confinement.ts";
import type { Operations } from "./operations/service.ts";
import type { Store } from "./store/store.ts";
import type { Keys } from "./tenants/keys.ts";
import type { Tenants } from "./tenants/service.ts";
import type { Terminals } from "./terminal/service.ts";
import { Attempts } from "./users/attempts.ts";
import type { Logins } from "./users/logins.ts";
import { Passwords } from "./users/passwords.ts";
import { Users } from "./users/service.ts";

interface UserParts {
  readonly config: Config;
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly tenants: Tenants;
  readonly keys: Keys;
  readonly logins: Logins;
}

export function makeUsers({ config, ...parts }: UserParts): Users {
  const { users: choice, users_max } = config;
  return new Users({ ...parts, choice, users_max, passwords: new Passwords(), attempts: new Attempts(parts.clock) });
}

/** Finds whose a resource is, for credentials that reach some containers only. */
export function containerOf({
  containers,
  terminals,
  operations,
}: {
  readonly containers: Containers;
  readonly terminals: Terminals;
  readonly operations: Operations;
}): ContainerOf {
  return {
    container: (tenant_id, id) => containers.idOf(tenant_id, id),
    operation: (tenant_id, id) => operations.containerOf(tenant_id, id),
    session: (tenant_id, id) => terminals.containerOf(tenant_id, id),
  };
}
