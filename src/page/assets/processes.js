/** What runs in a container, with a signal for each, and what all of it uses now. */

import { memory, percent, rates } from "./container-usage.js";
import { h, KeyedList, setText, show } from "./dom.js";
import { bytes, count, dateTime, duration, epochSeconds } from "./format.js";
import { containersOf } from "./resources.js";
import { table, tableRow } from "./table.js";
import { act, card, facts, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { Rates } from "./container-usage.js" */
/** @import { ContainerMetrics, ContainerProcess, ProcessList } from "../wire.ts" */

/** Rows that are laid out; a container may have a thousand processes. */
const ROWS_MAX = 100;
const SIGNALS = ["TERM", "INT", "HUP", "KILL", "STOP", "CONT", "USR1", "USR2"];
const COLUMNS = ["PID", "Command", "Memory", "Runs for", "Signal"];

/** @param {Context} context @param {() => string} id */
export function processesCard({ api, clock, say, refresh }, id) {
  const trouble = problem();
  const { element: grid, rows } = table("Processes", "processes slim", COLUMNS);
  const list = new KeyedList(
    rows,
    (/** @type {ContainerProcess} */ { pid, started_at }) => `${pid} ${started_at}`,
    ({ pid, ppid, started_at }) => {
      const [command, used, since] = [h("code"), h("span"), h("span", { title: dateTime(epochSeconds(started_at)) })];
      const signal = h("select", { "aria-label": `Signal for process ${pid}` });
      for (const name of SIGNALS) signal.append(h("option", { value: name, text: name }));
      const send = h("button", { type: "button", text: "Send", "aria-label": `Send the signal to process ${pid}` });
      send.addEventListener("click", () =>
        act(send, trouble, async () => {
          await containersOf(api).signal(id(), pid, signal.value);
          say(`sent ${signal.value} to process ${pid}`);
          refresh();
        }),
      );
      // The first process is the container: stop and kill are its signals.
      const acts = h("span", { class: "acts", hidden: pid === 1 || !api.may("invoke") }, signal, send);
      const number = h("span", { text: String(pid), title: `of process ${ppid}` });
      const element = tableRow(COLUMNS, [number, command, used, since, acts]);
      return {
        element,
        /** @param {ContainerProcess} process */
        update(process) {
          setText(command, process.command);
          command.title = process.command;
          setText(used, bytes(process.memory_kb * 1024));
          setText(since, duration(Math.floor(clock.epochMs() / 1000) - epochSeconds(process.started_at)));
        },
      };
    },
  );
  const more = h("p", { class: "hint", hidden: true });
  const element = card("Processes", trouble.element, more, grid);
  return {
    element,
    /** @param {readonly ContainerProcess[]} processes */
    update(processes) {
      show(element, processes.length > 0);
      show(grid, processes.length > 0);
      list.update(processes.slice(0, ROWS_MAX));
      show(more, processes.length > ROWS_MAX);
      setText(more, `The first ${ROWS_MAX} of ${count(processes.length)}.`);
    },
  };
}

/** @typedef {{ metrics: ContainerMetrics, rates: Rates, running: ProcessList | null }} Use */

/** @param {number | null} per_s */
const rateText = (per_s) => (per_s === null ? "" : ` · ${bytes(per_s)}/s`);

/** As many as the list has; the metrics count hearth's own beside them, and all of a list that is cut. @param {Use} use */
const processCount = ({ metrics, running }) =>
  count(running === null || running.truncated === true ? metrics.processes_count : running.processes.length);

/** @type {readonly [string, (use: Use) => string][]} */
const USES = [
  ["CPU", ({ rates: { cpu_percent } }) => `${percent(cpu_percent)}${cpu_percent === null ? "" : " of a core"}`],
  ["Memory", ({ metrics }) => `${memory(metrics)}, peak ${bytes(metrics.memory_peak_bytes)}`],
  ["Received", ({ metrics, rates: { received_per_s } }) => bytes(metrics.network_rx_bytes) + rateText(received_per_s)],
  ["Sent", ({ metrics, rates: { sent_per_s } }) => bytes(metrics.network_tx_bytes) + rateText(sent_per_s)],
  [
    "Disk",
    ({ metrics: { disk_read_bytes, disk_write_bytes } }) =>
      `${bytes(disk_read_bytes)} read, ${bytes(disk_write_bytes)} written`,
  ],
  ["Processes", processCount],
];

/** @param {Context} context */
export function usageCard({ clock }) {
  const list = facts(USES);
  const element = card("Now", list.element);
  const ratesOf = rates(clock);
  return {
    element,
    /** @param {ContainerMetrics | null} metrics null: it does not run @param {ProcessList | null} running null: unknown */
    update(metrics, running) {
      show(element, metrics !== null);
      if (metrics !== null) list.update({ metrics, rates: ratesOf(metrics), running });
    },
  };
}
