/** Shape of a request for a build. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { egress, secretName, text } from "../../base/schema.ts";

const buildfile = text(LIMITS.path_bytes_max).min(1).nullish();

export const buildImage = z
  .object({
    context_id: text(LIMITS.name_length_max).min(1).describe("Id of the build context: POST /api/build-contexts."),
    image_reference: text(LIMITS.image_reference_length_max)
      .min(1)
      .describe("Reference of the result, with a tag and without a digest. It replaces an equal one."),
    buildfile_path: buildfile.describe("Path of the build file in the context. Default: Dockerfile."),
    dockerfile_path: buildfile.describe("The same as buildfile_path."),
    build_args: z
      .record(text(LIMITS.name_length_max), text(LIMITS.environment_bytes_max))
      .default({})
      .refine((all) => Object.keys(all).length <= LIMITS.build_args_max, {
        error: `must not have more than ${LIMITS.build_args_max} entries`,
      })
      .describe("Values of the arguments that the build file declares with ARG. They are no place for secrets."),
    target_stage: text(LIMITS.name_length_max)
      .min(1)
      .nullish()
      .describe("Name or number of the stage that becomes the image. Default: the last one."),
    egress: egress
      .default("on")
      .describe('Outbound traffic of commands: "on", "off", or a list of allowed destinations.'),
    no_cache: z.boolean().default(false).describe("True: runs every step, also those whose results are kept."),
    secrets: z
      .array(secretName)
      .max(LIMITS.build_secrets_max)
      .refine((names) => new Set(names).size === names.length, { error: "must not contain a name twice" })
      .default([])
      .describe("Names of secrets that RUN --mount=type=secret may mount."),
  })
  .meta({ id: "BuildImage" });
export type BuildImage = z.output<typeof buildImage>;
