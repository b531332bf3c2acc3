/**
 * The fields of a JSON body: refuses those that its schema does not name, at any depth, and removes the null of
 * an optional field that has no meaning of its own. Compiled once per route; the values are the schema's to check.
 */
import { z } from "zod";
import { AppError, invariant } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { nearest } from "../base/suggest.ts";
import { pathText } from "./input.ts";

type Path = readonly PropertyKey[];

/** The first unknown field of a body, and how many there are, up to `unknown_fields_max`. */
interface Unknown {
  count: number;
  path: Path;
  known: readonly string[];
  readonly body: unknown;
  /** The body of the route's example as JSON. */
  readonly example: string | null;
}

/** Works through one value of a body and counts what its schema does not name. */
type Step = (value: unknown, path: Path, unknown: Unknown) => void;

/** Names of other services for fields of this API, where the spelling alone does not lead to them. */
const MISNAMINGS: Readonly<Record<string, string>> = {
  args: "command",
  cmd: "command",
  cpu: "cpu_limit_percent",
  cpu_percent: "cpu_limit_percent",
  cpus: "cpu_limit_percent",
  cwd: "working_directory",
  disk_mb: "disk_limit_mb",
  env: "environment",
  environment_variables: "environment",
  input: "payload",
  max_memory_mb: "memory_limit_mb",
  memory: "memory_limit_mb",
  memory_limit: "memory_limit_mb",
  memory_mb: "memory_limit_mb",
  mounts: "volumes",
  timeout: "timeout_seconds",
  tags: "labels",
  workdir: "working_directory",
};

const PAYLOAD = "payload";

/** The name of the member by which JavaScript finds a prototype. Maps of names never have it. */
const RESERVED = "__proto__";

/** A body without fields: of routes that take none. */
export const noFields = z.strictObject({});

/**
 * Throws UNPROCESSABLE_ENTITY for the first unknown field of a body, with the example of a body, and removes nulls that mean
 * nothing.
 */
export function bodyFields(schema: z.ZodType, example_body?: unknown): (body: unknown) => void {
  const step = stepOf(schema);
  const example = example_body === undefined ? null : JSON.stringify(example_body);
  return (body) => {
    if (step === null) return;
    const unknown: Unknown = { count: 0, path: [], known: [], body, example };
    step(body, [], unknown);
    if (unknown.count > 0) throw unknownField(unknown);
  };
}

/** True if a null of this optional field is the same as its absence. */
export function isNullAbsent(field: z.core.$ZodType): boolean {
  return z.safeParse(field, undefined).success && !z.safeParse(field, null).success;
}

function unknownField(unknown: Unknown): AppError {
  const { path, known, count, example } = unknown;
  const name = String(path.at(-1));
  const alias = MISNAMINGS[name];
  const near = alias !== undefined && known.includes(alias) ? alias : nearest(name, known)[0];
  const isAll = count < LIMITS.unknown_fields_max;
  const others = count === 1 ? "" : ` (and ${isAll ? "" : "at least "}${count - 1} more)`;
  const meant = near === undefined ? "" : `, did you mean '${near}'?`;
  return new AppError("UNPROCESSABLE_ENTITY", `unknown field '${pathText(path)}'${meant}${others}`, {
    details: { expected: near === undefined ? known : [near], received: pathText([name]), example },
    hint: near === undefined ? (payloadHint(unknown) ?? "remove the field") : `send '${near}' instead`,
  });
}

/** Returns the hint for a call whose body is its payload; null for other bodies. */
function payloadHint({ path, known, body, example }: Unknown): string | null {
  if (path.length > 1 || !known.includes(PAYLOAD) || !isObject(body) || Object.hasOwn(body, PAYLOAD)) return null;
  return `send the payload of the call as the field '${PAYLOAD}'${example === null ? "" : `, as in ${example}`}`;
}

/** Returns the step for values of a schema; null for a schema without objects. */
function stepOf(schema: z.core.$ZodType): Step | null {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case "object":
      return objectStep(def);
    case "array":
      return eachStep(stepOf(def.element));
    case "record":
      return mapStep(stepOf(def.valueType));
    case "union":
      return unionStep(def.options);
    case "pipe":
      return stepOf(def.in);
    case "optional":
    case "nullable":
    case "default":
    case "prefault":
    case "readonly":
      return stepOf(def.innerType);
    default:
      return null;
  }
}

/** Throws the refusal at the last unknown field that is counted. */
function note(unknown: Unknown, path: Path, known: readonly string[]): void {
  unknown.count++;
  if (unknown.count === 1) {
    unknown.path = path;
    unknown.known = known;
  }
  if (unknown.count === LIMITS.unknown_fields_max) throw unknownField(unknown);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function objectStep({ shape, catchall }: z.core.$ZodObjectDef): Step {
  invariant(catchall === undefined || (catchall as z.core.$ZodTypes)._zod.def.type === "never", "no body is open");
  const fields = new Map(
    Object.entries(shape).map(([name, field]) => [name, { step: stepOf(field), is_null_absent: isNullAbsent(field) }]),
  );
  const known = [...fields.keys()];
  return (value, path, unknown) => {
    if (!isObject(value)) return;
    for (const name of Object.keys(value)) {
      const field = fields.get(name);
      if (field === undefined) note(unknown, [...path, name], known);
      else if (field.is_null_absent && value[name] === null) delete value[name];
      else if (field.step !== null) field.step(value[name], [...path, name], unknown);
    }
  };
}

function eachStep(step: Step | null): Step | null {
  if (step === null) return null;
  return (value, path, unknown) => {
    if (typeof value !== "object" || value === null) return;
    for (const [key, one] of Object.entries(value)) step(one, [...path, key], unknown);
  };
}

/**
 * Refuses a map with the name `__proto__`, or with far too many entries: the schema looks at each of them before it counts. Of a
 * list it counts first.
 */
function mapStep(step: Step | null): Step {
  const each = eachStep(step);
  return (value, path, unknown) => {
    if (!isObject(value)) return;
    // The schema would drop it, so that a client had set what nothing shows.
    if (Object.hasOwn(value, RESERVED)) {
      throw new AppError("INVALID_ARGUMENT", `${pathText(path)}: invalid name: '${RESERVED}' (expected another)`, {
        details: { expected: null, received: RESERVED },
        hint: `rename the entry '${RESERVED}'`,
      });
    }
    if (Object.keys(value).length > LIMITS.map_entries_max) {
      throw new AppError(
        "INVALID_ARGUMENT",
        `${pathText(path)}: must not have more than ${LIMITS.map_entries_max} entries, received object`,
        { details: { expected: [`<= ${LIMITS.map_entries_max} entries`], received: "object" } },
      );
    }
    each?.(value, path, unknown);
  };
}

function unionStep(options: readonly z.core.$ZodType[]): Step | null {
  const steps = options.map(stepOf).filter((step) => step !== null);
  invariant(steps.length <= 1, "one alternative of a field has fields of its own");
  return steps[0] ?? null;
}
