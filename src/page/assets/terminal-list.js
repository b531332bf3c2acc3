/** The terminal sessions of one container: a link to each, and a button that ends it. */
import { NEW_SESSION, terminalHash } from "./addresses.js";
import { h, KeyedList, setAttribute, setText, show } from "./dom.js";
import { age, dateTime } from "./format.js";
import { RESOURCES_MAX } from "./resources.js";
import { table, tableRow } from "./table.js";
import { unlessRefused } from "./view.js";
import { act, badge, card, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { SessionRecord } from "../wire.ts" */

const COLUMNS = ["Command", "State", "Last use", "Actions"];

/** @param {SessionRecord} first @param {Context} context @param {string} container */
function row(first, { api, clock, refresh }, container) {
  const link = h("a", { class: "open", href: terminalHash(container, first.session_id), text: first.shell });
  const [state, used, trouble] = [badge(), h("time"), problem()];
  const end = h("button", { type: "button", class: "quiet", text: "End", "aria-label": `End ${first.session_id}` });
  end.addEventListener("click", () =>
    act(end, trouble, async () => {
      await api.endSession(first.session_id);
      refresh();
    }),
  );
  const cells = [link, state.element, used, h("span", {}, end, trouble.element)];
  const element = tableRow(COLUMNS, cells, { "data-id": first.session_id });
  return {
    element,
    /** @param {SessionRecord} session */
    update(session) {
      state.update(session.state);
      setText(used, age(session.last_activity_at, clock.epochMs()));
      setAttribute(used, "title", dateTime(session.last_activity_at));
    },
  };
}

/** @param {Context} context @param {string} container its id or name, as in the address */
export function sessionsCard(context, container) {
  const { element: grid, rows } = table("Terminals", "terminals slim", COLUMNS);
  const list = new KeyedList(
    rows,
    (/** @type {SessionRecord} */ { session_id }) => session_id,
    (session) => row(session, context, container),
  );
  const another = h("a", { class: "button", href: terminalHash(container, NEW_SESSION), text: "New shell" });
  const element = card("Terminals of this container", grid, h("p", { class: "actions" }, another));
  return {
    element,
    /** @param {string} container_id */
    async refresh(container_id) {
      const answer = await unlessRefused(context.api.sessions(RESOURCES_MAX));
      // A key that may not read still has its own terminal.
      show(element, answer !== null);
      const own = (answer?.sessions ?? []).filter((session) => session.container_id === container_id);
      list.update(own);
      show(grid, own.length > 0);
    },
  };
}
