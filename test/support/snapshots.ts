/** Snapshots of a daemon under test: what every test of them asks for. */
import type { Answer, Daemon } from "./daemon.ts";

// biome-ignore lint/suspicious/noExplicitAny: records as they came.
type Json = any;

export class SnapshotUser {
  readonly #daemon: Daemon;
  readonly #headers: Record<string, string>;

  /** `tenant_id`: that of the credential in `headers`. */
  constructor(daemon: Daemon, tenant_id = "default", headers: Record<string, string> = {}) {
    this.#daemon = daemon;
    this.#headers = { "x-tenant-id": tenant_id, ...headers };
  }

  call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    return this.#daemon.call(method, path, body, { ...this.#headers, ...headers });
  }

  /** The body of a successful answer. */
  async ok(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Json> {
    const answer = await this.call(method, path, body, headers);
    if (answer.status >= 300)
      throw new Error(`${method} ${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** Takes a snapshot of a container. Resolves to its record. */
  take(container: string, body: object = {}): Promise<Json> {
    return this.ok("POST", `/api/containers/${container}/snapshot?execution=sync`, body);
  }

  /** Clones a snapshot. Resolves to the record of the operation. */
  clone(snapshot_id: string, body: object = {}): Promise<Json> {
    return this.ok("POST", `/api/snapshots/${snapshot_id}/clone?execution=sync`, body);
  }

  /** Forks a container. Resolves to the record of the operation. */
  fork(container: string, body: object = {}): Promise<Json> {
    return this.ok("POST", `/api/containers/${container}/fork?execution=sync`, body);
  }

  get(snapshot_id: string): Promise<Json> {
    return this.ok("GET", `/api/snapshots/${snapshot_id}`);
  }

  /** The operation of a handle when it has ended. */
  async ended({ operation_id }: { readonly operation_id: string }): Promise<Json> {
    return this.ok("GET", `/api/operations/${operation_id}?wait_seconds=60`);
  }

  /** Deletes all snapshots, containers and volumes of the tenant. */
  async clear(): Promise<void> {
    for (const { snapshot_id, pinned } of (await this.ok("GET", "/api/snapshots")).snapshots) {
      if (pinned) await this.ok("POST", `/api/snapshots/${snapshot_id}/unpin`);
      await this.ok("DELETE", `/api/snapshots/${snapshot_id}`);
    }
    for (const { container_id } of (await this.ok("GET", "/api/containers")).containers) {
      await this.ok("DELETE", `/api/containers/${container_id}`);
    }
    for (const { name } of (await this.ok("GET", "/api/volumes")).volumes) {
      await this.ok("DELETE", `/api/volumes/${name}?execution=sync`);
    }
  }
}
