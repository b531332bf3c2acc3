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
