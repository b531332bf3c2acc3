/**
 * How fast a command's output reaches a client: zeros from `head` in a container, through its minit, the daemon and
 * HTTP to a client in a process of its own that decodes every line.
 */
import { runClient } from "./baselines.ts";
import { createContainer } from "./containers.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { evidence, Samples, type Section } from "./report.ts";
import type { StreamJob, StreamResult } from "./stream-client.ts";

const MB = 1e6;
const BAR_MB_PER_S = 200;

export interface StreamPlan {
  readonly rounds_count: number;
  readonly megabytes: number;
}

async function streamRound(daemon: Daemon, id: string, megabytes: number, rate: Samples): Promise<void> {
  const job: StreamJob = {
    port: daemon.port,
    path: `/api/containers/${id}/stream`,
    headers: { ...daemon.headers, "content-type": "application/json" },
    body: { command: ["head", "-c", String(megabytes * MB), "/dev/zero"], timeout_ms: 60_000 },
  };
  const result = await runClient<StreamResult>("stream-client.ts", job);
  if (result.exit_code !== 0) rate.fail(`exit code ${result.exit_code}`);
  else if (result.byte_count !== megabytes * MB) rate.fail(`${result.byte_count} bytes came`);
  else rate.rounds.push([result.byte_count / MB / (result.duration_ms / 1_000)]);
}

export async function benchStream(plan: StreamPlan): Promise<Section> {
  const rate = new Samples("command output to a local client", "MB/s");
  await withDaemon({ cells: 0 }, async (daemon) => {
    const connection = await Connection.open(daemon.port);
    const id = await createContainer(daemon, connection, "stream");
    await streamRound(daemon, id, plan.megabytes, new Samples("warm-up"));
    for (let i = 0; i < plan.rounds_count; i++) await streamRound(daemon, id, plan.megabytes, rate);
    connection.close();
  });
  return {
    title: `Stream (MB/s): ${plan.megabytes} MB of command output`,
    method:
      "POST …/stream of `head -c` on /dev/zero. Bytes as the command wrote them, not as base64; the time runs from the " +
      "request to the end of the answer. The client is a process of its own and decodes every line.",
    rows: [rate.row()],
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
    plots: [
      {
        kind: "lines",
        title: "Rate of each round",
        x: { label: "round", scale: "linear" },
        y: { label: "MB/s of output", scale: "linear" },
        series: [
          { label: rate.label, points: rate.rounds.map(([value = Number.NaN], i) => [i + 1, value]), shape: "points" },
        ],
        marks: [],
      },
    ],
    ...evidence([rate]),
  };
}
