/** Routes of the files of a tree: directories, archives in and out. The resources that have a tree are made of them. */
import type { z } from "zod";
import { Answer } from "../base/answer.ts";
import { LIMITS } from "../base/limits.ts";
import { acknowledgement } from "../base/schema.ts";
import type { OpenFiles } from "../engine/ports.ts";
import { route } from "../http/route.ts";
import type { Upload } from "../http/upload.ts";
import {
  accepted,
  acceptedOperation,
  type Execution,
  executionField,
  type OperationRecord,
} from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import { archiveSample, listSample, UNPACKED } from "./samples.ts";
import { archiveBody, archiveQuery, downloadQuery, fileList, listQuery } from "./schema.ts";
import { downloadArchive, listed, type Unpacking } from "./service.ts";

export const FILE_ERRORS = ["NOT_FOUND", "WRONG_STATE", "CONCURRENCY_LIMIT", "CAPACITY_FULL"] as const;
const UPLOAD_ERRORS = ["STORAGE_FULL", "BODY_TOO_LARGE", "QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT"] as const;

/** A kind of resource with a tree of files. `Params` are its path parameters, which name one of the kind. */
interface Trees<Prefix extends string, Params> {
  /** Path of one resource, such as `/api/volumes/:name`. */
  readonly prefix: Prefix;
  readonly params: z.ZodType<Params>;
  /** Names of the operations in the description of the API. */
  readonly names: { readonly list: string; readonly upload: string; readonly download: string };
  readonly operations: Operations;
  /** Throws NOT_FOUND, WRONG_STATE, CONCURRENCY_LIMIT, CAPACITY_FULL. */
  open(tenant_id: string, params: Params): Promise<OpenFiles>;
  /** Accepts the operation that unpacks `source`, registered by `registerUnpack`. */
  unpack(tenant_id: string, params: Params, source: Upload, how: Unpacking): Promise<OperationRecord>;
  readonly example: {
    readonly params: Readonly<Record<string, string>>;
    /** A directory in the root of the tree. */
    readonly directory: string;
    readonly mode: number;
    readonly handle: z.output<typeof acceptedOperation>;
  };
}

export function treeRoutes<const Prefix extends string, Params>(trees: Trees<Prefix, Params>) {
  const { prefix, params, names, operations, open, unpack, example } = trees;
  return [
    route({
      method: "GET",
      path: `${prefix}/ls` as const,
      auth: "tenant",
      scope: "read",
      operation: names.list,
      summary: "Lists a page of a directory, ordered by the bytes of the names.",
      params,
      query: listQuery,
      response: fileList,
      errors: FILE_ERRORS,
      example: { params: example.params, query: { path: "/" }, response: listSample(example.directory, example.mode) },
      handler: ({ caller, params, query }) => listed(() => open(caller.tenant_id, params), query),
    }),
    route({
      method: "POST",
      path: `${prefix}/archive` as const,
      auth: "tenant",
      scope: "write",
      operation: names.upload,
      summary: "Unpacks a tar or tar.gz as a stream; answers when the last file is written.",
      params,
      query: archiveQuery.extend({ execution: executionField }),
      body: archiveBody,
      base64_field: "content",
      upload: { bytes_max: LIMITS.upload_bytes_max, content: ["application/gzip", "application/x-tar"] },
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: acknowledgement, example: UNPACKED },
      errors: [...FILE_ERRORS, ...UPLOAD_ERRORS],
      example: { params: example.params, body: archiveSample(example.directory), response: example.handle },
      handler: async ({ caller, params, query, body, stream, signal }) => {
        const operation = await unpack(caller.tenant_id, params, stream, unpackingOf(body, query));
        return unpacked(operations, caller.tenant_id, operation, query.execution, signal);
      },
    }),
    route({
      method: "GET",
      path: `${prefix}/archive` as const,
      auth: "tenant",
      scope: "read",
      operation: names.download,
      summary: "Returns a directory or a file as tar or tar.gz.",
      params,
      query: downloadQuery,
      content: ["application/x-tar", "application/gzip"],
      errors: FILE_ERRORS,
      example: { params: example.params, query: { path: `/${example.directory}` } },
      handler: ({ caller, params, query }) =>
        downloadArchive(() => open(caller.tenant_id, params), query.path, query.format),
    }),
  ];
}

/** Says how an archive is unpacked, in either form of the request. */
function unpackingOf(body: z.output<typeof archiveBody> | undefined, query: Unpacking): Unpacking {
  const path = body?.path ?? query.path;
  return { path, strip_components: body?.strip_components ?? query.strip_components };
}

/** Answers an upload when its body is read to the end: most clients read no answer before. */
async function unpacked(
  operations: Operations,
  tenant_id: string,
  operation: OperationRecord,
  execution: Execution | undefined,
  signal: AbortSignal,
) {
  const { operation_id } = operation;
  await operations.wait(tenant_id, operation_id, { timeout_ms: LIMITS.tree_operation_ms, signal });
  if (execution !== "sync") return accepted(operation);
  return operations.answer(tenant_id, operation, {
    execution,
    signal,
    finished: ({ message }) => new Answer(200, { success: true as const, message: message ?? "archive unpacked" }),
  });
}
