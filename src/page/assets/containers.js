/** All containers of the tenant, live. The list comes in one request a round; what they use is asked for by row. */
import { containerHash } from "./addresses.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { age, count, counted, dateTime, duration, epochSeconds } from "./format.js";
import { badge, choice, isRefusal, problem } from "./parts.js";
import { containersOf, RESOURCES_MAX } from "./resources.js";
import { sightedRows } from "./sight.js";
import { cell, listBar, table } from "./table.js";
import { memory, percent, rates } from "./usage.js";

/** @import { Context, View } from "./parts.js" */
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
  const element = h("div", { role: "row", class: "row", "data-id": id });
  [link, state.element, since, cpu, used, address, ports].forEach(
    (content, i) => void element.append(cell(COLUMNS[i] ?? "", content)),
  );
  const ratesOf = rates(clock);
  let record = first;
  /** @param {ContainerMetrics} metrics */
  const setUsage = (metrics) => {
    setText(cpu, percent(ratesOf(metrics).cpu_percent));
    setText(used, memory(metrics));
  };
  return {
    element,
    link,
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
  const { api } = context;
  const containers = containersOf(api);
  const trouble = problem();
  const { element: grid, rows, move } = table("Containers", "containers", COLUMNS, "rowgroup");
  const shown = sightedRows(
    context.clock,
    rows,
    (/** @type {ContainerRecord} */ { container_id }) => container_id,
    (record) => row(record, context),
  );
  const none = h("p", { class: "hint", text: "Loading…" });
  /** @type {readonly ContainerRecord[] | null} */
  let records = null;
  let isCut = false;
  let isWanted = FILTERS.All ?? (() => true);
  const draw = () => {
    if (records === null) return;
    const wanted = bar.filter.value.trim().toLowerCase();
    const matching = records.filter(
      ({ name, state, labels }) =>
        isWanted(state) && `${name}\n${Object.values(labels).join("\n")}`.toLowerCase().includes(wanted),
    );
    shown.update(matching);
    show(grid, matching.length > 0);
    show(none, matching.length === 0);
    setText(none, records.length === 0 ? "There is no container." : "None is like that.");
    const isAll = !isCut && records.length < RESOURCES_MAX;
    const all = isAll ? counted(records.length, "container") : `the newest ${count(records.length)} containers`;
    setText(bar.summary, matching.length === records.length ? all : `${count(matching.length)} of ${all}`);
    show(bar.create, api.may("write"));
  };
  const bar = listBar(
    { title: "Containers", filter: "Filter by name, label", create: "New container", address: "#/new-container" },
    draw,
    move,
  );
  const states = choice("Filter by state", Object.keys(FILTERS), (name) => {
    isWanted = FILTERS[name] ?? isWanted;
    draw();
  });
  states.choose("All");
  bar.filter.after(states.element);
  return {
    element: h("div", {}, bar.element, trouble.element, none, grid),
    title: () => "Containers",
    async refresh() {
      try {
        const answer = await containers.list();
        records = answer.containers;
        isCut = answer.truncated === true;
        trouble.update(null);
        draw();
        await shown.look();
      } catch (error) {
        if (!isRefusal(error)) throw error;
        trouble.update(error);
      }
    },
    focus: bar.focus,
    move,
    find: () => bar.filter.focus(),
    focusRow: shown.focus,
  };
}
