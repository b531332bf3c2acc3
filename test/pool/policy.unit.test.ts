import { describe, expect, test } from "vitest";
import {
  arrivalBucket,
  backoffMs,
  boundAt,
  cellFloor,
  claimedCells,
  dropRefusal,
  effectivePolicy,
  evenShares,
  evictionsForMemory,
  evictionsNeeded,
  isKept,
  isNeeded,
  isPressed,
  keepAliveMs,
  leastServiceMs,
  predictedWaitMs,
  quotaReason,
  quotaRoom,
  refillAt,
  retryAfterSeconds,
  smoothServiceMs,
  timeoutCode,
  wantedStarts,
} from "../../pool/policy.ts";
import { Arrivals } from "../../pool/tallies.ts";
import { LIMITS } from "../../src/base/limits.ts";

const group = {
  queued_count: 0,
  concurrency: 1,
  warming_count: 0,
  returning_count: 0,
  live_count: 0,
  min_instances: 0,
  max_instances: 10,
  is_backing_off: false,
};

function arrivals(gap_ms: number, count: number): Arrivals {
  const seen = new Arrivals();
  for (let i = 0; i <= count; i++) seen.note(i * gap_ms);
  return seen;
}

describe("how many instances a group wants", () => {
  test("one per waiting call that no start is earmarked for", () => {
    expect(wantedStarts({ ...group, queued_count: 5, warming_count: 2, live_count: 2 })).toBe(3);
    expect(wantedStarts({ ...group, queued_count: 2, warming_count: 2, live_count: 2 })).toBe(0);
  });
  test("none for a waiting call that an instance in cleanup serves soon", () => {
    expect(wantedStarts({ ...group, queued_count: 1, returning_count: 1, live_count: 1 })).toBe(0);
    expect(wantedStarts({ ...group, queued_count: 5, returning_count: 2, warming_count: 1, live_count: 3 })).toBe(2);
    expect(wantedStarts({ ...group, queued_count: 1, returning_count: 3, min_instances: 5, live_count: 3 })).toBe(2);
  });
  test("never more than its maximum allows, also when it was lowered", () => {
    expect(wantedStarts({ ...group, queued_count: 50, live_count: 8 })).toBe(2);
    expect(wantedStarts({ ...group, queued_count: 50, live_count: 12 })).toBe(0);
  });
  test("at least what is missing to its minimum, unless warming pauses", () => {
    expect(wantedStarts({ ...group, min_instances: 3, live_count: 1 })).toBe(2);
    expect(wantedStarts({ ...group, min_instances: 3, live_count: 1, is_backing_off: true })).toBe(0);
    expect(wantedStarts({ ...group, min_instances: 3, queued_count: 1, is_backing_off: true })).toBe(1);
  });
  test("a minimum that never exceeds the maximum", () => {
    expect(effectivePolicy({ class: "shell", min_instances: 5, max_instances: 3, queue_max: 1 }).min_instances).toBe(3);
  });
  test("one more for each call above a nested one in its chain", () => {
    expect(boundAt(0, 10)).toBe(10);
    expect(boundAt(3, 10)).toBe(13);
  });
});

describe("how long a call would wait at least", () => {
  const group = { live_count: 4, concurrency: 1, least_service_ms: 100 };
  test("whole rounds of those ahead of it, at the group's pace", () => {
    expect(predictedWaitMs({ ...group, ahead_count: 3 })).toBe(0);
    expect(predictedWaitMs({ ...group, ahead_count: 4 })).toBe(100);
    expect(predictedWaitMs({ ...group, ahead_count: 43 })).toBe(1_000);
  });
  test("nothing while no call was ever timed", () => {
    expect(predictedWaitMs({ live_count: 0, concurrency: 1, least_service_ms: 0, ahead_count: 500 })).toBe(0);
  });
});

describe("the memory of all instances", () => {
  test("is used up above the budget, and until a tenth of it is free again", () => {
    expect(isPressed({ used_mb: 100, budget_mb: 100, instance_count: 3, was_pressed: false })).toBe(false);
    expect(isPressed({ used_mb: 101, budget_mb: 100, instance_count: 3, was_pressed: false })).toBe(true);
    expect(isPressed({ used_mb: 91, budget_mb: 100, instance_count: 3, was_pressed: true })).toBe(true);
    expect(isPressed({ used_mb: 90, budget_mb: 100, instance_count: 3, was_pressed: true })).toBe(false);
  });
  test("is made free by as many instances as use the excess, less those already going", () => {
    const memory = { used_mb: 110, budget_mb: 100, instance_count: 55, terminating_count: 0 };
    // 20 MB above nine tenths, 2 MB each.
    expect(evictionsForMemory(memory)).toBe(10);
    expect(evictionsForMemory({ ...memory, terminating_count: 4 })).toBe(6);
    expect(evictionsForMemory({ ...memory, used_mb: 80 })).toBe(0);
  });
});

describe("who goes", () => {
  test("as many idle instances as starts lack room, less those already going", () => {
    const node = { wanted_count: 5, starts_free: 4, room: 1, terminating_count: 2 };
    expect(evictionsNeeded(node)).toBe(1);
    expect(evictionsNeeded({ ...node, terminating_count: 3 })).toBe(0);
    expect(evictionsNeeded({ ...node, starts_free: 0 })).toBe(0);
  });
  test("nobody whom the minimum needs", () => {
    expect(isNeeded({ live_count: 2, min_instances: 2 })).toBe(true);
    expect(isNeeded({ live_count: 3, min_instances: 2 })).toBe(false);
  });
  test("after a call, who may not be reused, whose group is dropped, who is beyond the bounds", () => {
    const after = { reuse: true, is_dropped: false, is_beyond: false };
    expect(isKept(after)).toBe(true);
    expect(isKept({ ...after, reuse: false })).toBe(false);
    expect(isKept({ ...after, is_dropped: true })).toBe(false);
    expect(isKept({ ...after, is_beyond: true })).toBe(false);
  });
});

describe("how long idle instances stay", () => {
  const plain = { policy: {}, is_retired: false };
  test("the default until eight gaps are known", () => {
    expect(keepAliveMs(plain, arrivals(1, 7))).toBe(LIMITS.keep_alive_ms_default);
    expect(keepAliveMs(plain, arrivals(1, 8))).toBe(LIMITS.keep_alive_ms_min);
  });
  test("a quarter longer than the gap that 99 of 100 calls stay below", () => {
    // Gaps of 100 s lie in the bucket below 131.072 s.
    expect(keepAliveMs(plain, arrivals(100_000, 50))).toBe(131_072 * 1.25);
  });
  test("within the bounds, however rare or frequent the calls", () => {
    expect(keepAliveMs(plain, arrivals(5, 1_000))).toBe(LIMITS.keep_alive_ms_min);
    expect(keepAliveMs(plain, arrivals(86_400_000, 20))).toBe(LIMITS.keep_alive_ms_max);
  });
  test("as set for the group, and five minutes for a superseded version", () => {
    expect(keepAliveMs({ policy: { keep_alive_ms: 5 }, is_retired: false }, arrivals(1, 50))).toBe(5);
    expect(keepAliveMs({ policy: { keep_alive_ms: 5 }, is_retired: true }, arrivals(1, 50))).toBe(300_000);
  });
  test("a rare long gap counts once it is one in a hundred", () => {
    const seen = arrivals(10, 99);
    seen.note(99 * 10 + 400_000);
    expect(keepAliveMs(plain, seen)).toBe(LIMITS.keep_alive_ms_min);
    seen.note(99 * 10 + 800_000);
    expect(keepAliveMs(plain, seen)).toBe(LIMITS.keep_alive_ms_max);
  });
  test("gaps fall into buckets by powers of two", () => {
    expect([0, 0.9, 1, 2, 3, 4, 1023, 1024, 1e15].map(arrivalBucket)).toEqual([0, 0, 1, 2, 2, 3, 10, 11, 25]);
  });
  test("old habits fade: a full histogram is halved", () => {
    const seen = arrivals(10, LIMITS.arrival_samples_max);
    expect(seen.sample_count).toBe(LIMITS.arrival_samples_max / 2);
  });
});

test("cells are refilled at once when none is left, else a little after the last was taken, never during a pause", () => {
  expect(refillAt({ cell_count: 0, taken_ms: 1_000, retry_at_ms: 0 })).toBe(0);
  expect(refillAt({ cell_count: 1, taken_ms: 1_000, retry_at_ms: 0 })).toBe(1_000 + LIMITS.cell_refill_delay_ms);
  expect(refillAt({ cell_count: 0, taken_ms: 1_000, retry_at_ms: 5_000 })).toBe(5_000);
});

test("pauses double from one second to a minute", () => {
  expect([1, 2, 3, 6, 7, 5_000].map(backoffMs)).toEqual([1_000, 2_000, 4_000, 32_000, 60_000, 60_000]);
});

describe("the limits of an owner", () => {
  const quota = { instances_max: 4, memory_mb_max: 1_024, largest_mb: 512 };

  test("leave room for what fits into both, and for one of the largest instances a level", () => {
    const taken = { count: 2, mb: 768 };
    expect(quotaRoom(quota, taken, { memory_mb: 128, depth: 0 })).toBe(2);
    expect(quotaRoom(quota, taken, { memory_mb: 256, depth: 0 })).toBe(1);
    expect(quotaRoom(quota, taken, { memory_mb: 512, depth: 0 })).toBe(0);
    expect(quotaRoom(quota, taken, { memory_mb: 512, depth: 2 })).toBe(2);
    expect(quotaRoom(quota, { count: 4, mb: 4 }, { memory_mb: 1, depth: 1 })).toBe(1);
  });

  test("are the only ones: what is not set leaves room for ever", () => {
    const free = { ...quota, memory_mb_max: Number.POSITIVE_INFINITY };
    expect(quotaRoom(free, { count: 1, mb: 1e9 }, { memory_mb: 512, depth: 0 })).toBe(3);
  });

  test("say why so many instances can never be had", () => {
    expect(quotaReason(quota, 256, 4)).toBeNull();
    expect(quotaReason(quota, 256, 5)).toBe(
      "instances_max of the tenant exceeded: this function needs 5 instances (limit 4)",
    );
    expect(quotaReason(quota, 512, 3)).toBe(
      "memory_mb_max of the tenant exceeded: 3 instances of this function need 1536 MiB (limit 1024 MiB)",
    );
  });
});

test("a call that waited in vain learns whether the node or its group had no room", () => {
  expect(timeoutCode({ wanted_count: 1, room: 0 })).toBe("CAPACITY_FULL");
  expect(timeoutCode({ wanted_count: 0, room: 0 })).toBe("QUEUE_TIMEOUT");
  expect(timeoutCode({ wanted_count: 1, room: 1 })).toBe("QUEUE_TIMEOUT");
});

test("a dropped group's calls learn why", () => {
  expect(dropRefusal("paused", "f@1")).toMatchObject({ code: "WRONG_STATE", state: "paused" });
  expect(dropRefusal("failed", "f@1")).toMatchObject({ code: "WRONG_STATE", state: "error" });
  expect(dropRefusal("deleted", "f@1")).toMatchObject({ code: "NOT_FOUND", state: "deleted" });
  expect(dropRefusal("shutdown", "f@1")).toMatchObject({ code: "SHUTTING_DOWN", retry_after: 1 });
});

describe("the budget of cells", () => {
  const claim = (owner: string, asked: number) => ({ owner, asked, is_fallback: false });

  test("leaves a quarter to the default class, at least one of two or more", () => {
    expect([0, 1, 2, 4, 7, 8, 12, 500].map(cellFloor)).toEqual([0, 0, 1, 1, 1, 2, 3, 125]);
  });

  test("is divided evenly: what one does not ask for goes to others, and what does not go round to the first", () => {
    expect(evenShares(6, [1, 2, 3])).toEqual([1, 2, 3]);
    expect(evenShares(6, [8, 4])).toEqual([3, 3]);
    expect(evenShares(7, [8, 4])).toEqual([4, 3]);
    expect(evenShares(8, [1, 9, 0, 9])).toEqual([1, 4, 0, 3]);
    expect(evenShares(2, [5, 1, 5])).toEqual([1, 1, 0]);
    expect(evenShares(0, [5, 1])).toEqual([0, 0]);
    expect(evenShares(3, [])).toEqual([]);
  });

  test("is divided among owners, not among their classes", () => {
    const eight = Array.from({ length: 8 }, () => claim("ten_a", 1));
    expect(claimedCells(8, [...eight, claim("ten_b", 4)])).toEqual([1, 1, 1, 0, 0, 0, 0, 0, 3]);
    expect(claimedCells(8, [...eight, claim("ten_b", 1)])).toEqual([1, 1, 1, 1, 1, 0, 0, 0, 1]);
    expect(claimedCells(8, eight)).toEqual([1, 1, 1, 1, 1, 1, 0, 0]);
  });

  test("serves claims on the default class from the floor first, then as those of other classes", () => {
    const own = (owner: string, asked: number) => ({ owner, asked, is_fallback: true });
    expect(claimedCells(8, [own("ten_a", 2), claim("ten_a", 8)])).toEqual([2, 6]);
    expect(claimedCells(8, [own("ten_a", 8), claim("ten_b", 8)])).toEqual([5, 3]);
    expect(claimedCells(8, [own("ten_a", 1), own("ten_b", 1), claim("ten_b", 3)])).toEqual([1, 1, 3]);
  });
});

test("the time to the next try is what the queue takes, in whole seconds from 1 to 60", () => {
  expect(retryAfterSeconds({ queued_count: 1_000, service_ms: 10, max_instances: 4, concurrency: 1 })).toBe(3);
  expect(retryAfterSeconds({ queued_count: 0, service_ms: 0, max_instances: 0, concurrency: 1 })).toBe(1);
  expect(retryAfterSeconds({ queued_count: 1_000, service_ms: 60_000, max_instances: 1, concurrency: 1 })).toBe(60);
});

test("the least service time falls at once and rises slowly, from nothing", () => {
  expect(leastServiceMs(0, 80)).toBe(10);
  expect(leastServiceMs(80, 160)).toBe(90);
  expect(leastServiceMs(80, 10)).toBe(10);
});

test("the smoothed service time begins with the first sample and follows slowly", () => {
  expect(smoothServiceMs(0, 80)).toBe(80);
  expect(smoothServiceMs(80, 160)).toBe(90);
});
