/**
 * How fast a command's output reaches a client: zeros from `head` in a container, through its minit, the daemon and
 * HTTP to a client in a process of its own that decodes every line.
 */
import { runClient, SpawnServer } from "./baselines.ts";
import { createContainer } from "./containers.ts";
import { withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { evidence, Samples, type Section } from "./report.ts";
import { median } from "./stats.ts";
import type { StreamJob, StreamResult } from "./stream-client.ts";

const MB = 1e6;
const BAR_MB_PER_S = 200;
const TIMEOUT_MS = 60_000;

export interface StreamPlan {
  readonly rounds_count: number;
  readonly megabytes: number;
}

async function streamRound(
  target: Pick<StreamJob, "port" | "path" | "headers">,
  megabytes: number,
  rate: Samples,
): Promise<void> {
  const body = { command: ["head", "-c", String(megabytes * MB), "/dev/zero"], timeout_ms: TIMEOUT_MS };
  const headers = { ...target.headers, "content-type": "application/json" };
  const result = await runClient<StreamResult>("stream-client.ts", { ...target, headers, body });
  if (result.exit_code !== 0) rate.fail(`exit code ${result.exit_code}`);
  else if (result.byte_count !== megabytes * MB) rate.fail(`${result.byte_count} bytes came`);
  else rate.rounds.push([result.byte_count / MB / (result.duration_ms / 1_000)]);
}

export async function benchStream(plan: StreamPlan): Promise<Section> {
  const rate = new Samples("command output to a local client", "MB/s");
  const plain = new Samples("the same from a plain Node server", "MB/s");
  await withDaemon({ cells: 0 }, async (daemon) => {
    const connection = await Connection.open(daemon.port);
    const path = `/api/containers/${await createContainer(daemon, connection, "stream")}/stream`;
    connection.close();
    const server = await SpawnServer.start("stream-server.ts");
    const own = (into: Samples) =>
      streamRound({ port: daemon.port, path, headers: daemon.headers }, plan.megabytes, into);
    const theirs = (into: Samples) => streamRound({ port: server.port, path: "/", headers: {} }, plan.megabytes, into);
    try {
      for (const side of [own, theirs]) await side(new Samples("warm-up"));
      for (let round = 0; round < plan.rounds_count; round++) {
        if (round % 2 === 0) await own(rate);
        await theirs(plain);
        if (round % 2 === 1) await own(rate);
      }
    } finally {
      await server.stop();
    }
  });
  const rounds = rate.rounds.map(([value = Number.NaN], i) => value / (plain.rounds[i]?.[0] ?? Number.NaN));
  return {
    title: `Stream (MB/s): ${plan.megabytes} MB of command output`,
    method:
      "POST …/stream of `head -c` on /dev/zero. Bytes as the command wrote them, not as base64; the time runs from the " +
      "request to the end of the answer. The client is a process of its own and decodes every line. The Node server " +
      "spawns the same command on the machine itself and answers the same lines; rounds alternate.",
    rows: [rate.row(), plain.row()],
    bars: [
      {
        label: "stream, p50 of rounds",
        value: rate.summary().p50,
        bar: BAR_MB_PER_S,
        compare: "at least",
        unit: " MB/s",
        rounds: rate.rounds.flat(),
      },
    ],
    comparisons: [
      {
        label: "stream, rate, of the plain Node server, median of rounds",
        value: median(rounds),
        better: "higher",
        rounds,
      },
    ],
    plots: [
      {
        kind: "lines",
        title: "Rate of each round",
        x: { label: "round", scale: "linear" },
        y: { label: "MB/s of output", scale: "linear" },
        series: [rate, plain].map(({ label, rounds }) => ({
          label,
          points: rounds.map(([value = Number.NaN], i) => [i + 1, value] as const),
          shape: "points",
        })),
        marks: [],
      },
    ],
    ...evidence([rate, plain]),
  };
}
