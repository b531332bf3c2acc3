/** The API of snapshots, forks and their containers as the section `snapshots` calls it, one request at a time. */
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection, requestBytes } from "./http.ts";

const TENANT = { "x-tenant-id": "default" };
/** Old versions of files in snapshots count towards the limit of the container. */
const DISK_LIMIT_MB = 16_384;
const EXEC_MS = 50_000;

export interface Taken {
  readonly snapshot_id: string;
  readonly state: string;
  readonly size_bytes: number;
  readonly metadata: { readonly pause_ms: number | null };
}

interface Container {
  readonly container_id: string;
  readonly exec_ready: boolean;
  readonly network_ready: boolean;
}

interface Forked {
  readonly status: string;
  readonly result: { readonly container_ids: readonly string[]; readonly failed_count: number };
}

export interface Differences {
  readonly added_count: number;
  readonly changed_count: number;
  readonly deleted_count: number;
}

export class SnapshotClient {
  readonly daemon: Daemon;
  #connection: Connection | null = null;
  #made_count = 0;

  constructor(daemon: Daemon) {
    this.daemon = daemon;
  }

  /** Throws unless the container was answered ready. */
  async create(): Promise<string> {
    const body = { name: `s-${this.#made_count++}`, image: "prod", disk_limit_mb: DISK_LIMIT_MB };
    const record = await this.#call<Container>("POST", "/api/containers", body);
    checkReady(record);
    return record.container_id;
  }

  async checkReady(id: string): Promise<void> {
    checkReady(await this.#call<Container>("GET", `/api/containers/${id}`, null));
  }

  async delete(id: string): Promise<void> {
    await this.#call("DELETE", `/api/containers/${id}`, null);
  }

  /** Throws unless the container was answered ready. */
  async start(id: string): Promise<void> {
    checkReady(await this.#call<Container>("POST", `/api/containers/${id}/start?execution=sync`, {}));
  }

  async stop(id: string): Promise<void> {
    await this.#call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
  }

  /** Runs a line of shell. Resolves to its output. Throws unless its exit code is 0. */
  async shell(id: string, line: string): Promise<string> {
    const body = { command: ["sh", "-ec", line], timeout_ms: EXEC_MS };
    const path = `/api/containers/${id}/exec`;
    const ended = await this.#call<{ exit_code: number; stdout: string; stderr: string }>("POST", path, body);
    if (ended.exit_code !== 0)
      throw new Error(`exit code ${ended.exit_code} of ${line.slice(0, 100)}: ${ended.stderr}`);
    return ended.stdout;
  }

  /** Starts a line of shell and leaves it running. */
  async shellInBackground(id: string, line: string): Promise<void> {
    await this.#call("POST", `/api/containers/${id}/exec`, { command: ["sh", "-c", line], detach: true });
  }

  async take(id: string): Promise<Taken> {
    const taken = await this.#call<Taken>("POST", `/api/containers/${id}/snapshot?execution=sync`, {});
    if (taken.state !== "ready") throw new Error(`the snapshot of ${id} was answered in state ${taken.state}`);
    return taken;
  }

  async deleteSnapshot(id: string): Promise<void> {
    await this.#call("DELETE", `/api/snapshots/${id}`, null);
  }

  /** Resolves to the ids of the forks, which run. */
  async fork(id: string, count: number): Promise<readonly string[]> {
    const body = { count, resume_policy: "immediate" };
    const forked = await this.#call<Forked>("POST", `/api/containers/${id}/fork?execution=sync`, body);
    if (forked.status !== "succeeded" || forked.result.container_ids.length !== count) {
      throw new Error(`${count} forks of ${id}: ${JSON.stringify(forked)}`);
    }
    return forked.result.container_ids;
  }

  diff(before: string, after: string): Promise<Differences> {
    return this.#call<Differences>("GET", `/api/snapshots/${before}/diff/${after}`, null);
  }

  close(): void {
    this.#connection?.close();
  }

  async #call<Body>(method: string, path: string, body: object | null): Promise<Body> {
    // The server ends one that was not used for a minute.
    if (this.#connection?.isOpen !== true) this.#connection = await Connection.open(this.daemon.port);
    const reply = await this.#connection.request(
      requestBytes(method, path, { ...this.daemon.headers, ...TENANT }, body),
    );
    if (reply.status >= 300) throw new Error(`${method} ${path} answered ${reply.status}: ${reply.body}`);
    return JSON.parse(reply.body.toString()) as Body;
  }
}

function checkReady({ container_id, exec_ready, network_ready }: Container): void {
  if (!exec_ready || !network_ready) throw new Error(`${container_id} was answered and is not ready`);
}

/** Runs `body` with a client of a fresh daemon. */
export async function withSnapshotClient(body: (client: SnapshotClient) => Promise<void>): Promise<void> {
  await withDaemon({ cells: 0 }, async (daemon) => {
    const client = new SnapshotClient(daemon);
    try {
      await body(client);
    } finally {
      client.close();
    }
  });
}
