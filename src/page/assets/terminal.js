/**
 * A shell in a container. The session's id stands in the address, so that a reload, or the way back, finds the same
 * shell; a connection that breaks is made again. What is shown is the daemon's bytes, drawn by xterm.js.
 * An address without a session attaches to the container's newest shell that has no client.
 *
 * C1. Output that waits to be drawn is bounded: above it the connection is given up until all is drawn, and the daemon
 *     keeps the newest of what comes meanwhile.
 */
import { containerHash, NEW_SESSION, terminalHash } from "./addresses.js";
import { h, setText, show } from "./dom.js";
import { containersOf, RESOURCES_MAX } from "./resources.js";
import { sessionsCard } from "./terminal-list.js";
import { unlessRefused } from "./view.js";
import { act, crumbs, problem } from "./widgets.js";
import { loadLibrary, underPolicy } from "./xterm.js";

/** @import { Terminal } from "@xterm/xterm" */
/** @import { Context, View } from "./view.js" */
/** @import { SessionRecord } from "../wire.ts" */

const RETRY_MS = 1_000;
/** xterm.js refuses what is above 50 MB. */
const UNDRAWN_BYTES_MAX = 16 * 1024 * 1024;
/** As the daemon closes sockets (src/base/sockets.ts). */
const DONE = 1000;
const REPLACED = 4001;

const THEME = { background: "#131519", foreground: "#e5e7eb", cursor: "#f08a4b", selectionBackground: "#3f4654" };

class Shell {
  #context;
  #container;
  #session;
  /** What people call it. */
  #name;
  /** Empty until the container was read. */
  #container_id = "";
  #others;
  #way = h("div");
  #status = h("p", { class: "hint", role: "status", "aria-live": "polite" });
  #box = h("div", { class: "terminal-box" });
  #trouble = problem();
  #again = h("button", { type: "button", class: "primary", hidden: true, onclick: () => this.#start() });
  #end = h("button", { type: "button", class: "quiet", text: "End", onclick: () => this.#hangUp() });
  #endPolicy = () => {};
  /** @type {Terminal | null} */
  #terminal = null;
  /** @type {WebSocket | null} */
  #socket = null;
  #undrawn_bytes = 0;
  #isLeft = false;
  #unretry = () => {};
  #observer = new ResizeObserver(() => this.#fit());
  #fit = () => {};

  /** @param {Context} context @param {string} container @param {string} session as in the address */
  constructor(context, container, session) {
    this.#context = context;
    this.#container = container;
    this.#session = session;
    this.#name = container;
    this.#others = sessionsCard(context, container);
    this.element = h(
      "div",
      { class: "wide" },
      this.#way,
      this.#box,
      this.#trouble.element,
      h(
        "p",
        { class: "actions" },
        this.#again,
        this.#end,
        this.#status,
        h("span", { class: "hint" }, h("kbd", { text: "Ctrl+F6" }), " leaves the terminal"),
      ),
      this.#others.element,
    );
    void this.#open().catch((error) => this.#trouble.update(error));
  }

  get name() {
    return this.#name;
  }

  focus() {
    this.#terminal?.focus();
  }

  /** The session goes on without its client. */
  leave() {
    this.#isLeft = true;
    this.#unretry();
    this.#observer.disconnect();
    this.#socket?.close();
    this.#terminal?.dispose();
    this.#endPolicy();
  }

  async #open() {
    const { Terminal, FitAddon } = await loadLibrary();
    const { name, container_id } = await containersOf(this.#context.api).get(this.#container);
    this.#name = name;
    this.#container_id = container_id;
    /** @type {[string, string][]} */
    const above = [
      ["Containers", "#/containers"],
      [this.#name, containerHash(this.#container)],
    ];
    this.#way.replaceChildren(crumbs(above, "Terminal").element);
    if (this.#isLeft) return;
    this.#endPolicy = underPolicy();
    const terminal = new Terminal({
      fontFamily: getComputedStyle(this.#box).fontFamily,
      fontSize: 14,
      scrollback: 5_000,
      theme: THEME,
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.attachCustomKeyEventHandler((event) => !this.#leaves(event));
    terminal.open(this.#box);
    this.#terminal = terminal;
    this.#fit = () => fit.fit();
    this.#fit();
    this.#observer.observe(this.#box);
    const encoder = new TextEncoder();
    terminal.onData((text) => this.#send(encoder.encode(text)));
    terminal.onBinary((text) => this.#send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
    terminal.onResize(({ cols, rows }) => this.#send(JSON.stringify({ type: "resize", cols, rows })));
    terminal.focus();
    await this.#connect();
  }

  /** A terminal takes every key, Tab among them: one must lead out of it. @param {KeyboardEvent} event */
  #leaves(event) {
    if (event.key !== "F6" || !event.ctrlKey) return false;
    if (event.type === "keydown") (this.#again.hidden ? this.#end : this.#again).focus();
    event.preventDefault();
    return true;
  }

  #start() {
    void act(this.#again, this.#trouble, () => this.#connect());
  }

  #hangUp() {
    void act(this.#end, this.#trouble, async () => {
      if (this.#session !== "" && this.#session !== NEW_SESSION) await this.#context.api.endSession(this.#session);
    });
  }

  async refresh() {
    if (this.#container_id !== "") await this.#others.refresh(this.#container_id);
  }

  /** The newest shell of the container that clients have left, or a new one. */
  async #leftSession() {
    const answer = await unlessRefused(this.#context.api.sessions(RESOURCES_MAX));
    const isLeft = (/** @type {SessionRecord} */ { container_id, state, is_shell }) =>
      container_id === this.#container_id && state === "idle" && is_shell;
    return answer?.sessions.find(isLeft)?.session_id ?? NEW_SESSION;
  }

  /** Attaches to the session, or to a new one where there is none. */
  async #connect() {
    const { api } = this.#context;
    const terminal = this.#terminal;
    if (terminal === null || this.#isLeft) return;
    show(this.#again, false);
    setText(this.#status, "connecting");
    const { cols, rows } = terminal;
    if (this.#session === "") this.#session = await this.#leftSession();
    if (this.#session === NEW_SESSION || !(await api.isSession(this.#session))) {
      this.#session = (await api.createSession(this.#container, { cols, rows })).session_id;
      terminal.reset();
    }
    history.replaceState(null, "", terminalHash(this.#container, this.#session));
    const address = await api.terminalAddress({ session_id: this.#session, cols, rows });
    if (this.#isLeft) return;
    const socket = new WebSocket(address, "terminal");
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => this.#onMessage(data);
    socket.onclose = ({ code }) => this.#onClose(code);
    this.#socket = socket;
  }

  /** @param {string | ArrayBuffer} data */
  #onMessage(data) {
    if (typeof data !== "string") {
      this.#draw(new Uint8Array(data));
      return;
    }
    const frame = JSON.parse(data);
    if (frame.type === "ready") {
      this.#trouble.update(null);
      setText(this.#status, `${frame.shell} in ${this.#name}`);
    } else if (frame.type === "exit") {
      setText(this.#status, `the shell exited with ${frame.signal ?? `code ${frame.code}`}`);
    } else if (frame.type === "error") this.#trouble.update(frame.message);
  }

  /** C1. @param {Uint8Array} bytes */
  #draw(bytes) {
    this.#undrawn_bytes += bytes.length;
    this.#terminal?.write(bytes, () => {
      this.#undrawn_bytes -= bytes.length;
    });
    if (this.#undrawn_bytes > UNDRAWN_BYTES_MAX) this.#socket?.close();
  }

  /** @param {number} code */
  #onClose(code) {
    this.#socket = null;
    if (this.#isLeft) return;
    if (code === DONE) {
      this.#session = NEW_SESSION;
      this.#offer("New shell");
    } else if (code === REPLACED) {
      setText(this.#status, "another client has attached to this terminal");
      this.#offer("Attach here");
    } else this.#retryLater();
  }

  /** @param {string} text */
  #offer(text) {
    setText(this.#again, text);
    show(this.#again, true);
  }

  #retryLater() {
    setText(this.#status, "connection lost, reconnecting");
    this.#unretry = this.#context.clock.after(RETRY_MS, () => {
      if (this.#undrawn_bytes > 0) this.#retryLater();
      else this.#connect().catch((error) => this.#onFailed(error));
    });
  }

  /** @param {unknown} error */
  #onFailed(error) {
    if (this.#isLeft) return;
    if (error instanceof Error && "status" in error && error.status === 0) this.#retryLater();
    else {
      this.#trouble.update(error);
      this.#offer("New shell");
    }
  }

  /** @param {string | Uint8Array<ArrayBuffer>} data */
  #send(data) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(data);
  }
}

/** @param {Context} context @param {string} container its id or name @param {string} session @returns {View} */
export function terminalView(context, container, session) {
  const shell = new Shell(context, container, session);
  return {
    element: shell.element,
    title: () => `${shell.name} terminal`,
    up: containerHash(container),
    refresh: () => shell.refresh(),
    focus: () => shell.focus(),
    leave: () => shell.leave(),
  };
}
