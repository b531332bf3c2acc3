/** Secrets on a store of a test, with the key file beside it. */
import { systemClock } from "../../src/base/clock.ts";
import { Quotas } from "../../src/base/tenant-limits.ts";
import { Events } from "../../src/events/service.ts";
import { openSecretsKeys } from "../../src/secrets/keys.ts";
import { SecretsRotation } from "../../src/secrets/rotation.ts";
import { SECRET_KIND } from "../../src/secrets/schema.ts";
import { Secrets } from "../../src/secrets/service.ts";
import { SecretValues } from "../../src/secrets/values.ts";
import type { Store } from "../../src/store/store.ts";
import { quietLog, type Scratch } from "../store/scratch.ts";

const NODE = {
  containers_max: 10,
  instances_max: 10,
  memory_budget_mb: 1_000,
  processes_max: 1_000,
  container_memory_mb: 1_000,
  disk_mb: 1_000,
  disk_limit_mb: 100,
  store_disk_mb: 1_000,
  image_disk_mb: 1_000,
};

export const TENANTS = ["default", "a", "b"];

/** Opens the store of a scratch with its keys, as a start of the daemon does. */
export async function makeSecrets({ directory, open }: Scratch, store: Store = open()) {
  const insert = "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 0) ON CONFLICT DO NOTHING";
  await store.write(TENANTS.map((id) => ({ sql: insert, args: [id, id] })));
  const keys = await openSecretsKeys(directory, store, quietLog);
  const quotas = new Quotas(NODE);
  const events = new Events({ store, clock: systemClock, log: quietLog });
  const of = (kind: string) => new Secrets({ store, events, clock: systemClock, quotas, keys, kind });
  const valuesOf = (kind: string) => new SecretValues(store, keys, kind);
  const rotation = new SecretsRotation({ store, clock: systemClock, log: quietLog, keys });
  return {
    store,
    keys,
    quotas,
    rotation,
    of,
    valuesOf,
    secrets: of(SECRET_KIND),
    values: valuesOf(SECRET_KIND),
    file: `${directory}/secrets-key`,
  };
}

export const bytes = (text: string): Buffer => Buffer.from(text);

/** The values as text. */
export async function textsOf(of: SecretValues, tenant_id: string, ...names: string[]): Promise<string[]> {
  const values = await of.values(tenant_id, names);
  return names.map((name) => Buffer.from(values.get(name) ?? []).toString());
}
