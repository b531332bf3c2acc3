/**
 * The page: who is signed in, which view the address means, what keys do. Views know nothing of each other; the
 * address (`#/`, `#/new`, `#/functions/<id>`, `#/containers/<id>/terminal`) is the only way from one to the next, so that
 * back and links work.
 */
import { Api } from "./api.js";
import { browserClock } from "./clock.js";
import { createView } from "./create.js";
import { detailView } from "./detail.js";
import { showKeys } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { listView } from "./list.js";
import { isRefusal } from "./parts.js";
import { Poll } from "./poll.js";
import { signIn } from "./sign-in.js";
import { strip } from "./strip.js";
import { terminalView } from "./terminal.js";

/** @import { Context, View } from "./parts.js" */

/** A container's terminal, and where there is one already its session. */
const TERMINAL = /^#\/containers\/([^/]+)\/terminal(?:\/(\w+))?$/;

/** How long a message stays in sight; screen readers have been told it by then. */
const MESSAGE_MS = 6_000;

class Page {
  #main = h("main", { id: "main", tabindex: -1 });
  #message = h("p", { class: "message", role: "status", "aria-live": "polite" });
  #strip = strip();
  #header;
  #api = new Api(browserClock, () => this.#leave("The key is not accepted any more. Sign in again."));
  #poll = new Poll(
    browserClock,
    () => this.#round(),
    (state, reason) => this.#strip.setState(state, reason),
  );
  /** @type {Context} */
  #context = {
    api: this.#api,
    clock: browserClock,
    say: (text) => this.#say(text),
    refresh: () => this.#poll.soon(),
  };
  /** Kept while other views are open: the way back is immediate. @type {ReturnType<typeof listView> | null} */
  #list = null;
  /** @type {View | null} */
  #view = null;
  #opened_id = "";
  #unsay = () => {};

  constructor() {
    this.#header = h(
      "header",
      { class: "top" },
      h(
        "a",
        { class: "brand", href: "#/" },
        h("img", { src: "/page/icon.svg", alt: "", width: 20, height: 20 }),
        "hearth",
      ),
      this.#strip.numbers,
      this.#strip.state,
      h("button", {
        type: "button",
        class: "quiet",
        text: "?",
        "aria-label": "Keys",
        "aria-keyshortcuts": "?",
        onclick: () => void showKeys(),
      }),
      h("button", { type: "button", class: "quiet", text: "Sign out", onclick: () => this.#leave("") }),
    );
    document.body.append(
      h("a", { class: "skip", href: "#main", text: "Skip to the content", onclick: (event) => this.#skip(event) }),
    );
    document.getElementById("loading")?.remove();
    document.body.append(this.#header, this.#main, this.#message);
    addEventListener("hashchange", () => this.#route());
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
    this.#list = null;
    this.#view?.leave?.();
    this.#view = null;
    this.#opened_id = "";
    this.#strip.update(null);
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
    const id = /^#\/functions\/(.+)$/.exec(location.hash)?.[1];
    const [, container, session = ""] = TERMINAL.exec(location.hash) ?? [];
    const isList = id === undefined && container === undefined && location.hash !== "#/new";
    if (container !== undefined) this.#view = terminalView(this.#context, decoded(container), session);
    else if (isList) this.#view = this.#list ??= listView(this.#context);
    else this.#view = id === undefined ? createView(this.#context) : detailView(this.#context, decoded(id));
    this.#main.replaceChildren(this.#view.element);
    this.#view.focus();
    if (isList && this.#opened_id !== "") this.#list?.focusRow(this.#opened_id);
    if (id !== undefined) this.#opened_id = decoded(id);
    this.#entitle();
    scrollTo(0, 0);
    this.#poll.soon();
  }

  async #round() {
    const view = this.#view;
    try {
      this.#strip.update(await this.#api.totals());
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.#strip.update(null);
    }
    await view?.refresh();
    if (view === this.#view) this.#entitle();
  }

  #entitle() {
    const title = `${this.#view?.title() ?? ""} · hearth`;
    if (document.title !== title) document.title = title;
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
    if (isTyping && event.key !== "Escape") return;
    if (!this.#did(event.key, isTyping ? target : null)) return;
    event.preventDefault();
  }

  /** @param {string} key @param {HTMLInputElement | HTMLTextAreaElement | null} field @returns {boolean} whether the key means something here */
  #did(key, field) {
    if (key === "Escape") {
      // A search field with text in it is emptied first, by the browser.
      if (field?.type === "search" && field.value !== "") return false;
      if (field !== null) field.blur();
      else if (this.#view !== this.#list) location.hash = "#/";
      else return false;
    } else if (key === "?") void showKeys();
    else if (key === "n") location.hash = "#/new";
    else if (key === "i" && document.getElementById("payload") !== null) document.getElementById("payload")?.focus();
    else if (key === "/") this.#find();
    else if ((key === "j" || key === "k") && this.#view?.move !== undefined) this.#view.move(key === "j" ? 1 : -1);
    else return false;
    return true;
  }

  #find() {
    if (this.#view?.find === undefined) {
      this.#opened_id = "";
      location.hash = "#/";
      this.#route();
    }
    this.#view?.find?.();
  }
}

/** @param {string} text of an address, which anybody may have typed */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Puts the page into the document. */
export function begin() {
  new Page();
}
