/**
 * Messages as clients have them: from one container to another through the sockets inside, and pairs of publish and ack over HTTP
 * through the API. Both containers read the monotonic clock of the machine.
 */
import { machineMs } from "./clock.ts";
import { createContainer } from "./containers.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { distribution, evidence, Samples, type Section, timeBar } from "./report.ts";
import { median } from "./stats.ts";

const LANES = 8;
const RECEIVE_BAR_MS = 3;
/** Between two messages: each is received before the next one is sent. */
const REST_MS = 20;
const WARMUP_COUNT = 5;
/** With it a message has about 1 KiB. */
const PADDING = "x".repeat(700);
const EXEC_TIMEOUT_MS = 50_000;

const RECEIVER = `import { ack, stream } from "/usr/local/lib/node_modules/hearth-icc/index.js";
const [count, times] = [Number(process.argv[1]), []];
for await (const message of stream()) {
  times.push(Number(process.hrtime.bigint()) / 1e6 - message.payload.sent_ms);
  await ack(message);
  if (times.length === count) break;
}
console.log(JSON.stringify(times));
process.exit(0);`;

const SENDER = `import { send } from "/usr/local/lib/node_modules/hearth-icc/index.js";
const [to, count, padding] = [process.argv[1], Number(process.argv[2]), process.argv[3]];
const [now, times] = [() => Number(process.hrtime.bigint()) / 1e6, []];
for (let n = 0; n < count; n++) {
  await new Promise((resolve) => setTimeout(resolve, ${REST_MS}));
  const sent_ms = now();
  await send(to, { sent_ms, padding });
  times.push(now() - sent_ms);
}
console.log(JSON.stringify(times));
process.exit(0);`;

export interface MessageClientsPlan {
  readonly rounds_count: number;
  readonly messages_per_round: number;
  /** Length of each phase over HTTP. */
  readonly length_ms: number;
}

interface Subjects {
  readonly received: Samples;
  readonly sent: Samples;
  readonly pairs: Samples;
  /** Pairs a second, of each round. */
  readonly rates: number[];
}

/** Runs a module of Node in a container. Resolves to the times that it prints. */
async function timesOf(daemon: Daemon, id: string, module: string, args: readonly string[]): Promise<number[]> {
  const connection = await Connection.open(daemon.port);
  try {
    const command = ["node", "--input-type=module", "-e", module, ...args];
    const body = { command, timeout_ms: EXEC_TIMEOUT_MS };
    const answer = await daemon.callOn(connection, "POST", `/api/containers/${id}/exec`, body);
    const { exit_code, stdout, stderr } = answer as { exit_code: number; stdout: string; stderr: string };
    if (exit_code !== 0) throw new Error(`exit code ${exit_code}: ${stderr}`);
    return (JSON.parse(stdout) as number[]).slice(WARMUP_COUNT);
  } finally {
    connection.close();
  }
}

async function socketRound(daemon: Daemon, [from, to]: readonly [string, string], count: number, into: Subjects) {
  const all = String(count + WARMUP_COUNT);
  const receiving = timesOf(daemon, to, RECEIVER, [all]);
  const [received, sent] = await Promise.all([receiving, timesOf(daemon, from, SENDER, [to, all, PADDING])]);
  into.received.rounds.push(received);
  into.sent.rounds.push(sent);
}

/** Publishes to queues, one for each lane, and acks without a delivery. */
async function pairsRound(daemon: Daemon, length_ms: number, { pairs, rates }: Subjects): Promise<void> {
  const samples: number[] = [];
  const begun_ms = machineMs();
  const lane = async (number: number): Promise<void> => {
    const connection = await Connection.open(daemon.port);
    const container_id = `queue:lane-${number}`;
    while (machineMs() - begun_ms < length_ms) {
      const sent_ms = machineMs();
      const message = { to: container_id, type: "bench", payload: { padding: PADDING } };
      const published = await daemon.callOn(connection, "POST", "/api/icc/messages", message);
      const { msg_id } = published as { msg_id: string };
      await daemon.callOn(connection, "POST", "/api/icc/ack", { container_id, msg_id, action: "ack" });
      samples.push(machineMs() - sent_ms);
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: LANES }, (_, number) => lane(number)));
  rates.push((samples.length * 1_000) / (machineMs() - begun_ms));
  pairs.rounds.push(samples);
}

export async function benchMessageClients(plan: MessageClientsPlan): Promise<Section> {
  const received = new Samples("container to container: from the call of send until the receiver has the message");
  const sent = new Samples("send in a container, until it is durable");
  const pairs = new Samples(`publish and ack over HTTP, ${LANES} clients`);
  const subjects: Subjects = { received, sent, pairs, rates: [] };
  await withDaemon({ cells: 0 }, async (daemon) => {
    const connection = await Connection.open(daemon.port);
    const from = await createContainer(daemon, connection, "from");
    const to = await createContainer(daemon, connection, "to");
    connection.close();
    for (let i = 0; i < plan.rounds_count; i++) {
      await socketRound(daemon, [from, to], plan.messages_per_round, subjects);
      await pairsRound(daemon, plan.length_ms, subjects);
    }
  });
  const all = [received, sent, pairs];
  return {
    title: "Messages of clients (ms): envelopes of 1 KiB in the store, each publish synced",
    method:
      `hearth-icc for Node in two containers of prod: one sends a message each ${REST_MS} ms, the other has a stream open and acks ` +
      "each. Over HTTP: a publish and its ack on a kept-alive connection, in a closed loop, with the key, the limits and the log of " +
      "any request; generator and daemon share the processors.",
    rows: [received.row(), sent.row(), pairs.row(`${median(subjects.rates).toFixed(0)} pairs a second`)],
    bars: [timeBar("container to container, p50", received, "p50", RECEIVE_BAR_MS)],
    comparisons: [],
    plots: [distribution("Messages from container to container", [received, sent])],
    ...evidence(all),
  };
}
