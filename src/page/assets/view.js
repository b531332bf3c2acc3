/**
 * Views: the services that each gets, the calls that each offers, and its rounds. A round asks the daemon for what the view
 * shows. The view shows a refusal itself and throws every other failure, which the poll (poll.js) retries.
 */
import { ApiError } from "./api.js";

/** @import { Api } from "./api.js" */
/** @import { Clock } from "./clock.js" */
/** @import { Happening } from "./events.js" */
/** @import { problem } from "./widgets.js" */
/** @import { FunctionPools, GroupStatus } from "../wire.ts" */

/**
 * The services of the page that every view gets.
 * @typedef {object} Context
 * @property {Api} api
 * @property {Clock} clock
 * @property {(text: string) => void} say tells what was done, also to who cannot see it
 * @property {() => void} refresh asks for a round of polling now
 * @property {() => readonly Happening[]} events the newest, newest first
 * @property {(function_id: string) => GroupStatus | null} pool of a function, as of the last round; null: it has no instance
 * @property {() => FunctionPools["pools"] | null} pools of all functions, as of the last round; null: the key may not read them
 */

/**
 * @typedef {object} View
 * @property {HTMLElement} element
 * @property {() => string} title
 * @property {() => Promise<void>} refresh throws what the connection is to blame for, and shows the rest itself
 * @property {() => void} focus puts the focus where reading begins
 * @property {(step: 1 | -1) => void} [move] the next or previous row
 * @property {string} [up] the address that Escape leads to; the list of functions unless there is one
 * @property {(id: string) => void} [focusRow] of a list: puts the focus into the row of what was open
 * @property {() => void} [find] puts the focus into the filter
 * @property {() => void} [rest] lets go of connections, until the next round: nobody looks
 * @property {() => void} [leave] lets go of what it holds, when another view takes its place for good
 */

/** Returns true if the daemon refused this very request. After another failure a retry may succeed. @param {unknown} error */
export const isRefusal = (error) =>
  error instanceof ApiError && error.status >= 400 && error.status < 500 && ![401, 408, 429].includes(error.status);

/** Returns the answer, or null if the daemon refused. @template Answer @param {Promise<Answer>} answer @returns {Promise<Answer | null>} */
export const unlessRefused = (answer) => answer.catch((error) => (isRefusal(error) ? null : Promise.reject(error)));

/**
 * Returns a round that shows a refusal in `trouble`.
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => Promise<void>} round
 * @param {() => void} [onRefused] hides the parts that a refusal leaves without content
 */
export function reported(trouble, round, onRefused = () => {}) {
  return async () => {
    try {
      await round();
      trouble.update(null);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      onRefused();
      trouble.update(error);
    }
  };
}

/** @typedef {(work: () => Promise<unknown>) => Promise<void>} Removal */

/**
 * The rounds of a view that can delete its subject. After the deletion has begun no round asks for the subject.
 * @param {() => Promise<void>} round
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => void} onRefused as for `reported`
 */
export function untilDeleted(round, trouble, onRefused) {
  const shownRound = reported(trouble, round, onRefused);
  let running = Promise.resolve();
  let isDeleted = false;
  return {
    refresh() {
      if (!isDeleted) running = shownRound();
      return running;
    },
    /** Waits for the round under way, and begins no other unless `work` fails. @type {Removal} */
    async remove(work) {
      isDeleted = true;
      try {
        // The caller of `refresh` reports its failure.
        await running.catch(() => {});
        await work();
      } catch (error) {
        isDeleted = false;
        throw error;
      }
    },
  };
}
