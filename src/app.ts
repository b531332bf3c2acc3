/**
 * Composition root: makes each part once, in the order in which they need each other, and takes them down in the
 * reverse order. Nothing else knows how the parts are put together.
 */
import { readFileSync, statSync } from "node:fs";
import type { Pool } from "../pool/index.ts";
import { containerOf, makeUsers } from "./access.ts";
import { apiRoutes } from "./api.ts";
import { Audit } from "./audit/service.ts";
import type { Authenticator } from "./base/caller.ts";
import { type Clock, systemClock, toEpochSeconds } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { errorText } from "./base/errors.ts";
import { failpoint } from "./base/failpoints.ts";
import { hideDirectories } from "./base/host-paths.ts";
import { type Ids, randomIds } from "./base/ids.ts";
import { LIMITS } from "./base/limits.ts";
import { takeLock } from "./base/lock.ts";
import { type CountedLog, createLog, type Log } from "./base/log.ts";
import { inTurn } from "./base/request-observer.ts";
import { temporaryFiles } from "./base/reservations.ts";
import { buildsOwner } from "./base/storage-owners.ts";
import { Quotas } from "./base/tenant-limits.ts";
import { Traces } from "./base/trace.ts";
import { TransferTurns } from "./base/transfer-turns.ts";
import { boundFunctions } from "./bound-functions.ts";
import { CodeStore } from "./code/service.ts";
import { makeContainers } from "./container-parts.ts";
import { ContainerRows, containerCounts } from "./containers/rows.ts";
import { makeSnapshots } from "./copies.ts";
import type { LocalEngine } from "./engine/engine.ts";
import { readSocketMemory } from "./engine/kernel/kernel-budgets.ts";
import { boundTenants, machineUse, nodeBounds, readDisk } from "./engine/kernel/node-bounds.ts";
import type { Call } from "./functions/calls/calling.ts";
import { LocalConcurrency } from "./functions/calls/concurrency.ts";
import { Invoker } from "./functions/calls/invoke.ts";
import type { FunctionLauncher } from "./functions/calls/launch.ts";
import type { Outcome } from "./functions/calls/outcome.ts";
import { NumberBlocks } from "./functions/records/invocation-numbers.ts";
import { Invocations } from "./functions/records/invocations.ts";
import { LateOutput } from "./functions/records/late-output.ts";
import { Functions } from "./functions/service.ts";
import { SnapshotVersions } from "./functions/versions/from-snapshot.ts";
import type { TenantOfAddress } from "./http/connections.ts";
import { Idempotency } from "./http/idempotency.ts";
import { LocalRates } from "./http/rates.ts";
import type { Route } from "./http/route.ts";
import { createApp, type Listening, type ListenOptions, listen, type Reachable } from "./http/server.ts";
import { Spools } from "./http/spool.ts";
import { functionImages, makeBuilds, makeTransfers } from "./images.ts";
import { makeDirectory } from "./installation/directories.js";
import { imageStore, SOURCE_DIRS } from "./installation/paths.js";
import { makeEngine, makeInstances } from "./instances.ts";
import { makeMessaging } from "./messaging.ts";
import { Networks } from "./networks/service.ts";
import type { ProfileRecord } from "./nightly/schema.ts";
import type { Profiles } from "./nightly/service.ts";
import { BuildContexts } from "./oci/contexts/service.ts";
import { REGISTRY_KIND, RegistryCredentials } from "./oci/credentials/service.ts";
import { imageCounts } from "./oci/rows.ts";
import { TenantImages } from "./oci/service.ts";
import { Operations } from "./operations/service.ts";
import { PageFiles, pageRoutes } from "./page/routes.ts";
import { startPeriodicWork } from "./periodic.ts";
import { makeCatalog, makeProfiles } from "./profiles.ts";
import { makeServices } from "./publishing.ts";
import { checkReached } from "./reached.ts";
import { SECRET_KIND } from "./secrets/schema.ts";
import { Secrets } from "./secrets/service.ts";
import { openState } from "./state.ts";
import type { Store, StoredNode } from "./store/store.ts";
import { Metrics } from "./telemetry/metrics.ts";
import { Telemetry } from "./telemetry/telemetry.ts";
import { Tenants } from "./tenants/service.ts";

export interface Hearth {
  readonly url: string;
  /** The key made at this start, or null when there was one already. */
  readonly new_key: string | null;
  /** Drains, then takes everything down. Resolves when nothing of the daemon is left but its data. */
  stop(): Promise<void>;
}

/** Steps that take down what was made, in the order of making; `all` runs them backwards, each whatever the others did. */
class Undo {
  readonly #steps: (() => Promise<unknown>)[] = [];

  add(step: () => Promise<unknown>): void {
    this.#steps.push(step);
  }

  async all(log: Log): Promise<void> {
    for (const step of this.#steps.splice(0).reverse()) {
      await step().catch((error) => log.error("shutdown incomplete", { error: errorText(error) }));
    }
  }
}

/** Starts the daemon. Rejects with the reason when it cannot run here, and leaves nothing of the attempt. */
export async function startHearth(config: Config): Promise<Hearth> {
  const log = createLog(config.log_level, systemClock);
  const undo = new Undo();
  try {
    return await start(config, log, undo);
  } catch (error) {
    await undo.all(log);
    throw error;
  }
}

/** What every part is made with. */
interface Base {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: CountedLog;
  readonly ids: Ids;
  readonly traces: Traces;
  readonly turns: TransferTurns;
  readonly undo: Undo;
}

async function start(config: Config, log: CountedLog, undo: Undo): Promise<Hearth> {
  const clock = systemClock;
  const ids = randomIds();
  const traces = new Traces(ids, config.otlp_url === null ? 0 : config.trace_sample_ratio);
  const turns = new TransferTurns(clock);
  const base: Base = { config, clock, log, ids, traces, turns, undo };
  const started_ms = clock.monotonicMs();
  const started_at = toEpochSeconds(clock.epochMs());

  makeDirectory(config.data_dir);
  for (const name of lockNames(config)) {
    await takeLock(name, `data directory in use by another hearth daemon: ${config.data_dir}`);
  }
  const { store, events, keys, logins, operator_key, cursors, lease_secret, new_key, node, start_number, ...opened } =
    await openState(base);
  // Complaints about the start itself are the operator's.
  const { run_root } = imageStore(config.image_dir);
  hideDirectories([config.data_dir, config.image_dir, config.run_dir, run_root, ...SOURCE_DIRS]);
  const engine = makeEngine(base);
  undo.add(() => engine.shutdown());
  const reserved = await new ContainerRows(store, node).reservedAddresses();
  const adopted = await engine.boot(reserved.map(({ address }) => address));
  const bounds = await nodeBounds(engine.storage, config);
  const quotas = new Quotas({ ...config, ...bounds }, config.user_limits_percent);
  const temporary = temporaryFiles(quotas, bounds.store_disk_mb);
  boundTenants(engine, quotas);
  const owned = { ...base, store, engine, node, events, quotas };
  const secrets = new Secrets({ ...owned, keys: opened.secrets_keys, kind: SECRET_KIND });
  const registry_credentials = new RegistryCredentials({
    secrets: new Secrets({ ...owned, keys: opened.secrets_keys, kind: REGISTRY_KIND }),
    values: opened.registry_values,
    auth_file: config.registry_auth_file,
    log,
  });
  const code = new CodeStore({
    ...owned,
    storage: () => engine.storage,
    files: () => engine.files,
    directory: `${config.data_dir}/code-uploads`,
    temporary,
  });
  undo.add(() => code.close());
  const instances = makeInstances({ ...base, engine, secrets: opened.secret_values, code, start_number });
  const { pool, launcher, tokens } = instances;
  const audit = new Audit({ store, clock });
  const catalog = makeCatalog(config);
  const nightly: { profiles: Profiles | null } = { profiles: null };
  const { metrics, observer } = await startTelemetry(base, {
    ...{ store, engine, pool, launcher, node, audit },
    profiles: () => nightly.profiles?.list(false) ?? [],
  });
  const serving: { outer: Listening | null; inner: Listening | null } = { outer: null, inner: null };
  const onEnd = (type: string, status: string) => metrics.ended(type, status);
  const operations = new Operations({ ...base, store, events, onEnd });
  const { profiles, contracts, clean } = makeProfiles(base, {
    ...{ catalog, engine, operations },
    onBuilt: (profile, outcome) => metrics.built(profile, outcome),
  });
  nightly.profiles = profiles;
  // What still runs may call the API until it is over.
  undo.add(async () => serving.inner?.close(0));
  // At the same time: what waits in the pool is refused, what runs is answered, and streams end.
  undo.add(() => {
    const ended = [pool, operations].map((part) => part.drain(LIMITS.drain_ms));
    events.close();
    return Promise.all([serving.outer?.close(LIMITS.drain_ms), published.close(), messaging.sockets.close(), ...ended]);
  });

  const invocations = new Invocations({ ...base, store, node, quotas, numbers: new NumberBlocks(store) });
  await invocations.boot();
  const { queue_max, tenant_concurrency_limit: tenant_limit } = config;
  const images = functionImages(engine, () => tenant_images);
  const functions = new Functions({
    ...{ ...owned, ...instances, code, secrets, queue_max, images, profiles },
    observer: {
      deleted: (record) => {
        observer.deleted(record);
        messaging.bindings.noteDeleted(record.tenant_id);
      },
    },
  });
  const late = new LateOutput(invocations, clock, log);
  launcher.onLate((function_seq, invocation_id, text) => late.add(function_seq, invocation_id, text));
  const concurrency = new LocalConcurrency();
  const invoker = new Invoker({ pool, invocations, clock, concurrency, tenant_limit, observer });
  const rates = new LocalRates(clock, turns);
  const idempotency = new Idempotency({ store, clock, log });
  const used = async () => [
    ...(await functions.images()),
    ...(await containers.images()),
    ...(await snapshots.images()),
  ];
  const tenant_images = new TenantImages({
    ...owned,
    images: () => engine.images,
    used,
    readDisk: () => readDisk(config.image_dir),
    disk_percent_max: config.image_disk_percent,
    temporary,
  });
  const build_contexts = new BuildContexts({ ...owned, storage: () => engine.storage, files: () => engine.files });
  undo.add(() => build_contexts.close());
  const transfers = makeTransfers(base, {
    engine,
    events,
    operations,
    tenant_images,
    registry_credentials,
    outgoing: opened.outgoing,
    profiles,
  });
  const { pulls, imports } = transfers;
  const { builds, commits } = makeBuilds(base, {
    ...{ ...owned, operations, tenant_images, pulls, imports },
    ...{ contexts: build_contexts, secrets: opened.secret_values, outgoing: opened.outgoing },
  });
  const owners = { store, node, engine, events, operations, quotas };
  const parts = makeContainers({ ...base, ...owners, tenant_images, reserved, profiles, contracts });
  const {
    containers,
    volumes,
    volumeVerbs,
    execs,
    commandSockets,
    jobs,
    verbs,
    terminals,
    desktops,
    shares,
    ports,
    views,
  } = parts;
  const published = makeServices({ ...owned, ...opened, containers, metrics });
  const messaging = makeMessaging({
    ...{ ...owned, containers, execs, rates, metrics, observer, audit, lease_secret },
    functions: boundFunctions({ functions, invoker, traces }),
  });
  undo.add(() => messaging.icc.close());
  undo.add(async () => messaging.states.close());
  undo.add(() => messaging.bindings.close());
  const copying = makeSnapshots({ ...owned, operations, containers, volumes, commits });
  const { snapshots, schedules } = copying;
  const snapshot_versions = new SnapshotVersions({ functions, operations, snapshots: copying.exports });
  const tenants = new Tenants({
    ...base,
    store,
    keys,
    functions,
    code,
    containers,
    volumes,
    snapshots,
    schedules,
    tenant_images,
    build_contexts,
    builds,
    secrets,
    operations,
    events,
    rates,
    quotas,
    shares,
    idempotency,
    limitFiles: async (tenant_id) => {
      await engine.storage.limitOwner(tenant_id);
      await engine.storage.limitOwner(buildsOwner(tenant_id));
    },
    processCount: (tenant_id) => engine.containers.processCount(tenant_id),
    gpuCount: (tenant_id) => engine.gpus.countOf(tenant_id),
  });
  const users = makeUsers({ ...base, store, tenants, keys, logins });
  const page = new PageFiles();
  const api = apiRoutes({
    system: {
      users: config.users,
      version: packageVersion(),
      node_id: node.id,
      started_at,
      uptime_seconds: () => (clock.monotonicMs() - started_ms) / 1000,
      engine: async () => {
        await engine.containers.userNamespacesTried();
        return engine.info();
      },
      gpus: () => engine.gpus.states(),
      services: () => published.services.serving(),
      messages: () => ({ backend: messaging.icc.bus.backend, is_ready: messaging.icc.bus.health().is_ready }),
    },
    functions: { functions, invoker, invocations, pool, code, operations, snapshot_versions },
    containers: { containers, engine, execs, commandSockets, shares, jobs, verbs, operations, clock, turns, ...views },
    networks: { networks: new Networks({ store, containers, engine }) },
    volumes: { volumes, verbs: volumeVerbs, files: engine.files, operations },
    snapshots: { ...copying, containers, volumes, operations },
    oci: { ...transfers, images: tenant_images, contexts: build_contexts, builds, registry_credentials, operations },
    nightly: { profiles },
    secrets: { secrets, rotation: opened.secrets_rotation },
    services: { services: published.services },
    icc: messaging,
    terminal: { terminals },
    gui: { desktops, viewerPage: () => page.viewer() },
    tenants: { tenants, keys, operator_key, containers },
    users: { users, trusted_proxies: config.trusted_proxies },
    telemetry: { metrics },
    operations: { operations },
    events: { events },
    audit: { audit },
  });
  const routes = [...api, ...pageRoutes(page)];
  const container_of = containerOf({ ...parts, operations });
  const spools = new Spools({ directory: `${config.data_dir}/uploads`, temporary, ids, clock });
  await spools.begin();
  const serve = (
    authenticator: Authenticator,
    routes: readonly Route[],
    options: Omit<ListenOptions, "log" | "clock">,
  ) => {
    const app = createApp({
      ...base,
      cors_origins: config.cors_origins,
      authenticator,
      rates,
      spools,
      cursors,
      idempotency,
      container_of,
      observer: inTurn(observer, audit),
    });
    app.mount(routes);
    return listen(app, { ...options, log, clock });
  };
  const admit: TenantOfAddress = (address) => launcher.apiTenantAt(address);
  // Passwords are for people: a handler's instances have addresses enough to guess at any rate.
  const inner_routes = routes.filter(({ auth, method }) => auth !== "public" || method === "GET");
  serving.inner = await serve(tokens, inner_routes, {
    host: engine.info().gateway,
    port: 0,
    limits: INNER_LIMITS,
    admit,
  });
  await engine.openPort(serving.inner.port);
  launcher.setApiUrl(serving.inner.url);
  await tenants.boot();
  await code.boot();
  await build_contexts.boot();
  await builds.boot();
  await commits.boot();
  await functions.boot(adopted);
  await messaging.icc.bus.boot();
  await messaging.bindings.boot();
  await volumes.boot();
  await snapshots.boot();
  await execs.boot();
  messaging.sockets.begin(engine.containers);
  await containers.boot();
  await engine.openNames();
  const reach = async (listener: Reachable, setting: "HEARTH_LISTEN" | "HEARTH_SERVICES_LISTEN") => {
    ports.reserve(listener.port);
    await checkReached(listener, ports, { host_tag: config.host_tag, setting });
  };
  await published.listen((listener) => reach(listener, "HEARTH_SERVICES_LISTEN"));
  void tenant_images.boot();
  clean();
  for (const part of [containers, volumes, snapshots, schedules, terminals]) undo.add(async () => part.close());
  await operations.boot();
  undo.add(() => messaging.actions.close());
  await messaging.actions.boot();
  schedules.begin();
  messaging.bindings.begin();
  void tenants.resume();
  opened.secrets_rotation.resume();
  serving.outer = await serve(keys, routes, { host: config.listen_host, port: config.listen_port });
  for (const listener of [serving.outer, serving.inner]) await reach(listener, "HEARTH_LISTEN");
  const { url } = serving.outer;
  pool.setCells(config.cells_target);
  const uses = { prune: () => keys.writeUses() };
  const records = [operations, events, audit, idempotency, logins, uses];
  const expiring = [
    ...records,
    code,
    tenant_images,
    build_contexts,
    snapshots,
    schedules,
    published.services,
    profiles,
    messaging.icc,
    messaging.bindings,
  ];
  const endPeriodicWork = startPeriodicWork(base, { pool, engine, invocations, expiring });
  undo.add(async () => endPeriodicWork());
  undo.add(async () => failpoint("app.stop.begun"));
  log.info("ready", { url, start_ms: Math.round(clock.monotonicMs() - started_ms) });
  return { url, new_key, stop: () => undo.all(log) };
}

/**
 * Returns the locks of a data directory: one by its path, which names everything on the machine, and one by its inode,
 * since a link or a mount gives it another path.
 */
function lockNames({ host_tag, data_dir }: Config): string[] {
  const { dev, ino } = statSync(data_dir, { bigint: true });
  return [`hearth-${host_tag}`, `hearth-data-${dev}-${ino}`];
}

interface Watched {
  readonly store: Store;
  readonly engine: LocalEngine;
  readonly pool: Pool<Call, Outcome>;
  readonly launcher: FunctionLauncher;
  readonly node: StoredNode;
  readonly audit: Audit;
  readonly profiles: () => readonly ProfileRecord[];
}

/** Starts the metrics and the log of requests, and the export of spans if a collector is set. */
async function startTelemetry(
  { config, clock, log, traces, undo }: Base,
  { store, engine, pool, launcher, node, audit, profiles }: Watched,
) {
  const version = packageVersion();
  const sources = {
    pool: () => pool.totals(),
    store: () => store.stats(),
    socket_memory: readSocketMemory,
    machine: {
      ...machineUse(engine),
      containers: () => containerCounts(store, node),
      images: () => imageCounts(store),
      image_disk: () => readDisk(config.image_dir),
    },
    log_dropped_count: () => log.dropped_count,
    audit: () => audit.stats(),
    countIdleCpu: () => launcher.countIdleCpu(),
    profiles,
  };
  const { id: node_id } = node;
  const metrics = new Metrics({ version, node_id, sources });
  undo.add(async () => metrics.close());
  launcher.onIdleCpu(({ tenant_id, function_name }, used_ms) => metrics.idled(tenant_id, function_name, used_ms));
  store.onCommit((items_count, duration_ms) => metrics.committed(items_count, duration_ms));
  if (config.otlp_url === null) return { metrics, observer: new Telemetry(log, metrics, null) };
  const { startOtlp } = await import("./telemetry/otlp.ts");
  const otlp = startOtlp({ url: config.otlp_url, version, node_id, clock, log, traces });
  undo.add(() => otlp.close());
  return { metrics, observer: new Telemetry(log, metrics, otlp.spans) };
}

/** Of the listener that handlers reach. */
const INNER_LIMITS = {
  connections_max: LIMITS.inner_connections_max,
  per_address_connections_max: LIMITS.inner_per_address_connections_max,
  per_tenant_connections_max: LIMITS.inner_per_tenant_connections_max,
};

function packageVersion(): string {
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
