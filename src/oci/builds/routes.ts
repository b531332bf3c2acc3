/** The route of image builds. */
import { z } from "zod";
import { Answer } from "../../base/answer.ts";
import { route } from "../../http/route.ts";
import { acceptedOperation, executionField, operationRecord } from "../../operations/schema.ts";
import type { Operations } from "../../operations/service.ts";
import { SAMPLES } from "../samples.ts";
import { buildImage } from "./schema.ts";
import type { Builds } from "./service.ts";

export function buildRoutes({ builds, operations }: { readonly builds: Builds; readonly operations: Operations }) {
  return [
    route({
      method: "POST",
      path: "/api/oci/images/build",
      auth: "tenant",
      scope: "write",
      operation: "buildImage",
      summary: "Builds an image from a build context; events build_log of the operation are its log.",
      query: z.object({ execution: executionField }),
      body: buildImage,
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: operationRecord, example: SAMPLES.build },
      errors: [
        "NOT_FOUND",
        "QUOTA_EXCEEDED",
        "BUILD_FAILED",
        "IMAGE_INVALID",
        "CAPACITY_FULL",
        "QUEUE_FULL",
        "SHUTTING_DOWN",
        "TIMEOUT",
        "WRONG_STATE",
      ],
      example: {
        body: { context_id: SAMPLES.context.context_id, image_reference: "acme/app:1" },
        response: SAMPLES.handle,
      },
      handler: async ({ caller, query, body, signal }) => {
        const operation = await builds.accept(caller, body);
        return operations.answer(caller.tenant_id, operation, {
          execution: query.execution ?? "async",
          signal,
          finished: (ended) => new Answer(200, ended),
        });
      },
    }),
  ];
}
