/** Reservations: what writers at once may have together, and what is left when they end. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { Reservations, temporaryFiles } from "../../src/base/reservations.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";

function made(max: number | null = 100) {
  const state = { used: 10 };
  const reservations = new Reservations({
    max: () => max,
    used: async () => state.used,
    refusal: (max_bytes) => new AppError("QUOTA_EXCEEDED", `limit ${max_bytes}`),
  });
  return { state, reservations };
}
const QUOTA = { code: "QUOTA_EXCEEDED", message: "limit 100" };

describe("reservations", () => {
  it("of one tenant sum up with what it has, and those of another one are apart", async () => {
    const { reservations } = made();
    const [one, two, other] = [
      await reservations.open("a"),
      await reservations.open("a"),
      await reservations.open("b"),
    ];
    await one.reach(50);
    await one.reach(20);
    await two.reach(40);
    await expect(two.reach(41)).rejects.toMatchObject(QUOTA);
    expect([one.bytes, two.bytes, two.bytes_max]).toEqual([50, 40, 40]);
    await other.reach(90);
    expect([reservations.reservedBytes("a"), reservations.reservedBytes()]).toEqual([90, 180]);
    one.shrink(10);
    await two.reach(80);
    two.release();
    two.release();
    expect(await reservations.roomBytes("a")).toBe(80);
    one.release();
    other.release();
    expect(reservations.reservedBytes()).toBe(0);
  });

  it("count no byte twice when they become what the tenant has", async () => {
    const { state, reservations } = made();
    const [one, two] = [await reservations.open("a"), await reservations.open("a")];
    await one.reach(50);
    const written = Promise.withResolvers<void>();
    const commit = one.commit(async () => {
      state.used += 50;
      await written.promise;
    });
    // Waits for the commit: between its write and its end the bytes are in both sums.
    const reached = two.reach(40).then(() => two.reach(41));
    written.resolve();
    await commit;
    await expect(reached).rejects.toMatchObject(QUOTA);
    expect(two.bytes).toBe(40);
  });

  it("are kept by a commit that fails, and look again before they refuse", async () => {
    const { state, reservations } = made();
    const one = await reservations.open("a");
    await one.reach(90);
    await expect(one.commit(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(reservations.reservedBytes("a")).toBe(90);
    state.used = 0;
    await one.reach(100);
    one.release();
    expect(one.tryReach(1)).toBe(false);
  });

  it("are refused to nobody without a limit", async () => {
    const one = await made(null).reservations.open("a");
    await one.reach(1e15);
    expect(one.bytes_max).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("temporary files of a tenant", () => {
  it("are at most a part of the disk, and have no limit without one of images", async () => {
    const quotas = nodeQuotas();
    quotas.set("a", { image_mb_max: 1_000_000 });
    const files = temporaryFiles(quotas, 400);
    expect(await files.roomBytes("a")).toBe(100 * 1024 * 1024);
    quotas.set("a", { image_mb_max: 0 });
    expect(await temporaryFiles(quotas, 1_000_000).roomBytes("a")).toBe(1_024 * 1024 * 1024);
    quotas.set("a", { image_mb_max: null });
    expect(await files.roomBytes("a")).toBe(Number.POSITIVE_INFINITY);
  });
});
