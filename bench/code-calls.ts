/**
 * Calls of functions with code, warm: an echo in nodejs and python3, against the same echo on bare hono and on Google's
 * functions-framework. Both peers serve it in the process that takes the request, without isolation, key or record. hearth
 * answers after it committed the record. One generator drives all of them, each in a fresh process, in alternating order.
 *
 * Functions of hearth come in two settings: one instance that serves all calls (`instance_concurrency`, an asynchronous handler),
 * as the peers do, and the default, where an instance serves one call at a time.
 */
import { runLoad, SpawnServer } from "./baselines.ts";
import { LoadSamples, rateBar } from "./calls.ts";
import { asyncEcho, type CodeSpec, deployCode, echo, PAYLOAD, type Runtime } from "./code.ts";
import { withDaemon } from "./daemon.ts";
import { Framework } from "./framework.ts";
import { requestBytes } from "./http.ts";
import { daemonPeakMb } from "./memory.ts";
import { type Bar, countBar, distribution, evidence, Samples, type Section, timeBar } from "./report.ts";

const CLIENTS = [1, 8, 32] as const;
const SHARED = 100;
const SIDES = ["nodejs, shared", "hono", "python3, shared", "functions-framework", "nodejs", "python3"] as const;
const BAR_P99_MS = 12;

type Side = (typeof SIDES)[number];
type ClientsCount = (typeof CLIENTS)[number];

export interface CodeCallsPlan {
  readonly rounds_count: number;
  readonly warmup_ms: number;
  /** Length of each measured phase. */
  readonly length_ms: number;
}

type Subjects = Readonly<Record<Side, ReadonlyMap<ClientsCount, LoadSamples>>>;

function subjectsOf(): Subjects {
  const named = (side: Side): [Side, ReadonlyMap<ClientsCount, LoadSamples>] => [
    side,
    new Map(
      CLIENTS.map((count) => [count, new LoadSamples(`${side}, ${count} ${count === 1 ? "client" : "clients"}`)]),
    ),
  ];
  return Object.fromEntries(SIDES.map(named)) as Subjects;
}

async function loads(
  plan: CodeCallsPlan,
  side: Side,
  port: number,
  request: Buffer,
  subjects: Subjects,
): Promise<void> {
  const is_hearth = side !== "hono" && side !== "functions-framework";
  const known = new Set<string>();
  const target = { request: request.toString(), expected: JSON.stringify(PAYLOAD), is_result: true };
  for (const [clients_count, subject] of subjects[side]) {
    const { warmup_ms, length_ms } = plan;
    const load = { port, targets: [target], is_hearth, clients_count, warmup_ms, length_ms, open: null };
    subject.add(await runLoad(load), known);
  }
}

/** The bench's findings beside its subjects. */
interface Notes {
  readonly daemon_mb: Samples;
  framework: Framework | string;
}

async function withSide(side: Side, plan: CodeCallsPlan, subjects: Subjects, notes: Notes): Promise<void> {
  const direct = requestBytes("POST", "/", {}, PAYLOAD);
  if (side === "functions-framework") {
    if (typeof notes.framework === "string") return;
    await notes.framework.serve((port) => loads(plan, side, port, direct, subjects));
  } else if (side === "hono") {
    const server = await SpawnServer.start("hono-server.ts");
    await loads(plan, side, server.port, direct, subjects).finally(() => server.stop());
  } else {
    const runtime = side.split(",")[0] as Runtime;
    const spec: CodeSpec = { name: "echo", runtime, ...(side === runtime ? {} : { instance_concurrency: SHARED }) };
    await withDaemon({ cells: null }, async (daemon) => {
      await deployCode(daemon, spec, side === runtime ? echo(runtime) : asyncEcho(runtime));
      await loads(plan, side, daemon.port, daemon.invocation("echo", PAYLOAD), subjects);
      notes.daemon_mb.rounds.push([daemonPeakMb(daemon)]);
    });
  }
}

/** Called only for clients counts of the table. */
function at(subjects: Subjects, side: Side, count: ClientsCount): LoadSamples {
  return subjects[side].get(count) ?? new LoadSamples(side);
}

export async function benchCodeCalls(plan: CodeCallsPlan): Promise<Section> {
  const subjects = subjectsOf();
  const notes: Notes = { daemon_mb: new Samples("daemon, most RSS", "MB"), framework: await Framework.install() };
  for (let round = 0; round < plan.rounds_count; round++) {
    for (const side of round % 2 === 0 ? SIDES : [...SIDES].reverse()) await withSide(side, plan, subjects, notes);
  }
  const { framework } = notes;
  if (typeof framework !== "string") framework.remove();
  const has = (side: Side): boolean => side !== "functions-framework" || typeof framework !== "string";
  const all = SIDES.filter(has).flatMap((side) => [...subjects[side].values()]);
  const [hono, shared] = [at(subjects, "hono", 32), at(subjects, "nodejs, shared", 32)];
  const bars: Bar[] = [
    rateBar("nodejs echo a second, 32 clients, of hono", shared, hono, 0.4),
    timeBar("nodejs echo, 8 clients, p99", at(subjects, "nodejs, shared", 8), "p99", BAR_P99_MS),
    rateBar("python3 echo a second, 32 clients, of nodejs", at(subjects, "python3, shared", 32), shared, 0.5),
    rateBar("the same, one call an instance", at(subjects, "python3", 32), at(subjects, "nodejs", 32), 0.5),
  ];
  if (typeof framework !== "string") {
    const peer = at(subjects, "functions-framework", 32);
    bars.push(rateBar("nodejs echo a second, 32 clients, of functions-framework", shared, peer, 2));
  }
  const compared = (label: string, subject: LoadSamples, peer: LoadSamples) => {
    const { value, rounds } = rateBar(label, subject, peer, 1);
    return { label, value, rounds, better: "higher" as const };
  };
  const failed_count = all.reduce((sum, { failed_count }) => sum + failed_count, 0);
  return {
    title: "Functions with code (ms): an echo, against hono and functions-framework",
    method:
      `Phases of ${plan.length_ms / 1000} s after ${plan.warmup_ms / 1000} s of warm-up, closed loop, one generator for all. ` +
      "hearth authenticates, isolates, bounds and commits a record before the answer; the peers echo in the process that takes " +
      `the request. "shared": one instance serves up to ${SHARED} calls; otherwise each instance serves one at a time.`,
    rows: [...all.map((subject) => subject.row(subject.note)), notes.daemon_mb.row()],
    bars: [...bars, countBar("functions with code, failed", failed_count, " calls")],
    comparisons: [
      compared("nodejs echo a second, one call an instance, 32 clients, of hono", at(subjects, "nodejs", 32), hono),
    ],
    plots: CLIENTS.map((count) =>
      distribution(
        `Echo, ${count} ${count === 1 ? "client" : "clients"}`,
        SIDES.filter(has).map((side) => at(subjects, side, count)),
      ),
    ),
    ...(typeof framework === "string" ? { not_measured: [framework] } : {}),
    ...evidence([...all, notes.daemon_mb]),
  };
}
