/**
 * The schema of hearth.toml for editors, made from the schemas of the API: what an editor accepts is what a deployment accepts.
 * The command line reads the file (src/cli/project); TOML has no null, so a field that may be null is optional.
 */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { egress, memoryLimit, text, textBytes } from "../base/schema.ts";
import { createFunction, smoke } from "./schema.ts";

/** Not in the file: what no function has, the digest of the folder's code, and the note, which is a flag. */
const {
  name,
  cluster_id: _cluster,
  source_code: _source,
  code_sha256: _code,
  note: _note,
  ...fields
} = createFunction.shape;

const path = text(LIMITS.path_bytes_max);

const build = z
  .strictObject({
    command: textBytes(LIMITS.handler_bytes_max)
      .optional()
      .describe(
        "Line for sh that installs dependencies, run in the folder (default: npm ci, npm install or pip install).",
      ),
    egress: egress.default("on").describe("Outbound traffic of the build."),
    memory_limit_mb: memoryLimit.optional().describe("Memory limit of the build in MiB."),
  })
  .describe("Build of hearth deploy --build.");

/** A function of the file. */
export const projectFunction = z.strictObject({
  function: name.describe("Name of the function, unique in the tenant."),
  directory: path.optional().describe("Folder of its files, relative to hearth.toml (default: that of hearth.toml)."),
  payload: path.optional().describe("File with the payload for tests (default: payload.json)."),
  ...fields,
  smoke: smoke.optional(),
  build: build.optional(),
});

const severalFunctions = z.strictObject({
  functions: z
    .array(projectFunction)
    .min(1)
    .max(LIMITS.deployment_functions_max)
    .describe("Functions that are deployed together: all of them, or none."),
});

type Json = { [key: string]: unknown };

/** Leaves out null, and the bounds of a double's whole numbers. */
function tidy(schema: Json): void {
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
  const branches = (schema.anyOf as Json[] | undefined)?.filter(({ type }) => type !== "null");
  const [only] = branches ?? [];
  if (branches?.length === 1) {
    delete schema.anyOf;
    Object.assign(schema, { ...only, ...schema });
  } else if (branches !== undefined) schema.anyOf = branches;
}

/** Makes the JSON Schema, in the draft that editors of TOML know. */
export function projectSchema(): Record<string, unknown> {
  const { $schema, ...rest } = z.toJSONSchema(z.union([projectFunction, severalFunctions]), {
    target: "draft-7",
    io: "input",
    unrepresentable: "any",
    override: ({ jsonSchema }) => tidy(jsonSchema as Json),
  });
  return { $schema, title: "hearth.toml", description: "Functions that hearth deploy makes of a folder.", ...rest };
}
