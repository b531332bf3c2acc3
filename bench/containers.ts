/**
 * API containers: how long one takes until it is ready, how many get ready in a row, what many idle ones take.
 *
 * A create's time is the client's, until the 201, which is sent when the container runs, answers, and has its network.
 * Each sample stands beside one of the peer (container-peer.ts) a moment later, so that both see the same machine.
 */
import { runLoad } from "./baselines.ts";
import { failureCounts, latencies, measuredCalls } from "./calls.ts";
import { machineMs, pause, until } from "./clock.ts";
import { type Bundle, PeerContainers, type PeerOptions } from "./container-peer.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { containerMemory, daemonRssMb } from "./memory.ts";
import { distribution, evidence, pairedBar, ratioBar, Samples, type Section, timeComparison } from "./report.ts";

/** As before cold calls, and for the same reason (cold.ts). */
const REST_MS = 50;
const LANES = 4;
const REMOVE_DEADLINE_MS = 30_000;
const PAYLOAD = '{"hello":"world"}';

const CRUN: PeerOptions = { command: "crun", has_network: true };
const BARE_RUNC: PeerOptions = { command: "runc", has_network: false };
const BARE_CRUN: PeerOptions = { command: "crun", has_network: false };

export interface ContainersPlan {
  readonly rounds_count: number;
  readonly samples_per_round: number;
  /** Made at once, four at a time. */
  readonly batch_count: number;
  readonly batches_count: number;
  readonly idle_count: number;
  readonly length_ms: number;
}

export async function createContainer(daemon: Daemon, connection: Connection, name: string): Promise<string> {
  const body = { name, image: "prod" };
  const record = (await daemon.callOn(connection, "POST", "/api/containers", body)) as {
    container_id: string;
    exec_ready: boolean;
    network_ready: boolean;
  };
  if (!record.exec_ready || !record.network_ready) throw new Error(`${name} was answered and is not ready`);
  return record.container_id;
}

async function deleteContainer(daemon: Daemon, connection: Connection, id: string): Promise<void> {
  await daemon.callOn(connection, "DELETE", `/api/containers/${id}`, null);
}

/** Runs `work` for 0 to `count`, `LANES` at a time. Resolves to the milliseconds it took. */
async function inLanes(count: number, work: (index: number, lane: number) => Promise<void>): Promise<number> {
  let next = 0;
  const begun_ms = machineMs();
  const lanes = Array.from({ length: LANES }, async (_, lane) => {
    for (let i = next++; i < count; i = next++) await work(i, lane);
  });
  await Promise.all(lanes);
  return machineMs() - begun_ms;
}

class Containers {
  readonly daemon: Daemon;
  readonly peer: PeerContainers;
  readonly #connections: Connection[] = [];
  #made_count = 0;

  private constructor(daemon: Daemon, peer: PeerContainers) {
    this.daemon = daemon;
    this.peer = peer;
  }

  static async open(daemon: Daemon): Promise<Containers> {
    const connection = await Connection.open(daemon.port);
    const model = await createContainer(daemon, connection, "model");
    const peer = await PeerContainers.open(daemon, model);
    await deleteContainer(daemon, connection, model);
    connection.close();
    return new Containers(daemon, peer);
  }

  async create(lane = 0): Promise<string> {
    return createContainer(this.daemon, await this.#lane(lane), `c-${this.#made_count++}`);
  }

  async delete(id: string, lane = 0): Promise<void> {
    return deleteContainer(this.daemon, await this.#lane(lane), id);
  }

  async close(): Promise<void> {
    for (const connection of this.#connections) connection.close();
    await this.peer.close();
  }

  /** Kept alive; the server ends one that was not used for a minute. */
  async #lane(lane: number): Promise<Connection> {
    let connection = this.#connections[lane];
    if (connection?.isOpen !== true) connection = await Connection.open(this.daemon.port);
    this.#connections[lane] = connection;
    return connection;
  }
}

/** The milliseconds of `work`, or its failure in the subject's books. */
async function timed(work: () => Promise<unknown>, into: Samples, samples: number[]): Promise<void> {
  const begun_ms = performance.now();
  try {
    const own_ms = await work();
    samples.push(typeof own_ms === "number" ? own_ms : performance.now() - begun_ms);
  } catch (error) {
    into.fail(String(error));
  }
}

async function createRound(containers: Containers, count: number, hearth: Samples, crun: Samples): Promise<void> {
  const samples: { hearth: number[]; crun: number[] } = { hearth: [], crun: [] };
  for (let i = 0; i < count; i++) {
    const own = async (): Promise<void> => {
      const ids: string[] = [];
      await pause(REST_MS);
      await timed(async () => void ids.push(await containers.create()), hearth, samples.hearth);
      for (const id of ids) await containers.delete(id);
    };
    const theirs = async (): Promise<void> => {
      const bundle = await containers.peer.prepare(CRUN);
      await pause(REST_MS);
      await timed(() => containers.peer.start(bundle), crun, samples.crun);
      await containers.peer.remove(bundle);
    };
    for (const side of i % 2 === 0 ? [own, theirs] : [theirs, own]) await side();
  }
  hearth.rounds.push(samples.hearth);
  crun.rounds.push(samples.crun);
}

async function batchRound(containers: Containers, count: number, into: Samples): Promise<void> {
  const ids: string[] = [];
  await pause(REST_MS);
  into.rounds.push([await inLanes(count, async (_, lane) => void ids.push(await containers.create(lane)))]);
  await inLanes(count, async (i, lane) => containers.delete(ids[i] ?? "", lane));
}

async function peerBatchRound({ peer }: Containers, count: number, how: PeerOptions, into: Samples): Promise<void> {
  const bundles: Bundle[] = [];
  for (let i = 0; i < count; i++) bundles.push(await peer.prepare(how));
  const each = (work: (bundle: Bundle) => Promise<unknown>) =>
    inLanes(count, async (i) => {
      const bundle = bundles[i];
      if (bundle !== undefined) await work(bundle);
    });
  await pause(REST_MS);
  into.rounds.push([await each((bundle) => peer.start(bundle))]);
  await each((bundle) => peer.remove(bundle));
}

/** What is looked at beside idle containers. */
interface Idle {
  readonly reached: Samples;
  readonly pss: Samples;
  readonly charge: Samples;
  readonly rss: Samples;
  readonly alone: Samples;
  readonly beside: Samples;
  readonly gone: Samples;
  held_count: number;
}

async function warmRound(daemon: Daemon, length_ms: number, into: Samples): Promise<void> {
  const result = await runLoad({
    port: daemon.port,
    targets: [{ request: daemon.invocation("busy", PAYLOAD).toString(), expected: PAYLOAD }],
    is_hearth: true,
    clients_count: 1,
    warmup_ms: Math.min(500, length_ms),
    length_ms,
    open: null,
  });
  into.rounds.push(latencies(measuredCalls(result)));
  into.failAll(failureCounts(result));
}

async function runningCount(daemon: Daemon): Promise<number> {
  const path = "/api/containers?state=running&limit=1000";
  return ((await daemon.call("GET", path, null)) as { containers: unknown[] }).containers.length;
}

async function idleRound(containers: Containers, { idle_count, length_ms }: ContainersPlan, idle: Idle): Promise<void> {
  const { daemon } = containers;
  await daemon.deploy({ name: "busy", handler: "cat" });
  await warmRound(daemon, length_ms, idle.alone);
  const rss_before_mb = daemonRssMb(daemon);
  const ids: string[] = [];
  const reached_ms = await inLanes(idle_count, async (_, lane) => void ids.push(await containers.create(lane)));
  idle.reached.rounds.push([reached_ms]);
  await warmRound(daemon, length_ms, idle.beside);
  const memory = containerMemory(daemon, "containers");
  idle.pss.rounds.push(memory.map(({ pss_mb }) => pss_mb));
  idle.charge.rounds.push(memory.map(({ charge_mb }) => charge_mb));
  idle.rss.rounds.push([(daemonRssMb(daemon) - rss_before_mb) / idle_count]);
  idle.held_count = await runningCount(daemon);
  idle.gone.rounds.push([await inLanes(idle_count, async (i, lane) => containers.delete(ids[i] ?? "", lane))]);
  const gone = async (): Promise<true | null> => (containerMemory(daemon, "containers").length === 0 ? true : null);
  await until(gone, { poll_ms: 20, deadline_ms: REMOVE_DEADLINE_MS, what: () => "the containers are gone" });
}

export async function benchContainers(plan: ContainersPlan): Promise<Section> {
  const created = new Samples("create to ready");
  const crun = new Samples("script: network, crun run -d");
  const batch = new Samples(`${plan.batch_count} created, ${LANES} at a time`);
  const runc = new Samples(`${plan.batch_count} × runc run -d, ${LANES} at a time`);
  const crunBatch = new Samples(`${plan.batch_count} × crun run -d, ${LANES} at a time`);
  const beside = `beside ${plan.idle_count} idle containers`;
  const idle: Idle = {
    reached: new Samples(`time to ${plan.idle_count} idle containers`),
    pss: new Samples("PSS of an idle container", "MB"),
    charge: new Samples("cgroup charge of an idle container", "MB"),
    rss: new Samples("daemon RSS for each idle container", "MB"),
    alone: new Samples("warm call, 1 client, alone"),
    beside: new Samples(`warm call, 1 client, ${beside}`),
    gone: new Samples(`time to delete ${plan.idle_count} containers`),
    held_count: 0,
  };
  await withDaemon({ cells: 0 }, async (daemon) => {
    const containers = await Containers.open(daemon);
    try {
      // The first is warm-up: it pays for the first time of both sides.
      await createRound(containers, 1, new Samples("warm-up"), new Samples("warm-up"));
      for (let i = 0; i < plan.rounds_count; i++) await createRound(containers, plan.samples_per_round, created, crun);
      const batches = [
        () => batchRound(containers, plan.batch_count, batch),
        () => peerBatchRound(containers, plan.batch_count, BARE_RUNC, runc),
        () => peerBatchRound(containers, plan.batch_count, BARE_CRUN, crunBatch),
      ];
      for (let i = 0; i < plan.batches_count; i++) {
        for (const side of i % 2 === 0 ? batches : [...batches].reverse()) await side();
      }
      await idleRound(containers, plan, idle);
    } finally {
      await containers.close();
    }
  });
  const subjects = [
    created,
    crun,
    batch,
    runc,
    crunBatch,
    ...Object.values(idle).filter((one) => one instanceof Samples),
  ];
  return {
    title: `Containers (ms unless said otherwise): image prod, ${plan.idle_count} at most`,
    method:
      "hearth: POST /api/containers on a kept-alive connection until the 201: a file system of its own with a limit, " +
      "network, the first process's answer, the state and its events committed. The script finds bundle and root made, " +
      "makes a network namespace with a link to a bridge, runs the same configuration by crun and waits for the same " +
      `first answer; samples alternate, with ${REST_MS} ms of rest before each. runc and crun, ${LANES} at a time, run the ` +
      "same bundles with roots mounted ahead, in network namespaces with nothing in them. The idle ones are hearth's.",
    rows: subjects.map((samples) => samples.row()),
    bars: [
      ratioBar("create to ready, p50, of crun run with its network", created, crun, "p50", 1.3),
      pairedBar(`${plan.batch_count} containers, ${LANES} at a time, of runc run -d`, batch, runc, "p50", 1),
      {
        label: "idle containers held",
        value: idle.held_count,
        bar: plan.idle_count,
        compare: "at least",
        unit: " containers",
        rounds: [],
      },
    ],
    comparisons: [
      timeComparison(`${plan.batch_count} containers, ${LANES} at a time, of crun run -d`, batch, crunBatch, "p50"),
      timeComparison(`warm call, p50, ${beside}, of alone`, idle.beside, idle.alone, "p50"),
    ],
    plots: [
      distribution("Until a container is ready", [created, crun]),
      distribution("Warm call beside idle containers", [idle.alone, idle.beside]),
    ],
    ...evidence(subjects),
  };
}
