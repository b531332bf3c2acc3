/** Records as lists of fields. */
import { json } from "./text.ts";
import { relative, stamp } from "./time.ts";

/** The fields of a record, as they are called in the API; times in words. */
export function entriesOf(record: object, now: number): [string, string][] {
  return Object.entries(record).map(([field, value]) => [field, shown(field, value, now)]);
}

function shown(field: string, value: unknown, now: number): string {
  if (value === null) return "-";
  if (field.endsWith("_at") && typeof value === "number") return `${stamp(value)} (${relative(value, now)})`;
  return typeof value === "object" ? json(value, 0) : String(value);
}
