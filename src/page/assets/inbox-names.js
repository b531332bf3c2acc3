/**
 * Inboxes as people know them: a container by its name. The page asks for the names of the tenant's containers when it shows an id
 * that it has not asked for, and again after a minute, since containers can be renamed.
 */
import { inboxHash } from "./addresses.js";
import { h, setAttribute, setText } from "./dom.js";
import { seenText } from "./format.js";
import { containersOf } from "./resources.js";
import { unlessRefused } from "./view.js";

/** @import { Context } from "./view.js" */

const KEPT_MS = 60_000;

/** @param {Context} context */
export function inboxNames({ api, clock }) {
  /** By id; null: no container has it. @type {Map<string, string | null>} */
  let names = new Map();
  let learnt_ms = 0;
  const isContainer = (/** @type {string} */ inbox) => !inbox.includes(":");
  return {
    /** @param {readonly string[]} inboxes that are shown */
    async learn(inboxes) {
      const ids = inboxes.filter(isContainer);
      const now_ms = clock.monotonicMs();
      const isOld = now_ms - learnt_ms > KEPT_MS;
      if (ids.length === 0 || (!isOld && ids.every((id) => names.has(id)))) return;
      const answer = await unlessRefused(containersOf(api).list());
      const found = new Map(answer?.containers.map(({ container_id, name }) => [container_id, name]));
      names = new Map([
        ...(isOld ? [] : names),
        ...ids.map((id) => /** @type {const} */ ([id, found.get(id) ?? null])),
      ]);
      learnt_ms = isOld ? now_ms : learnt_ms;
    },
    /** An inbox as a link where it has a place. @param {string} inbox @param {string} kind class of the link */
    link(inbox, kind = "") {
      const address = inboxHash(inbox);
      const element = address === null ? h("span") : h("a", { class: kind, href: address });
      return {
        element,
        update() {
          const text = names.get(inbox) ?? seenText(inbox);
          setText(element, text);
          setAttribute(element, "title", isContainer(inbox) ? inbox : text);
        },
      };
    },
  };
}
