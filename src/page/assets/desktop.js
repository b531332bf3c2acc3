/**
 * The viewer of a desktop: noVNC on the WebSocket beside this page. The token of the address opens both and is sent
 * nowhere else.
 *
 * D1. What comes from the container is pixels and the text of a field. Its name of the desktop is not shown, and its
 *     text reaches this computer's clipboard only on request, and the other way round.
 * D2. A screen or a text above the bounds below is not taken: a container could fill the memory of the browser with it.
 */

/** Pixels of a side of the screen, and characters of a text. */
const SIDE_MAX = 8_192;
const TEXT_LENGTH_MAX = 256 * 1024;

const EXPIRED = "Disconnected. If it fails to connect again, request a new address: this one has expired.";

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const [, , container_id = ""] = location.pathname.split("/");
const status = element("status");
const again = element("again");
const clipboard = element("clipboard");
const clipboardButton = element("clipboard-button");
const text = /** @type {HTMLTextAreaElement} */ (document.getElementById("text"));

element("name").textContent = decodeURIComponent(container_id);
document.title = `Desktop of ${decodeURIComponent(container_id)}`;

/** A path in a variable: its types come from no package. */
const NOVNC = "/page/novnc/core/rfb.js";
/** @type {{ default: new (target: Element, url: string, options: object) => any }} */
const { default: Rfb } = await import(NOVNC);

class Screen extends Rfb {
  /** D2. @param {number} width @param {number} height */
  _resize(width, height) {
    if (width > 0 && height > 0 && width <= SIDE_MAX && height <= SIDE_MAX) super._resize(width, height);
    else this._fail("the screen is too large");
  }
}

/** @type {{ screen: any }} */
const state = { screen: null };

function connect() {
  again.hidden = true;
  status.textContent = "Connecting";
  const url = new URL("websockify", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  url.search = location.search;
  const made = new Screen(element("screen"), url.href, { shared: true, wsProtocols: ["binary"] });
  made.resizeSession = true;
  made.scaleViewport = true;
  made.addEventListener("connect", () => {
    status.textContent = "Connected";
    made.focus();
  });
  made.addEventListener("disconnect", () => {
    if (state.screen !== made) return;
    state.screen = null;
    status.textContent = EXPIRED;
    again.hidden = false;
  });
  // A container that asks for a password is none of ours.
  made.addEventListener("credentialsrequired", () => made.disconnect());
  made.addEventListener("clipboard", (/** @type {CustomEvent<{ text: string }>} */ { detail }) => {
    text.value = detail.text.slice(0, TEXT_LENGTH_MAX);
  });
  state.screen = made;
}

again.addEventListener("click", connect);
element("reset").addEventListener("click", () => state.screen?.sendCtrlAltDel());
element("full").addEventListener("click", () => {
  if (document.fullscreenElement === null) void document.documentElement.requestFullscreen();
  else void document.exitFullscreen();
});
clipboardButton.addEventListener("click", () => {
  clipboard.hidden = !clipboard.hidden;
  clipboardButton.setAttribute("aria-expanded", String(!clipboard.hidden));
  if (clipboard.hidden) state.screen?.focus();
  else text.focus();
});
element("send").addEventListener("click", () => {
  state.screen?.clipboardPasteFrom(text.value.slice(0, TEXT_LENGTH_MAX));
  state.screen?.focus();
});
element("copy").addEventListener("click", () => {
  text.select();
  navigator.clipboard.writeText(text.value).catch(() => document.execCommand("copy"));
});

connect();
