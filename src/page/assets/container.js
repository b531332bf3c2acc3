/**
 * One container: its life, what runs in it, what it writes and uses. Owns the order of a round: the record first, and the
 * rest only of a container that runs.
 *
 * V1. What a round has asked before an action was answered is thrown away: an old answer never covers a newer one.
 */
import { containerHash, terminalHash } from "./addresses.js";
import { logCard } from "./container-log.js";
import { networkCard } from "./container-network.js";
import { runCard } from "./container-run.js";
import { SERVICES_MAX, servicesCard } from "./container-services.js";
import { SNAPSHOTS_MAX, snapshotsCard } from "./container-snapshots.js";
import { portText, stateKind, stateText, uptime } from "./containers.js";
import { askName, confirm } from "./dialogs.js";
import { h, setText, show } from "./dom.js";
import { dateTime, epochSeconds } from "./format.js";
import { inboxCard } from "./inbox.js";
import { processesCard, usageCard } from "./processes.js";
import { containersOf, servicesOf, snapshotsOf } from "./resources.js";
import { unlessRefused, untilDeleted } from "./view.js";
import { badge, card, crumbs, facts, problem, recordButtons } from "./widgets.js";

/** @import { Context, Removal, View } from "./view.js" */
/** @import { ContainerMetrics, ContainerRecord, ProcessList, ServiceRecord, SnapshotRecord } from "../wire.ts" */

/** @param {string | null} iso @param {string} none */
const moment = (iso, none) => (iso === null ? none : dateTime(epochSeconds(iso)));
/** @param {number | null} seconds @param {string} none */
const seconds = (seconds, none) => (seconds === null ? none : `${seconds} s`);

/** @param {Exclude<ContainerRecord["egress"], "on">} egress */
const reachable = (egress) => (egress === "off" ? "nothing" : egress.join(", ") || "nothing");

/** The name by which other containers find one. @param {ContainerRecord} record */
function nameInside({ name, network, dns }) {
  if (network !== null) return `${name}.${network}.hearth.internal`;
  return dns ? `${name}.hearth.internal` : "none";
}

/** @type {readonly [string, (record: ContainerRecord) => string][]} */
const FACTS = [
  ["Id", ({ container_id }) => container_id],
  ["Address", ({ ip_address }) => ip_address ?? "none"],
  ["Network", ({ network }) => network ?? "none"],
  ["DNS name", nameInside],
  ["Ports", ({ ports }) => ports.map(portText).join(", ") || "none"],
  ["Outbound traffic", ({ egress }) => (egress === "on" ? "everything outside" : reachable(egress))],
  ["Memory", ({ memory_limit_mb }) => `${memory_limit_mb} MiB`],
  ["CPU", ({ cpu_limit_percent }) => (cpu_limit_percent === null ? "no limit" : `${cpu_limit_percent} % of a core`)],
  ["Disk", ({ disk_limit_mb }) => (disk_limit_mb === null ? "no limit" : `${disk_limit_mb} MiB`)],
  ["GPUs", ({ gpu_count, gpu_ids }) => gpu_ids.join(", ") || (gpu_count === 0 ? "none" : `any ${gpu_count}`)],
  ["Directory", ({ working_directory }) => working_directory],
  ["User", ({ user }) => user ?? "root"],
  ["Health", ({ health }) => (health === null ? "no check" : (health.status ?? "not running"))],
  ["Hardened", ({ strict }) => (strict ? "yes" : "no")],
  ["Root", ({ read_only_root }) => (read_only_root ? "read-only" : "writable")],
  ["Restarts", ({ restart, restart_count }) => (restart === "no" ? "no" : `${restart}, ${restart_count} so far`)],
  ["Deleted after", ({ ttl_seconds }) => seconds(ttl_seconds, "never")],
  ["Stopped after", ({ idle_seconds }) => (idle_seconds === null ? "never" : `${idle_seconds} s idle`)],
  ["Copy of", ({ origin }) => (origin === null ? "none" : `${origin.container_id} (${origin.kind})`)],
  ["Created", ({ created_at }) => moment(created_at, "")],
  ["Started", ({ started_at }) => moment(started_at, "never")],
  ["Ended", ({ exited_at }) => moment(exited_at, "no")],
  ["Exit code", ({ exit_code }) => (exit_code === null ? "none" : String(exit_code))],
];

function factsCard() {
  const list = facts(FACTS);
  const labels = h("dl", { class: "facts column environment" });
  const title = h("h3", { text: "Labels" });
  return {
    element: card("Container", list.element, title, labels),
    /** @param {ContainerRecord} record */
    update(record) {
      list.update(record);
      const all = Object.entries(record.labels);
      show(title, all.length > 0);
      // Labels never change.
      if (labels.childElementCount > 0) return;
      for (const [name, value] of all) {
        labels.append(h("div", {}, h("dt", {}, h("code", { text: name })), h("dd", {}, h("code", { text: value }))));
      }
    },
  };
}

/**
 * Opens the desktop of a container in a tab of its own.
 * @param {Context} context
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => ContainerRecord | null} current
 */
function desktopButton({ api }, trouble, current) {
  const open = async () => {
    const record = current();
    if (record === null) return;
    trouble.update(null);
    // At once: a browser blocks a tab that opens after a wait.
    const tab = window.open("", "_blank");
    try {
      const gui_url = await containersOf(api).guiUrl(record.container_id);
      if (tab === null) location.assign(gui_url);
      else tab.location.replace(gui_url);
    } catch (error) {
      tab?.close();
      trouble.update(error);
    }
  };
  return h("button", {
    type: "button",
    class: "primary",
    text: "Open desktop",
    hidden: true,
    onclick: () => void open(),
  });
}

/**
 * The buttons of a container's life.
 * @param {Context} context
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => ContainerRecord | null} current
 * @param {() => void} onMoved
 * @param {Removal} end
 */
function lifeButtons(context, trouble, current, onMoved, end) {
  const { api } = context;
  const containers = containersOf(api);
  const button = recordButtons(context, trouble, current, onMoved);
  const start = button("Start", "primary", async ({ container_id, name }) => {
    await containers.start(container_id);
    return `${name} is running`;
  });
  const restart = button("Restart", "", async ({ container_id, name }) => {
    await containers.stop(container_id);
    await containers.start(container_id);
    return `${name} is restarted`;
  });
  const stop = button("Stop", "", async ({ container_id, name }) => {
    await containers.stop(container_id);
    return `${name} is stopped`;
  });
  const kill = button("Kill", "danger", async ({ container_id, name }) => {
    const question = "hearth kills all its processes immediately (SIGKILL). Its files stay.";
    if (!(await confirm(`Kill ${name}?`, question, "Kill"))) return null;
    await containers.kill(container_id);
    return `${name} is killed`;
  });
  const rename = button("Rename", "", async ({ container_id, name }) => {
    const wanted = await askName(`Rename ${name}`, name, "Rename");
    if (wanted === "" || wanted === name) return null;
    await containers.rename(container_id, wanted);
    return `${name} is renamed to ${wanted}`;
  });
  const fork = button("Fork", "", async ({ container_id, name }) => {
    const forked_id = await snapshotsOf(api).fork(container_id, { resume_policy: "immediate" });
    if (forked_id !== null) location.hash = containerHash(forked_id);
    return `${name} is forked`;
  });
  fork.title = "Copies the container as it is now, and starts the copy";
  const remove = button("Delete", "danger", async ({ container_id, name, state }) => {
    const running = state === "running" ? "The container is running: hearth kills it. " : "";
    if (!(await confirm(`Delete ${name}?`, `${running}hearth deletes its files and its log, too.`, "Delete")))
      return null;
    await end(() => containers.remove(container_id));
    location.hash = "#/containers";
    return `${name} is deleted`;
  });
  return {
    elements: [start, stop, restart, kill, fork, rename, remove],
    /** @param {ContainerRecord} record */
    update({ state }) {
      const may = api.may("write");
      const runs = state === "running" || state === "starting";
      show(start, may && !runs);
      for (const one of [stop, restart, kill]) show(one, may && runs);
      for (const one of [fork, rename, remove]) show(one, may);
    },
  };
}

/** @param {Context} context @param {() => ContainerRecord | null} current @param {() => void} onMoved @param {Removal} end */
function header(context, current, onMoved, end) {
  const { api, clock } = context;
  const trouble = problem();
  const name = h("h1", { tabindex: -1 });
  const way = crumbs([["Containers", "#/containers"]], "");
  const state = badge();
  const since = h("span", { class: "hint" });
  const failure = h("p", { class: "problem" });
  const terminal = h("a", { class: "button", text: "Terminal" });
  const files = h("a", { class: "button", text: "Files" });
  const desktop = desktopButton(context, trouble, current);
  const buttons = lifeButtons(context, trouble, current, onMoved, end);
  const readOnly = h("p", { class: "hint", text: "This key lacks the scope write: the page hides all actions." });
  return {
    element: h(
      "div",
      { class: "detail-head" },
      way.element,
      h("div", { class: "title" }, name, state.element, since),
      h("p", { class: "actions above" }, desktop, terminal, files, ...buttons.elements),
      readOnly,
      trouble.element,
      failure,
    ),
    focus: () => name.focus(),
    /** @param {ContainerRecord} record */
    update(record) {
      setText(name, record.name);
      way.update(record.name);
      state.update(stateKind(record), stateText(record));
      setText(since, record.state === "running" ? `for ${uptime(record, clock.epochMs())}` : "");
      terminal.href = terminalHash(record.container_id);
      files.href = `#/containers/${encodeURIComponent(record.container_id)}/files/`;
      show(terminal, record.state === "running" && api.may("invoke"));
      show(desktop, record.gui_ready === true && api.may("invoke"));
      buttons.update(record);
      show(readOnly, !api.may("write"));
      show(failure, record.error_message !== null);
      setText(failure, record.error_message ?? "");
    },
  };
}

/** @param {Context} context @param {string} id its name does too @returns {View} */
export function containerView(context, id) {
  const containers = containersOf(context.api);
  const trouble = problem();
  const loading = h("p", { class: "hint", text: "Loading…" });
  /** @type {ContainerRecord | null} */
  let shown = null;
  let change_count = 0;
  const onRefused = () => {
    show(loading, false);
    show(element, false);
    log.leave();
  };
  const rounds = untilDeleted(() => round(), trouble, onRefused);
  const moved = () => {
    change_count++;
    context.refresh();
  };
  const top = header(context, () => shown, moved, rounds.remove);
  const idOf = () => shown?.container_id ?? id;
  const run = runCard(context, idOf);
  const log = logCard(context, idOf);
  const usage = usageCard(context);
  const processes = processesCard(context, idOf);
  const about = factsCard();
  const network = networkCard(context, idOf);
  const services = servicesCard(context, () => shown, moved);
  const snapshots = snapshotsCard(context, () => shown, moved);
  const inbox = inboxCard(context, idOf);
  const side = h("div", { class: "side" }, usage.element, about.element);
  const others = [processes.element, services.element, network.element, snapshots.element, inbox.element];
  const below = h("div", { class: "stack" }, ...others);
  const body = h("div", { class: "detail" }, run.element, log.element, side, below);
  const element = h("div", { hidden: true }, top.element, body);

  /** @typedef {{ snapshots: readonly SnapshotRecord[], next_cursor: string | null }} Taken */
  /** @typedef {{ services: readonly ServiceRecord[], next_cursor: string | null }} Listed */
  /** @param {ContainerRecord} record @param {ContainerMetrics | null} metrics @param {ProcessList | null} running @param {Listed | null} listed @param {Taken | null} taken */
  const draw = (record, metrics, running, listed, taken) => {
    shown = record;
    show(loading, false);
    top.update(record);
    about.update(record);
    run.update(record);
    network.update(record);
    usage.update(metrics, running);
    processes.update(running?.processes ?? []);
    services.update(listed);
    snapshots.update(record, taken);
    log.update();
    if (!element.hidden) return;
    show(element, true);
    if (document.activeElement === document.body) top.focus();
  };
  const round = async () => {
    const change = change_count;
    const record = await containers.get(id);
    // The daemon refuses if the container has ended since.
    const runs = record.state === "running";
    const metrics = runs ? await unlessRefused(containers.metrics(record.container_id)) : null;
    const found = runs ? await unlessRefused(containers.processes(record.container_id)) : null;
    const listed = await unlessRefused(servicesOf(context.api).ofContainer(record.container_id, SERVICES_MAX));
    const taken = await unlessRefused(snapshotsOf(context.api).ofContainer(record.container_id, SNAPSHOTS_MAX));
    if (change === change_count) draw(record, metrics, found, listed, taken);
    show(inbox.element, (await unlessRefused(inbox.refresh())) !== null);
  };
  return {
    element: h("div", {}, trouble.element, loading, element),
    title: () => shown?.name ?? "Container",
    up: "#/containers",
    refresh: rounds.refresh,
    focus: () => (shown === null ? undefined : top.focus()),
    rest: log.rest,
    leave: log.leave,
  };
}
