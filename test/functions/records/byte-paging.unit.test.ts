/** Pages of records by their bytes. */
import { describe, expect, it } from "vitest";
import { nextBytePage, type ReadLengths } from "../../../src/functions/records/byte-paging.ts";

describe("a page of rows by bytes", () => {
  const rowsOf =
    (lengths: readonly number[]): ReadLengths =>
    async (after, row_count) =>
      lengths.map((bytes, i) => ({ seq: i + 1, bytes })).slice(after ?? 0, (after ?? 0) + row_count);
  const page = (lengths: readonly number[], rows_max: number, bytes_max: number) =>
    nextBytePage(rowsOf(lengths), rows_max, bytes_max);

  it("ends before the row that does not fit", async () => {
    expect(await page([4, 4, 4], 10, 8)).toEqual({ row_count: 2, last_seq: 2, is_cut: true });
    expect(await page([4, 4], 10, 8)).toEqual({ row_count: 2, last_seq: 2, is_cut: false });
  });

  it("has at least one row if there is one", async () => {
    expect(await page([9, 1], 10, 8)).toEqual({ row_count: 1, last_seq: 1, is_cut: true });
    expect(await page([], 10, 8)).toEqual({ row_count: 0, last_seq: 0, is_cut: false });
  });

  it("has no more rows than asked for, over as many reads as that takes", async () => {
    expect(await page(Array(200).fill(1), 150, 1_000)).toEqual({ row_count: 150, last_seq: 150, is_cut: true });
    expect(await page(Array(96).fill(1), 150, 1_000)).toEqual({ row_count: 96, last_seq: 96, is_cut: false });
  });
});
