/** The groups that functions have in a real pool. */
import { describe, expect, it } from "vitest";
import { type Launcher, Pool } from "../../pool/index.ts";
import { RUNTIME_DEFAULT } from "../../runtimes/index.ts";
import type { Instances } from "../../src/engine/ports.ts";
import { Bindings } from "../../src/functions/calls/bindings.ts";
import type { Call } from "../../src/functions/calls/calling.ts";
import type { Outcome } from "../../src/functions/calls/outcome.ts";
import { Classes } from "../../src/functions/classes.ts";
import { Groups } from "../../src/functions/groups.ts";
import type { FunctionRecord } from "../../src/functions/schema.ts";
import { HandClock, HandLauncher } from "../pool/hand-clock.ts";
import { ROOMY } from "../pool/scene.ts";
import { quietLog } from "../store/scratch.ts";
import { BARE_RUNTIMES, NO_CODE, NO_SECRETS } from "./no-parts.ts";

const record = {
  id: "fn_a",
  tenant_id: "ten_a",
  version: 1,
  runtime: RUNTIME_DEFAULT,
  min_instances: 0,
  max_instances: 2,
  memory_limit_mb: 64,
  handler: "cat",
  code_sha256: null,
  working_directory: null,
  instance_concurrency: 1,
} as FunctionRecord;

function desk() {
  const clock = new HandClock();
  const faults: unknown[] = [];
  const hand = new HandLauncher() as unknown as Launcher<Call, Outcome>;
  const pool = new Pool<Call, Outcome>({
    settings: ROOMY,
    clock,
    launcher: hand,
    dispatch_running_max: 4,
    onFault: (fault) => faults.push(fault),
  });
  const images = { state: () => "1", isRelease: async () => true };
  const classes = new Classes({
    runtimes: BARE_RUNTIMES,
    runtimes_directory: "",
    compiled: new Map(),
    imageOf: () => "present",
    images,
    clock,
    log: quietLog,
  });
  let forget: (group: string) => void = () => {};
  const launcher = { onForget: (listener: typeof forget) => (forget = listener) };
  const instances = {} as Instances;
  const bindings = new Bindings({ instances, clock, secrets: NO_SECRETS, code: NO_CODE });
  const groups = new Groups({ pool, launcher, bindings, classes, log: quietLog, queue_max: 10 });
  return { groups, faults, forget: (group: string) => forget(group) };
}

describe("a group that is open", () => {
  it("keeps its class while the version's image comes and goes", () => {
    const { groups, faults } = desk();
    groups.open({ record, image: "earlier" });
    groups.open({ record: { ...record, max_instances: 3 }, image: null });
    groups.open({ record, image: "earlier" });
    expect(faults).toEqual([]);
    expect(groups.status(record)).toMatchObject({ total_count: 0 });
  });

  it("takes another class once the pool has forgotten it", async () => {
    const { groups, faults, forget } = desk();
    groups.open({ record, image: "earlier" });
    await groups.close(record.id, "paused");
    forget("fn_a@1");
    groups.open({ record, image: null });
    expect(faults).toEqual([]);
  });
});
