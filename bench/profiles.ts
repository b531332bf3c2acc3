/**
 * Profiles: how long set-up takes to make the release of each one from Debian's packages, and how long a container of each one takes
 * until a command can run in it, beside one of prod.
 *
 * Builds go into an empty image directory of their own, in an order in which the profile below exists. A container's time runs from
 * the request, which is answered at once (`execution=async`), to the end of its first command: the answer of a create, and records of
 * a container with a desktop, wait for the desktop as well.
 */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { NODE_PATH, PROJECT_DIR } from "../src/installation/paths.js";
import { machineMs, pause, until } from "./clock.ts";
import { type Daemon, temporaryDirectory, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { type Bar, countBar, distribution, evidence, pairedBar, Samples, type Section } from "./report.ts";

const LOWEST = "prod";
const LOWEST_BUILD_BAR_S = 30;
const BUILD_BAR_S = 60;
const START_BAR = 1.1;
/** As before cold calls, and for the same reason (cold.ts). */
const REST_MS = 50;
const READY_TIMEOUT_MS = 20_000;
const BUILD_TIMEOUT_MS = 600_000;

export interface ProfilesPlan {
  readonly rounds_count: number;
  readonly samples_per_round: number;
  /** In an order in which each one comes after the profile below it, prod first. */
  readonly built: readonly string[];
  /** Profiles of which containers are made, beside those of prod. */
  readonly started: readonly string[];
}

function build(name: string, directories: readonly string[]): number {
  const begun_ms = machineMs();
  execFileSync(NODE_PATH, ["src/setup/index.js", "profile", "build", name, ...directories], {
    cwd: PROJECT_DIR,
    stdio: "ignore",
    timeout: BUILD_TIMEOUT_MS,
  });
  return (machineMs() - begun_ms) / 1_000;
}

function measureBuilds(names: readonly string[]): Samples[] {
  const directory = temporaryDirectory();
  const directories = ["--data-dir", join(directory, "data"), "--image-dir", join(directory, "images")];
  try {
    return names.map((name) => {
      const samples = new Samples(`build of ${name}`, "s");
      samples.rounds.push([build(name, directories)]);
      return samples;
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Resolves to the milliseconds until a command has run in a new container of the profile. */
async function start(daemon: Daemon, connection: Connection, image: string, name: string): Promise<number> {
  const call = (method: string, path: string, body: object | null) => daemon.callOn(connection, method, path, body);
  const path = `/api/containers/${name}`;
  const begun_ms = performance.now();
  const body = { name, image, memory_limit_mb: 512 };
  const { operation_id } = (await call("POST", "/api/containers?execution=async", body)) as { operation_id: string };
  const waiting = { poll_ms: 1, deadline_ms: READY_TIMEOUT_MS, what: () => `${name} of ${image} is ready` };
  // Refused until the container runs.
  await until(() => call("POST", `${path}/exec`, { command: ["true"] }).catch(() => null), waiting);
  const ready_ms = performance.now() - begun_ms;
  const ended = async () => {
    const { status } = (await call("GET", `/api/operations/${operation_id}`, null)) as { status: string };
    return status === "succeeded" || null;
  };
  await until(ended, { ...waiting, poll_ms: 5 });
  await call("DELETE", path, null);
  return ready_ms;
}

async function measureStarts(plan: ProfilesPlan, subjects: ReadonlyMap<string, Samples>): Promise<void> {
  const images = [...subjects.keys()];
  for (const image of images) build(image, []);
  for (let round = 0; round < plan.rounds_count; round++) {
    const samples = new Map(images.map((image) => [image, [] as number[]]));
    await withDaemon({ cells: 0 }, async (daemon) => {
      const connection = await Connection.open(daemon.port);
      // The first container of each image mounts it.
      for (const image of images) await start(daemon, connection, image, "first");
      for (let i = 0; i < plan.samples_per_round; i++) {
        const turn = i % images.length;
        for (const image of [...images.slice(turn), ...images.slice(0, turn)]) {
          await pause(REST_MS);
          samples.get(image)?.push(await start(daemon, connection, image, `c-${i}`));
        }
      }
      connection.close();
    });
    for (const [image, subject] of subjects) subject.rounds.push(samples.get(image) ?? []);
  }
}

function buildBar(name: string, samples: Samples): Bar {
  const bar = name === LOWEST ? LOWEST_BUILD_BAR_S : BUILD_BAR_S;
  return countBar(samples.label, samples.summary().max, " s", bar);
}

export async function benchProfiles(plan: ProfilesPlan): Promise<Section> {
  const builds = measureBuilds(plan.built);
  const starts = new Map([LOWEST, ...plan.started].map((name) => [name, new Samples(`start of ${name}`)]));
  await measureStarts(plan, starts);
  const lowest = starts.get(LOWEST) ?? new Samples(LOWEST);
  const all = [...builds, ...starts.values()];
  return {
    title: "Profiles: builds (s), and containers until their first command has run (ms)",
    method:
      "Each profile is built once, on those below it, with downloads from the machine's apt sources. Containers are made one after " +
      "the other, of each profile in turn; the image is mounted.",
    rows: all.map((subject) => subject.row(subject.unit === "s" ? "downloads included" : "image mounted")),
    bars: [
      ...builds.map((samples, i) => buildBar(plan.built[i] ?? "", samples)),
      ...plan.started.map((name) =>
        pairedBar(`start of ${name}, p50, of ${LOWEST}`, starts.get(name) ?? lowest, lowest, "p50", START_BAR),
      ),
    ],
    plots: [distribution("Containers of profiles, until the first command has run", [...starts.values()])],
    ...evidence(all),
  };
}
