/** Opens the state in the data directory before the engine boots: a start that is refused here touches no container. */
import type { Clock } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { AppError } from "./base/errors.ts";
import type { Ids } from "./base/ids.ts";
import { LIMITS } from "./base/limits.ts";
import type { Log } from "./base/log.ts";
import { listedHost, Outgoing } from "./base/outgoing-requests.ts";
import { poolIn } from "./engine/storage/storage-pool.ts";
import { Events } from "./events/service.ts";
import { Cursors } from "./http/cursors.ts";
import { REGISTRY_KIND } from "./oci/credentials/service.ts";
import { openSecretsKeys } from "./secrets/keys.ts";
import { SecretsRotation } from "./secrets/rotation.ts";
import { SECRET_KIND } from "./secrets/schema.ts";
import { SecretValues } from "./secrets/values.ts";
import { SERVICE_KIND } from "./services/service.ts";
import { openEmbedded } from "./store/embedded.ts";
import { noteStart } from "./store/own-node.ts";
import type { Store } from "./store/store.ts";
import { AccessTokens } from "./tenants/access-tokens.ts";
import { ownCursorSecret, ownKey, ownKeyFile, ownTokenKeys } from "./tenants/daemon-secrets.ts";
import { Keys } from "./tenants/keys.ts";
import { OperatorKey } from "./tenants/operator-key.ts";
import { Logins } from "./users/logins.ts";

export interface StateOptions {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly ids: Ids;
  /** Steps that close what was opened, run in reverse order. */
  readonly undo: { add(step: () => Promise<unknown>): void };
}

/** Opens the store, the keys in files, and the services that need no engine. Rejects with the reason of a refused start. */
export async function openState({ config, clock, log, ids, undo }: StateOptions) {
  const { data_dir } = config;
  const store = openEmbedded({ path: `${data_dir}/hearth.db`, clock, log, reserve_bytes: LIMITS.store_reserve_bytes });
  undo.add(() => store.close());
  await checkStore(store, data_dir);
  const secrets_keys = await openSecretsKeys(data_dir, store, log);
  const secret_values = new SecretValues(store, secrets_keys, SECRET_KIND);
  const service_values = new SecretValues(store, secrets_keys, SERVICE_KIND);
  const registry_values = new SecretValues(store, secrets_keys, REGISTRY_KIND);
  const secrets_rotation = new SecretsRotation({ store, clock, log, keys: secrets_keys });
  undo.add(() => secrets_rotation.close());
  const token_keys = ownTokenKeys(config, clock);
  const outside = config.outside_issuer;
  // The operator who sets a URL lists its host.
  const allowed = [...config.outgoing_allowed, ...(outside === null ? [] : [listedHost(outside.jwks_url)])];
  const outgoing = new Outgoing({ clock, subnet: config.subnet, allowed });
  const tokens = new AccessTokens({ clock, ids, log, token_keys, outside, outgoing });
  const events = new Events({ store, clock, log });
  const logins = new Logins({ store, clock, ids });
  const keys = new Keys({ store, clock, ids, tokens, events, logins: config.users === "off" ? null : logins });
  undo.add(() => keys.writeUses());
  const key = ownKey(config, ids);
  await keys.ensureBootstrap(key.text);
  const cursor_secret = ownCursorSecret(config);
  const cursors = new Cursors(cursor_secret);
  const operator_key = new OperatorKey({ file: ownKeyFile(config), keys, ids });
  const new_key = key.isNew ? key.text : null;
  const { node, start_number } = await noteStart(store, data_dir, ids, log);
  return {
    ...{ store, events, keys, logins, operator_key, cursors, new_key, node, start_number },
    ...{ secrets_keys, secret_values, registry_values, service_values, secrets_rotation, outgoing },
    // Each of its users derives a key of its own.
    lease_secret: cursor_secret,
  };
}

/** Throws INTERNAL if the store was lost: files that a new one does not know of would be removed as leftovers. */
async function checkStore(store: Store, data_dir: string): Promise<void> {
  const pool = poolIn(data_dir);
  if (pool === null || (await store.readOne("SELECT id FROM nodes LIMIT 1")) !== null) return;
  throw new AppError("INTERNAL", `the store ${data_dir}/hearth.db is new, but the storage pool ${pool} is not`, {
    hint: "restore hearth.db from a backup; to start without the files of its containers and volumes, move the pool away",
  });
}
