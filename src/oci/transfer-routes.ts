/** Routes that bring images out of the daemon: to a registry, or to the client. */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import { route } from "../http/route.ts";
import { acceptedOperation, executionField } from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import type { Pushes } from "./pushes.ts";
import { SAMPLES } from "./samples.ts";
import { ARCHIVE_TYPE, type Saves } from "./saves.ts";
import { imageQuery, pushedImage, pushImage } from "./schema.ts";

export interface TransferRoutesOptions {
  readonly pushes: Pushes;
  readonly saves: Saves;
  readonly operations: Operations;
}

const NOT_PUSHED = { success: false, reference: null, target: null, manifest_digest: null };
/** Result of the operation of a push. */
const PushResult = z.object({ reference: z.string(), target: z.string(), manifest_digest: z.string() });

export function transferRoutes({ pushes, saves, operations }: TransferRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/oci/images/push",
      auth: "tenant",
      scope: "write",
      operation: "pushImage",
      summary: "Pushes an image to a registry; responds when the registry has it.",
      early_status: ({ execution }) => (execution === "async" ? null : 200),
      late_refusal: ({ error }) => ({ ...NOT_PUSHED, error_message: error }),
      query: z.object({ execution: executionField }),
      body: pushImage,
      response: pushedImage,
      other: { status: 202, response: acceptedOperation, example: SAMPLES.handle },
      errors: [
        ...(["FORBIDDEN", "NOT_FOUND", "IMAGE_INVALID", "REGISTRY_FAILED", "RATE_LIMITED", "CAPACITY_FULL"] as const),
        ...(["QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT", "WRONG_STATE"] as const),
      ],
      example: {
        body: { reference: "alpine:3.20", target: "registry.example.com/team/alpine:3.20" },
        response: SAMPLES.pushed,
      },
      handler: async ({ caller, query, body, signal }) => {
        const execution = query.execution ?? "sync";
        const operation = await pushes.accept(caller, body);
        const answer = await operations.answer(caller.tenant_id, operation, {
          execution,
          signal,
          finished: ({ result }) => ({ success: true, ...PushResult.parse(result), error_message: null }),
        });
        if (execution === "async" || !(answer instanceof Answer)) return answer;
        return { ...NOT_PUSHED, error_message: `the push continues as operation ${operation.operation_id}` };
      },
    }),
    route({
      method: "GET",
      path: "/api/oci/images/save",
      auth: "tenant",
      scope: "read",
      operation: "saveImage",
      summary: "Returns an image as an OCI archive: a tar with its manifest, its configuration and its layers.",
      query: imageQuery,
      content: [ARCHIVE_TYPE],
      errors: ["NOT_FOUND", "IMAGE_INVALID", "CONCURRENCY_LIMIT", "CAPACITY_FULL", "TIMEOUT"],
      example: { query: { reference: "alpine:3.20" } },
      handler: ({ caller, query, signal }) => saves.archive(caller.tenant_id, query.reference, signal),
    }),
  ];
}
