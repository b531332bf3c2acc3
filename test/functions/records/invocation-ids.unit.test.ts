/** Ids of invocations: unique, found again, and those of earlier versions still mean their rows. */
import { describe, expect, it } from "vitest";
import { randomIds } from "../../../src/base/ids.ts";
import { InvocationIds } from "../../../src/functions/records/invocation-ids.ts";

const KEY = "00112233445566778899aabbccddeeff";
const numbering = (key = KEY) => new InvocationIds(randomIds(), key, 10);

describe("ids of invocations", () => {
  it("lead back to their rows, whoever asks", () => {
    const giver = numbering();
    const given = Array.from({ length: 1_000 }, (_, i) => giver.next(10 + i * 1_000_003));
    expect(new Set(given.map(({ id }) => id)).size).toBe(given.length);
    const reader = numbering();
    for (const { seq, suffix, id } of given) {
      expect(id).toMatch(/^inv_[0-9a-z]{1,10}_[0-9a-z]{9}$/);
      expect(reader.id({ seq, suffix })).toBe(id);
      expect(reader.places(id)).toContainEqual({ seq, suffix });
    }
  });

  it("tell nothing of the number to those who lack the key", () => {
    const { seq, suffix, id } = numbering().next(77);
    expect(numbering("ff".repeat(16)).places(id)).not.toContainEqual({ seq, suffix });
    const shown = Array.from({ length: 100 }, (_, i) =>
      Number.parseInt(
        numbering()
          .next(i + 10)
          .id.slice(4),
        36,
      ),
    );
    expect(new Set(shown.map((number) => number.toString(2).slice(-8))).size).toBeGreaterThan(30);
  });

  it("of earlier versions keep their form and their rows", () => {
    // Given out by a version that masked with a hash.
    const earlier = { seq: 123_456, suffix: "abcdefgh" };
    expect(numbering().id(earlier)).toBe("inv_104ghvf3y2_abcdefgh");
    expect(numbering().places("inv_104ghvf3y2_abcdefgh")).toEqual([earlier]);
    // And before that not at all.
    expect(numbering().id({ seq: 9, suffix: "abcdefgh" })).toBe("inv_9_abcdefgh");
    expect(numbering().places("inv_9_abcdefgh")).toContainEqual({ seq: 9, suffix: "abcdefgh" });
  });

  it.each(["inv_1", "inv_1_", "inv__abc", "inv_1_ABC", "inv_12345678901_abc", `inv_1_${"a".repeat(17)}`, ""])(
    "takes %j for none",
    (id) => expect(numbering().places(id)).toEqual([]),
  );
});
