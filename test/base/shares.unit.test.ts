/** Places with a share for each holder. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { Shares } from "../../src/base/shares.ts";

const refused = (reached: string) => new AppError("CAPACITY_FULL", reached);

describe("a place", () => {
  it("is refused above the holder's share, and above the number of all", () => {
    const shares = new Shares({ each_max: 2, all_max: 3 });
    shares.take("one", refused);
    shares.take("one", refused);
    expect(() => shares.take("one", refused)).toThrow("each_max");
    shares.take("other", refused);
    expect(() => shares.take("third", refused)).toThrow("all_max");
    expect(() => shares.take("one", refused)).toThrow("each_max");
  });

  it("is bounded for each holder apart where the bounds say so", () => {
    const shares = new Shares({ each_max: (holder) => (holder === "free" ? null : 1), all_max: 3 });
    shares.take("bound", refused);
    expect(() => shares.take("bound", refused)).toThrow("each_max");
    shares.take("free", refused);
    shares.take("free", refused);
    expect([shares.countOf("free"), shares.countOf("none")]).toEqual([2, 0]);
    expect(() => shares.take("free", refused)).toThrow("all_max");
  });

  it("is granted to each holder up to always_max, even if all are taken", () => {
    const shares = new Shares({ each_max: 3, all_max: 3, always_max: 2 });
    for (let i = 0; i < 3; i++) shares.take("one", refused);
    const ends = [shares.take("other", refused), shares.take("other", refused)];
    expect(() => shares.take("other", refused)).toThrow("all_max");
    expect(() => shares.take("one", refused)).toThrow("each_max");
    expect(shares.count).toBe(5);
    for (const end of ends) end();
    expect(shares.count).toBe(3);
    expect(() => new Shares({ each_max: 1, all_max: 0, always_max: 2 }).take("one", refused)).not.toThrow();
  });

  it("is free again when it is given back, once", () => {
    const shares = new Shares({ each_max: 2, all_max: 2 });
    const give = shares.take("one", refused);
    shares.take("one", refused);
    give();
    give();
    shares.take("other", refused);
    expect(() => shares.take("one", refused)).toThrow("all_max");
  });
});
