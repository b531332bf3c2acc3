/**
 * Messages at the bus port: publishes with their acks on both backends and against JetStream through its client library,
 * reads by sequence beside few and beside many kept messages, and a fan-out to many inboxes. All subjects run in this process,
 * in alternating order.
 */
import { TestNatsServer } from "../test/support/nats-server.ts";
import { machineMs } from "./clock.ts";
import { busSide, clientSide, KEY, type OpenedBus, openBenchBus, outgoing, type Side } from "./message-sides.ts";
import { type Bar, distribution, evidence, pairedBar, Samples, type Section, timeBar } from "./report.ts";
import { median, seededRandom } from "./stats.ts";

const LANES = 8;
const ENVELOPE_BYTES = 1_024;
/** Size of the messages that are kept a million times: they are smaller, for the disk of the machine. */
const KEPT_BYTES = 256;
const FILLED_AT_ONCE = 1_000;
const PAGE = 100;
const RATE_BAR = 1;
const READ_BAR = 1.5;
const FAN_OUT_BAR_MS = 200;
const SEED = 17;

export interface MessagesPlan {
  readonly rounds_count: number;
  /** Length of each measured phase of pairs. */
  readonly length_ms: number;
  readonly kept_few: number;
  readonly kept_many: number;
  readonly reads_per_round: number;
  readonly inboxes_count: number;
  readonly fan_outs_per_round: number;
}

type Open = (server: TestNatsServer) => Promise<Side>;

const ENVELOPE = Buffer.alloc(ENVELOPE_BYTES, "x");
const SIDES: Readonly<Record<string, Open>> = {
  store: () => busSide({ server: null, is_synced: true }, ENVELOPE),
  "store without syncs": () => busSide({ server: null, is_synced: false }, ENVELOPE),
  "JetStream behind the port": (server) => busSide({ server, is_synced: true }, ENVELOPE),
  "JetStream alone": (server) => clientSide(server, ENVELOPE),
};

/** Times of pairs, and their rate in each round. */
class Pairs extends Samples {
  readonly rates: number[] = [];

  get note(): string {
    return `${median(this.rates).toFixed(0)} a second`;
  }
}

/** Runs lanes that do one thing after the other for a time. */
async function runLanes(pairs: Pairs, length_ms: number, one: (msg_id: string) => Promise<void>): Promise<void> {
  const begun_ms = machineMs();
  const samples: number[] = [];
  const lane = async (number: number) => {
    for (let n = 0; machineMs() - begun_ms < length_ms; n++) {
      const sent_ms = machineMs();
      await one(`${pairs.rounds.length}-${number}-${n}`);
      samples.push(machineMs() - sent_ms);
    }
  };
  await Promise.all(Array.from({ length: LANES }, (_, number) => lane(number)));
  pairs.rates.push((samples.length * 1_000) / (machineMs() - begun_ms));
  pairs.rounds.push(samples);
}

/** Publishes, and acks without a delivery, as the route of an ack does. */
async function settledRound(side: Side, pairs: Pairs, length_ms: number): Promise<void> {
  const { ack } = side;
  if (ack === null) return;
  await runLanes(pairs, length_ms, async (msg_id) => {
    await side.publish(msg_id);
    await ack(msg_id);
  });
}

/** Publishes, and waits until a receiver has acked the message. */
async function deliveredRound(side: Side, pairs: Pairs, length_ms: number): Promise<void> {
  const waiting = new Map<string, () => void>();
  const end = await side.receive((msg_id) => waiting.get(msg_id)?.());
  await runLanes(pairs, length_ms, async (msg_id) => {
    const acked = new Promise<void>((resolve) => waiting.set(msg_id, resolve));
    await side.publish(msg_id);
    await acked;
    waiting.delete(msg_id);
  });
  await end();
}

function rateBar(label: string, subject: Pairs, peer: Pairs): Bar {
  const rounds = subject.rates.map((rate, i) => rate / (peer.rates[i] ?? Number.NaN));
  return { label, value: median(rounds), rounds, bar: RATE_BAR, compare: "at least", unit: "×" };
}

interface PairsResult {
  readonly settled: ReadonlyMap<string, Pairs>;
  readonly delivered: ReadonlyMap<string, Pairs>;
}

async function measurePairs(plan: MessagesPlan, server: TestNatsServer): Promise<PairsResult> {
  const names = Object.keys(SIDES);
  const settled = new Map(names.slice(0, -1).map((name) => [name, new Pairs(`publish and ack, ${name}`)]));
  const delivered = new Map(names.map((name) => [name, new Pairs(`publish, deliver and ack, ${name}`)]));
  for (let i = 0; i < plan.rounds_count; i++) {
    const turn = i % names.length;
    for (const name of [...names.slice(turn), ...names.slice(0, turn)]) {
      for (const [work, subjects] of [
        [settledRound, settled],
        [deliveredRound, delivered],
      ] as const) {
        const [open, pairs] = [SIDES[name], subjects.get(name)];
        if (open === undefined || pairs === undefined) continue;
        const side = await open(server);
        try {
          await work(side, pairs, plan.length_ms);
        } finally {
          await side.close();
        }
      }
    }
  }
  return { settled, delivered };
}

/** Fills one inbox with settled messages: nothing bounds their number but the tenant's bytes. */
async function filled(count: number): Promise<OpenedBus> {
  const opened = await openBenchBus({ server: null, is_synced: false });
  const envelope = Buffer.alloc(KEPT_BYTES, "x");
  for (let n = 0; n < count; n += FILLED_AT_ONCE) {
    const some = Array.from({ length: Math.min(FILLED_AT_ONCE, count - n) }, (_, i) =>
      outgoing(KEY, `m${n + i}`, envelope),
    );
    await Promise.all(some.map((one) => opened.bus.publish({ ...one, is_settled: true })));
  }
  return opened;
}

async function measureReads(plan: MessagesPlan): Promise<Samples[][]> {
  const random = seededRandom(SEED);
  const counts = [plan.kept_few, plan.kept_many];
  const opened: OpenedBus[] = [];
  const label = (what: string, count: number) => `${what} of ${count.toLocaleString("en")} kept`;
  const subjects = ["read of 1", `read of ${PAGE}`].map((what) =>
    counts.map((count) => new Samples(label(what, count))),
  );
  try {
    for (const count of counts) opened.push(await filled(count));
    for (let i = 0; i < plan.rounds_count; i++) {
      const order = i % 2 === 0 ? [0, 1] : [1, 0];
      for (const [which, entries_max] of [1, PAGE].entries()) {
        for (const at of order) {
          const samples: number[] = [];
          for (let n = 0; n < plan.reads_per_round; n++) {
            const from_seq = 1 + Math.floor(random() * ((counts[at] ?? 0) - entries_max));
            const begun_ms = machineMs();
            const entries = await opened[at]?.bus.read(KEY, {
              ...{ from_seq, to_seq: from_seq + entries_max - 1, state: null, entries_max },
            });
            samples.push(machineMs() - begun_ms);
            if (entries?.length !== entries_max) subjects[which]?.[at]?.fail(`${entries?.length} entries`);
          }
          subjects[which]?.[at]?.rounds.push(samples);
        }
      }
    }
  } finally {
    for (const { close } of opened) await close();
  }
  return subjects;
}

/** From the call of a publish to a topic until the receiver of each of its inboxes has the message. */
async function fanOut({ bus }: OpenedBus, inboxes: readonly string[], msg_id: string): Promise<number> {
  const begun_ms = machineMs();
  const received = inboxes.map(
    (inbox) =>
      new Promise<void>((resolve, reject) => {
        const key = { tenant_id: KEY.tenant_id, inbox };
        const look = async () => {
          const options = { entries_max: 1, lease_ms: 30_000, max_deliver: 5, is_ordered: false };
          const [delivery] = await bus.receive(key, options);
          if (delivery === undefined) return;
          end();
          await bus.ack({ ...key, msg_id: delivery.msg_id }, { lease: delivery.lease });
          resolve();
        };
        const end = bus.watch(key, () => void look().catch(reject));
      }),
  );
  const message = outgoing({ ...KEY, inbox: "topic:news" }, msg_id, ENVELOPE);
  await bus.publish({ ...message, is_settled: true, copies: inboxes });
  await Promise.all(received);
  return machineMs() - begun_ms;
}

async function measureFanOut(plan: MessagesPlan, server: TestNatsServer): Promise<Samples[]> {
  const inboxes = Array.from({ length: plan.inboxes_count }, (_, i) => `ctr_${i}`);
  const label = (name: string) => `fan-out to ${plan.inboxes_count} receivers, ${name}`;
  const subjects = [new Samples(label("store")), new Samples(label("JetStream behind the port"))];
  for (let i = 0; i < plan.rounds_count; i++) {
    for (const at of i % 2 === 0 ? [0, 1] : [1, 0]) {
      const opened = await openBenchBus({ server: at === 0 ? null : server, is_synced: true });
      // The first one makes the inboxes.
      await fanOut(opened, inboxes, "first");
      const samples: number[] = [];
      for (let n = 0; n < plan.fan_outs_per_round; n++) samples.push(await fanOut(opened, inboxes, `m${n}`));
      subjects[at]?.rounds.push(samples);
      await opened.close();
    }
  }
  return subjects;
}

export async function benchMessages(plan: MessagesPlan): Promise<Section> {
  const server = await TestNatsServer.start();
  try {
    const { settled, delivered } = await measurePairs(plan, server);
    const fans = await measureFanOut(plan, server);
    const reads = await measureReads(plan);
    const of = (pairs: ReadonlyMap<string, Pairs>, name: string) => pairs.get(name) ?? new Pairs(name);
    const pairs = [...settled.values(), ...delivered.values()];
    const ratio = (what: string, all: ReadonlyMap<string, Pairs>, name: string, peer: string) =>
      rateBar(`${what}: ${name}, of ${peer}`, of(all, name), of(all, peer));
    const all = [...pairs, ...fans, ...reads.flat()];
    return {
      title: `Messages at the bus port (ms): ${LANES} in flight, envelopes of 1 KiB`,
      method:
        "Pairs are a publish and its ack, in a closed loop. Syncs: the store syncs its log before it answers a publish, and not before " +
        "an ack; nats-server 2.9 writes to its files before it answers, and syncs them every two minutes, whatever its configuration, so the store without syncs has " +
        "its guarantee: commits survive the end of a process, not a power cut. Behind the port, a publish is PubAck and a row of the " +
        `store. JetStream alone: PubAck, consume, and confirmed acks. Kept messages have ${KEPT_BYTES} bytes, all in one inbox. A fan-out ` +
        "ends when the last receiver has acked its copy.",
      rows: [...pairs.map((one) => one.row(one.note)), ...[...fans, ...reads.flat()].map((one) => one.row())],
      bars: [
        ratio("publish and ack", settled, "store", "JetStream behind the port"),
        ratio("publish, deliver and ack", delivered, "store", "JetStream behind the port"),
        ratio("publish, deliver and ack", delivered, "store", "JetStream alone"),
        ratio("publish, deliver and ack", delivered, "store without syncs", "JetStream alone"),
        ratio("publish and ack", settled, "store without syncs", "JetStream behind the port"),
        ratio("publish, deliver and ack", delivered, "store without syncs", "JetStream behind the port"),
        ...reads.flatMap(([few, many]) =>
          few === undefined || many === undefined
            ? []
            : [pairedBar(`${many.label}, of ${plan.kept_few.toLocaleString("en")}, p50`, many, few, "p50", READ_BAR)],
        ),
        ...fans.slice(0, 1).map((one) => timeBar(`${one.label}, p50`, one, "p50", FAN_OUT_BAR_MS)),
      ],
      comparisons: [],
      plots: [distribution("Messages: publish, deliver and ack", [...delivered.values()])],
      not_measured: ["a JetStream cluster, a server on another host, a newer nats-server that syncs each message"],
      ...evidence(all),
    };
  } finally {
    await server.stop();
  }
}
