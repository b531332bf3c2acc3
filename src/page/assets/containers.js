/** All containers of the tenant, live. The list comes in one request a round; what they use is asked for by row. */
import { containerHash } from "./addresses.js";
import { memory, percent, rates } from "./container-usage.js";
import { h, setAttribute, setText } from "./dom.js";
import { age, dateTime, duration, epochSeconds } from "./format.js";
import { listView } from "./list-view.js";
import { containersOf } from "./resources.js";
import { tableRow } from "./table.js";
import { badge, choice } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { ContainerMetrics, ContainerRecord } from "../wire.ts" */

const COLUMNS = ["Name", "State", "Uptime", "CPU", "Memory", "Address", "Ports"];
/** @type {Readonly<Record<string, (state: string) => boolean>>} */
const FILTERS = {
  All: () => true,
  Running: (state) => state === "running" || state === "starting",
  Exited: (state) => state === "exited" || state === "created",
  Error: (state) => state === "error",
};

/** @param {ContainerRecord["ports"][number]} port */
export const portText = ({ host_address, host_port, container_port, protocol }) =>
  `${host_address === "127.0.0.1" ? "" : `${host_address}:`}${host_port}→${container_port}${protocol === "udp" ? "/udp" : ""}`;

/** How long it runs, or since when it does not. @param {ContainerRecord} record @param {number} now_ms */
export function uptime({ state, started_at, exited_at, created_at }, now_ms) {
  if (state === "running" && started_at !== null) return duration(Math.floor(now_ms / 1000) - epochSeconds(started_at));
  return age(epochSeconds(exited_at ?? created_at), now_ms);
}

/** What its state says, with the exit code where it is one that somebody should see. @param {ContainerRecord} record */
export function stateText({ state, exit_code, oom_killed }) {
  if (state !== "exited" || exit_code === null) return state;
  return oom_killed ? "out of memory" : `exited ${exit_code}`;
}

/** Its badge's colour: a run that went wrong is one. @param {ContainerRecord} record */
export const stateKind = ({ state, exit_code }) => (state === "exited" && (exit_code ?? 0) !== 0 ? "failed" : state);

/** @param {ContainerRecord} first @param {Context} context */
function row(first, { api, clock }) {
  const id = first.container_id;
  const link = h("a", { class: "open", href: containerHash(id) });
  const state = badge();
  const [since, cpu, used, address, ports] = [h("span"), h("span"), h("span"), h("code"), h("code")];
  const cells = [link, state.element, since, cpu, used, address, ports];
  const element = tableRow(COLUMNS, cells, { "data-id": id });
  const ratesOf = rates(clock);
  let record = first;
  /** @param {ContainerMetrics} metrics */
  const setUsage = (metrics) => {
    setText(cpu, percent(ratesOf(metrics).cpu_percent));
    setText(used, memory(metrics));
  };
  return {
    element,
    /** @param {ContainerRecord} next */
    update(next) {
      record = next;
      setText(link, next.name);
      state.update(stateKind(next), stateText(next));
      setText(since, uptime(next, clock.epochMs()));
      setAttribute(since, "title", dateTime(epochSeconds(next.started_at ?? next.created_at)));
      setText(address, next.ip_address ?? "");
      const text = next.ports.map(portText).join(", ");
      setText(ports, text);
      setAttribute(ports, "title", text === "" ? null : text);
      if (next.state !== "running") {
        setText(cpu, "");
        setText(used, "");
      }
    },
    look: () => (record.state === "running" ? containersOf(api).metrics(id).then(setUsage) : null),
  };
}

/** @param {Context} context @returns {View} */
export function containersView(context) {
  let isWanted = FILTERS.All ?? (() => true);
  const { view, filter, draw } = listView(context, {
    noun: "container",
    columns: COLUMNS,
    words: {
      title: "Containers",
      filter: "Filter by name, label",
      create: "New container",
      address: "#/new-container",
    },
    idOf: (/** @type {ContainerRecord} */ { container_id }) => container_id,
    matches: ({ name, state, labels }, wanted) =>
      isWanted(state) && `${name}\n${Object.values(labels).join("\n")}`.toLowerCase().includes(wanted),
    row: (record) => row(record, context),
    ask: async () => {
      const { containers, ...rest } = await containersOf(context.api).list();
      return { resources: containers, ...rest };
    },
  });
  const states = choice("Filter by state", Object.keys(FILTERS), (name) => {
    isWanted = FILTERS[name] ?? isWanted;
    draw();
  });
  states.choose("All");
  filter.after(states.element);
  return view;
}
