/** Tenants and their limits, the operator's; and `hearth limits`, which shows a tenant its own. */
import { LIMIT_NAMES, type LimitName, TENANT_LIMITS, TENANT_USES } from "../../base/tenant-limits.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import { shellWord, visible } from "../output/text.ts";
import { bytes, relative } from "../output/time.ts";
import { usage } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { limitsOf, type Tenant } from "./tenant-fields.ts";

const sentence = ({ name, tenant_id, state }: Tenant) => `${visible(name)} is ${state} (${tenant_id})\n`;

export async function createTenant(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const made = await session.client().request("POST /api/tenants", { body: { name, limits: limitsOf(flags) } });
  session.show(made, () => sentence(made));
  if (session.flags.json !== true) {
    session.terminal.note(`to create its first key: hearth tenants keys create ${shellWord(name)} first`);
  }
}

/** Those that are set, in few words. */
function limitsIn(limits: Tenant["limits"]): string {
  const set = LIMIT_NAMES.filter((limit) => limits[limit] !== null);
  return set.length === 0 ? "none" : set.map((limit) => `${limit}=${limits[limit]}`).join(" ");
}

export async function listTenants(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const client = session.client();
  const answer = await readList("tenants", limit, (query) => client.request("GET /api/tenants", { query }));
  const columns: Column<Tenant>[] = [
    { title: "NAME", value: ({ name }) => name, isLong: true },
    { title: "ID", value: ({ tenant_id }) => tenant_id, format: () => "dim", isSpare: true },
    { title: "STATE", value: ({ state }) => state },
    { title: "MADE", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "LIMITS", value: ({ limits }) => limitsIn(limits), isLong: true },
  ];
  session.show(answer, () => session.table(columns, answer.tenants, "no tenants"));
  session.noteCut(answer.tenants.length, limit, answer);
}

const unitOf = (limit: string): string => (limit.includes("_mb_") ? " MiB" : "");
const usedText = (name: string, count: number, limit: string): string =>
  name.endsWith("_bytes") ? bytes(count) : `${count}${unitOf(limit)}`;

/** A row of the record: what is in use, of how much. */
function useOf(name: string, count: number, limit: string, max: number | null): [string, string] {
  const used = usedText(name, count, limit);
  return [name.replace(/_bytes$|_mb$/, ""), max === null ? used : `${used} of ${max}${unitOf(limit)}`];
}

/** Of the tenant whose key is in use. */
export async function showLimits(session: Session): Promise<void> {
  const own = await session.client().request("GET /api/tenant");
  const columns: Column<LimitName>[] = [
    { title: "LIMIT", value: (limit) => limit },
    {
      title: "USED",
      side: "right",
      value: (limit) => {
        const use = TENANT_USES.find((one) => one.limit === limit);
        return use === undefined ? null : usedText(use.name, own.usage[use.name], limit);
      },
    },
    {
      title: "MAX",
      side: "right",
      value: (limit) => (own.limits[limit] === null ? "none" : `${own.limits[limit]}${unitOf(limit)}`),
    },
    { title: "COUNTS", value: (limit) => TENANT_LIMITS[limit].counts, isLong: true },
  ];
  session.show(own, () => session.table(columns, LIMIT_NAMES, "no limits"));
}

export async function getTenant(session: Session, [tenant = ""]: Words): Promise<void> {
  const params = { tenant_id: await session.tenantId(tenant) };
  const found = await session.client().request("GET /api/tenants/:tenant_id", { params });
  session.show(found, () => {
    const { limits, usage, ...rest } = found;
    const uses = TENANT_USES.map(({ name, limit }) => useOf(name, usage[name], limit, limits[limit]));
    return session.list([
      ...entriesOf(rest, session.now),
      ["api_keys", String(usage.api_keys)],
      ...uses,
      ...entriesOf(limits, session.now),
    ]);
  });
}

export async function updateTenant(session: Session, [tenant = ""]: Words, flags: Flags): Promise<void> {
  const limits = limitsOf(flags);
  const name = flags.name as string | undefined;
  const service_hostnames = flags.serviceHostname as string[] | undefined;
  if (name === undefined && service_hostnames === undefined && Object.keys(limits).length === 0) {
    throw usage("nothing to update: no field given", "list the flags with: hearth tenants update --help");
  }
  const params = { tenant_id: await session.tenantId(tenant) };
  const body = { name, limits, service_hostnames };
  const updated = await session.client().request("PATCH /api/tenants/:tenant_id", { params, body });
  session.show(updated, () => sentence(updated));
}

export async function deleteTenant(session: Session, [tenant = ""]: Words, flags: Flags): Promise<void> {
  const params = { tenant_id: await session.tenantId(tenant) };
  session.advice = { NOT_EMPTY: "delete its resources first, or give --force" };
  const answer = await session.terminal.progress(
    `deleting tenant ${visible(tenant)}`,
    session.client().request("DELETE /api/tenants/:tenant_id", { params, query: { force: flags.force === true } }),
  );
  session.show(answer, () => `${visible(tenant)} is deleted\n`);
}
