/**
 * What happens to the tenant's things, as the daemon tells of it: the newest are kept for who looks at them, and each
 * one is a reason to ask sooner for what is shown. The key goes in a header, so this is a fetch and no EventSource.
 */
import { Stream } from "./stream.js";

/** @import { Api } from "./api.js" */
/** @import { Clock } from "./clock.js" */

/**
 * @typedef {object} Happening
 * @property {string} id
 * @property {string} name as `container_update`
 * @property {string} event_type as `started`
 * @property {number} at epoch seconds
 * @property {Readonly<Record<string, unknown>>} data
 */

const EVENTS_MAX = 200;
/** Three heartbeats. */
const SILENCE_MS = 45_000;

export class Events {
  /** Newest first. @type {readonly Happening[]} */
  list = [];
  #onNews;
  /** Of the last event that came; null before the first connection. @type {number | null} */
  #seen_id = null;
  /** What is up to here has happened before anybody looked. */
  #old_id = 0;
  #stream;
  /** The event that is being read. */
  #name = "";
  #id = "";
  #data = "";

  /** @param {Api} api @param {Clock} clock @param {() => void} onNews */
  constructor(api, clock, onNews) {
    this.#onNews = onNews;
    this.#stream = new Stream(clock, {
      open: (ended) => api.open(`/api/events${this.#seen_id === null ? "" : `?last_event_id=${this.#seen_id}`}`, ended),
      onLines: (lines) => this.#take(lines),
      silence_ms: SILENCE_MS,
    });
  }

  ensure() {
    this.#stream.ensure();
  }

  close() {
    this.#stream.close();
    [this.#name, this.#id, this.#data] = ["", "", ""];
  }

  /** For the next one who signs in. */
  forget() {
    this.close();
    this.list = [];
    this.#seen_id = null;
    this.#old_id = 0;
  }

  /** @param {readonly string[]} lines */
  #take(lines) {
    /** @type {Happening[]} */
    const added = [];
    for (const line of lines) {
      if (line.startsWith("event: ")) this.#name = line.slice("event: ".length);
      else if (line.startsWith("id: ")) this.#id = line.slice("id: ".length);
      else if (line.startsWith("data: ")) this.#data = line.slice("data: ".length);
      else if (line === "" && this.#name === "ready" && this.#seen_id === null) {
        this.#beginBefore(JSON.parse(this.#data).newest_event_id);
        return;
      } else if (line === "" && this.#name !== "") {
        const event = this.#event();
        if (event !== null) added.push(event);
        [this.#name, this.#id, this.#data] = ["", "", ""];
      }
    }
    if (added.length === 0) return;
    this.list = [...added.reverse(), ...this.list].slice(0, EVENTS_MAX);
    if (added.some(({ id }) => Number(id) > this.#old_id)) this.#onNews();
  }

  /** The first connection tells where the log ends; the next begins a little before that. @param {string} newest_id */
  #beginBefore(newest_id) {
    this.#old_id = Number(newest_id);
    this.#seen_id = Math.max(0, this.#old_id - EVENTS_MAX);
    this.close();
    this.ensure();
  }

  /** @returns {Happening | null} null: nothing has happened to anything */
  #event() {
    if (this.#id !== "") this.#seen_id = Number(this.#id);
    if (["ready", "heartbeat", "gap"].includes(this.#name)) return null;
    const data = JSON.parse(this.#data);
    const { event_id, event_type, at } = data;
    return { id: String(event_id), name: this.#name, event_type: String(event_type), at: Number(at), data };
  }
}
