/**
 * `npm run bench [-- --quick] [-- --only cold,warm] [-- --out DIR]`: measures hearth against what it is compared with,
 * in one run and in alternating order, prints tables, and writes `report.json` (every sample) and `report.html` (one
 * file with plots) into `bench-results/` or DIR. Bars are ratios within the run where there is a peer, so that they
 * hold on any machine; a bar that is not met is printed as such and is no failure of the program. A section that could
 * not be measured is: the others still are, and the exit code is 1.
 *
 * A full run takes at least 300 cold and 3,000 warm samples in an hour. `--quick` takes eleven minutes.
 * Use a machine that has nothing else to do.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { PROJECT_DIR } from "../src/installation/paths.js";
import { benchArchive } from "./archive.ts";
import { benchAttacks } from "./attacks.ts";
import { benchBurst } from "./burst.ts";
import { machineMs } from "./clock.ts";
import { benchCodeCalls } from "./code-calls.ts";
import { benchCodeChanges } from "./code-changes.ts";
import { benchCodeCold } from "./code-cold.ts";
import { benchCold } from "./cold.ts";
import { benchContainers } from "./containers.ts";
import { benchCrash } from "./crash.ts";
import { benchDecision } from "./decision.ts";
import { benchDensity } from "./density.ts";
import { benchDesktop } from "./desktop.ts";
import { benchExec } from "./exec.ts";
import { type Report, reportHtml } from "./html.ts";
import { benchImages } from "./images.ts";
import { benchLong } from "./long.ts";
import { describeMachine } from "./machine.ts";
import { benchMessageClients } from "./message-clients.ts";
import { benchMessages } from "./messages.ts";
import { benchNetworks } from "./networks.ts";
import { benchProfiles } from "./profiles.ts";
import type { Section } from "./report.ts";
import { benchRestart } from "./restart.ts";
import { benchRollback } from "./rollback.ts";
import { benchServices } from "./services.ts";
import { benchSnapshots } from "./snapshots.ts";
import { benchStorm } from "./storm.ts";
import { benchStream } from "./stream.ts";
import { headerText, lostText, sectionText } from "./text.ts";
import { benchWarm } from "./warm.ts";

const { values: flags } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    out: { type: "string", default: join(PROJECT_DIR, "bench-results") },
    only: { type: "string" },
    // Read by `readDirectories`: where set-up has put things.
    "data-dir": { type: "string" },
    "image-dir": { type: "string" },
  },
});

/** In quick mode a fraction of the samples; the bodies are the same. */
function size<T>(full: T, quick: T): T {
  return flags.quick ? quick : full;
}

const BENCHES: Readonly<Record<string, () => Promise<Section>>> = {
  cold: () => benchCold({ rounds_count: size(4, 2), samples_per_round: size(75, 15) }),
  storm: () => benchStorm({ rounds_count: size(3, 1), storm_count: 100, sustained_count: size(200, 100) }),
  warm: () => benchWarm({ rounds_count: size(3, 1), warmup_ms: size(1_000, 500), length_ms: size(5_000, 2_500) }),
  burst: () => benchBurst({ rounds_count: size(5, 2), calls_count: 100 }),
  rollback: () =>
    benchRollback({
      rounds_count: size(3, 1),
      peak_ms: size(1_000, 600),
      moves_count: size(20, 8),
      interval_ms: 400,
      before_ms: size(2_000, 1_000),
    }),
  decision: () =>
    benchDecision({
      rounds_count: size(6, 3),
      samples_per_round: size(50, 30),
      cycles_per_sample: 300,
      sizes: [10, 100, 1_000, 10_000],
    }),
  density: () =>
    benchDensity({
      rounds_count: size(8, 1),
      idle_counts: [10, 100, 500],
      instances_per_function: 10,
      warmup_ms: 500,
      length_ms: size(4_000, 2_500),
    }),
  attacks: () =>
    benchAttacks({
      rounds_count: size(5, 1),
      warmup_ms: 500,
      length_ms: size(4_000, 2_500),
      blob_mb: 1_024,
      streams_count: 128,
    }),
  restart: () => benchRestart({ samples_count: size(10, 3) }),
  "restart-under-load": () =>
    benchCrash({
      rounds_count: size(6, 2),
      functions_count: 4,
      peak_ms: size(1_000, 600),
      before_ms: size(1_500, 1_000),
      after_ms: size(3_000, 2_000),
    }),
  containers: () =>
    benchContainers({
      rounds_count: size(4, 2),
      samples_per_round: size(50, 15),
      batch_count: 50,
      batches_count: size(5, 2),
      idle_count: 200,
      length_ms: size(4_000, 2_000),
    }),
  images: () =>
    benchImages({
      rounds_count: size(7, 3),
      layers_count: 10,
      layer_mb: 19,
      stacked_count: 60,
      starts_per_round: size(20, 10),
      shared_count: 20,
    }),
  snapshots: () =>
    benchSnapshots({
      rounds_count: size(5, 2),
      files_count: 2_000,
      file_bytes: 100_000,
      takes_per_round: size(20, 8),
      forks_per_round: size(30, 10),
      forks_at_once: 20,
      snapshots_count: size(1_000, 200),
      starts_per_round: size(15, 10),
      small_files_count: 100_000,
      changes_count: 100,
      diffs_per_round: size(5, 3),
    }),
  exec: () =>
    benchExec({ rounds_count: size(4, 2), samples_per_round: size(200, 100), rested_share: 4, clients_count: 8 }),
  desktop: () => benchDesktop({ rounds_count: size(3, 1), samples_per_round: size(10, 5) }),
  profiles: () =>
    benchProfiles({
      rounds_count: size(3, 1),
      samples_per_round: size(20, 5),
      built: ["prod", "amp", "cc", "codex", "rlm", "prod-gui", "aegis"],
      started: ["amp", "cc", "codex", "rlm", "prod-gui", "aegis"],
    }),
  services: () =>
    benchServices({ rounds_count: size(6, 3), warmup_ms: size(1_000, 500), length_ms: size(4_000, 2_000) }),
  messages: () =>
    benchMessages({
      rounds_count: size(6, 3),
      length_ms: size(3_000, 1_500),
      kept_few: 1_000,
      kept_many: size(1_000_000, 100_000),
      reads_per_round: size(1_000, 300),
      inboxes_count: 200,
      fan_outs_per_round: size(10, 5),
    }),
  "message-clients": () =>
    benchMessageClients({ rounds_count: size(6, 3), messages_per_round: size(200, 50), length_ms: size(3_000, 1_500) }),
  networks: () =>
    benchNetworks({
      rounds_count: size(3, 1),
      samples_per_round: size(20, 10),
      members_count: 200,
      queries_per_round: size(1_000, 200),
    }),
  stream: () => benchStream({ rounds_count: size(7, 3), megabytes: 512 }),
  "code-calls": () =>
    benchCodeCalls({ rounds_count: size(3, 1), warmup_ms: size(1_000, 500), length_ms: size(4_000, 2_000) }),
  "code-cold": () =>
    benchCodeCold({
      rounds_count: size(3, 1),
      samples_per_round: size(30, 10),
      bundles_per_round: size(10, 4),
      starts_count: size(60, 30),
    }),
  "code-changes": () =>
    benchCodeChanges({ rounds_count: size(3, 1), calls_count: 100, saves_per_round: size(20, 8), idle_count: 20 }),
  long: () => benchLong({ calls_count: 1_000_000, clients_count: 32, phase_ms: 10_000, warm_phases_count: 3 }),
  archive: () => benchArchive({ rounds_count: 1, files_count: size(64, 8), warmup_files_count: 4 }),
};

/** What stands in the report for a section that broke off. */
function brokenSection(name: string, error: unknown): Section {
  const reason = error instanceof Error ? error.message : String(error);
  const missing = [`section '${name}', which broke off`];
  return { title: name, method: "", rows: [], bars: [], raw: {}, failures: { [reason]: 1 }, not_measured: missing };
}

/** Sections that run only if `--only` names them, or in a full run. */
const LONG = new Set(["long", "desktop", "profiles"]);

const names = flags.only?.split(",") ?? Object.keys(BENCHES).filter((name) => !(flags.quick && LONG.has(name)));
for (const name of names) {
  if (BENCHES[name] === undefined) throw new Error(`no bench '${name}', there are ${Object.keys(BENCHES).join(", ")}`);
}
const header = await describeMachine(flags.quick);
process.stdout.write(`hearth bench\n${headerText(header)}\n`);
const sections: Record<string, Section> = {};
const duration_s: Record<string, number> = {};
for (const [name, bench] of Object.entries(BENCHES)) {
  if (!names.includes(name)) continue;
  const begun_ms = machineMs();
  sections[name] = await bench().catch((error) => {
    process.exitCode = 1;
    return brokenSection(name, error);
  });
  duration_s[name] = Math.round((machineMs() - begun_ms) / 100) / 10;
  process.stdout.write(`${sectionText(sections[name])}\n  (${duration_s[name]} s)\n`);
}
const report: Report = { header, sections, duration_s };
const out = resolve(flags.out);
mkdirSync(out, { recursive: true });
writeFileSync(join(out, "report.json"), JSON.stringify(report));
writeFileSync(join(out, "report.html"), reportHtml(report));
process.stdout.write(`${lostText(Object.values(sections))}\n\n${join(out, "report.html")} and report.json\n`);
