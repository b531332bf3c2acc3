/** The host in references of profiles. It is no registry: the daemon resolves it on this node, and never connects to it. */

/** `.internal` is no public domain, so the name has no owner. */
export const PROFILE_REGISTRY = "profiles.hearth.internal";

const RESERVED = /^(?:.+\.)?hearth\.internal\.?(?::\d+)?$/i;

/** True for every host below hearth.internal, whatever its port: none may pose as that of profiles. */
export function isReservedRegistry(registry: string): boolean {
  return RESERVED.test(registry);
}
