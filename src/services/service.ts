/**
 * Published services: a port of a container behind a URL with a token. This file makes, shows, rotates and deletes them;
 * proxy.ts passes their requests.
 *
 * V1. A service is in the store with its token before it is shown, in one batch. Its token is a secret of its own kind.
 * V2. A service ends with its container, in the batch that hides the container; with its time; or with its deletion. Its
 *     requests and WebSockets end with it, and with a rotation of its token.
 * V3. URLs survive restarts of the daemon. A service that cannot be served at its URL any more has the status `error`.
 * V4. Clones, forks and snapshots of a container have none of its services.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { each, KeyedMutex } from "../base/concurrency.ts";
import { AppError, errorText } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import { isGranted, isReserved } from "../base/hostnames.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Listed, Place } from "../base/paging.ts";
import { DEFAULT_TENANT_ID, type Quotas, tenantGuard } from "../base/tenant-limits.ts";
import type { Containers } from "../containers/service.ts";
import type { Events } from "../events/service.ts";
import type { Secrets } from "../secrets/service.ts";
import type { Guard, Once, Statement, Store, StoredNode } from "../store/store.ts";
import type { Listeners } from "./listeners.ts";
import { type Directory, type Origins, type Published, published } from "./published.ts";
import { Readiness } from "./readiness.ts";
import { type ServiceRow, ServiceRows } from "./rows.ts";
import type { CreateService, ServiceRecord } from "./schema.ts";
import { statusOf } from "./states.ts";
import { newToken } from "./tokens.ts";
import type { LiveOf } from "./upstream.ts";

/** Kind of the secrets that hold tokens of services. */
export const SERVICE_KIND = "service";

/** The listeners and what they serve. */
export interface Serving {
  /** Address and port of the listener that serves host names. */
  readonly listen: string;
  readonly origins: Origins;
  readonly listeners: Listeners;
  /** Ends the connections of a service to its container. */
  readonly forget: (service_id: string) => void;
  /** Ends what runs on connections to containers that have ended. */
  readonly look: () => void;
  /** Names of this machine that no service may have. */
  readonly own_names: readonly string[];
}

export interface ServicesOptions {
  readonly store: Store;
  readonly node: StoredNode;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly quotas: Quotas;
  readonly events: Events;
  readonly containers: Containers;
  readonly liveOf: LiveOf;
  /** Of SERVICE_KIND. */
  readonly secrets: Secrets;
  readonly values: { found(tenant_id: string, names: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>> };
  readonly directory: Directory;
}

/** Cause for which a node serves no services: `error` is that of the listener, null: they are off by a setting. */
export interface Unserved {
  readonly error: string | null;
}

const OFF = "published services are off on this node";
const TOKEN_LOST = "the token of the service is lost; rotate it to get another URL";

export class Services {
  readonly #options: ServicesOptions;
  readonly #rows: ServiceRows;
  readonly #readiness: Readiness;
  readonly #turns = new KeyedMutex();
  #serving: Serving | null = null;
  /** Error of the listener; null: there is none. */
  #error: string | null = null;
  #cancelLook = () => {};

  constructor(options: ServicesOptions) {
    this.#options = options;
    this.#rows = new ServiceRows(options.store, options.node);
    this.#readiness = new Readiness(options.clock);
    options.containers.deletions.on("removed", (container_id) => this.#containerRemoved(container_id));
  }

  /** Serves the services of an earlier daemon again. */
  async boot(serving: Serving | Unserved): Promise<void> {
    if ("listeners" in serving) this.#serving = serving;
    else this.#error = serving.error;
    const rows = await this.#rows.held();
    // First those with an address, which no other one may be given.
    for (const hasAddress of [true, false]) {
      const some = rows.filter(({ address }) => (address !== null) === hasAddress);
      await each(some, LIMITS.service_probes_at_once, (row) => this.#resume(row));
    }
    this.#lookLater();
  }

  /** Tells whether this node serves services, and where. */
  serving() {
    const mode = this.#serving !== null ? "on" : this.#error === null ? "off" : "unavailable";
    return { mode, listen: this.#serving?.listen ?? null, reason: this.#error } as const;
  }

  close(): void {
    this.#cancelLook();
    this.#serving?.listeners.close();
  }

  /**
   * Publishes a port of a container. Throws NOT_FOUND, FORBIDDEN, NAME_TAKEN, QUOTA_EXCEEDED, CAPACITY_FULL, SERVICE_UNAVAILABLE
   * on a node without the listener, WRONG_STATE for a container of another node.
   */
  async create(
    tenant_id: string,
    container_id: string,
    input: CreateService,
    once: Once | null,
  ): Promise<ServiceRecord> {
    const { ids, clock, containers, secrets, directory } = this.#options;
    const serving = this.#serving;
    if (serving === null) throw this.#unserved();
    const container = await containers.held(tenant_id, container_id);
    await this.#checkHostname(tenant_id, input.hostname ?? null, serving);
    const now = toEpochSeconds(clock.epochMs());
    const isOnAddress = serving.origins.domain === null && (input.hostname ?? null) === null;
    const address = isOnAddress ? await serving.listeners.choose((one) => directory.hasAddress(one)) : null;
    const row: ServiceRow = {
      ...{ id: ids.next("svc"), tenant_id, node_seq: this.#options.node.seq, container_id: container.id },
      ...{ name: input.name, target_port: input.target_port, auth_mode: input.auth_mode },
      ...{ enable_websockets: input.enable_websockets, label: `s${ids.random(16)}`, address },
      ...{ hostname: input.hostname ?? null, created_at: now, rotated_at: null },
      expires_at: input.ttl_seconds == null ? null : now + input.ttl_seconds,
    };
    const text = row.auth_mode === "public" ? null : newToken();
    const token = text === null ? [] : [secrets.insertion(tenant_id, row.id, Buffer.from(text))];
    const record = once === null ? [] : [once.record(201, { service_id: row.id })];
    try {
      await this.#insert(row, [...token, ...record], now);
    } catch (error) {
      if (address !== null) serving.listeners.release(address);
      throw error;
    }
    failpoint("services.create.stored");
    directory.add(published(row, text, null));
    return this.get(tenant_id, row.id).catch((error) => {
      // Its container was deleted at the same time. Any other failure leaves the service, which the store has.
      if (error instanceof AppError && error.code === "NOT_FOUND") this.#drop(row.id);
      throw error;
    });
  }

  #unserved(): AppError {
    if (this.#error === null) {
      return new AppError("FORBIDDEN", OFF, { hint: "ask the operator to set HEARTH_SERVICES_LISTEN" });
    }
    return new AppError("SERVICE_UNAVAILABLE", this.#unservedReason(), {
      hint: "ask the operator to set HEARTH_SERVICES_LISTEN to a free port",
    });
  }

  #unservedReason(): string {
    return this.#error === null ? OFF : `published services are unavailable on this node: ${this.#error}`;
  }

  async #insert(row: ServiceRow, more: readonly Statement[], now: number): Promise<void> {
    const { quotas } = this.#options;
    const { tenant_id } = row;
    const expired = this.#options.directory
      .ofContainer(row.container_id)
      .filter((one) => one.row.name === row.name && isExpired(one.row, now));
    const full = () =>
      new AppError("CAPACITY_FULL", `too many published services on this node (limit ${LIMITS.services_max})`);
    const checks: readonly Guard[] = [
      ...quotas.guards(tenant_id, { services_max: 1 }),
      { statement: this.#rows.room(tenant_id), refusal: full },
    ];
    const statements = [
      tenantGuard(tenant_id, "state = 'active'"),
      this.#rows.replaceExpired(row, now),
      ...checks.map(({ statement }) => statement),
      this.#rows.insert(row),
      ...more,
    ];
    const conflict = await this.#write(statements, row, "created");
    if (conflict === null) {
      for (const { row } of expired) this.#drop(row.id);
      return;
    }
    const check = checks[conflict - 2];
    if (check !== undefined) throw check.refusal();
    throw await this.#notInserted(row);
  }

  async #notInserted(row: ServiceRow): Promise<AppError> {
    const taken = await this.#rows.taken(row);
    if (taken === "name") {
      return new AppError("NAME_TAKEN", `the container has a service named '${row.name}'`, {
        hint: "delete it, or choose another name",
      });
    }
    if (taken === "hostname") return new AppError("NAME_TAKEN", `another service has the host name '${row.hostname}'`);
    if (taken === "address") return new AppError("CAPACITY_FULL", "the loopback address was taken meanwhile");
    return new AppError("NOT_FOUND", `container '${row.container_id}' not found`);
  }

  /** The operator's tenant may use any name; another tenant those that the operator granted. */
  async #checkHostname(tenant_id: string, hostname: string | null, serving: Serving): Promise<void> {
    if (hostname === null) return;
    if (isReserved(hostname, serving.origins.domain, serving.own_names)) {
      throw new AppError("INVALID_ARGUMENT", `hostname: reserved name: '${hostname}'`, {
        details: { received: hostname },
        hint: "choose a name outside of the daemon's own names and of HEARTH_SERVICES_DOMAIN",
      });
    }
    if (tenant_id === DEFAULT_TENANT_ID || isGranted(hostname, await this.#rows.grants(tenant_id))) return;
    throw new AppError("FORBIDDEN", `host name not granted to the tenant: '${hostname}'`, {
      hint: "ask the operator to add it to service_hostnames of the tenant",
    });
  }

  /** Throws NOT_FOUND. */
  async get(tenant_id: string, id: string): Promise<ServiceRecord> {
    return this.#record(await this.#row(tenant_id, id));
  }

  /** `container_id`: null for all of the tenant. Throws NOT_FOUND. */
  async list(tenant_id: string, container_id: string | null, place: Place): Promise<Listed<ServiceRecord>> {
    const id = container_id === null ? null : (await this.#options.containers.row(tenant_id, container_id)).id;
    const { items, last } = await this.#rows.list(tenant_id, id, place);
    const records = new Map<string, ServiceRecord>();
    await each(items, LIMITS.service_probes_at_once, async (row) => {
      records.set(row.id, await this.#record(row));
    });
    return { items: items.map(({ id }) => records.get(id)).filter((one) => one !== undefined), last };
  }

  /** Throws NOT_FOUND. */
  async delete(tenant_id: string, id: string): Promise<void> {
    const row = await this.#row(tenant_id, id);
    const conflict = await this.#turns.run(id, () => this.#write([this.#rows.delete(id)], row, "removed"));
    if (conflict !== null) throw notFound(id);
    this.#drop(id);
  }

  /** Gives a service another token: the earlier URL ends at once. Throws NOT_FOUND, WRONG_STATE for a public one. */
  async rotate(tenant_id: string, id: string): Promise<ServiceRecord> {
    const { secrets, clock, directory } = this.#options;
    const row = await this.#row(tenant_id, id);
    if (row.auth_mode === "public") {
      throw new AppError("WRONG_STATE", `service '${id}' is public and has no token`, { details: { state: "public" } });
    }
    await this.#turns.run(id, async () => {
      const now = toEpochSeconds(clock.epochMs());
      const text = newToken();
      const statements = [
        this.#rows.setRotated(id, now),
        secrets.deletion(tenant_id, id),
        secrets.insertion(tenant_id, id, Buffer.from(text)),
      ];
      const conflict = await this.#write(statements, row, "rotated");
      if (conflict !== null) throw notFound(id);
      const before = directory.byId(id);
      if (before === null) return;
      const failure = before.failure === TOKEN_LOST ? null : before.failure;
      directory.add(published({ ...row, rotated_at: now }, text, failure));
      directory.end(before);
    });
    return this.get(tenant_id, id);
  }

  /** Removes services that expired a while ago. */
  async prune(): Promise<void> {
    const before = toEpochSeconds(this.#options.clock.epochMs()) - LIMITS.service_expired_kept_seconds;
    await this.#options.store.write([this.#rows.deleteExpired(before)]);
  }

  async #row(tenant_id: string, id: string): Promise<ServiceRow> {
    const row = await this.#rows.byId(tenant_id, id);
    if (row === null) throw notFound(id);
    return row;
  }

  /** Serves a service of the store again, unless it has expired. */
  async #resume(row: ServiceRow): Promise<void> {
    const { values, log, directory } = this.#options;
    const serving = this.#serving;
    if (isExpired(row, toEpochSeconds(this.#options.clock.epochMs()))) return;
    const stored = await values.found(row.tenant_id, [row.id]).catch((error) => {
      log.warn("token of a service not readable", { service_id: row.id, error: errorText(error) });
      return new Map<string, Uint8Array>();
    });
    const bytes = stored.get(row.id);
    const text = bytes === undefined ? null : Buffer.from(bytes).toString();
    bytes?.fill(0);
    const isLost = text === null && row.auth_mode === "service_token";
    const service = published(row, text, serving === null ? this.#unservedReason() : isLost ? TOKEN_LOST : null);
    if (serving !== null && serving.origins.hostOf(row) === null) await this.#giveAddress(service, serving);
    else if (serving !== null && serving.origins.hostOf(row) === row.address) await this.#listen(service, serving);
    directory.add(service);
  }

  async #listen(service: Published, { listeners }: Serving): Promise<void> {
    const { address, id } = service.row;
    if (address === null) return;
    const reason = await listeners.listen(address);
    if (reason === null) return;
    service.failure ??= `the address of the service is in use: ${reason}`;
    this.#options.log.warn("service not served", { service_id: id, error: reason });
  }

  /** Gives an address to a service that was made while a domain was set. */
  async #giveAddress(service: Published, { listeners }: Serving): Promise<void> {
    const { directory, store, log } = this.#options;
    let chosen: string | null = null;
    try {
      const address = await listeners.choose((one) => directory.hasAddress(one));
      chosen = address;
      const { conflict } = await store.write([this.#rows.setAddress(service.row.id, address)], { durable: true });
      if (conflict !== null) throw new AppError("CAPACITY_FULL", "the loopback address was taken meanwhile");
      Object.assign(service, { row: { ...service.row, address } });
    } catch (error) {
      if (chosen !== null) listeners.release(chosen);
      service.failure ??= errorText(error);
      log.warn("service not served", { service_id: service.row.id, error: errorText(error) });
    }
  }

  /** Stops serving a service that is over (V2). */
  #drop(id: string): void {
    const service = this.#options.directory.remove(id);
    this.#serving?.forget(id);
    this.#readiness.forget(id);
    const address = service?.row.address ?? null;
    if (address !== null) this.#serving?.listeners.release(address);
  }

  #containerRemoved(container_id: string): void {
    for (const { row } of this.#options.directory.ofContainer(container_id)) this.#drop(row.id);
  }

  #lookLater(): void {
    this.#cancelLook = this.#options.clock.after(LIMITS.service_look_ms, () => {
      this.#look();
      this.#lookLater();
    });
  }

  #look(): void {
    const { clock, directory, events, log } = this.#options;
    const now = toEpochSeconds(clock.epochMs());
    this.#serving?.look();
    for (const { row } of directory.all()) {
      if (!isExpired(row, now)) continue;
      this.#drop(row.id);
      events
        .emit(row.tenant_id, eventOf(row, "expired"))
        .catch((error) => log.warn("event of a service not recorded", { error: errorText(error) }));
    }
  }

  async #record(row: ServiceRow): Promise<ServiceRecord> {
    const { directory, liveOf, clock } = this.#options;
    const service = directory.byId(row.id);
    const isOver = isExpired(row, toEpochSeconds(clock.epochMs()));
    const failure = isOver ? null : (service?.failure ?? (service === null ? "another node serves the service" : null));
    const run = liveOf(row.container_id);
    const isTried = run !== null && service !== null && failure === null && !isOver;
    const isListening = isTried && (await this.#readiness.isListening(row.id, run, row.target_port));
    const urls = service === null ? undefined : this.#serving?.origins.urlsOf(service);
    const { id, node_seq: _, label: __, address: ___, ...fields } = row;
    const status = statusOf({ isExpired: isOver, isFailed: failure !== null, isLive: run !== null, isListening });
    return {
      service_id: id,
      ...fields,
      protocol: "http",
      status,
      status_message: failure,
      public_url: urls?.public_url ?? null,
      websocket_url: urls?.websocket_url ?? null,
    };
  }

  /** Returns the index of the statement that missed its expectation; null: committed. */
  async #write(statements: readonly Statement[], row: ServiceRow, event_type: string): Promise<number | null> {
    const { events } = this.#options;
    return (await events.write(statements, row.tenant_id, [eventOf(row, event_type)], { durable: true })).conflict;
  }
}

const isExpired = ({ expires_at }: ServiceRow, now: number): boolean => expires_at !== null && expires_at <= now;

function eventOf({ id, name, container_id, target_port }: ServiceRow, event_type: string) {
  return {
    name: "service_update" as const,
    event_type,
    container_id,
    data: { service_id: id, service: name, target_port },
  };
}

function notFound(id: string): AppError {
  return new AppError("NOT_FOUND", `service '${id}' not found`);
}
