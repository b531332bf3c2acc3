/** How long a daemon takes from the start of its process to the first 200 of /health, when everything is installed. */
import { rmSync } from "node:fs";
import { Daemon, makeDataDir } from "./daemon.ts";
import { distribution, evidence, Samples, type Section, timeBar } from "./report.ts";

const BAR_MS = 2_000;

export interface RestartPlan {
  readonly samples_count: number;
}

export async function benchRestart(plan: RestartPlan): Promise<Section> {
  const data_dir = makeDataDir();
  const ready = new Samples("ready");
  const gone = new Samples("gone after SIGTERM");
  const starts: number[] = [];
  const stops: number[] = [];
  try {
    // The first start makes the store and compiles the seccomp filter.
    for (let i = -1; i < plan.samples_count; i++) {
      const daemon = await Daemon.start(data_dir, { cells: null });
      await daemon.quiet(daemon.cells_target);
      const begun_ms = performance.now();
      await daemon.stop();
      if (i < 0) continue;
      starts.push(daemon.ready_ms);
      stops.push(performance.now() - begun_ms);
    }
  } finally {
    rmSync(data_dir, { recursive: true, force: true });
  }
  ready.rounds.push(starts);
  gone.rounds.push(stops);
  return {
    title: "Restart (ms): from the start of `node src/main.js` to the first 200 of /health",
    method: "The same data directory each time, its cells filled before each stop. /health is asked every 2 ms.",
    rows: [ready.row(), gone.row("cells, network slots and mounts removed")],
    bars: [timeBar("restart to ready, p50", ready, "p50", BAR_MS)],
    plots: [distribution("Start and stop", [ready, gone])],
    ...evidence([ready, gone]),
  };
}
