/** The verbs that are operations: what is accepted is journalled first, and goes on after a crash of the daemon. */
import { AppError, type ErrorCode } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { registerUnpack, type Unpacking } from "../files/service.ts";
import type { OperationRecord } from "../operations/schema.ts";
import { failureOf, type OperationResult, type Operations } from "../operations/service.ts";
import type { Once } from "../store/store.ts";
import type { Preparation, Preparing } from "./preparation.ts";
import type { CreateContainer } from "./schema.ts";
import type { Containers } from "./service.ts";

const targeting = (container_id: string) => ({
  target: { type: "container", id: container_id },
});

type BatchItem =
  | { readonly name: string; readonly status: "succeeded"; readonly container_id: string }
  | ({ readonly name: string; readonly status: "failed" } & ItemFailure);

type ItemFailure = { readonly error_code: ErrorCode; readonly error: string; readonly retryable: boolean };

interface OneContainer {
  readonly container_id: string;
}

/** The operation that makes a container. */
interface Making {
  readonly tenant_id: string;
  readonly signal: AbortSignal;
  progress(pct: number, message: string): void;
  aside<T>(wait: () => Promise<T>): Promise<T>;
}

export class ContainerVerbs {
  readonly #preparation: Preparation;
  readonly #containers: Containers;
  readonly #operations: Operations;

  constructor(containers: Containers, operations: Operations, preparation: Preparation) {
    this.#preparation = preparation;
    this.#containers = containers;
    this.#operations = operations;
    const timeout_ms = LIMITS.container_operation_ms;
    operations.register<OneContainer & { readonly create: CreateContainer }>("container.create", {
      makes_target: true,
      resumable: true,
      cancellable: false,
      timeout_ms,
      run: async (context) => this.#made(context, context.input.create, context.input.container_id),
    });
    operations.register<OneContainer>("container.start", {
      resumable: true,
      cancellable: false,
      timeout_ms,
      run: async ({ tenant_id, input }) => this.#started(tenant_id, input.container_id),
    });
    operations.register<OneContainer & { readonly grace_ms: number }>("container.stop", {
      resumable: true,
      cancellable: false,
      timeout_ms: LIMITS.stop_grace_ms_max + timeout_ms,
      run: async ({ tenant_id, input }) => {
        await containers.stop(tenant_id, input.container_id, input.grace_ms);
        return { result: { container_id: input.container_id } };
      },
    });
    registerUnpack<OneContainer>(
      operations,
      "container.archive",
      ({ container_id }, tenant_id) => containers.openFiles(tenant_id, container_id),
      ({ container_id }, tenant_id, session) => containers.findOwner(tenant_id, container_id, session),
    );
    operations.register<OneContainer>("container.delete", {
      resumable: true,
      cancellable: false,
      timeout_ms,
      run: async ({ tenant_id, input }) => {
        // Where it is gone, an earlier try got that far.
        await containers.delete(tenant_id, input.container_id).catch((error) => {
          if (!(error instanceof AppError && error.code === "NOT_FOUND")) throw error;
        });
        return { result: { container_id: input.container_id } };
      },
    });
    operations.register<{ readonly items: readonly (OneContainer & { readonly create: CreateContainer })[] }>(
      "container.batch",
      {
        resumable: true,
        cancellable: true,
        timeout_ms: timeout_ms * LIMITS.batch_items_max,
        run: async (context) => {
          const done: BatchItem[] = [];
          for (const { container_id, create } of context.input.items) {
            context.signal.throwIfAborted();
            done.push(await this.#item(context, create, container_id));
            context.items(done);
            context.progress(
              (100 * done.length) / context.input.items.length,
              `${done.length} of ${context.input.items.length} done`,
            );
          }
          return batchResult(done);
        },
      },
    );
  }

  /**
   * Waits for the first build of a profile, before `create`. What would be refused is refused before the build begins.
   * Throws as `create`.
   */
  async prepare(tenant_id: string, create: CreateContainer, options: Preparing): Promise<void> {
    if (!this.#preparation.isNeeded(create)) return;
    await this.#containers.checkCreate(tenant_id, create);
    await this.#preparation.run(tenant_id, create, options);
  }

  /** Throws CAPACITY_FULL, QUOTA_EXCEEDED where it lacks GPUs now; of a batch each item fails alone. */
  async create(tenant_id: string, create: CreateContainer, once: Once | null): Promise<OperationRecord> {
    await this.#containers.checkGpus(tenant_id, create);
    const container_id = this.#containers.newId();
    const input = { container_id, create };
    const timeout_ms = LIMITS.container_operation_ms + this.#preparation.waitMs(create);
    const asked = { type: "container.create", ...targeting(container_id), input, once, timeout_ms };
    return this.#operations.accept(tenant_id, asked);
  }

  batch(tenant_id: string, creates: readonly CreateContainer[], once: Once | null): Promise<OperationRecord> {
    const items = creates.map((create) => ({ container_id: this.#containers.newId(), create }));
    const asked = { type: "container.batch", target: { type: "container", id: null }, input: { items }, once };
    return this.#operations.accept(tenant_id, asked);
  }

  async start(tenant_id: string, id: string, once: Once | null): Promise<OperationRecord> {
    const row = await this.#containers.checkStart(tenant_id, id);
    await this.#containers.checkGpus(tenant_id, row);
    const container_id = row.id;
    const input = { container_id };
    return this.#operations.accept(tenant_id, { type: "container.start", ...targeting(container_id), input, once });
  }

  async stop(tenant_id: string, id: string, grace_ms: number, once: Once | null): Promise<OperationRecord> {
    const { id: container_id } = await this.#containers.checkEnd(tenant_id, id);
    const input = { container_id, grace_ms };
    return this.#operations.accept(tenant_id, { type: "container.stop", ...targeting(container_id), input, once });
  }

  async delete(tenant_id: string, id: string, once: Once | null): Promise<OperationRecord> {
    const { id: container_id } = await this.#containers.held(tenant_id, id);
    const input = { container_id };
    return this.#operations.accept(tenant_id, { type: "container.delete", ...targeting(container_id), input, once });
  }

  /** Unpacks an archive that is being sent. */
  async unpack(
    tenant_id: string,
    id: string,
    source: AsyncIterable<Uint8Array>,
    how: Unpacking,
  ): Promise<OperationRecord> {
    const { id: container_id } = await this.#containers.held(tenant_id, id);
    const input = { container_id, ...how };
    const asked = { type: "container.archive", ...targeting(container_id), input, attachment: source };
    return this.#operations.accept(tenant_id, asked);
  }

  /** One that an earlier try made is not made again, but started where it does not run. */
  async #made(context: Making, create: CreateContainer, container_id: string) {
    const { tenant_id, signal } = context;
    const found = await this.#containers.get(tenant_id, container_id).catch(() => null);
    if (found === null) {
      const onProgress = (pct: number, message: string): void => context.progress(pct, message);
      if (this.#preparation.isNeeded(create)) {
        await context.aside(() => this.prepare(tenant_id, create, { signal, onProgress }));
      }
      await this.#containers.create(tenant_id, create, container_id);
    }
    if (found !== null && found.started_at === null) await this.#ensureRunning(tenant_id, container_id);
    return { result: { container_id }, made: { type: "container", id: container_id } };
  }

  async #started(tenant_id: string, container_id: string) {
    await this.#ensureRunning(tenant_id, container_id);
    return { result: { container_id }, made: { type: "container", id: container_id } };
  }

  /** Its restart policy may start it at the same time. */
  async #ensureRunning(tenant_id: string, container_id: string): Promise<void> {
    const { state } = await this.#containers.row(tenant_id, container_id);
    if (state === "running") return;
    await this.#containers.start(tenant_id, container_id).catch(async (error) => {
      if ((await this.#containers.row(tenant_id, container_id)).state !== "running") throw error;
    });
  }

  async #item(context: Making, create: CreateContainer, container_id: string): Promise<BatchItem> {
    const { tenant_id, signal } = context;
    try {
      // Its progress is the number of items.
      const aside = <T>(wait: () => Promise<T>) => context.aside(wait);
      await this.#made({ tenant_id, signal, aside, progress: () => {} }, create, container_id);
      return { name: create.name, status: "succeeded", container_id };
    } catch (error) {
      const { code, message, retryable = false } = failureOf(error);
      return { name: create.name, status: "failed", error_code: code, error: message, retryable };
    }
  }
}

/** The end of a batch: its message names the items that failed. Throws as the first item where no item succeeded. */
function batchResult(items: readonly BatchItem[]): OperationResult {
  const failed = items.filter((item) => item.status === "failed");
  const retryable = failed.some((item) => item.retryable);
  const created_count = items.length - failed.length;
  const named = failed
    .slice(0, LIMITS.batch_failures_named_max)
    .map(({ name, error_code, error }) => `'${name}': ${error_code}, ${error}`);
  const unnamed_count = failed.length - named.length;
  const more = unnamed_count === 0 ? [] : [`and ${unnamed_count} more`];
  const failures = failed.length === 0 ? "" : `; ${failed.length} failed: ${[...named, ...more].join("; ")}`;
  const message = `${created_count} of ${items.length} containers created${failures}`;
  const [first] = failed;
  if (created_count === 0 && first !== undefined) throw new AppError(first.error_code, message, { retryable });
  return { result: { created_count, failed_count: failed.length }, message };
}
