/** Private networks in the store: a container names its network, and the network exists while one does. */

import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { jsonField } from "../../base/sql-dialect.ts";
import { quotaExceeded, tenantGuard } from "../../base/tenant-limits.ts";
import type { Guard, Store } from "../../store/store.ts";
import type { ContainerState } from "../states.ts";

const NETWORK = jsonField("make", "network");

/** A container in a private network. */
export interface NetworkMember {
  readonly id: string;
  readonly name: string;
  readonly state: ContainerState;
  readonly network: string;
}

/** Checks before a container is inserted that names a network. `networks_max`: null for no limit. */
export function networkChecks(tenant_id: string, network: string | null, networks_max: number | null): Guard[] {
  if (network === null) return [];
  const members_max = LIMITS.network_members_max;
  const members = `SELECT count(*) FROM containers WHERE tenant_id = ? AND ${NETWORK} = ?`;
  const others = `SELECT count(DISTINCT ${NETWORK}) FROM containers WHERE tenant_id = ? AND ${NETWORK} <> ?`;
  const guard = (count: string, max: number) => tenantGuard(tenant_id, `(${count}) < ?`, [tenant_id, network, max]);
  return [
    { statement: guard(members, members_max), refusal: () => networkFull(network, members_max) },
    ...(networks_max === null
      ? []
      : [{ statement: guard(others, networks_max), refusal: () => quotaExceeded("networks_max", networks_max, 1) }]),
  ];
}

function networkFull(network: string, members_max: number): AppError {
  return new AppError("QUOTA_EXCEEDED", `too many containers in network '${network}' (limit ${members_max})`, {
    details: { expected: [`<= ${members_max} containers`] },
    hint: "delete containers of the network, or name another network",
  });
}

/** Reads the containers of a tenant in private networks, on all nodes, in the order of the networks' names. */
export async function readNetworkMembers(store: Store, tenant_id: string): Promise<readonly NetworkMember[]> {
  const sql = `SELECT id, name, state, ${NETWORK} AS network FROM containers
    WHERE tenant_id = ? AND is_removing = 0 AND ${NETWORK} IS NOT NULL ORDER BY network, seq`;
  return (await store.read(sql, [tenant_id])).map((row) => ({
    id: String(row.id),
    name: String(row.name),
    state: row.state as ContainerState,
    network: String(row.network),
  }));
}
