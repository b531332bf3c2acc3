/** Every route of the volume concern. */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import { acknowledgement, pageQuery, queryFlag } from "../base/schema.ts";
import type { Files } from "../engine/ports.ts";
import { FILE_ERRORS, treeRoutes } from "../files/routes.ts";
import { fileContent, filePath } from "../files/schema.ts";
import { download, modeOf, plain } from "../files/service.ts";
import { route } from "../http/route.ts";
import { acceptedOperation, executionField } from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import { SAMPLES } from "./samples.ts";
import {
  createVolume,
  renamedVolume,
  renameVolume,
  volumeDetail,
  volumeList,
  volumeRecord,
  writeFile,
  writtenFile,
} from "./schema.ts";
import type { Volumes } from "./service.ts";
import type { VolumeVerbs } from "./verbs.ts";

export interface VolumeRoutesOptions {
  readonly volumes: Volumes;
  readonly verbs: VolumeVerbs;
  readonly files: Files;
  readonly operations: Operations;
}

const byVolume = z.object({ name: z.string().meta({ description: "Name of the volume.", examples: ["data"] }) });
const byFile = byVolume.extend({
  path: filePath.min(1).meta({ description: "Path in the volume.", examples: ["notes/a.txt"] }),
});
const NAME_EXAMPLE = { name: "data" };
const FILE_EXAMPLE = { ...NAME_EXAMPLE, path: "notes/a.txt" };

export function volumeRoutes(options: VolumeRoutesOptions) {
  return [...lifeRoutes(options), ...fileRoutes(options), ...volumeTreeRoutes(options)];
}

function volumeTreeRoutes({ volumes, verbs, files, operations }: VolumeRoutesOptions) {
  return treeRoutes({
    prefix: "/api/volumes/:name",
    params: byVolume,
    names: { list: "listFiles", upload: "uploadVolumeArchive", download: "downloadVolumeArchive" },
    operations,
    open: async (tenant_id, { name }) => files.open(tenant_id, (await volumes.root(tenant_id, name)).root, 0),
    unpack: (tenant_id, { name }, source, how) => verbs.unpack(tenant_id, name, source, how),
    example: { params: NAME_EXAMPLE, directory: "notes", mode: 755, handle: SAMPLES.handle },
  });
}

function lifeRoutes({ volumes, verbs, operations }: VolumeRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/volumes",
      auth: "tenant",
      scope: "read",
      operation: "listVolumes",
      summary: "Lists the tenant's volumes, newest first.",
      query: pageQuery,
      response: volumeList,
      example: { response: { volumes: [SAMPLES.volume], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("volumes", await volumes.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "POST",
      path: "/api/volumes",
      auth: "tenant",
      scope: "write",
      operation: "createVolume",
      summary: "Creates an empty volume.",
      headers: ["Idempotency-Key"],
      body: createVolume,
      status: 201,
      response: volumeRecord,
      errors: ["NAME_TAKEN", "QUOTA_EXCEEDED", "CAPACITY_FULL"],
      example: { body: { name: "data" }, response: SAMPLES.volume },
      handler: ({ caller, body }) => volumes.create(caller.tenant_id, body),
    }),
    route({
      method: "GET",
      path: "/api/volumes/:name",
      auth: "tenant",
      scope: "read",
      operation: "getVolume",
      summary: "Returns a volume.",
      params: byVolume,
      response: volumeRecord,
      errors: ["NOT_FOUND"],
      example: { params: NAME_EXAMPLE, response: SAMPLES.volume },
      handler: ({ caller, params }) => volumes.get(caller.tenant_id, params.name),
    }),
    route({
      method: "GET",
      path: "/api/volumes/:name/inspect",
      auth: "tenant",
      scope: "read",
      operation: "inspectVolume",
      summary: "Returns a volume with its usage and the containers that mount it.",
      params: byVolume,
      response: volumeDetail,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: NAME_EXAMPLE, response: { ...SAMPLES.volume, used_bytes: 16_384, container_ids: [] } },
      handler: ({ caller, params }) => volumes.inspect(caller.tenant_id, params.name),
    }),
    route({
      method: "POST",
      path: "/api/volumes/:name/rename",
      auth: "tenant",
      scope: "write",
      operation: "renameVolume",
      summary: "Renames a volume; containers keep their mount of it.",
      params: byVolume,
      body: renameVolume,
      response: renamedVolume,
      errors: ["NOT_FOUND", "NAME_TAKEN", "WRONG_STATE"],
      example: { params: NAME_EXAMPLE, body: { new_name: "archive" }, response: SAMPLES.renamed },
      handler: async ({ caller, params, body }) => {
        const { name } = await volumes.rename(caller.tenant_id, params.name, body.new_name);
        return { success: true as const, old_name: name, new_name: body.new_name };
      },
    }),
    route({
      method: "DELETE",
      path: "/api/volumes/:name",
      auth: "tenant",
      scope: "write",
      operation: "deleteVolume",
      summary: "Deletes a volume with its files, unless a container mounts it.",
      params: byVolume,
      headers: ["Idempotency-Key"],
      query: z.object({ execution: executionField }),
      status: 202,
      response: acceptedOperation,
      other: { status: 200, response: acknowledgement, example: SAMPLES.deleted },
      errors: ["NOT_FOUND", "IN_USE", "QUEUE_FULL", "SHUTTING_DOWN", "TIMEOUT", "WRONG_STATE"],
      example: { params: NAME_EXAMPLE, response: SAMPLES.handle },
      handler: async (request) => {
        const { caller, params, query } = request;
        const operation = await verbs.delete(caller.tenant_id, params.name, request.once);
        return operations.answer(caller.tenant_id, operation, {
          execution: query.execution ?? "async",
          signal: request.signal,
          finished: () => new Answer(200, { success: true as const, message: "volume deleted" }),
        });
      },
    }),
  ];
}

function fileRoutes({ volumes, files }: VolumeRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/volumes/:name/files",
      auth: "tenant",
      scope: "write",
      operation: "writeFile",
      summary: "Writes a file atomically and creates its parent directories.",
      params: byVolume,
      body: writeFile,
      base64_field: "content",
      response: writtenFile,
      errors: [...FILE_ERRORS, "STORAGE_FULL"],
      example: {
        params: NAME_EXAMPLE,
        body: { path: "notes/a.txt", content: "aGVsbG8K", mode: 644 },
        response: SAMPLES.written,
      },
      handler: async ({ caller, params, body, stream }) => {
        const { root } = await volumes.root(caller.tenant_id, params.name);
        const mode = body.mode === undefined ? 0o644 : modeOf(body.mode);
        await files.with(caller.tenant_id, root, 0, (session) => session.write(body.path, stream, { mode }));
        return { success: true as const, message: "file written", path: plain(body.path) };
      },
    }),
    route({
      method: "GET",
      path: "/api/volumes/:name/files/*",
      auth: "tenant",
      scope: "read",
      operation: "readFile",
      summary:
        "Returns a file's bytes or a range of them, with the headers X-File-Path and X-File-Mode; as JSON with Accept: application/json.",
      params: byFile,
      headers: ["Range"],
      content: ["application/octet-stream", "application/json"],
      response: fileContent,
      errors: FILE_ERRORS,
      example: { params: FILE_EXAMPLE, response: SAMPLES.content },
      handler: async (request) => {
        const { caller, params } = request;
        const { root } = await volumes.root(caller.tenant_id, params.name);
        return download(
          () => files.open(caller.tenant_id, root, 0),
          params.path,
          (name) => request.header(name),
        );
      },
    }),
    route({
      method: "DELETE",
      path: "/api/volumes/:name/files/*",
      auth: "tenant",
      scope: "write",
      operation: "deleteFile",
      summary: "Deletes a file or an empty directory; with recursive, a directory with its contents.",
      params: byFile,
      query: z.object({ recursive: queryFlag().describe("Deletes a directory with its contents.") }),
      response: acknowledgement,
      errors: [...FILE_ERRORS, "NOT_EMPTY"],
      example: { params: FILE_EXAMPLE, response: SAMPLES.removed },
      handler: async ({ caller, params, query }) => {
        const { root } = await volumes.root(caller.tenant_id, params.name);
        await files.with(caller.tenant_id, root, 0, (session) => session.remove(params.path, query.recursive));
        return { success: true as const, message: `deleted ${plain(params.path)}` };
      },
    }),
  ];
}
