/**
 * The page of one resource, live: the way up, its name and state, its buttons, what it holds, and its facts at the side.
 * Loading and error states of these pages are here.
 */
import { h, setText, show } from "./dom.js";
import { untilDeleted } from "./view.js";
import { badge, card, crumbs, facts, problem } from "./widgets.js";

/** @import { Context, Removal, View } from "./view.js" */
/** @import { Fact } from "./widgets.js" */

/**
 * Parts of a page that follow its resource.
 * @template Resource
 * @typedef {{ elements: readonly HTMLElement[], update: (resource: Resource) => void }} Parts
 */

/**
 * What the buttons of a resource are made with.
 * @template Resource
 * @typedef {object} Acting
 * @property {ReturnType<typeof problem>} trouble
 * @property {() => Resource | null} current
 * @property {() => void} onMoved
 * @property {Removal} remove leads to the list after its work
 */

/**
 * @template Resource
 * @typedef {object} Kind
 * @property {string} title of a resource whose name is not known yet, and of the facts
 * @property {readonly [string, string]} up title and address of the list
 * @property {readonly (readonly [string, (resource: Resource) => Fact])[]} facts
 * @property {(resource: Resource) => string} nameOf
 * @property {(resource: Resource) => readonly [string, string] | null} stateOf its badge: kind and text
 * @property {(resource: Resource) => string} [hintOf] beside the name
 * @property {(resource: Resource) => string | null} [failureOf]
 * @property {() => Promise<Resource>} ask
 * @property {(acting: Acting<Resource>) => Parts<Resource>} [buttons]
 * @property {Parts<Resource>} [content]
 */

/**
 * @template Resource
 * @param {Context} context
 * @param {Kind<Resource>} kind
 * @returns {View}
 */
export function resourcePage({ refresh }, kind) {
  const refused = problem();
  const trouble = problem();
  const loading = h("p", { class: "hint", text: "Loading…" });
  const name = h("h1", { tabindex: -1 });
  const way = crumbs([[kind.up[0], kind.up[1]]], "");
  const state = badge();
  const hint = h("span", { class: "hint" });
  const failure = h("p", { class: "problem" });
  const about = facts(kind.facts);
  /** @type {Resource | null} */
  let shown = null;
  const draw = (/** @type {Resource} */ resource) => {
    shown = resource;
    setText(name, kind.nameOf(resource));
    way.update(kind.nameOf(resource));
    const [value, text] = kind.stateOf(resource) ?? ["", ""];
    state.update(value, text);
    show(state.element, value !== "");
    setText(hint, kind.hintOf?.(resource) ?? "");
    const failed = kind.failureOf?.(resource) ?? null;
    setText(failure, failed ?? "");
    show(failure, failed !== null);
    about.update(resource);
    buttons?.update(resource);
    kind.content?.update(resource);
    show(loading, false);
    if (!element.hidden) return;
    show(element, true);
    if (document.activeElement === document.body) name.focus();
  };
  const onRefused = () => {
    show(loading, false);
    show(element, false);
  };
  const rounds = untilDeleted(async () => draw(await kind.ask()), refused, onRefused);
  const buttons = kind.buttons?.({
    trouble,
    current: () => shown,
    onMoved: refresh,
    remove: async (work) => {
      await rounds.remove(work);
      location.hash = kind.up[1];
    },
  });
  const facts_card = card(kind.title, about.element);
  const content = kind.content?.elements ?? [];
  const body =
    content.length === 0
      ? facts_card
      : h(
          "div",
          { class: "detail" },
          h("div", { class: "stack" }, ...content),
          h("div", { class: "side" }, facts_card),
        );
  const element = h(
    "div",
    { hidden: true },
    h(
      "div",
      { class: "detail-head" },
      way.element,
      h("div", { class: "title" }, name, state.element, hint),
      buttons === undefined ? null : h("p", { class: "actions above" }, ...buttons.elements),
      trouble.element,
      failure,
    ),
    body,
  );
  return {
    element: h("div", {}, refused.element, loading, element),
    title: () => (shown === null ? kind.title : kind.nameOf(shown)),
    up: kind.up[1],
    refresh: rounds.refresh,
    focus: () => (shown === null ? undefined : name.focus()),
  };
}
