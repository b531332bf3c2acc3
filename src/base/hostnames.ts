/** Host names that services may have: the form of a name, and what the operator grants to a tenant. */
import { isIP } from "node:net";

const LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
/** A DNS name of two labels or more, whose last one is no number: it would be read as an IPv4 address. */
export const HOSTNAME = new RegExp(`^(?:${LABEL}\\.)+(?=[a-z0-9-]*[a-z])${LABEL}$`);
/** A host name, or all below one. */
export const GRANT = new RegExp(`^(?:\\*\\.)?(?:${LABEL}\\.)*(?=[a-z0-9-]*[a-z])${LABEL}$`);

/** Returns true if one of the grants covers the name. `*.a.example` covers every name below a.example, and not itself. */
export function isGranted(hostname: string, grants: readonly string[]): boolean {
  return grants.some((grant) =>
    grant.startsWith("*.")
      ? hostname.endsWith(grant.slice(1)) && hostname.length > grant.length - 1
      : grant === hostname,
  );
}

/** Returns true for a name that no service may have: this machine's own names, an address, or one below `domain`. */
export function isReserved(hostname: string, domain: string | null, own: readonly string[]): boolean {
  if (isIP(hostname) !== 0 || hostname === "localhost" || hostname.endsWith(".localhost")) return true;
  if (own.includes(hostname)) return true;
  return domain !== null && (hostname === domain || hostname.endsWith(`.${domain}`));
}
