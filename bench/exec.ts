/**
 * Commands in a container that runs: `/bin/true` through the API against `crun exec` in the same container, back to
 * back and after a rest, in blocks that alternate. The API's time is the client's, with the job's record committed;
 * crun's is the launcher's, from its fork to the exit.
 */
import { machineMs, pause } from "./clock.ts";
import { PeerContainers } from "./container-peer.ts";
import { createContainer } from "./containers.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { distribution, evidence, ratioBar, Samples, type Section, timeComparison } from "./report.ts";

/** As before cold calls, and for the same reason (cold.ts). */
const REST_MS = 50;
const COMMAND = ["/bin/true"];
const WARMUP_COUNT = 5;

export interface ExecPlan {
  readonly rounds_count: number;
  readonly samples_per_round: number;
  /** Of them one in so many after a rest. */
  readonly rested_share: number;
  readonly clients_count: number;
}

/** Runs it once. Throws unless it was answered with the exit code 0. */
async function execute(daemon: Daemon, connection: Connection, id: string): Promise<number> {
  const begun_ms = performance.now();
  const result = await daemon.callOn(connection, "POST", `/api/containers/${id}/exec`, { command: COMMAND });
  const duration_ms = performance.now() - begun_ms;
  const { exit_code } = result as { exit_code: number };
  if (exit_code !== 0) throw new Error(`exit code ${exit_code}`);
  return duration_ms;
}

async function block(count: number, rest_ms: number, into: Samples, run: () => Promise<number>): Promise<void> {
  const samples: number[] = [];
  for (let i = -WARMUP_COUNT; i < count; i++) {
    if (rest_ms > 0) await pause(rest_ms);
    const duration_ms = await run().catch((error) => into.fail(String(error)));
    if (i >= 0 && typeof duration_ms === "number") samples.push(duration_ms);
  }
  into.rounds.push(samples);
}

/** Many clients at once, each with its own connection. Pushes commands a second. */
async function together(daemon: Daemon, id: string, plan: ExecPlan, into: Samples): Promise<void> {
  const clients = await Promise.all(Array.from({ length: plan.clients_count }, () => Connection.open(daemon.port)));
  let left = plan.samples_per_round * 2;
  const count = left;
  const begun_ms = machineMs();
  await Promise.all(
    clients.map(async (connection) => {
      while (left-- > 0) await execute(daemon, connection, id).catch((error) => into.fail(String(error)));
      connection.close();
    }),
  );
  into.rounds.push([(count * 1_000) / (machineMs() - begun_ms)]);
}

export async function benchExec(plan: ExecPlan): Promise<Section> {
  const api = new Samples("exec through the API");
  const crun = new Samples("crun exec");
  const apiRested = new Samples("exec through the API, after a rest");
  const crunRested = new Samples("crun exec, after a rest");
  const rate = new Samples(`commands a second, ${plan.clients_count} clients`, "a second");
  await withDaemon({ cells: 0 }, async (daemon) => {
    const connection = await Connection.open(daemon.port);
    const id = await createContainer(daemon, connection, "exec");
    const peer = await PeerContainers.open(daemon, id);
    const own = () => execute(daemon, connection, id);
    const theirs = () => peer.exec(daemon, id, COMMAND);
    const rested_count = Math.max(1, Math.floor(plan.samples_per_round / plan.rested_share));
    const steps = [
      () => block(plan.samples_per_round, 0, api, own),
      () => block(plan.samples_per_round, 0, crun, theirs),
      () => block(rested_count, REST_MS, apiRested, own),
      () => block(rested_count, REST_MS, crunRested, theirs),
      () => together(daemon, id, plan, rate),
    ];
    try {
      for (let round = 0; round < plan.rounds_count; round++) {
        for (const step of round % 2 === 0 ? steps : [...steps].reverse()) await step();
      }
    } finally {
      await peer.close();
      connection.close();
    }
  });
  const subjects = [api, crun, apiRested, crunRested, rate];
  return {
    title: "Exec (ms): /bin/true in a container that runs",
    method:
      "hearth: POST …/exec on a kept-alive connection, with the job's record committed. crun: `crun exec` in the same " +
      "container, timed by a C process from fork to exit. Back to back, blocks in alternating order; " +
      `and with ${REST_MS} ms of rest before each.`,
    rows: subjects.map((samples) => samples.row()),
    bars: [ratioBar("exec of /bin/true, p50, of crun exec", api, crun, "p50", 0.5)],
    comparisons: [
      timeComparison("exec of /bin/true, p99, of crun exec", api, crun, "p99"),
      timeComparison("exec of /bin/true after a rest, p50, of crun exec", apiRested, crunRested, "p50"),
    ],
    plots: [distribution("A command in a container that runs", [api, crun, apiRested, crunRested])],
    ...evidence(subjects),
  };
}
