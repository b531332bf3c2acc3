/**
 * Composition root: makes each part once, in the order in which they need each other, and takes them down in the
 * reverse order. Nothing else knows how the parts are put together.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { Pool } from "../pool/index.ts";
import { systemClock, toEpochSeconds } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { errorText } from "./base/errors.ts";
import { type Ids, randomIds } from "./base/ids.ts";
import { LIMITS } from "./base/limits.ts";
import { takeLock } from "./base/lock.ts";
import { createLog } from "./base/log.ts";
import { LocalEngine } from "./engine/local-engine.ts";
import { Invocations } from "./functions/invocations.ts";
import { Invoker } from "./functions/invoke.ts";
import { type Call, FunctionLauncher, type Outcome } from "./functions/launch.ts";
import { functionRoutes } from "./functions/routes.ts";
import { Functions } from "./functions/service.ts";
import { Keys } from "./http/auth.ts";
import { createApp, listen } from "./http/server.ts";
import { buildahCommand, helperPath, profileImage } from "./setup/paths.js";
import { openEmbedded } from "./store/embedded.ts";
import { systemRoutes } from "./system/routes.ts";

export interface Hearth {
  readonly url: string;
  /** The key made at this start, or null when there was one already. */
  readonly new_key: string | null;
  /** Drains, then takes everything down. Resolves when nothing of the daemon is left but its data. */
  stop(): Promise<void>;
}

/** The operator's key: from the settings, from the data directory, or made now and kept there for the command line. */
function ownKey(config: Config, ids: Ids): { text: string; isNew: boolean } {
  if (config.bootstrap_key !== null) return { text: config.bootstrap_key, isNew: false };
  const file = `${config.data_dir}/key`;
  if (existsSync(file)) return { text: readFileSync(file, "utf8").trim(), isNew: false };
  const text = `hk_${ids.random(12)}_${ids.random(32)}`;
  writeFileSync(file, `${text}\n`, { mode: 0o600, flush: true });
  return { text, isNew: true };
}

/** Starts the daemon. Rejects with the reason when it cannot run here. */
export async function startHearth(config: Config): Promise<Hearth> {
  const clock = systemClock;
  const ids = randomIds();
  const log = createLog(config.log_level, clock.epochMs);
  const started_ms = clock.monotonicMs();
  const started_at = toEpochSeconds(clock.epochMs());
  const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
    version: string;
  };

  await mkdir(config.data_dir, { recursive: true, mode: 0o711 });
  await takeLock(`hearth-${config.host_tag}`, `another hearth runs on the data directory ${config.data_dir}`);
  const store = openEmbedded({ path: `${config.data_dir}/hearth.db`, clock, log });
  const keys = new Keys(store, clock, ids);
  const key = ownKey(config, ids);
  await keys.ensureBootstrap(key.text);
  const node_id = await nodeId();

  const engine = new LocalEngine({
    config,
    clock,
    log,
    minit: helperPath(config.data_dir),
    buildah: buildahCommand(config.image_dir),
    image: profileImage("prod").reference,
  });
  try {
    await engine.boot();
  } catch (error) {
    // What was made before the step that failed is taken down again; what cannot be, the next start sweeps.
    await engine.shutdown().catch((cause) => log.warn("not all was taken down", { error: errorText(cause) }));
    await store.close();
    throw error;
  }
  const launcher = new FunctionLauncher(engine, clock);
  const pool = new Pool<Call, Outcome>({
    settings: {
      instances_max: config.instances_max,
      starts_max: LIMITS.starts_max,
      start_attempts_max: LIMITS.start_attempts_max,
      instance_prefix: `i${started_at.toString(36)}-`,
    },
    clock,
    launcher,
    dispatch_running_max: availableParallelism() + 1,
    onFault: (fault, recent) =>
      log.error("pool fault", { error: errorText(fault), recent: JSON.stringify(recent.slice(-20)) }),
  });
  const invocations = new Invocations(store, ids, node_id);
  await invocations.boot();
  const functions = new Functions({ store, pool, launcher, engine, clock, ids, log, config, node_id });
  const invoker = new Invoker(pool, invocations, clock, node_id);
  await functions.boot();
  pool.setCells(config.cells_target);

  const app = createApp({ log, ids, clock, keys });
  app.mount([
    ...systemRoutes({
      version,
      node_id,
      started_at,
      uptime_seconds: () => (clock.monotonicMs() - started_ms) / 1000,
      engine: () => engine.info(),
      features: { functions: "shell handlers in warm containers" },
    }),
    ...functionRoutes({ functions, invoker, invocations, pool }),
  ]);
  const server = await listen(app, { host: config.listen_host, port: config.listen_port, log, clock });
  const stopPruning = every(LIMITS.prune_interval_ms, () =>
    invocations.prune(clock, config.records_kept_max, config.records_kept_seconds),
  );
  log.info("ready", { url: server.url, start_ms: Math.round(clock.monotonicMs() - started_ms) });

  async function nodeId(): Promise<string> {
    const id = ids.next("node");
    const sql = "INSERT INTO meta (key, value) VALUES ('node_id', ?) ON CONFLICT DO NOTHING";
    await store.write([{ sql, args: [id] }], { durable: true });
    return String((await store.readOne("SELECT value FROM meta WHERE key = 'node_id'"))?.value ?? id);
  }

  /** Runs `work` again and again, never twice at a time. Returns what ends it. */
  function every(interval_ms: number, work: () => Promise<void>): () => void {
    const state = { isStopped: false };
    const next = (): void => {
      clock.after(interval_ms, () => {
        if (state.isStopped) return;
        work()
          .catch((error) => log.warn("background work failed", { error: errorText(error) }))
          .finally(next);
      });
    };
    next();
    return () => {
      state.isStopped = true;
    };
  }

  return {
    url: server.url,
    new_key: key.isNew ? key.text : null,
    async stop() {
      stopPruning();
      await Promise.all([server.close(LIMITS.drain_ms), pool.drain(LIMITS.drain_ms)]);
      await engine.shutdown();
      await store.close();
    },
  };
}
