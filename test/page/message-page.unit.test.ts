/** Pages of numbered messages, and the text of what senders chose. */
import { describe, expect, it } from "vitest";
import { seenJson, seenText } from "../../src/page/assets/format.js";
import { hasOlder, type NumberedPage, PagePlace, pageUpTo } from "../../src/page/assets/message-page.js";

const ANSWER_BYTES = 4 * 1024 * 1024;
interface Item {
  readonly stream_seq: number;
  readonly envelope_b64: string;
}

/** An inbox that answers as the API does: upwards, and no more envelopes than an answer may have, one at least. */
function inbox(numbers: readonly number[], bytes = 100) {
  const asked: string[] = [];
  const envelope_b64 = "A".repeat(Math.ceil(bytes / 3) * 4);
  const ask = async (from_seq: number, to_seq: number): Promise<readonly Item[]> => {
    asked.push(`${from_seq}-${to_seq}`);
    const found = numbers.filter((seq) => seq >= from_seq && seq <= to_seq).slice(0, to_seq - from_seq + 1);
    return found
      .slice(0, Math.max(1, Math.floor(ANSWER_BYTES / bytes)))
      .map((stream_seq) => ({ stream_seq, envelope_b64 }));
  };
  return { ask, asked };
}
const upTo = (last: number) => Array.from({ length: last }, (_, i) => i + 1);
const numbersOf = ({ items }: NumberedPage<Item>) => items.map(({ stream_seq }) => stream_seq);

describe("a page of an inbox", () => {
  it("has the newest 25 messages, the newest first, for one request", async () => {
    const { ask, asked } = inbox(upTo(1_000_000));
    const page = await pageUpTo(ask, 1_000_000);
    expect(numbersOf(page)).toEqual(Array.from({ length: 25 }, (_, i) => 1_000_000 - i));
    expect(asked).toEqual(["999976-1000000"]);
    expect(hasOlder(page, 1_000_000)).toBe(true);
  });

  it("is empty without a request if there was no message", async () => {
    const { ask, asked } = inbox([]);
    const page = await pageUpTo(ask, 0);
    expect([numbersOf(page), asked, hasOlder(page, 0)]).toEqual([[], [], false]);
  });

  it("has the newest messages where an answer is cut, after at most three requests", async () => {
    const large = inbox(upTo(100), 1024 * 1024);
    expect(numbersOf(await pageUpTo(large.ask, 100))).toEqual([100, 99, 98, 97]);
    expect(large.asked).toEqual(["76-100", "97-100"]);
    const largest = inbox(upTo(100), 1024 * 1024 + 200);
    const page = await pageUpTo(largest.ask, 100);
    expect(numbersOf(page)).toEqual([100]);
    expect(largest.asked).toEqual(["76-100", "97-100", "100-100"]);
    expect(hasOlder(page, 100)).toBe(true);
  });

  it("takes the end of what is kept for no cut", async () => {
    const { ask, asked } = inbox(upTo(90));
    expect(numbersOf(await pageUpTo(ask, 100))).toHaveLength(15);
    expect(asked).toHaveLength(1);
  });

  it("offers no older page if all that is kept is shown", async () => {
    const { ask } = inbox([998, 999, 1_000]);
    const page = await pageUpTo(ask, 1_000);
    expect([hasOlder(page, 3), hasOlder(page, 4), hasOlder(page, null)]).toEqual([false, true, true]);
    expect(hasOlder(await pageUpTo(ask, 975), null)).toBe(false);
    expect(hasOlder(await pageUpTo(inbox(upTo(30)).ask, 20), null)).toBe(false);
  });
});

describe("the place of a reader", () => {
  it("goes to older pages and back to the newest", () => {
    const place = new PagePlace();
    expect(place.to_seq).toBeNull();
    place.older(76);
    place.older(51);
    expect(place.to_seq).toBe(50);
    place.newer();
    expect(place.to_seq).toBe(75);
    place.newer();
    expect(place.to_seq).toBeNull();
    place.newer();
    expect(place.to_seq).toBeNull();
  });

  it("is held at a page while newer messages come, and moves on when it is left", () => {
    const place = new PagePlace();
    place.hold(100);
    place.hold(120);
    expect(place.to_seq).toBe(100);
    place.newer();
    expect(place.to_seq).toBeNull();
  });
});

describe("the text of a sender", () => {
  it("shows characters that nobody sees, or that turn the direction, as escapes", () => {
    const text = "a\u202eb\u2066c\u200bd\ufeffe\nf\u0000g\u001bh\u2028i\ud800j\u{e0041}k";
    const shown = "a\\u202eb\\u2066c\\u200bd\\ufeffe\\u000af\\u0000g\\u001bh\\u2028i\\ud800j\\u{e0041}k";
    expect(seenText(text)).toBe(shown);
    expect(seenText("größe 日本 <b>😀</b>")).toBe("größe 日本 <b>😀</b>");
  });

  it("keeps the lines of JSON, and no line of a string in it", () => {
    expect(seenJson({ a: "x\ny\u202e" })).toBe('{\n  "a": "x\\ny\\u202e"\n}');
    expect([seenJson(undefined), seenJson(null)]).toEqual(["null", "null"]);
  });
});
