/**
 * Decides if a signature policy (containers-policy.json) accepts images of a repository without a signature. Only then may buildah be
 * given another manifest than the registry's own. buildah applies the policy in any case: a wrong answer here refuses an image, and lets
 * none in.
 */
import { readFile } from "node:fs/promises";
import { z } from "zod";

const Requirements = z.array(z.object({ type: z.string() }));
const Policy = z.object({
  default: Requirements,
  transports: z.record(z.string(), z.record(z.string(), Requirements)).default({}),
});

/** `policy_file`: null for buildah's own, of which nothing is known. `name`: `<registry>/<repository>`. */
export async function acceptsEverything(policy_file: string | null, name: string): Promise<boolean> {
  const text = policy_file === null ? "" : await readFile(policy_file, "utf8").catch(() => "");
  const policy = policyOf(text);
  if (policy === null) return false;
  // buildah takes the most specific scope. All that fit have to accept.
  const scopes = Object.entries(policy.transports.docker ?? {}).filter(([scope]) => isWithin(name, scope));
  const requirements = scopes.length === 0 ? [policy.default] : scopes.map(([, list]) => list);
  return requirements.every((list) => list.length > 0 && list.every(({ type }) => type === "insecureAcceptAnything"));
}

function policyOf(text: string): z.infer<typeof Policy> | null {
  try {
    return Policy.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** A scope is a registry, a part of a path, or one image; `*.` stands for subdomains, an empty one for all. */
function isWithin(name: string, scope: string): boolean {
  if (scope === "" || name === scope) return true;
  if (scope.startsWith("*.")) return (name.split("/")[0] ?? "").replace(/:\d+$/, "").endsWith(scope.slice(1));
  return scope.startsWith(`${name}:`) || scope.startsWith(`${name}@`) || name.startsWith(`${scope}/`);
}
