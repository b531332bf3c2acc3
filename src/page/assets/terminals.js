/** Terminal sessions of the tenant, live, over all containers. A row leads to its session. */
import { containerHash, terminalHash } from "./addresses.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { age, dateTime, duration } from "./format.js";
import { listView } from "./list-view.js";
import { containersOf, RESOURCES_MAX } from "./resources.js";
import { tableRow } from "./table.js";
import { unlessRefused } from "./view.js";
import { act, badge } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { problem } from "./widgets.js" */
/** @import { SessionRecord } from "../wire.ts" */

const COLUMNS = ["Command", "State", "Container", "Screen", "Last use", "Ends", "Actions"];
const NONE = "No sessions. Terminal on the page of a container opens one.";

/** @typedef {SessionRecord & { container: string }} Named with the name of its container, or its id */

/** @param {Named} first @param {Context} context @param {ReturnType<typeof problem>} trouble */
function row(first, { api, clock, say, refresh }, trouble) {
  const id = first.session_id;
  const link = h("a", { class: "open", href: terminalHash(first.container_id, id), text: first.shell, title: id });
  const state = badge();
  const container = h("a", { class: "above-row", href: containerHash(first.container_id) });
  const [screen, used, ends] = [h("span"), h("time"), h("time", { title: dateTime(first.expires_at) })];
  const end = h("button", { type: "button", text: "End", "aria-label": `End ${first.shell} in ${first.container}` });
  end.addEventListener("click", () =>
    act(end, trouble, async () => {
      await api.endSession(id);
      say(`${first.shell} in ${first.container} is ended`);
      refresh();
    }),
  );
  const cells = [link, state.element, container, screen, used, ends, h("span", { class: "acts" }, end)];
  return {
    element: tableRow(COLUMNS, cells, { "data-id": id }),
    /** @param {Named} next */
    update(next) {
      state.update(next.state);
      setText(container, next.container);
      setText(screen, `${next.cols} × ${next.rows}`);
      setText(used, age(next.last_activity_at, clock.epochMs()));
      setAttribute(used, "title", dateTime(next.last_activity_at));
      setText(ends, `in ${duration(next.expires_at - Math.floor(clock.epochMs() / 1000))}`);
      show(end, api.may("invoke"));
    },
  };
}

/** @param {Context} context @returns {View} */
export function terminalsView(context) {
  const { api } = context;
  return listView(context, {
    noun: "session",
    none: NONE,
    columns: COLUMNS,
    words: { title: "Terminals", filter: "Filter by command, container" },
    idOf: (/** @type {Named} */ { session_id }) => session_id,
    matches: ({ shell, container }, wanted) => `${shell}\n${container}`.toLowerCase().includes(wanted),
    row: (record, trouble) => row(record, context, trouble),
    ask: async () => {
      const { sessions, next_cursor } = await api.sessions(RESOURCES_MAX);
      const found = sessions.length === 0 ? null : await unlessRefused(containersOf(api).list());
      const names = new Map(found?.containers.map(({ container_id, name }) => [container_id, name]));
      const resources = sessions.map((one) => ({ ...one, container: names.get(one.container_id) ?? one.container_id }));
      return { resources, next_cursor };
    },
  }).view;
}
