/** Origins of web pages, as browsers send them in the header `Origin` (RFC 6454 §6.2). */

/** Returns the origins. Calls `refuse` for an entry that no browser sends: one with `*`, a path, capitals or a default port. */
export function originSet(entries: readonly string[], refuse: (entry: string) => never): ReadonlySet<string> {
  const wrong = entries.find((entry) => !/^https?:[^*]+$/.test(entry) || URL.parse(entry)?.origin !== entry);
  return wrong === undefined ? new Set(entries) : refuse(wrong);
}
