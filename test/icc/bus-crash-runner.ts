/**
 * A bus in a process that is killed: publishes, receives and acks messages, and prints a line for each step that is done.
 * Arguments: path of the store, URL of the server or `-` for the bus in the store, tag, failpoint or `-`, prefix of the ids.
 */
import { writeSync } from "node:fs";
import { sleep, systemClock } from "../../src/base/clock.ts";
import { armFailpoint } from "../../src/base/failpoints.ts";
import { createLog } from "../../src/base/log.ts";
import { natsServer } from "../../src/base/nats-server.ts";
import { openBus } from "../../src/icc/bus/open.ts";
import { openEmbedded } from "../../src/store/embedded.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";

const [path = "", url = "-", tag = "", failpoint = "-", prefix = ""] = process.argv.slice(2);
const KEY = { tenant_id: "acme", inbox: "ctr_one" };
const PUBLISHERS_COUNT = 8;

const log = createLog("silent", systemClock);
const store = openEmbedded({ path, clock: systemClock, log });
const server = url === "-" ? null : natsServer(url, null);
const bus = openBus({ store, clock: systemClock, quotas: nodeQuotas(), server, tag, log });
await bus.boot();
if (failpoint !== "-") armFailpoint(failpoint);
// Straight to the descriptor: a line that gathers somewhere would be lost with the process.
const say = (line: string) => writeSync(1, `${line}\n`);

// Timers of the clock keep no process alive, and while the server is gone there is nothing else.
setInterval(() => {}, 1_000);

async function publishAll(lane: number): Promise<void> {
  for (let n = 0; ; n++) {
    const msg_id = `${prefix}${lane}-${n}`;
    const message = { ...KEY, msg_id, idempotency_key: "", envelope: Buffer.alloc(1_024, msg_id) };
    try {
      await bus.publish({ ...message, expires_ms: systemClock.epochMs() + 3_600_000 });
      say(`published ${msg_id}`);
    } catch {
      n--;
      await sleep(systemClock, 50);
    }
  }
}

async function receiveAll(): Promise<void> {
  const options = { entries_max: 20, lease_ms: 500, max_deliver: 1_000, is_ordered: true };
  for (;;) {
    const deliveries = await bus.receive(KEY, options).catch(() => []);
    for (const { msg_id, stream_seq, lease } of deliveries) {
      say(`delivered ${msg_id} ${stream_seq}`);
      const settled = await bus.ack({ ...KEY, msg_id }, { lease }).catch(() => null);
      if (settled !== null) say(`acked ${msg_id}`);
    }
    if (deliveries.length === 0) await sleep(systemClock, 5);
  }
}

await Promise.all([...Array.from({ length: PUBLISHERS_COUNT }, (_, lane) => publishAll(lane)), receiveAll()]);
