/** Shapes of deployments, and of differences between versions. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { epochSeconds } from "../../base/schema.ts";
import { createFunction, smokeField, updateFunction } from "../schema.ts";

/** A function of a deployment: complete, what is absent has its default. */
const deployFunction = createFunction.safeExtend({ smoke: smokeField }).meta({ id: "DeployFunction" });

export type DeployFunction = z.output<typeof deployFunction>;

export const deployFunctions = z
  .object({
    functions: z
      .array(deployFunction)
      .min(1)
      .max(LIMITS.deployment_functions_max)
      .refine((all) => new Set(all.map(({ name }) => name)).size === all.length, {
        error: "must not contain a name twice",
      })
      .describe("The functions as they are to be. All of them are deployed, or none."),
    dry_run: z.boolean().default(false).describe("True: returns what would change, and changes nothing."),
  })
  .meta({ id: "Deployment" });

export const snapshotVersion = updateFunction
  .pick({ handler: true, working_directory: true, note: true, smoke: true })
  .extend({ snapshot_id: z.string().describe("Snapshot of a container: the files of the version's instances.") })
  .meta({ id: "SnapshotVersion" });
export type SnapshotVersion = z.output<typeof snapshotVersion>;

const difference = z
  .object({
    field: z.string().describe("Name of the field."),
    from: z.json().describe("Value before."),
    to: z.json().describe("Value after."),
  })
  .meta({ id: "Difference" });

export type Difference = z.output<typeof difference>;

const deployedFunction = z
  .object({
    name: z.string().describe("Name of the function."),
    function_id: z.string().describe("Id of the function."),
    action: z
      .enum(["created", "updated", "activated", "unchanged"])
      .describe("activated: the same version, but the function was not active."),
    version: z.int().describe("Version that is active afterwards."),
    changes: z.array(difference).describe("Fields that differ from the version before; empty for a new function."),
  })
  .meta({ id: "DeployedFunction" });

export type DeployedFunction = z.output<typeof deployedFunction>;

export const deployedFunctions = z
  .object({ functions: z.array(deployedFunction).describe("In the order of the request.") })
  .meta({ id: "Deployed" });

export const deployRequest = z.object({ smoke: smokeField }).meta({ id: "DeployRequest" });

/** Code that was uploaded. */
export const uploadedCode = z
  .object({
    code_sha256: z.string().describe("Digest of the files: paths, types, executable bits, contents and link targets."),
    size_bytes: z.int().describe("Size of all files in bytes."),
    entry_count: z.int().describe("Number of files, directories and links."),
    created_at: epochSeconds,
  })
  .meta({ id: "UploadedCode" });

/** Differences between two versions. */
export const versionDiff = z
  .object({
    from_version: z.int().describe("Version before."),
    to_version: z.int().describe("Version after."),
    changes: z.array(difference).describe("Settings that differ."),
    files: z
      .array(
        z.object({
          path: z.string().describe("Path in the code."),
          change: z.enum(["added", "removed", "changed"]).describe("What became of it."),
        }),
      )
      .describe("Files of the code that differ, by path."),
    is_truncated: z.boolean().describe("True if more files differ than the list holds."),
  })
  .meta({ id: "VersionDiff" });

export type VersionDiff = z.output<typeof versionDiff>;
