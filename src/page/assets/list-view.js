/** All resources of a kind, live: one request a round, what else a row shows asked for where it is in sight, a filter. */
import { h, setText, show } from "./dom.js";
import { count, counted } from "./format.js";
import { listBar, table } from "./table.js";
import { visibleRows } from "./visible-rows.js";
import { isRefusal, problem } from "./widgets.js";

/** @import { Context, View } from "./widgets.js" */

/**
 * @template Resource
 * @typedef {object} Kind
 * @property {string} noun as in "container"
 * @property {readonly string[]} columns
 * @property {Parameters<typeof listBar>[0]} words
 * @property {string} none what is said where the filter leaves nothing
 * @property {(resource: Resource) => string} idOf
 * @property {(resource: Resource, wanted: string) => boolean} matches `wanted` is in lower case
 * @property {Parameters<typeof visibleRows<Resource>>[3]} row
 * @property {() => Promise<{ resources: readonly Resource[], next_cursor: string | null }>} ask
 */

/**
 * `draw`: with what is there, after another choice. `find`: the first resource that is like that.
 * @template Resource
 * @param {Context} context
 * @param {Kind<Resource>} kind
 * @returns {{ view: View, filter: HTMLInputElement, draw: () => void, focusRow: (id: string) => void, find: (isIt: (resource: Resource) => boolean) => Resource | undefined }}
 */
export function resourceList({ api, clock }, { noun, columns, words, none: noneText, idOf, matches, row, ask }) {
  const trouble = problem();
  const { element: grid, rows, move } = table(words.title, `${noun}s`, columns, "rowgroup");
  const shown = visibleRows(clock, rows, idOf, row);
  const none = h("p", { class: "hint", text: "Loading…" });
  /** @type {readonly Resource[] | null} */
  let resources = null;
  let isCut = false;
  const draw = () => {
    if (resources === null) return;
    const wanted = bar.filter.value.trim().toLowerCase();
    const matching = resources.filter((resource) => matches(resource, wanted));
    shown.update(matching);
    show(grid, matching.length > 0);
    show(none, matching.length === 0);
    setText(none, resources.length === 0 ? `There is no ${noun}.` : noneText);
    const all = isCut ? `the newest ${count(resources.length)} ${noun}s` : counted(resources.length, noun);
    setText(bar.summary, matching.length === resources.length ? all : `${count(matching.length)} of ${all}`);
    show(bar.create, api.may("write"));
  };
  const bar = listBar(words, draw, move);
  return {
    view: {
      element: h("div", {}, bar.element, trouble.element, none, grid),
      title: () => words.title,
      async refresh() {
        try {
          const answer = await ask();
          resources = answer.resources;
          isCut = answer.next_cursor !== null;
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
    },
    filter: bar.filter,
    draw,
    focusRow: shown.focus,
    find: (isIt) => resources?.find(isIt),
  };
}
