/**
 * Works on an operation until it is killed, in a process of its own. Each step is said on standard output once it is
 * finished; at the one that is named here it waits to be killed.
 */
import { writeSync } from "node:fs";
import { systemClock } from "../../src/base/clock.ts";
import { createLog } from "../../src/base/log.ts";
import { openEmbedded } from "../../src/store/embedded.ts";
import { makeOperations } from "./made.ts";

const [path = "", waits_at = ""] = process.argv.slice(2);
const store = openEmbedded({ path, clock: systemClock, log: createLog("warn", systemClock) });
const { operations } = await makeOperations(store);

for (const resumable of [true, false]) {
  operations.register(resumable ? "wall.build" : "wall.paint", {
    resumable,
    cancellable: true,
    timeout_ms: 60_000,
    run: async (context) => {
      for (const step of ["one", "two", "three"]) {
        await context.finish(step, { step });
        writeSync(1, `${context.operation_id} ${step}\n`);
        if (step === waits_at) await new Promise(() => setInterval(() => {}, 1_000));
      }
      return {};
    },
  });
}
// One of its kind at a time, so that a second one waits.
operations.register("wall.look", {
  resumable: false,
  cancellable: false,
  timeout_ms: 60_000,
  running_max: 1,
  run: () => new Promise(() => {}),
});
await operations.boot();
for (const type of ["wall.build", "wall.paint"]) await operations.accept("a", { type, input: { type } });
const looks = await operations.accept("a", { type: "wall.look" });
const waits = await operations.accept("a", { type: "wall.look" });
const attached = await operations.accept("a", { type: "wall.look", attachment: new Uint8Array(1) });
writeSync(1, `accepted ${looks.operation_id} ${waits.operation_id} ${attached.operation_id}\n`);
setInterval(() => {}, 1_000);
