/** What goes between the browser's disk and hearth: the type of an archive, how much of it has gone, and what is saved. */
import { h, setText } from "./dom.js";
import { bytes } from "./format.js";

/** @import { Context } from "./view.js" */

/** The browser takes what it saves from the address; afterwards nobody needs it. */
const SAVE_MS = 60_000;
/** How archives begin: gzip (RFC 1952 §2.3.1), an entry of a zip, the end of an empty zip. Others are tar. */
const HEADS = /** @type {const} */ ([
  [[0x1f, 0x8b], "application/gzip"],
  [[0x50, 0x4b, 3, 4], "application/zip"],
  [[0x50, 0x4b, 5, 6], "application/zip"],
]);
const HEAD_BYTES = 4;

/** Gives the browser something to save. @param {Context} context @param {string} name @param {Blob} content */
export function save({ clock }, name, content) {
  const href = URL.createObjectURL(content);
  h("a", { href, download: name }).click();
  clock.after(SAVE_MS, () => URL.revokeObjectURL(href));
}

/** Returns the media type of an archive. @param {Blob} archive */
export async function typeOf(archive) {
  const first = new Uint8Array(await archive.slice(0, HEAD_BYTES).arrayBuffer());
  const found = HEADS.find(([head]) => head.every((byte, i) => first[i] === byte));
  return found?.[1] ?? "application/x-tar";
}

/** How much of an upload has gone, and the way to stop it. @param {() => void} onCancel */
export function transferMeter(onCancel) {
  const bar = h("progress", { "aria-label": "Upload" });
  const words = h("span", { class: "hint" });
  const cancel = h("button", { type: "button", class: "quiet", text: "Cancel", onclick: onCancel });
  return {
    element: h("p", { class: "actions", hidden: true }, bar, words, cancel),
    /** @param {number} sent @param {number} size */
    update(sent, size) {
      bar.max = Math.max(1, size);
      bar.value = sent;
      setText(words, sent < size ? `${bytes(sent)} of ${bytes(size)}` : "hearth writes it");
    },
  };
}
