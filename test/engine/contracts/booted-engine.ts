/** An engine that has booted, for all contracts of its ports together. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect } from "vitest";
import type { Config } from "../../../src/base/config.ts";
import { detectCgroupMode, listGroups } from "../../../src/engine/kernel/control-groups.ts";
import type { Engine } from "../../../src/engine/ports.ts";
import { engineConfig, engineOf } from "../../support/engine.ts";
import { ownNetworkFlags } from "../../support/networks.ts";

export interface BootedEngine {
  readonly engine: Engine;
  readonly config: Config;
}

/** Runs `cases` on one engine with this OCI runtime and helper, and expects that it leaves nothing. */
export function describeEngine(oci_runtime: string, cases: (booted: BootedEngine) => void, minit?: string): void {
  describe(`the engine on ${oci_runtime}`, () => {
    const data_dir = realpathSync(mkdtempSync("/var/tmp/hearth-engine-"));
    const config = engineConfig([...ownNetworkFlags(data_dir), "--oci-runtime", oci_runtime]);
    const engine = engineOf(config, undefined, minit);
    const groups = () => listGroups(detectCgroupMode(), "").filter((name) => name === `hearth-${config.host_tag}`);

    beforeAll(async () => {
      await engine.boot();
      // Until then it starts containers of its own.
      await engine.containers.userNamespacesTried();
    });
    afterAll(async () => {
      await engine.shutdown();
      rmSync(data_dir, { recursive: true, force: true });
      expect(existsSync(config.run_dir)).toBe(false);
      expect(groups()).toEqual([]);
      expect(execFileSync("ip", ["link"]).toString()).not.toContain(config.bridge);
    });

    cases({ engine, config });
  });
}
