/** What a daemon has on the machine when nothing is asked of it: counted, to be compared before and after. */
import { isDeepStrictEqual } from "node:util";
import { expect } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { type Daemon, eventually } from "../support/daemon.ts";

export type Counts = Readonly<Record<string, number>>;

/** Containers that live on, and what runs in them. */
export interface Living {
  readonly containers: number;
  readonly processes: number;
}
const NONE: Living = { containers: 0, processes: 0 };

/**
 * Waits until the daemon has `cells` cells, what lives on and nothing else, and counts. No function may have
 * `min_instances`.
 */
export async function countAtRest(daemon: Daemon, cells = 2, living = NONE): Promise<Counts> {
  await poolAtRest(daemon, cells, living);
  const last: { counts: Counts } = { counts: {} };
  // The launcher and the cells. Its children that take links down live a moment longer than the links, and what they
  // take down goes one after the other: twice the same is rest.
  return eventually("nothing else runs", async () => {
    const now = await counts(daemon);
    const isAtRest = now.processes === 1 + cells + living.processes && isDeepStrictEqual(now, last.counts);
    last.counts = now;
    return isAtRest ? now : null;
  });
}

/** Waits until the daemon is at rest and at the same counts as `before`; fails with the difference when it does not get there. */
export async function expectAtRest(daemon: Daemon, before: Counts, cells = 2, living = NONE): Promise<void> {
  await poolAtRest(daemon, cells, living);
  const last: { counts: Counts } = { counts: {} };
  await eventually("the counts are as before", async () => {
    last.counts = await counts(daemon);
    return isDeepStrictEqual(last.counts, before);
  }).catch(() => {});
  // Not counted again: links that rest are removed in batches, by a process of a moment each.
  expect(last.counts).toEqual(before);
}

async function poolAtRest(daemon: Daemon, cells: number, living: Living): Promise<void> {
  // The bridge, the cells and the reserve of network slots, when what a burst had needed is given up again.
  const rest = {
    total_count: 0,
    cells,
    cells_starting: 0,
    links: 1 + cells + living.containers + LIMITS.network_slots_ready,
  };
  const last: { seen: object } = { seen: {} };
  await eventually("the pool is at rest", async () => {
    const { body } = await daemon.call("GET", "/api/functions/pool/stats");
    const { total_count, cells, cells_starting } = body;
    last.seen = { total_count, cells, cells_starting, links: daemon.leftovers().links.length };
    return isDeepStrictEqual(last.seen, rest);
  }).catch(() => expect(last.seen).toEqual(rest));
}

/**
 * A cell counts as its minit. The process of a runtime that some cells have beside it does not: demand decides which cells
 * these are, for minutes after the last function of the runtime was deleted.
 */
async function counts(daemon: Daemon): Promise<Counts> {
  const { body } = await daemon.call("GET", "/api/functions/pool/stats");
  const left = Object.entries(daemon.leftovers()).map(([what, list]): [string, number] => [what, list.length]);
  const all = Object.fromEntries(left);
  return { ...all, processes: (all.processes ?? 0) - residentCount(body.classes) };
}

function residentCount(classes: readonly { readonly class: string; readonly cells: number }[]): number {
  return classes.filter((of) => !of.class.startsWith("shell-")).reduce((sum, { cells }) => sum + cells, 0);
}
