/** Appends rows until it is killed, and names each one that was acknowledged on standard output. */
import { writeSync } from "node:fs";
import { systemClock } from "../../src/base/clock.ts";
import { createLog } from "../../src/base/log.ts";
import { openEmbedded } from "../../src/store/embedded.ts";
import { NOTES } from "./notes.ts";

const log = createLog("warn", systemClock);
const limits = { wal_checkpoint_bytes: 64 * 1024, wal_restart_bytes: 128 * 1024 };
const store = openEmbedded({ path: process.argv[2] ?? "", clock: systemClock, log, migrations: NOTES, limits });
const append = store.appender("notes", ["id", "body"]);
for (let id = 0; ; ) {
  const ids = Array.from({ length: 7 }, () => id++);
  await Promise.all(ids.map((one) => append([one, "x".repeat(500)])));
  writeSync(1, `${ids.join("\n")}\n`);
}
