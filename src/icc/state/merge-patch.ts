/** JSON Merge Patch, RFC 7396: what a patch makes of a value. */

type JsonObject = Readonly<Record<string, unknown>>;

/** Returns the patched value; neither argument changes. `null` in an object of the patch removes the member. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  // Entries, not assignments: a member may have the name `__proto__`.
  const members = new Map(isObject(target) ? Object.entries(target) : []);
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) members.delete(name);
    else members.set(name, mergePatch(members.get(name), value));
  }
  return Object.fromEntries(members);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
