/** Whether the page is up to date, as a word that every view has in sight. */
import { h, setAttribute, setText } from "./dom.js";

/** @import { PollState } from "./poll.js" */

export function connection() {
  const element = h("span", { class: "connection", role: "status", "data-state": "connecting", text: "connecting" });
  return {
    element,
    /** @param {PollState} value @param {string} reason */
    update(value, reason) {
      setAttribute(element, "data-state", value);
      setText(element, value);
      setAttribute(element, "title", reason === "" ? null : reason);
    },
  };
}
