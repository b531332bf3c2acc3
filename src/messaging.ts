/** Composes the parts that carry messages between containers. */
import type { Clock } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { errorText } from "./base/errors.ts";
import type { Ids } from "./base/ids.ts";
import { LIMITS } from "./base/limits.ts";
import type { Log } from "./base/log.ts";
import { firstPage } from "./base/paging.ts";
import type { Quotas } from "./base/tenant-limits.ts";
import type { Traces } from "./base/trace.ts";
import type { Execs } from "./containers/exec/exec.ts";
import type { Containers } from "./containers/service.ts";
import type { Events } from "./events/service.ts";
import type { RateLimiter } from "./http/rates.ts";
import { Applying } from "./icc/actions/applying.ts";
import { Outcomes } from "./icc/actions/outcome.ts";
import { Actions } from "./icc/actions/service.ts";
import { Bindings, type BoundFunctions } from "./icc/bindings/service.ts";
import { type BroadcastCommand, Broadcasts } from "./icc/broadcasts.ts";
import { openBus } from "./icc/bus/open.ts";
import type { EntryRef } from "./icc/bus/port.ts";
import { Grants } from "./icc/grants.ts";
import { ContainerMessages } from "./icc/inside/container-messages.ts";
import { ContainerStates } from "./icc/inside/container-states.ts";
import type { Self } from "./icc/inside/inside.ts";
import { ContainerLeases } from "./icc/inside/leases.ts";
import { Observation } from "./icc/observation.ts";
import type { MessageStep } from "./icc/observer.ts";
import { Publishing, type SentCommand } from "./icc/publishing.ts";
import { Replies, Waits } from "./icc/replies.ts";
import { Icc } from "./icc/service.ts";
import { States } from "./icc/state/service.ts";
import { Topics } from "./icc/topics.ts";
import { MessageTracing } from "./icc/tracing.ts";
import { makeInside } from "./inside.ts";
import type { Store, StoredNode } from "./store/store.ts";
import type { Metrics } from "./telemetry/metrics.ts";
import type { Telemetry } from "./telemetry/telemetry.ts";

interface Parts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly store: Store;
  readonly node: StoredNode;
  readonly quotas: Quotas;
  readonly events: Pick<Events, "emit" | "write">;
  readonly containers: Containers;
  readonly execs: Execs;
  readonly rates: RateLimiter;
  readonly functions: BoundFunctions;
  readonly metrics: Metrics;
  readonly traces: Traces;
  readonly observer: Pick<Telemetry, "stepped">;
  /** By which the daemon knows leases of containers again. */
  readonly lease_secret: Uint8Array;
  readonly audit: { commanded(command: SentCommand): void };
}

export function makeMessaging(parts: Parts) {
  const { config, clock, ids, log, store, node, containers, execs, metrics } = parts;
  const onStep = config.otlp_url === null ? null : (step: MessageStep) => parts.observer.stepped(step);
  const tracing = new MessageTracing({ traces: parts.traces, clock, onStep });
  const observer = new Observation({ observer: metrics.messages, tracing, onDead: tellDead(parts) });
  const bus = openBus({ ...parts, observer, server: config.nats_server, tag: node.id });
  const grants = new Grants(store, parts.events);
  const replies = new Replies();
  const waits = new Waits();
  const states = new States({ store, clock });
  containers.deletions.on("removed", states.containerEnded);
  const publishing = new Publishing({
    ...{ bus, clock, ids, grants, replies, states, tracing },
    containerOf: (tenant_id, id_or_name) => containers.idOf(tenant_id, id_or_name),
    copiesOf: (tenant_id, message) => {
      const bound = bindings.copiesOf(tenant_id, message);
      if (!message.to.startsWith("topic:")) return bound;
      return topics.copiesOf(tenant_id, message.to).then((subscribed) => [...subscribed, ...bound]);
    },
    onAction: (tenant_id, inbox) => actions.due({ tenant_id, inbox }),
    onCommand: (command) => parts.audit.commanded(command),
  });
  const actions = new Actions({
    ...{ bus, clock, log },
    applying: new Applying({
      ...{ containers, states },
      run: async (tenant_id, container_id, { argv, workdir, environment, timeout_ms }, signal) => {
        const input = { command: [...argv], workdir, environment: { ...environment }, timeout_ms };
        const rest = { stdin_data: "", capture_output: true, detach: false };
        return execs.run(tenant_id, container_id, { ...input, ...rest }, signal);
      },
    }),
    outcomes: new Outcomes({ bus, clock, log, publishing, replies }),
  });
  const topics = new Topics({ store, clock, resolve: (tenant_id, text) => publishing.resolve(tenant_id, text) });
  const icc = new Icc({
    ...{ bus, clock, ids, publishing, grants, replies, waits },
    checkBinding: (tenant_id, binding_id) => bindings.get(tenant_id, binding_id),
  });
  const bindings = new Bindings({ ...parts, icc, publishing, tracing });
  const broadcasts = new Broadcasts({
    ...{ clock, ids, publishing },
    containersOf: async (tenant_id, { isRunning, count_max }) => {
      const filter = isRunning ? { state: "running" as const } : {};
      const { items } = await containers.list(tenant_id, filter, firstPage(count_max));
      return items.map(({ container_id }) => container_id);
    },
    stateOf: async (tenant_id, container_id) => (await containers.row(tenant_id, container_id)).state,
    run: async ({ tenant_id, by, request_id: id }, name, command, signal) => {
      const { id: container_id } = await containers.row(tenant_id, name);
      parts.audit.commanded({ tenant_id, container_id, operation: "exec_broadcast", id, by });
      const ran = await execs.run(tenant_id, container_id, execInput(command), signal);
      const { job_id, exit_code, stdout, stderr, timed_out } = ran;
      return { job_id, exit_code, stdout, stderr, timed_out };
    },
  });
  const nameOf = async (tenant_id: string, container_id: string) =>
    (await containers.row(tenant_id, container_id)).name;
  const leases = new ContainerLeases(parts.lease_secret);
  const messages = new ContainerMessages({ icc, publishing, clock, leases, nameOf });
  const topicsInside = {
    subscribe: (self: Self, topic: string) => topics.subscribe(self.tenant_id, topic, self.container_id),
    unsubscribe: (self: Self, topic: string) => topics.unsubscribe(self.tenant_id, topic, self.container_id),
  };
  const statesInside = new ContainerStates({ states, publishing });
  const sockets = makeInside({ ...parts, inside: { messages, topics: topicsInside, states: statesInside } });
  metrics.messages.read(() => ({
    backend: bus.backend,
    is_ready: bus.health().is_ready,
    waits_count: waits.count,
    ...sockets.listeners.counts,
  }));
  return { icc, broadcasts, topics, bindings, sockets, actions, states, waits, clock, nameOf };
}

/** Tells of dead letters, without their payloads. */
function tellDead({ events, log }: Pick<Parts, "events" | "log">) {
  return ({ tenant_id, inbox, msg_id }: EntryRef, reason: string): void => {
    const container_id = inbox.startsWith("ctr_") ? inbox : null;
    const event = { name: "message_update", event_type: "dead_lettered", container_id } as const;
    events.emit(tenant_id, { ...event, data: { msg_id, inbox, reason } }).catch((error) => {
      log.warn("cannot store the event of a dead letter", { error: errorText(error) });
    });
  };
}

function execInput({ command, timeout_ms, workdir, capture_output, detach }: BroadcastCommand) {
  const default_ms = detach ? null : LIMITS.exec_timeout_ms_default;
  return {
    command: [...command],
    workdir,
    ...{ environment: {}, stdin_data: "", capture_output, detach },
    timeout_ms: timeout_ms ?? default_ms,
  };
}
