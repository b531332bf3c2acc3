/** Routes of a container's files: directories, archives in and out. One that runs is seen as its first process sees it. */
import { LIMITS } from "../base/limits.ts";
import { acknowledgement } from "../base/schema.ts";
import { route } from "../http/route.ts";
import { acceptedOperation, executionField } from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import { archiveBody, archiveQuery, downloadQuery, fileList, listQuery } from "../volumes/schema.ts";
import { downloadArchive, listed, unpacked, unpackingOf } from "../volumes/service.ts";
import { byContainer, ID_EXAMPLE } from "../containers/path.ts";
import { SAMPLES } from "../containers/samples.ts";
import type { Containers } from "../containers/service.ts";
import type { ContainerVerbs } from "../containers/verbs.ts";

export interface FileRoutesOptions {
  readonly containers: Containers;
  readonly verbs: ContainerVerbs;
  readonly operations: Operations;
}

const FILE_ERRORS = ["NOT_FOUND", "WRONG_STATE", "CONCURRENCY_LIMIT", "CAPACITY_FULL"] as const;
const UPLOAD_ERRORS = ["STORAGE_FULL", "BODY_TOO_LARGE", "QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT"] as const;

export function fileRoutes({ containers, verbs, operations }: FileRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/containers/:container_id/ls",
      auth: "tenant",
      scope: "read",
      operation: "listContainerFiles",
      summary: "A page of a directory, in the order of the names' bytes.",
      params: byContainer,
      query: listQuery,
      response: fileList,
      errors: FILE_ERRORS,
      example: { params: ID_EXAMPLE, query: { path: "/" }, response: SAMPLES.files },
      handler: async ({ caller, params, query }) => {
        const { session, close } = await containers.openFiles(caller.tenant_id, params.container_id);
        try {
          return await listed(session, query);
        } finally {
          close();
        }
      },
    }),
    route({
      method: "POST",
      path: "/api/containers/:container_id/archive",
      auth: "tenant",
      scope: "write",
      operation: "uploadContainerArchive",
      summary: "Unpacks a tar or tar.gz as it comes; the answer comes when all of it is there.",
      params: byContainer,
      query: archiveQuery.extend({ execution: executionField }),
      body: archiveBody,
      base64_field: "content",
      upload: { bytes_max: LIMITS.upload_bytes_max, content: ["application/gzip", "application/x-tar"] },
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: acknowledgement, example: SAMPLES.unpacked },
      errors: [...FILE_ERRORS, ...UPLOAD_ERRORS],
      example: { params: ID_EXAMPLE, body: SAMPLES.archive, response: SAMPLES.handle },
      handler: async ({ caller, params, query, body, stream, signal }) => {
        const how = unpackingOf(body, query);
        const operation = await verbs.unpack(caller.tenant_id, params.container_id, stream, how);
        return unpacked(operations, caller.tenant_id, operation, query.execution, signal);
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/archive",
      auth: "tenant",
      scope: "read",
      operation: "downloadContainerArchive",
      summary: "A directory, or one file, as tar or tar.gz.",
      params: byContainer,
      query: downloadQuery,
      content: ["application/x-tar", "application/gzip"],
      errors: FILE_ERRORS,
      example: { params: ID_EXAMPLE, query: { path: "/root" } },
      handler: ({ caller, params, query }) =>
        downloadArchive(() => containers.openFiles(caller.tenant_id, params.container_id), query.path, query.format),
    }),
  ];
}
