/**
 * The daemon killed again and again at random moments under load: nothing that was answered is lost, nothing is given
 * twice, nothing piles up. `HEARTH_TEST_SEED` repeats the dice of a run, `HEARTH_TEST_KILLS` sets its length.
 */
import { randomInt } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { seededRandom } from "../../bench/stats.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { DaemonDied, type Known, Ledger } from "./ledger.ts";
import { type Counts, countAtRest, expectAtRest } from "./rest.ts";
import { TenantLedger } from "./tenant-ledger.ts";

const SEED = Number(process.env.HEARTH_TEST_SEED ?? randomInt(1_000_000));
const KILLS = Number(process.env.HEARTH_TEST_KILLS ?? 100);
/** Everything is deleted and counted after so many. */
const KILLS_PER_COUNT = 50;
const SETTINGS = { HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "warn" };
const WORKERS = 3;
/** How long the daemon works before it is killed, at most. */
const LIFE_MS_MAX = 800;
/** One in so many is killed while it starts. */
const START_KILLS = 10;

const daemon = new Daemon();
const ledger = new Ledger(daemon);
const tenants = new TenantLedger(daemon);
const random = seededRandom(SEED);
const below = (count: number): number => Math.floor(random() * count);
const state: { before: Counts; steady: Known | null; name_count: number } = {
  before: {},
  steady: null,
  name_count: 0,
};

beforeAll(async () => {
  await daemon.start(SETTINGS);
  state.steady = await ledger.create("steady", { max_instances: 2 });
  await ledger.deploy(state.steady);
  await ledger.clear(state.steady);
  state.before = await countAtRest(daemon);
});
afterAll(() => daemon.dispose());

/** What the dice say, on one of the worker's own functions: so each has one change under way at most. */
async function change(worker: number): Promise<void> {
  const own = ledger.functions.filter(({ name }) => name.startsWith(`w${worker}-`));
  const known = own[below(own.length + 1)];
  if (known === undefined || own.length < 2) {
    if (own.length < 4) {
      const name = `w${worker}-${state.name_count++}`;
      await ledger.deploy(await ledger.create(name, { min_instances: below(2), max_instances: 2 }));
    }
    return;
  }
  const verb = below(10);
  if (verb === 0 || known.states.has("pending")) await ledger.delete(known);
  else if (!known.states.has("active")) await ledger.deploy(known, "resume");
  else if (verb === 1) await ledger.pause(known);
  else if (verb === 2) await ledger.update(known);
  else if (verb === 3) await ledger.rollback(known, 1 + below(known.version_count));
  else await Promise.all([1, 2, 3].map(() => ledger.invoke(known)));
}

/** A new version under the calls, or one of those that there are. */
async function point(steady: Known): Promise<void> {
  if (below(2) === 0) await ledger.update(steady);
  else await ledger.rollback(steady, 1 + below(steady.version_count));
  await ledger.invoke(steady);
}

/** Does something again and again until the daemon dies. */
async function untilDeath(work: () => Promise<void>): Promise<void> {
  try {
    for (;;) await work();
  } catch (error) {
    if (!(error instanceof DaemonDied)) throw error;
  }
}

async function live(): Promise<void> {
  const { steady } = state;
  if (steady === null) return;
  if (!steady.states.has("active")) await ledger.deploy(steady, "resume");
  const load = [
    untilDeath(() => ledger.invoke(steady)),
    untilDeath(() => ledger.invoke(steady)),
    untilDeath(() => point(steady)),
    untilDeath(() => tenants.round()),
    ...Array.from({ length: WORKERS }, (_, worker) => untilDeath(() => change(worker))),
  ];
  await pause(below(LIFE_MS_MAX));
  await daemon.stop("SIGKILL");
  await Promise.all(load);
}

/** Whether enough has happened between the kills for them to mean something. */
function hasHappened(): boolean {
  return (
    ledger.record_count > KILLS &&
    state.name_count > KILLS / 2 &&
    ledger.adopted_count > KILLS / 2 &&
    tenants.deleted_count > KILLS / 4
  );
}

describe(`a daemon that is killed ${KILLS} times under load (seed ${SEED})`, () => {
  it(
    "has every record that it had answered, and as much on the machine as before",
    async () => {
      // On a slow machine little happens between two kills: there are more then.
      for (let n = 1; n <= KILLS || (!hasHappened() && n <= KILLS * 2); n++) {
        await live();
        if (below(START_KILLS) === 0) {
          await daemon.launch(SETTINGS);
          await pause(below(LIFE_MS_MAX));
          await daemon.stop("SIGKILL");
        }
        await daemon.start(SETTINGS);
        await ledger.check();
        await tenants.check();
        if (n % KILLS_PER_COUNT !== 0 && n < KILLS) continue;
        await ledger.check("all");
        await ledger.clear(state.steady);
        await tenants.clear();
        await expectAtRest(daemon, state.before);
      }
      const { record_count, adopted_count } = ledger;
      expect(
        hasHappened(),
        JSON.stringify([record_count, state.name_count, adopted_count, tenants.deleted_count]),
      ).toBe(true);
    },
    // Half a second for each start, up to as much work in between, and the checks.
    KILLS * 12_000,
  );

  it("leaves nothing when it is stopped at last", async () => {
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
