/**
 * The page: who is signed in, which view the address means, what keys do. Views know nothing of each other; the address
 * (routing.js) is the only way from one to the next, so that back and links work.
 */
import { Api } from "./api.js";
import { browserClock } from "./clock.js";
import { connection } from "./connection.js";
import { showKeys } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { Events } from "./events.js";
import { navigation } from "./navigation.js";
import { Poll } from "./poll.js";
import { GROUPS, placeOf } from "./routing.js";
import { signIn } from "./sign-in.js";
import { unlessRefused } from "./view.js";

/** @import { Context, View } from "./view.js" */
/** @import { Section } from "./routing.js" */
/** @import { FunctionPools } from "../wire.ts" */

/** How long a message stays in sight; screen readers have been told it by then. */
const MESSAGE_MS = 6_000;

class Page {
  #main = h("main", { id: "main", tabindex: -1 });
  #message = h("p", { class: "message", role: "status", "aria-live": "polite" });
  #connection = connection();
  #navigation = navigation(GROUPS);
  #header;
  #api = new Api(browserClock, () => this.#leave("The key is no longer valid. Sign in again."));
  #poll = new Poll(
    browserClock,
    () => this.#round(),
    (state, reason) => this.#connection.update(state, reason),
  );
  #events = new Events(this.#api, browserClock, () => this.#poll.hint());
  /** @type {Context} */
  #context = {
    api: this.#api,
    clock: browserClock,
    say: (text) => this.#say(text),
    refresh: () => this.#poll.soon(),
    events: () => this.#events.list,
    pool: (function_id) => this.#pools?.get(function_id) ?? null,
    pools: () => (this.#pools === null ? null : [...this.#pools.values()]),
  };
  /** By function; null: nobody has asked, or the key may not read them. @type {ReadonlyMap<string, FunctionPools["pools"][number]> | null} */
  #pools = null;
  /** Of each section, kept while other views are open: the way back is immediate. @type {Map<Section, View>} */
  #lists = new Map();
  #section = placeOf("").section;
  /** @type {View | null} */
  #view = null;
  #opened_id = "";
  /** The address whose view is shown. */
  #routed = "";
  #unsay = () => {};

  constructor() {
    this.#header = h(
      "header",
      { class: "frame" },
      this.#navigation.menu,
      h(
        "a",
        { class: "brand", href: "#/" },
        h("img", { src: "/page/icon.svg", alt: "", width: 20, height: 20 }),
        h("span", { text: "hearth" }),
      ),
      this.#navigation.areas,
      h(
        "div",
        { class: "session" },
        this.#connection.element,
        h("button", {
          type: "button",
          class: "quiet",
          text: "?",
          title: "Keys",
          "aria-label": "Keys",
          "aria-keyshortcuts": "?",
          onclick: () => void showKeys(),
        }),
        h("button", { type: "button", class: "quiet", text: "Sign out", onclick: () => this.#leave("") }),
      ),
    );
    document.body.append(
      h("a", { class: "skip", href: "#main", text: "Skip to the content", onclick: (event) => this.#skip(event) }),
    );
    document.getElementById("loading")?.remove();
    document.body.append(this.#header, this.#main, this.#message);
    addEventListener("hashchange", () => location.hash !== this.#routed && this.#route());
    document.addEventListener("visibilitychange", () => this.#rest());
    document.addEventListener("keydown", (event) => this.#onKey(event));
    if (this.#api.isSignedIn) this.#enter();
    else this.#leave("");
  }

  #enter() {
    this.#header.hidden = false;
    this.#route();
    this.#poll.start();
  }

  /** Forgets the key and everything that it has shown. @param {string} reason */
  #leave(reason) {
    this.#poll.stop();
    this.#api.signOut();
    this.#events.forget();
    this.#lists.clear();
    this.#view?.leave?.();
    this.#view = null;
    this.#opened_id = "";
    this.#pools = null;
    this.#header.hidden = true;
    document.title = "Sign in · hearth";
    for (const dialog of document.querySelectorAll("dialog")) dialog.close("");
    const form = signIn(this.#api, reason, () => this.#enter());
    this.#main.replaceChildren(form.element);
    form.focus();
  }

  #route() {
    if (!this.#api.isSignedIn) return;
    this.#view?.leave?.();
    this.#routed = location.hash;
    const { section, opened_id, make } = placeOf(location.hash);
    const isList = make === null;
    if (!isList) this.#view = make(this.#context);
    else {
      this.#view = this.#lists.get(section) ?? section.list(this.#context);
      this.#lists.set(section, this.#view);
    }
    this.#section = section;
    this.#navigation.update(section);
    this.#main.replaceChildren(this.#view.element);
    this.#view.focus();
    if (isList && this.#opened_id !== "") this.#view.focusRow?.(this.#opened_id);
    this.#opened_id = opened_id;
    this.#entitle();
    scrollTo(0, 0);
    this.#poll.soon();
  }

  async #round() {
    const view = this.#view;
    await this.#api.learnScopes();
    // One request, however many functions there are.
    const answer = await unlessRefused(this.#api.pools());
    this.#pools = answer === null ? null : new Map(answer.pools.map((pool) => [pool.function_id, pool]));
    await view?.refresh();
    // After what says that the daemon answers, and that it takes the key.
    if (this.#api.isSignedIn && !document.hidden) this.#events.ensure();
    if (view === this.#view) this.#entitle();
  }

  #entitle() {
    const title = `${this.#view?.title() ?? ""} · hearth`;
    if (document.title !== title) document.title = title;
  }

  /** A browser has few connections for all of its tabs: those that nobody looks at hold none. */
  #rest() {
    if (!document.hidden) return;
    this.#events.close();
    this.#view?.rest?.();
  }

  /** @param {string} text */
  #say(text) {
    this.#unsay();
    setText(this.#message, text);
    this.#unsay = browserClock.after(MESSAGE_MS, () => setText(this.#message, ""));
  }

  /** The address is the router's, so the link moves the focus by itself. @param {Event} event */
  #skip(event) {
    event.preventDefault();
    this.#main.focus();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!this.#api.isSignedIn || document.querySelector("dialog") !== null) return;
    const { target } = event;
    const isTyping = target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement;
    if (target instanceof HTMLSelectElement) return;
    if (isTyping && event.key !== "Escape") return;
    if (!this.#did(event.key, isTyping ? target : null)) return;
    event.preventDefault();
  }

  /** @param {string} key @param {HTMLInputElement | HTMLTextAreaElement | null} field @returns {boolean} whether the key means something here */
  #did(key, field) {
    if (key === "Escape") {
      if (this.#navigation.close()) return true;
      // A search field with text in it is emptied first, by the browser.
      if (field?.type === "search" && field.value !== "") return false;
      if (field !== null) field.blur();
      else if (this.#view !== this.#lists.get(this.#section)) location.hash = this.#view?.up ?? "#/";
      else return false;
    } else if (key === "?") void showKeys();
    else if (key === "n" && this.#section.create !== null) location.hash = this.#section.create;
    else if (key === "i" && document.getElementById("payload") !== null) document.getElementById("payload")?.focus();
    else if (key === "/") this.#find();
    else if ((key === "j" || key === "k") && this.#view?.move !== undefined) this.#view.move(key === "j" ? 1 : -1);
    else return false;
    return true;
  }

  #find() {
    if (this.#view?.find === undefined) {
      this.#opened_id = "";
      location.hash = this.#section.address;
      this.#route();
    }
    this.#view?.find?.();
  }
}

/** Puts the page into the document. */
export function begin() {
  new Page();
}
