/** The keys of a store, with real tokens. */
import type { Clock } from "../../src/base/clock.ts";
import type { OutsideIssuer } from "../../src/base/config.ts";
import { randomIds } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { listedHost, Outgoing } from "../../src/base/outgoing-requests.ts";
import { Events } from "../../src/events/service.ts";
import type { Store } from "../../src/store/store.ts";
import { AccessTokens } from "../../src/tenants/access-tokens.ts";
import { Keys } from "../../src/tenants/keys.ts";
import { newTokenKey, TokenKeys } from "../../src/tenants/token-keys.ts";

/** The guard as the daemon makes it: the issuer's own host is listed. */
export function testOutgoing(clock: Clock, outside: Pick<OutsideIssuer, "jwks_url"> | null): Outgoing {
  const allowed = outside === null ? [] : [listedHost(outside.jwks_url)];
  return new Outgoing({ clock, subnet: "10.42.0.0/16", allowed });
}

/** Keys of tokens that are kept nowhere. */
export function testTokenKeys(clock: Clock): TokenKeys {
  return new TokenKeys({ clock, text: newTokenKey(), keep: () => {} });
}

export function testKeys(store: Store, clock: Clock, outside: OutsideIssuer | null = null): Keys {
  const ids = randomIds();
  const log = createLog("silent", clock);
  return new Keys({
    store,
    clock,
    ids,
    events: new Events({ store, clock, log }),
    logins: null,
    tokens: new AccessTokens({
      clock,
      ids,
      log,
      token_keys: testTokenKeys(clock),
      outside,
      outgoing: testOutgoing(clock, outside),
    }),
  });
}
