/** Routes of build contexts. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { acknowledgement, pageQuery } from "../../base/schema.ts";
import { route } from "../../http/route.ts";
import { SAMPLES } from "../samples.ts";
import { contextList, contextRecord, createContext } from "./schema.ts";
import type { BuildContexts } from "./service.ts";

const byContext = z.object({
  context_id: z.string().meta({ description: "Id of the build context.", examples: ["ctx_6k1wz9v4c2qj8rtd"] }),
});

export function contextRoutes({ contexts }: { readonly contexts: BuildContexts }) {
  return [
    route({
      method: "POST",
      path: "/api/build-contexts",
      auth: "tenant",
      scope: "write",
      operation: "createBuildContext",
      summary: "Unpacks a tar or tar.gz for a build, as raw bytes or in base64 in JSON.",
      body: createContext,
      base64_field: "content",
      upload: {
        bytes_max: LIMITS.context_archive_bytes_max,
        content: ["application/x-tar", "application/gzip"],
      },
      status: 201,
      response: contextRecord,
      errors: ["BODY_TOO_LARGE", "QUOTA_EXCEEDED", "CONCURRENCY_LIMIT", "CAPACITY_FULL", "REQUEST_TIMEOUT"],
      example: { body: { content: SAMPLES.context_archive }, response: SAMPLES.context },
      handler: ({ caller, stream }) => contexts.create(caller.tenant_id, stream),
    }),
    route({
      method: "GET",
      path: "/api/build-contexts",
      auth: "tenant",
      scope: "read",
      operation: "listBuildContexts",
      summary: "Lists the tenant's build contexts that have not expired, newest first.",
      query: pageQuery,
      response: contextList,
      example: { response: { build_contexts: [SAMPLES.context], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("build_contexts", await contexts.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "DELETE",
      path: "/api/build-contexts/:context_id",
      auth: "tenant",
      scope: "write",
      operation: "deleteBuildContext",
      summary: "Deletes a build context; a build that uses it keeps the files until it ends.",
      params: byContext,
      response: acknowledgement,
      errors: ["NOT_FOUND"],
      example: {
        params: { context_id: "{context_id}" },
        response: { success: true, message: "build context deleted" },
      },
      handler: async ({ caller, params }) => {
        await contexts.delete(caller.tenant_id, params.context_id);
        return { success: true as const, message: "build context deleted" };
      },
    }),
  ];
}
