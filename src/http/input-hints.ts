/** Hints of refused values: the shape that the schema has at a path, and the value that was probably meant. */
import type { z } from "zod";
import { nearest } from "../base/suggest.ts";

/** Values of other services for values of this API, where the spelling alone does not lead to them. */
const MISNAMED_VALUES: Readonly<Record<string, string>> = {
  bash: "shell",
  javascript: "nodejs",
  js: "nodejs",
  never: "no",
  provided: "custom",
  ts: "nodejs",
  typescript: "nodejs",
  "unless-stopped": "always",
};
/** Values up to this length are looked for among those that are accepted. */
const VALUE_LENGTH_MAX = 64;
/** Names of an object's fields that a hint lists; others are in the page of the API. */
const FIELDS_SHOWN_MAX = 6;

/** `send 'nodejs' instead`: the accepted value that `value` begins with, is another service's word for, or resembles. */
export function valueHint(value: unknown, accepted: readonly string[]): string | null {
  if (typeof value !== "string" || value.length > VALUE_LENGTH_MAX) return null;
  const lower = value.toLowerCase();
  // nodejs20.x, python3.12 and provided.al2023 are runtimes of AWS Lambda.
  const misnamed = MISNAMED_VALUES[lower] ?? MISNAMED_VALUES[lower.split(".", 1)[0] ?? ""];
  const found =
    accepted.find((one) => one === misnamed) ??
    accepted.find((one) => one.length > 2 && lower.startsWith(one.toLowerCase())) ??
    nearest(value, accepted)[0];
  return found === undefined || found === "" ? null : `send '${found}' instead`;
}

/** `send an array of strings`: the shape of the value at a path of `schema`; null for one that is neither array nor object. */
export function shapeHint(schema: z.core.$ZodType, path: readonly PropertyKey[]): string | null {
  let found: z.core.$ZodType | null = schema;
  for (const key of path) found = found === null ? null : memberOf(found, key);
  const words = found === null ? null : shapeWords(found);
  return words === null ? null : `send ${words}`;
}

type Def = z.core.$ZodTypes["_zod"]["def"];

/** A schema without what lets it be absent or changes its value. */
function bare(schema: z.core.$ZodType): Def {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case "pipe":
      return bare(def.in);
    case "optional":
    case "nullable":
    case "default":
    case "prefault":
    case "readonly":
      return bare(def.innerType);
    default:
      return def;
  }
}

function memberOf(schema: z.core.$ZodType, key: PropertyKey): z.core.$ZodType | null {
  const def = bare(schema);
  switch (def.type) {
    case "object":
      return Object.hasOwn(def.shape, key) ? (def.shape[String(key)] ?? null) : null;
    case "array":
      return def.element;
    case "record":
      return def.valueType;
    case "union":
      return def.options.map((one) => memberOf(one, key)).find((one) => one !== null) ?? null;
    default:
      return null;
  }
}

function shapeWords(schema: z.core.$ZodType): string | null {
  const def = bare(schema);
  switch (def.type) {
    case "array":
      return `an array${elementWords(bare(def.element))}`;
    case "record":
      return 'an object of names and values, as in {"NAME": "value"}';
    case "object":
      return `an object${fieldWords(def.shape)}`;
    case "union": {
      const some = def.options.map(shapeWords).filter((one) => one !== null);
      return some.length === 0 ? null : [...new Set(some)].join(" or ");
    }
    default:
      return null;
  }
}

function elementWords(def: Def): string {
  if (def.type === "string" || def.type === "enum") return " of strings";
  return def.type === "object" ? ` of objects${fieldWords(def.shape)}` : "";
}

function fieldWords(shape: Readonly<Record<string, z.core.$ZodType>>): string {
  const names = Object.keys(shape);
  if (names.length === 0) return "";
  const shown = names.slice(0, FIELDS_SHOWN_MAX).join(", ");
  return ` with ${shown}${names.length > FIELDS_SHOWN_MAX ? " …" : ""}`;
}
