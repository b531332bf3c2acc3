/** The rotation of the operator's key where the store fails in the middle of it. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { randomIds } from "../../src/base/ids.ts";
import type { Keys } from "../../src/tenants/keys.ts";
import { OperatorKey } from "../../src/tenants/operator-key.ts";
import { scratchStores } from "../store/scratch.ts";
import { testKeys } from "./test-keys.ts";

const FIRST = "the-first-key-of-the-operator";

describe("a rotation of the operator's key that fails", () => {
  const scratch = scratchStores();

  /** Rotates with a store that does, or does not, make the change before it fails. */
  const failed = async (isMade: boolean) => {
    const keys = testKeys(scratch().open(), systemClock);
    await keys.ensureBootstrap(FIRST);
    const directory = mkdtempSync(join(tmpdir(), "hearth-operator-key-"));
    const file = join(directory, "key");
    writeFileSync(file, `${FIRST}\n`);
    const failing: Pick<Keys, "rotateBootstrap" | "ensureBootstrap"> = {
      rotateBootstrap: async (key, overlap_seconds) => {
        if (isMade) await keys.rotateBootstrap(key, overlap_seconds);
        throw new Error("not synced");
      },
      ensureBootstrap: (key) => keys.ensureBootstrap(key),
    };
    try {
      const operator_key = new OperatorKey({ file, keys: failing, ids: randomIds() });
      await expect(operator_key.rotate(0)).rejects.toThrow("not synced");
      return { kept: readFileSync(file, "utf8").trim(), caller: await keys.caller(FIRST) };
    } finally {
      rmSync(directory, { recursive: true });
    }
  };

  it("leaves the key before it in the file and good, whether or not the store made the change", async () => {
    for (const isMade of [false, true]) {
      expect(await failed(isMade)).toMatchObject({ kept: FIRST, caller: { is_operator: true } });
    }
  });
});
