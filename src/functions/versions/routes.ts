/** Routes of functions' code: upload, download, what differs between versions, and deployments of several functions. */
import { z } from "zod";
import { Streamed } from "../../base/answer.ts";
import { LIMITS } from "../../base/limits.ts";
import { queryNumber, text } from "../../base/schema.ts";
import type { CodeStore } from "../../code/service.ts";
import { route } from "../../http/route.ts";
import { checkSmoke } from "../parts.ts";
import { SAMPLES } from "../samples.ts";
import { functionRecord, versionRecord } from "../schema.ts";
import type { Functions } from "../service.ts";
import { deployedFunctions, deployFunctions, uploadedCode, versionDiff } from "./schema.ts";

const byId = z.object({
  function_id: z.string().meta({ description: "Id of the function.", examples: ["fn_vbdyfv0b4bfn4a9q"] }),
});
/** A number in the path; 0, which no version has, for other text. */
const versionNumber = z
  .string()
  .transform((text) => (/^\d{1,15}$/.test(text) ? Number(text) : 0))
  .meta({ type: "integer", minimum: 1 });
const byVersion = byId.extend({
  version: versionNumber.describe("Version number."),
});
const byVersions = byVersion.extend({ other_version: versionNumber.describe("Number of the version after.") });
const byCode = z.object({
  code_sha256: z.string().meta({ description: "Digest of the code.", examples: [SAMPLES.uploaded_code.code_sha256] }),
});
const ID_EXAMPLE = { function_id: "{function_id}" };

const stripComponents = queryNumber(0, LIMITS.archive_depth_max)
  .default(0)
  .meta({ default: 0, description: "Leading components to strip from each name; entries with no more are skipped." });

const ARCHIVE = {
  bytes_max: LIMITS.code_archive_bytes_max,
  content: ["application/gzip", "application/x-tar", "application/zip"],
} as const;

const UPLOAD_ERRORS = [
  "BODY_TOO_LARGE",
  "QUOTA_EXCEEDED",
  "STORAGE_FULL",
  "CONCURRENCY_LIMIT",
  "CAPACITY_FULL",
  "REQUEST_TIMEOUT",
] as const;
const ACTIVATION_ERRORS = ["NOT_FOUND", "WRONG_STATE", "START_FAILED", "HANDLER_FAILED"] as const;

export interface CodeRoutesOptions {
  readonly functions: Functions;
  readonly code: CodeStore;
}

export function codeRoutes({ functions, code }: CodeRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/functions/code",
      auth: "tenant",
      scope: "write",
      operation: "uploadCode",
      summary: `Stores an archive (tar, tar.gz or zip) of code for code_sha256 of a version. Without a version it goes after ${LIMITS.code_unused_seconds / 3600} hour.`,
      query: z.object({ strip_components: stripComponents }),
      upload: ARCHIVE,
      status: 201,
      response: uploadedCode,
      errors: UPLOAD_ERRORS,
      example: { response: SAMPLES.uploaded_code },
      handler: async ({ caller, query, stream }) => {
        const { digest, ...stored } = await code.put(caller.tenant_id, stream, query);
        return { code_sha256: digest, ...stored };
      },
    }),
    route({
      method: "POST",
      path: "/api/functions/code/:code_sha256/renew",
      auth: "tenant",
      scope: "write",
      operation: "renewCode",
      summary: "Keeps code that the tenant has uploaded as long as a new upload would; NOT_FOUND means: upload it.",
      params: byCode,
      response: uploadedCode,
      errors: ["NOT_FOUND", "CONCURRENCY_LIMIT", "CAPACITY_FULL"],
      example: { params: { code_sha256: "{code_sha256}" }, response: SAMPLES.uploaded_code },
      handler: async ({ caller, params }) => {
        const { digest, ...stored } = await code.renew(caller.tenant_id, params.code_sha256);
        return { code_sha256: digest, ...stored };
      },
    }),
    route({
      method: "PUT",
      path: "/api/functions/:function_id/code",
      auth: "tenant",
      scope: "write",
      operation: "putCode",
      summary:
        "Makes a version with the files of an archive (tar, tar.gz or zip) at /function, and activates it. The same files make no version.",
      params: byId,
      query: z.object({
        strip_components: stripComponents,
        note: text(LIMITS.version_note_length_max).optional().describe("Note of the version."),
      }),
      upload: ARCHIVE,
      response: functionRecord,
      errors: [...ACTIVATION_ERRORS, ...UPLOAD_ERRORS],
      example: { params: ID_EXAMPLE, response: SAMPLES.with_code },
      handler: async ({ caller, params, query, stream }) => {
        // Before anything is read.
        await functions.get(caller.tenant_id, params.function_id);
        const { strip_components, note = null } = query;
        const { digest } = await code.put(caller.tenant_id, stream, { strip_components });
        return functions.versions.setCode(caller, params.function_id, { code_sha256: digest, note });
      },
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/versions/:version",
      auth: "tenant",
      scope: "read",
      operation: "getVersion",
      summary: "Returns a version.",
      params: byVersion,
      response: versionRecord,
      errors: ["NOT_FOUND"],
      example: { params: { ...ID_EXAMPLE, version: "1" }, response: SAMPLES.version },
      handler: ({ caller, params }) => functions.versions.get(caller.tenant_id, params.function_id, params.version),
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/versions/:version/code",
      auth: "tenant",
      scope: "read",
      operation: "getCode",
      summary: "Returns the code of a version as tar.gz.",
      params: byVersion,
      content: ["application/gzip"],
      errors: ["NOT_FOUND", "CONCURRENCY_LIMIT", "CAPACITY_FULL"],
      example: { params: { ...ID_EXAMPLE, version: "3" } },
      handler: async ({ caller, params }) => {
        const digest = await functions.versions.codeOf(caller.tenant_id, params.function_id, params.version);
        return new Streamed(await code.pack(caller.tenant_id, digest), {
          content_type: "application/gzip",
          is_exclusive: true,
        });
      },
    }),
    route({
      method: "GET",
      path: "/api/functions/:function_id/versions/:version/diff/:other_version",
      auth: "tenant",
      scope: "read",
      operation: "diffVersions",
      summary: "Returns the settings and files in which two versions differ.",
      params: byVersions,
      response: versionDiff,
      errors: ["NOT_FOUND", "CONCURRENCY_LIMIT", "CAPACITY_FULL"],
      example: {
        params: { ...ID_EXAMPLE, version: "1", other_version: "2" },
        response: SAMPLES.version_diff,
      },
      handler: ({ caller, params }) =>
        functions.versions.diff(caller.tenant_id, params.function_id, params.version, params.other_version),
    }),
    route({
      method: "POST",
      path: "/api/functions/deployments",
      auth: "tenant",
      scope: "write",
      operation: "deployFunctions",
      summary:
        "Creates or updates functions and makes them active, all or none. What is the same already makes no version.",
      headers: ["Idempotency-Key"],
      body: deployFunctions,
      exact_fields: [["functions", "*", "smoke", "payload"]],
      response: deployedFunctions,
      errors: [...ACTIVATION_ERRORS, "CAPACITY_FULL", "QUOTA_EXCEEDED"],
      example: {
        body: { functions: [{ name: "hello", handler: "echo good evening, $(cat)" }], dry_run: true },
        response: SAMPLES.deployed,
      },
      handler: async (request) => {
        const { caller, body } = request;
        for (const { smoke } of body.functions) checkSmoke(caller, smoke);
        const how = { is_dry_run: body.dry_run };
        return { functions: await functions.deployments.apply(caller, body.functions, how, request) };
      },
    }),
  ];
}
