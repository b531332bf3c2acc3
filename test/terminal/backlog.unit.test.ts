/** What is kept of a terminal that nobody looks at. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Backlog } from "../../src/terminal/backlog.ts";

describe("the backlog of a terminal", () => {
  it("keeps the newest bytes up to its bound, in order, whatever pieces they came in", () => {
    const chunk = fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes));
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 32 }), fc.array(chunk, { maxLength: 20 }), (bytes_max, chunks) => {
        const backlog = new Backlog(bytes_max);
        for (const one of chunks) backlog.add(one);
        expect(backlog.take()).toEqual(Buffer.concat(chunks).subarray(-bytes_max));
      }),
    );
  });

  it("is empty after it was taken, and keeps what comes then", () => {
    const backlog = new Backlog(4);
    backlog.add(Buffer.from("abcdef"));
    expect(String(backlog.take())).toBe("cdef");
    expect(backlog.take()).toHaveLength(0);
    backlog.add(Buffer.from("gh"));
    expect(String(backlog.take())).toBe("gh");
  });
});
