/** Functions' code on a storage pool of its own, with tenants, functions and a clock that can be moved. */

import { type Clock, systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { createLog } from "../../src/base/log.ts";
import { temporaryFiles } from "../../src/base/reservations.ts";
import type { TenantLimits } from "../../src/base/tenant-limits.ts";
import { TransferTurns } from "../../src/base/transfer-turns.ts";
import { CodeStore } from "../../src/code/service.ts";
import { FileSessions } from "../../src/engine/files/file-sessions.ts";
import type { StoragePool } from "../../src/engine/storage/storage-pool.ts";
import { openEmbedded } from "../../src/store/embedded.ts";
import type { Store } from "../../src/store/store.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { engineHelper } from "../support/helper.ts";
import { children, readText } from "../support/native.ts";
import { Ground } from "../support/storage-ground.ts";

export class CodeGround {
  readonly ground: Ground;
  readonly lines: string[] = [];
  readonly quotas = nodeQuotas();
  pool!: StoragePool;
  store!: Store;
  code!: CodeStore;
  #shift_ms = 0;
  readonly clock: Clock = {
    monotonicMs: () => systemClock.monotonicMs() + this.#shift_ms,
    epochMs: () => systemClock.epochMs() + this.#shift_ms,
    after: (ms, work) => systemClock.after(ms, work),
  };

  constructor(ground = new Ground()) {
    this.ground = ground;
  }

  /** Opens pool and store, as a starting daemon does. */
  async open(): Promise<void> {
    const { ground, clock, quotas } = this;
    this.pool = await ground.open();
    this.store = openEmbedded({ path: `${ground.data_dir}/hearth.db`, clock, log: createLog("silent", clock) });
    const note = (line: string) => this.lines.push(line);
    const files = new FileSessions({
      groups: null,
      withLauncher: (work) => work(ground.client),
      minit: engineHelper(),
      directory: ground.root,
      clock,
      turns: new TransferTurns(clock),
    });
    this.code = new CodeStore({
      store: this.store,
      storage: () => this.pool,
      files: () => files,
      clock,
      ids: randomIds(),
      log: { debug: note, info: note, warn: note, error: note },
      quotas,
      directory: `${ground.data_dir}/code-uploads`,
      temporary: temporaryFiles(quotas, 100_000),
    });
    await this.code.boot();
  }

  async close(): Promise<void> {
    await this.code.close();
    await this.store.close();
  }

  async stop(): Promise<void> {
    await this.close();
    await this.ground.stop();
  }

  /** Moves the clock ahead. */
  pass(seconds: number): void {
    this.#shift_ms += seconds * 1_000;
  }

  /** Lets the last upload be old enough to be collected. */
  async prune(): Promise<void> {
    this.pass(LIMITS.code_unused_seconds + 2);
    await this.code.prune();
  }

  async tenant(id: string, limits: Partial<TenantLimits> = { storage_mb_max: null }): Promise<void> {
    const sql = "INSERT INTO tenants (id, name, created_at, state) VALUES (?, ?, 0, 'active') ON CONFLICT DO NOTHING";
    await this.store.write([{ sql, args: [id, id] }]);
    this.quotas.set(id, limits);
  }

  /** Makes a function with one version that has the code. */
  async version(seq: number, tenant_id: string, digest: string): Promise<void> {
    const guard = this.code.guard(tenant_id, digest);
    const { conflict } = await this.store.write([
      guard.statement,
      {
        sql: `INSERT INTO functions (seq, id, tenant_id, name, state, current_version, min_instances, max_instances,
          cleanup_on_exit, created_at, updated_at, node_seq) VALUES (?, ?, ?, ?, 'active', 1, 0, 1, 1, 0, 0, 1)`,
        args: [seq, `fn_${seq}`, tenant_id, `f${seq}`],
      },
      {
        sql: `INSERT INTO function_versions (function_seq, version, id, handler, runtime, environment, memory_limit_mb,
          timeout_seconds, created_at, code) VALUES (?, 1, ?, 'cat', 'shell', '{}', 256, 30, 0, ?)`,
        args: [seq, `fv_${seq}`, digest],
      },
    ]);
    if (conflict !== null) throw guard.refusal();
  }

  async deleteFunction(seq: number): Promise<void> {
    await this.store.write([
      { sql: "DELETE FROM function_versions WHERE function_seq = ?", args: [seq] },
      { sql: "DELETE FROM functions WHERE seq = ?", args: [seq] },
    ]);
  }

  async rows(): Promise<string[]> {
    const rows = await this.store.read("SELECT tenant_id, digest FROM code ORDER BY seq");
    return rows.map(({ tenant_id, digest }) => `${tenant_id} ${digest}`);
  }

  /** Names of all trees on the disk. */
  trees(): Promise<string[]> {
    return this.pool.list("code");
  }

  /** Path of a file of a tree, as this process finds it. */
  seen(digest: string, path = ""): string {
    return `/proc/${this.ground.launcher?.pid}/root${this.pool.subvolume("code", digest)}/${path}`;
  }

  /** File helpers that run. */
  helpers(): number {
    const pids = children(this.ground.launcher?.pid ?? 0);
    return pids.filter((pid) => readText(`/proc/${pid}/cmdline`).includes("\0files\0")).length;
  }
}
