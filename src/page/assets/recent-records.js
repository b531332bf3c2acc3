/**
 * The newest records of one function. A round asks for about as many as were made since the last, not for all again:
 * records hold whole outputs. It keeps previews of outputs and of results as JSON; the view of a record asks the API for all
 * of it.
 */

/** @import { Api } from "./api.js" */
/** @import { FunctionRecord, InvocationRecord } from "../wire.ts" */

export const RECORDS_MAX = 200;
const PREVIEW_LENGTH = 160;
/** Records that may have come between the count and the list. */
const MARGIN = 5;

/** @param {InvocationRecord} record @returns {InvocationRecord} */
const previewOf = (record) => ({
  ...record,
  result: record.result === null ? null : JSON.stringify(record.result).slice(0, PREVIEW_LENGTH),
  stdout: record.stdout.slice(0, PREVIEW_LENGTH),
  stderr: record.stderr.slice(0, PREVIEW_LENGTH),
});

export class Recent {
  /** Newest first. @type {readonly InvocationRecord[]} */
  records = [];
  #api;
  #known_count = 0;
  #isFirst = true;

  /** @param {Api} api */
  constructor(api) {
    this.#api = api;
  }

  /**
   * Takes in what has been called since.
   * @param {FunctionRecord} record
   * @returns {Promise<boolean>} whether there is anything new
   */
  async follow({ id, invocation_count }) {
    const missing_count = invocation_count - this.#known_count;
    if (missing_count <= 0 && !this.#isFirst) return false;
    const isPart = !this.#isFirst && missing_count + MARGIN < RECORDS_MAX;
    let new_count = this.#merge(
      (await this.#api.invocations(id, isPart ? missing_count + MARGIN : RECORDS_MAX)).invocations,
    );
    // A slow call ends behind faster ones that came after it: it lies deeper than the newest.
    if (isPart && new_count < missing_count)
      new_count += this.#merge((await this.#api.invocations(id, RECORDS_MAX)).invocations);
    this.#known_count = Math.max(invocation_count, this.#isFirst ? 0 : this.#known_count + new_count);
    this.#isFirst = false;
    return new_count > 0;
  }

  /**
   * The API's order is kept, since an id says nothing about it. A list of the newest contains every known record that
   * is newer than its last, so the known records that it lacks come after it.
   * @param {readonly InvocationRecord[]} newest
   * @returns {number} how many were not known
   */
  #merge(newest) {
    const known = new Map(this.records.map((record) => [record.invocation_id, record]));
    const listed = new Set(newest.map(({ invocation_id }) => invocation_id));
    const first = newest.map((record) => known.get(record.invocation_id) ?? previewOf(record));
    const rest = this.records.filter(({ invocation_id }) => !listed.has(invocation_id));
    this.records = [...first, ...rest].slice(0, RECORDS_MAX);
    return newest.filter(({ invocation_id }) => !known.has(invocation_id)).length;
  }
}
