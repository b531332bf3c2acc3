/** Questions for newer packages that fail: who sees why, and how often the sources are asked again. */
import { expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { createLog } from "../../src/base/log.ts";
import { ProfileUpdates } from "../../src/nightly/updates.ts";

const OUTPUT = "Could not connect to http://user:secret@mirror.internal";

it("shows a tenant nothing of the machine's sources, and asks them once in a while", async () => {
  const time = { now_ms: 0 };
  const clock = { ...systemClock, monotonicMs: () => time.now_ms };
  const state = { asked_count: 0, isDown: true };
  const child = async () => {
    state.asked_count++;
    if (!state.isDown) return { updates: [] };
    const details = { output: OUTPUT };
    throw new AppError("START_FAILED", "apt-get failed", { reason_code: "PROFILE_BUILD_FAILED", details });
  };
  const updates = new ProfileUpdates({ child }, clock, createLog("silent", clock));
  const refusal = (isFresh = false) => updates.of("prod", "1", isFresh).catch((error: AppError) => error);
  const first = await refusal();
  expect(first).toMatchObject({ code: "START_FAILED", reason_code: "PROFILE_UPDATES_FAILED", details: null });
  for (let i = 0; i < 5; i++) expect(await refusal()).toMatchObject({ reason_code: "PROFILE_UPDATES_FAILED" });
  expect(state.asked_count).toBe(1);
  // The operator does not wait.
  await refusal(true);
  expect(state.asked_count).toBe(2);
  state.isDown = false;
  expect(await refusal()).toMatchObject({ retry_after: expect.any(Number) });
  time.now_ms += LIMITS.profile_backoff_ms;
  expect(await updates.of("prod", "1", false)).toMatchObject({ updates: [] });
  await updates.of("prod", "1", false);
  expect(state.asked_count).toBe(3);
});
