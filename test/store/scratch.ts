/** Stores on temporary files, closed and removed after each test. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { createLog } from "../../src/base/log.ts";
import { openEmbedded, type StoreLimits } from "../../src/store/embedded.ts";
import type { Migration } from "../../src/store/migrations.ts";
import type { Store } from "../../src/store/store.ts";

export const quietLog = createLog("silent", systemClock);

export interface Scratch {
  readonly directory: string;
  readonly path: string;
  open(options?: {
    path?: string;
    limits?: Partial<StoreLimits>;
    migrations?: readonly Migration[];
    clock?: Clock;
  }): Store;
}

/** Call in a describe block; each test then asks for its own directory. */
export function scratchStores(): () => Scratch {
  const directories: string[] = [];
  const stores: Store[] = [];
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
  });
  return () => {
    const directory = mkdtempSync(join(tmpdir(), "hearth-store-"));
    directories.push(directory);
    const path = join(directory, "hearth.db");
    return {
      directory,
      path,
      open: ({ path: other = path, limits, migrations, clock = systemClock } = {}) => {
        const store = openEmbedded({ path: other, clock, log: quietLog, limits, migrations });
        stores.push(store);
        return store;
      },
    };
  };
}
