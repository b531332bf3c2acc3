/** The verbs of volumes that are operations. */
import type { z } from "zod";
import { Answer } from "../base/answer.ts";
import { LIMITS } from "../base/limits.ts";
import type { Files } from "../engine/ports.ts";
import { accepted, type Execution, type OperationRecord } from "../operations/schema.ts";
import type { Operations } from "../operations/service.ts";
import { type OpenTree, unpack } from "../files/service.ts";
import type { Once } from "../store/store.ts";
import type { archiveBody } from "./schema.ts";
import type { Volumes } from "./service.ts";

export interface Unpacking {
  readonly path: string;
  readonly strip_components: number;
}

export class VolumeVerbs {
  readonly #volumes: Volumes;
  readonly #operations: Operations;

  constructor(volumes: Volumes, operations: Operations, files: () => Files) {
    this.#volumes = volumes;
    this.#operations = operations;
    operations.register<{ readonly volume_id: string }>("volume.delete", {
      resumable: true,
      cancellable: false,
      timeout_ms: LIMITS.tree_operation_ms,
      run: async ({ input }) => {
        await volumes.delete(input.volume_id);
        return { result: { volume_id: input.volume_id } };
      },
    });
    registerUnpack<{ readonly root: string }>(operations, "volume.archive", ({ root }, tenant_id) =>
      files().open(tenant_id, root, 0),
    );
  }

  async delete(tenant_id: string, name: string, once: Once | null): Promise<OperationRecord> {
    const { id } = await this.#volumes.checkDelete(tenant_id, name);
    const target = { type: "volume", id };
    return this.#operations.accept(tenant_id, { type: "volume.delete", target, input: { volume_id: id }, once });
  }

  async unpack(
    tenant_id: string,
    name: string,
    source: AsyncIterable<Uint8Array>,
    how: Unpacking,
  ): Promise<OperationRecord> {
    const { row, root } = await this.#volumes.root(tenant_id, name);
    const target = { type: "volume", id: row.id };
    const input = { root, ...how };
    return this.#operations.accept(tenant_id, { type: "volume.archive", target, input, attachment: source });
  }
}

/** Unpacks what is attached to an operation: the body of its request, which is read while it runs. */
export function registerUnpack<Input extends object>(
  operations: Operations,
  type: string,
  openTree: (input: Input, tenant_id: string) => ReturnType<OpenTree>,
): void {
  operations.register<Input & Unpacking>(type, {
    // The body went with the process that read it.
    resumable: false,
    cancellable: true,
    timeout_ms: LIMITS.tree_operation_ms,
    run: async (context) => {
      const { tenant_id, input, attachment, signal } = context;
      const source = until(attachment as AsyncIterable<Uint8Array>, signal);
      const { path, strip_components } = input;
      const done = await unpack(() => openTree(input, tenant_id), source, {
        path,
        strip_components,
        onProgress: ({ entry_count, byte_count }) =>
          context.progress(null, `${entry_count} entries, ${byte_count} bytes`),
      });
      return { result: { ...done }, message: `${done.entry_count} entries` };
    },
  });
}

/** Says how an archive is unpacked, in either form of the request. */
export function unpackingOf(body: z.output<typeof archiveBody> | undefined, query: Unpacking): Unpacking {
  const path = body?.path ?? query.path;
  return { path, strip_components: body?.strip_components ?? query.strip_components };
}

/** The answer to an upload comes when its body was read to the end: most clients look at none before. */
export async function unpacked(
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
    finished: ({ message }) =>
      new Answer(200, { success: true as const, message: message ?? "the archive was unpacked" }),
  });
}

/** Ends with the signal, also while the source gives nothing. */
async function* until(source: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const pieces = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await unlessStopped(signal, pieces.next());
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // It may wait for a piece, and ends after that.
    pieces.return?.().catch(() => {});
  }
}

function unlessStopped<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const stop = () => reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop, { once: true });
  work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  return promise;
}
