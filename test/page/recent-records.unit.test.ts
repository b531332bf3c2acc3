/** The records that the console shows of one function, against an API that lists them by number, newest first. */
import { describe, expect, it } from "vitest";
import { RECORDS_MAX, Recent } from "../../src/page/assets/recent-records.js";

/** The id masks the number: here it falls where the number rises, then jumps. */
const idOf = (number: number) => `inv_${((number * 7919) % 10_007).toString(36).padStart(10, "0")}_abcdefgh`;
const recordOf = (number: number) => ({ invocation_id: idOf(number), result: null, stdout: `${number}`, stderr: "" });

class Records {
  /** Numbers of the committed calls. */
  numbers: number[] = [];
  /** Sizes of the lists that were read. */
  readonly limits: number[] = [];

  add(...numbers: number[]): void {
    this.numbers.push(...numbers);
  }

  async invocations(_id: string, limit: number) {
    this.limits.push(limit);
    const newest = this.numbers.toSorted((a, b) => b - a).slice(0, limit);
    return { invocations: newest.map(recordOf) };
  }
}

const range = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, i) => first + i);

describe("the records of the console", () => {
  const start = (api: Records) => {
    // The page's modules are typed by their own project; only what `Recent` calls is here.
    const recent = new Recent(api as never);
    const round = () => recent.follow({ id: "fn", invocation_count: api.numbers.length } as never);
    const shown = () => recent.records.map(({ stdout }) => Number(stdout));
    return { recent, round, shown };
  };

  it("stay in the API's order, newest first, over rounds", async () => {
    const api = new Records();
    const { round, shown } = start(api);
    for (const last of [5, 6, 9, 30]) {
      api.add(...range(api.numbers.length + 1, last));
      expect(await round()).toBe(true);
      expect(shown()).toEqual(range(1, last).reverse());
    }
    expect(await round()).toBe(false);
    expect(api.limits).toEqual([RECORDS_MAX, 6, 8, 26]);
  });

  it("have a slow call in the place of its start", async () => {
    const api = new Records();
    const { round, shown } = start(api);
    api.add(...range(1, 4), ...range(6, 30));
    await round();
    api.add(5);
    await round();
    expect(shown()).toEqual(range(1, 30).reverse());
  });

  it("are the newest ones where a function has more than the page keeps", async () => {
    const api = new Records();
    const { round, shown } = start(api);
    api.add(...range(1, RECORDS_MAX));
    await round();
    api.add(...range(RECORDS_MAX + 1, RECORDS_MAX + 20));
    await round();
    expect(shown()).toEqual(range(21, RECORDS_MAX + 20).reverse());
  });
});
