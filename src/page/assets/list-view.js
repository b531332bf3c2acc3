/**
 * The list view of a resource, live: one request a round, further values of the visible rows, a filter. Loading, empty and
 * error states of all lists are here.
 */
import { h, setText, show } from "./dom.js";
import { count, counted } from "./format.js";
import { followedList, listBar, table } from "./table.js";
import { reported } from "./view.js";
import { visibleRows } from "./visible-rows.js";
import { problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { Row } from "./visible-rows.js" */

/**
 * @template Resource
 * @typedef {object} Kind
 * @property {string} noun as in "container"
 * @property {string} [none] the sentence while there is none at all
 * @property {readonly string[]} columns
 * @property {Parameters<typeof listBar>[0]} words
 * @property {(resource: Resource) => string} idOf
 * @property {(resource: Resource, wanted: string) => boolean} matches `wanted` is in lower case
 * @property {(resource: Resource, trouble: ReturnType<typeof problem>) => Row<Resource>} row `trouble` is for the actions of all rows
 * @property {() => Promise<{ resources: readonly Resource[], next_cursor: string | null }>} ask
 * @property {HTMLElement} [above] what all of them come to, above the list while there are any
 * @property {{ element: HTMLElement, focus: () => void }} [first] in place of the whole list while there is no resource
 */

/**
 * `draw` applies another choice to the resources of the last round. `find` returns the first that satisfies the condition.
 * @template Resource
 * @param {Context} context
 * @param {Kind<Resource>} kind
 * @returns {{ view: View, filter: HTMLInputElement, draw: () => void, find: (isWanted: (resource: Resource) => boolean) => Resource | undefined }}
 */
export function listView(
  { api, clock },
  { noun, none = `No ${noun}s.`, columns, words, idOf, matches, row, ask, above, first },
) {
  const trouble = problem();
  const acting = problem();
  const visible = visibleRows(clock);
  const grid = table(words.title, `${noun}s`, columns);
  const list = followedList(grid, "Loading…", idOf, (/** @type {Resource} */ item) => visible.entry(row(item, acting)));
  /** @type {readonly Resource[] | null} */
  let resources = null;
  let isCut = false;
  const isEmpty = () => resources !== null && resources.length === 0;
  const draw = () => {
    if (resources === null) return;
    const wanted = bar.filter.value.trim().toLowerCase();
    const matching = resources.filter((resource) => matches(resource, wanted));
    list.update(matching, isEmpty() ? none : `No ${noun}s match.`);
    const all = isCut ? `the newest ${count(resources.length)} ${noun}s` : counted(resources.length, noun);
    setText(bar.summary, matching.length === resources.length ? all : `${count(matching.length)} of ${all}`);
    show(bar.create, words.create !== undefined && api.may("write"));
    if (above !== undefined) show(above, !isEmpty());
    if (first === undefined) return;
    show(first.element, isEmpty());
    show(bar.element, !isEmpty());
    if (isEmpty()) list.hide();
  };
  const bar = listBar(words, draw, list.move);
  // The first answer decides which of the two is shown.
  if (first !== undefined) for (const element of [first.element, bar.element]) show(element, false);
  if (above !== undefined) show(above, false);
  const round = async () => {
    const answer = await ask();
    resources = answer.resources;
    isCut = answer.next_cursor !== null;
    draw();
    await visible.look();
  };
  const onRefused = () => {
    if (resources === null) list.hide();
  };
  return {
    view: {
      element: h(
        "div",
        {},
        bar.element,
        trouble.element,
        acting.element,
        above ?? null,
        ...list.elements,
        first?.element ?? null,
      ),
      title: () => words.title,
      refresh: reported(trouble, round, onRefused),
      focus: () => (isEmpty() && first !== undefined ? first.focus() : bar.focus()),
      move: list.move,
      find: () => bar.filter.focus(),
      focusRow: (id) => /** @type {HTMLElement | null} */ (list.get(id)?.querySelector(".open"))?.focus(),
    },
    filter: bar.filter,
    draw,
    find: (isWanted) => resources?.find(isWanted),
  };
}
