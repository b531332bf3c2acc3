/** Files between the browser's disk and hearth: the type of an archive, the progress of an upload, and downloads. */
import { h, setText, show } from "./dom.js";
import { bytes } from "./format.js";

/** @import { Api } from "./api.js" */
/** @import { Context } from "./view.js" */

/** The browser reads the file from its address within this time; the page then releases it. */
const SAVE_MS = 60_000;
/** First bytes of archives: gzip (RFC 1952 §2.3.1), an entry of a zip, the end of an empty zip. Others are tar. */
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

/** The progress of an upload, and the button that cancels it. */
export function transferMeter() {
  let ender = new AbortController();
  const leave = () => ender.abort();
  const bar = h("progress", { "aria-label": "Upload" });
  const words = h("span", { class: "hint" });
  const cancel = h("button", { type: "button", class: "quiet", text: "Cancel", onclick: leave });
  const element = h("p", { class: "actions", hidden: true }, bar, words, cancel);
  return {
    element,
    /**
     * Shows the progress of `upload` until it ends.
     * @template Answer
     * @param {Blob} content
     * @param {(how: Pick<Parameters<Api["upload"]>[2], "signal" | "onProgress">) => Promise<Answer>} upload
     */
    async during(content, upload) {
      ender = new AbortController();
      const { size } = content;
      const onProgress = (/** @type {number} */ sent) => {
        bar.max = Math.max(1, size);
        bar.value = sent;
        setText(words, sent < size ? `${bytes(sent)} of ${bytes(size)}` : "hearth writes it");
      };
      onProgress(0);
      show(element, true);
      try {
        return await upload({ signal: ender.signal, onProgress });
      } finally {
        show(element, false);
      }
    },
    /** Cancels the upload. */
    leave,
  };
}
