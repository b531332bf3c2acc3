/** Automatic rebuilds of profiles with newer packages. */
import { expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import type { Log } from "../../src/base/log.ts";
import type { ProfileBuilds } from "../../src/nightly/builds.ts";
import type { Catalog } from "../../src/nightly/catalog.ts";
import { Profiles } from "../../src/nightly/service.ts";
import type { Operations } from "../../src/operations/service.ts";
import { HandClock } from "../pool/hand-clock.ts";

const BELOW: Readonly<Record<string, string | null>> = { desktop: "base", base: null, broken: null };
const VERSION = "0123456789ab-01234567";

it("rebuilds the lowest profiles first, and the others if the sources of one fail", async () => {
  const clock = new HandClock();
  const rebuilt: string[] = [];
  const warned: unknown[] = [];
  const release = (profile: string) => ({ profile, version: VERSION });
  const catalog = {
    names: () => Object.keys(BELOW),
    recipe: (name: string) => ({ profile: { name, from: BELOW[name] ?? null }, recipe_id: "0123456789ab" }),
    releases: (name: string) => [release(name)],
    channel: () => ({ version: VERSION, history: [], changed_at: 0 }),
  } as unknown as Catalog;
  const ended = Promise.withResolvers<void>();
  const builds = {
    child: async ([, name]: readonly string[]) => {
      if (name === "broken") throw new AppError("START_FAILED", "no route to the mirror");
      return { updates: [{ name: "bash", is_security: true }] };
    },
    run: async (name: string) => {
      rebuilt.push(name);
      if (name === "desktop") ended.resolve();
    },
  } as unknown as ProfileBuilds;
  const operations = { register: () => {} } as unknown as Operations;
  const log = { info: () => {}, warn: (_: string, more: unknown) => warned.push(more) } as unknown as Log;
  const profiles = new Profiles({ catalog, builds, operations, clock, log, rebuild_hours: 24 });
  await profiles.prune();
  expect(rebuilt).toEqual([]);
  await clock.pass(24 * 3_600_000);
  await profiles.prune();
  await ended.promise;
  expect(rebuilt).toEqual(["base", "desktop"]);
  expect(warned).toEqual([{ profile: "broken", error: "no route to the mirror" }]);
});
