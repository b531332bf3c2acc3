/** The bodies of the bench with a handful of samples, so that they cannot rot. The figures are not looked at. */
import { describe, expect, it } from "vitest";
import { benchArchive } from "../../bench/archive.ts";
import { benchAttacks } from "../../bench/attacks.ts";
import { benchBurst } from "../../bench/burst.ts";
import { checkClasses } from "../../bench/calls.ts";
import { benchCodeCalls } from "../../bench/code-calls.ts";
import { benchCodeChanges } from "../../bench/code-changes.ts";
import { benchCodeCold } from "../../bench/code-cold.ts";
import { benchCold } from "../../bench/cold.ts";
import { benchContainers } from "../../bench/containers.ts";
import { benchCrash } from "../../bench/crash.ts";
import { benchDensity } from "../../bench/density.ts";
import { benchExec } from "../../bench/exec.ts";
import { reportHtml } from "../../bench/html.ts";
import { benchImages } from "../../bench/images.ts";
import type { Call } from "../../bench/load.ts";
import { benchLong } from "../../bench/long.ts";
import { describeMachine, type Header } from "../../bench/machine.ts";
import { benchMessageClients } from "../../bench/message-clients.ts";
import { benchMessages } from "../../bench/messages.ts";
import { benchNetworks } from "../../bench/networks.ts";
import { benchProfiles } from "../../bench/profiles.ts";
import type { Section } from "../../bench/report.ts";
import { benchRestart } from "../../bench/restart.ts";
import { benchRollback, callsAfter, type Move, strayCalls } from "../../bench/rollback.ts";
import { linearScale, logScale, shareScale } from "../../bench/scale.ts";
import { benchServices } from "../../bench/services.ts";
import { benchSnapshots } from "../../bench/snapshots.ts";
import { median, percentile, poissonArrivals, summarize } from "../../bench/stats.ts";
import { benchStorm } from "../../bench/storm.ts";
import { benchStream } from "../../bench/stream.ts";
import { figure, headerText, sectionText } from "../../bench/text.ts";
import { benchWarm } from "../../bench/warm.ts";

/** What the tests below measured, for the report at the end. */
const measured: Record<string, Section> = {};

/** Every call succeeded, every bar has a figure, every plot has its samples, and the section prints. */
function expectSound(name: string, section: Section): void {
  measured[name] = section;
  expect(section.failures).toEqual({});
  for (const bar of section.bars) expect(Number.isFinite(bar.value), bar.label).toBe(true);
  for (const { label, value } of section.comparisons ?? []) expect(Number.isFinite(value), label).toBe(true);
  for (const row of section.rows) expect(section.raw[row.label]?.flat(), row.label).toHaveLength(row.summary.count);
  const drawn = (section.plots ?? []).flatMap((plot) => (plot.kind === "distribution" ? plot.of : []));
  expect(Object.keys(section.raw)).toEqual(expect.arrayContaining(drawn));
  expect(sectionText(section)).toContain(section.title);
}

function counts(section: Section): Record<string, number> {
  return Object.fromEntries(section.rows.map((row) => [row.label, row.summary.count]));
}

function barValues(section: Section): Record<string, number> {
  return Object.fromEntries(section.bars.map((bar) => [bar.label, bar.value]));
}

/** Elements of a page in the order they open, with their text. Throws when one is not closed, or closed too early. */
function parseElements(page: string): { name: string; text: string }[] {
  const opened: { name: string; text: string }[] = [];
  const all: typeof opened = [];
  for (const [, text = "", end = "", name = "", rest = ""] of page.matchAll(
    /([^<]*)<(\/?)([\w!]+)((?:"[^"]*"|[^>"])*)>/g,
  )) {
    for (const element of opened) element.text += text;
    if (name === "!doctype" || rest.endsWith("/")) continue;
    if (end === "") {
      const element = { name, text: "" };
      opened.push(element);
      all.push(element);
    } else if (opened.pop()?.name !== name) throw new Error(`</${name}> closes another element`);
  }
  if (opened.length > 0) throw new Error(`<${opened.at(-1)?.name}> is not closed`);
  return all;
}

describe("bench", () => {
  it("takes cold samples with a cell, without one, of crun and of runc", async () => {
    const section = await benchCold({ rounds_count: 1, samples_per_round: 2 });
    expectSound("cold", section);
    expect(Object.values(counts(section))).toEqual([2, 2, 2, 2, 2]);
  }, 120_000);

  it("counts hits and misses of calls that outrun the cells", async () => {
    const section = await benchStorm({ rounds_count: 1, storm_count: 12, sustained_count: 12 });
    expectSound("storm", section);
    const [hits = 0, misses = 0, all, crun] = Object.values(counts(section));
    expect([hits + misses, all, crun]).toEqual([12, 1, 12]);
    expect(hits).toBeGreaterThan(0);
  }, 120_000);

  it("loads hearth and the spawn-cat server in closed and in open loop", async () => {
    const section = await benchWarm({ rounds_count: 1, warmup_ms: 100, length_ms: 200 });
    expectSound("warm", section);
    const subjects = section.rows.filter((row) => !row.label.endsWith("the cold starts among them"));
    expect(subjects).toHaveLength(7);
    for (const row of section.rows) expect(row.summary.count, row.label).toBeGreaterThan(0);
  }, 120_000);

  it("answers every call of a burst", async () => {
    const section = await benchBurst({ rounds_count: 1, calls_count: 20 });
    expectSound("burst", section);
    expect(counts(section)).toEqual({ "each call": 20, "last answer": 1 });
  }, 120_000);

  it("moves versions under load without a failed call, and without a cold one after a rollback", async () => {
    const section = await benchRollback({
      rounds_count: 1,
      peak_ms: 200,
      moves_count: 4,
      interval_ms: 100,
      before_ms: 200,
    });
    expectSound("rollback", section);
    expect(Object.values(counts(section)).slice(0, 2)).toEqual([2, 2]);
    expect(Object.values(barValues(section)).slice(0, 3)).toEqual([0, 0, 0]);
  }, 120_000);

  it("holds idle instances, up and down, and weighs each container", async () => {
    const plan = { rounds_count: 2, idle_counts: [2, 6], instances_per_function: 2, warmup_ms: 100, length_ms: 200 };
    const section = await benchDensity(plan);
    expectSound("density", section);
    expect(barValues(section)["idle instances held"]).toBeGreaterThanOrEqual(6);
    const weighed = section.rows.find(({ label }) => label === "PSS of a container, 6 idle");
    expect(weighed?.summary.count).toBeGreaterThanOrEqual(2 * 6);
    expect(weighed?.summary.p50).toBeGreaterThan(0);
  }, 120_000);

  it("serves one tenant beside the attacks of another", async () => {
    const plan = { rounds_count: 1, warmup_ms: 100, length_ms: 300, blob_mb: 32, streams_count: 24 };
    const section = await benchAttacks(plan);
    expectSound("attacks", section);
    expect(Object.keys(barValues(section))).toHaveLength(section.rows.length - 1);
    for (const row of section.rows) expect(row.summary.count, row.label).toBeGreaterThan(0);
  }, 120_000);

  it("restarts a daemon and waits until it is gone", async () => {
    const section = await benchRestart({ samples_count: 1 });
    expectSound("restart", section);
    expect(counts(section)).toEqual({ ready: 1, "gone after SIGTERM": 1 });
  }, 120_000);

  it("kills a daemon under load and finds every answered record after its restart", async () => {
    const section = await benchCrash({
      rounds_count: 1,
      functions_count: 2,
      peak_ms: 200,
      before_ms: 300,
      // A start takes four seconds on a slow machine.
      after_ms: 10_000,
    });
    expectSound("restart-under-load", section);
    const [, lost, failed] = Object.values(barValues(section));
    expect([lost, failed]).toEqual([0, 0]);
  }, 120_000);

  it("makes containers beside those of a script, some at once, and holds some", async () => {
    const section = await benchContainers({
      rounds_count: 1,
      samples_per_round: 2,
      batch_count: 4,
      batches_count: 1,
      idle_count: 4,
      length_ms: 200,
    });
    expectSound("containers", section);
    expect(Object.values(counts(section)).slice(0, 7)).toEqual([2, 2, 1, 1, 1, 1, 4]);
    expect(barValues(section)["idle containers held"]).toBe(4);
  }, 120_000);

  it("pulls images beside buildah, and makes containers of them", async () => {
    const section = await benchImages({
      rounds_count: 1,
      layers_count: 3,
      layer_mb: 0.1,
      stacked_count: 5,
      starts_per_round: 2,
      shared_count: 2,
    });
    expectSound("images", section);
    expect(Object.values(counts(section))).toEqual([1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1]);
  }, 240_000);

  it("takes snapshots, forks beside creates, starts beside snapshots, and compares", async () => {
    const section = await benchSnapshots({
      rounds_count: 1,
      files_count: 150,
      file_bytes: 1_000,
      takes_per_round: 2,
      forks_per_round: 2,
      forks_at_once: 2,
      snapshots_count: 3,
      starts_per_round: 2,
      small_files_count: 1_200,
      changes_count: 10,
      diffs_per_round: 2,
    });
    expectSound("snapshots", section);
    expect(Object.values(counts(section))).toEqual([2, 2, 2, 2, 4, 1, 2, 2, 1, 1, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2]);
  }, 240_000);

  it("runs commands in a container beside the runtime's own", async () => {
    const section = await benchExec({ rounds_count: 1, samples_per_round: 4, rested_share: 2, clients_count: 2 });
    expectSound("exec", section);
    expect(Object.values(counts(section))).toEqual([4, 4, 2, 2, 1]);
  }, 120_000);

  it("builds profiles, and makes containers of them beside those of prod", async () => {
    const plan = { rounds_count: 1, samples_per_round: 2, built: ["prod", "amp"], started: ["prod-gui"] };
    const section = await benchProfiles(plan);
    expectSound("profiles", section);
    expect(Object.values(counts(section))).toEqual([1, 1, 2, 2]);
  }, 480_000);

  it("loads a published service, its container and hono's proxy", async () => {
    const section = await benchServices({ rounds_count: 1, warmup_ms: 100, length_ms: 200 });
    expectSound("services", section);
    expect(section.rows).toHaveLength(6);
    for (const row of section.rows) expect(row.summary.count, row.label).toBeGreaterThan(0);
  }, 120_000);

  it("publishes and acks messages on both buses, reads them and fans them out", async () => {
    const kept = { kept_few: 200, kept_many: 2_000, reads_per_round: 5 };
    const plan = { rounds_count: 1, length_ms: 100, ...kept, inboxes_count: 5, fan_outs_per_round: 2 };
    const section = await benchMessages(plan);
    expectSound("messages", section);
    expect(section.rows.slice(7).map(({ summary }) => summary.count)).toEqual([2, 2, 5, 5, 5, 5]);
    for (const row of section.rows) expect(row.summary.count, row.label).toBeGreaterThan(0);
  }, 120_000);

  it("sends messages from container to container, and publishes and acks over HTTP", async () => {
    const section = await benchMessageClients({ rounds_count: 1, messages_per_round: 3, length_ms: 200 });
    expectSound("message-clients", section);
    expect(section.rows.map(({ summary }) => summary.count)).toEqual([3, 3, expect.any(Number)]);
  }, 120_000);

  it("makes containers in private networks, and asks for their names", async () => {
    const plan = { rounds_count: 1, samples_per_round: 2, members_count: 3, queries_per_round: 5 };
    const section = await benchNetworks(plan);
    expectSound("networks", section);
    expect(Object.values(counts(section))).toEqual([2, 2, 2, 2, 5]);
  }, 120_000);

  it("reads a command's output to its last byte", async () => {
    const section = await benchStream({ rounds_count: 2, megabytes: 3 });
    expectSound("stream", section);
    expect(Object.values(counts(section))).toEqual([2, 2]);
  }, 120_000);

  it("loads functions with code beside hono, and beside functions-framework where it can be installed", async () => {
    const section = await benchCodeCalls({ rounds_count: 1, warmup_ms: 100, length_ms: 200 });
    expectSound("code-calls", section);
    const missing = section.not_measured ?? [];
    expect(section.rows).toHaveLength((missing.length === 0 ? 6 : 5) * 3 + 1);
    for (const row of section.rows) expect(row.summary.count, row.label).toBeGreaterThan(0);
  }, 240_000);

  it("takes cold samples of functions with code, and starts instances without cells", async () => {
    const plan = { rounds_count: 1, samples_per_round: 2, bundles_per_round: 1, starts_count: 3 };
    const section = await benchCodeCold(plan);
    expectSound("code-cold", section);
    expect(Object.values(counts(section))).toEqual([150, 2, 2, 1, 1, 1, 150, 2, 2, 1, 1, 1, 1]);
  }, 240_000);

  it("calls a function with code from zero, saves and weighs", async () => {
    const plan = { rounds_count: 1, calls_count: 20, saves_per_round: 2, idle_count: 2 };
    const section = await benchCodeChanges(plan);
    expectSound("code-changes", section);
    expect(Object.values(counts(section))).toEqual([20, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
  }, 240_000);

  it("looks at the daemon while it makes many calls", async () => {
    const section = await benchLong({ calls_count: 2_000, clients_count: 4, phase_ms: 300, warm_phases_count: 1 });
    expectSound("long", section);
    expect(section.rows[0]?.summary.count).toBeGreaterThan(0);
  }, 240_000);

  it("sends and takes archives, packed and not, and tells how much the daemon grew", async () => {
    const section = await benchArchive({ rounds_count: 1, files_count: 1, warmup_files_count: 1 });
    expectSound("archive", section);
    // Two formats: four ways and tar, and the growth of the four.
    expect(Object.values(counts(section))).toEqual(Array(18).fill(1));
  }, 120_000);

  it("names the machine, the runtimes and what it leaves out", async () => {
    const text = headerText(await describeMachine(true));
    expect(text).toMatch(/crun version \d/);
    expect(text).toMatch(/runc version \d/);
    expect(text).toContain("not measured");
  });
});

const HEADER: Header = {
  date: "2026-11-21T00:00:00.000Z",
  is_quick: true,
  kernel: "6.1",
  cpu: "a <b>fast</b> one",
  cpu_count: 2,
  memory_mb: 1,
  cgroup_mode: "hybrid",
  node: "v24",
  crun: "crun 1",
  runc: "runc 1",
  load_average: 0,
  not_measured: ["the moon"],
};

describe("the bench's page", () => {
  it("has every figure of the tables, and of the JSON that it was made from", () => {
    const json = JSON.parse(JSON.stringify({ header: HEADER, sections: measured, duration_s: {} }));
    const elements = parseElements(reportHtml(json));
    const rows = elements.filter(({ name }) => name === "tr").map(({ text }) => text);
    const items = elements.filter(({ name }) => name === "li").map(({ text }) => text);
    expect(Object.keys(measured)).not.toEqual([]);
    for (const { rows: wanted, bars } of Object.values(measured)) {
      for (const { label, summary } of wanted) {
        const found = rows.find((row) => row.startsWith(label) && row.includes(figure(summary.p99_9)));
        expect(found, label).toContain(figure(summary.max));
      }
      for (const bar of bars)
        expect(items.some((item) => item.includes(`${bar.label}: ${figure(bar.value)}`))).toBe(true);
    }
    expect(elements.filter(({ name }) => name === "figure").length).toBeGreaterThanOrEqual(
      Object.keys(measured).length,
    );
  });

  it("fetches nothing, runs nothing and escapes every text", () => {
    const bar = {
      label: "<i>bar</i>",
      value: Number.NaN,
      bar: 1,
      compare: "at most",
      unit: " ms",
      rounds: [],
    } as const;
    const hostile = '"><script>alert(1)</script>';
    const section: Section = {
      title: hostile,
      method: hostile,
      rows: [{ label: hostile, summary: summarize([1, 2]), failed_count: 1, note: hostile }],
      bars: [bar],
      comparisons: [{ label: hostile, value: 2, better: "lower", rounds: [] }],
      plots: [
        { kind: "distribution", title: hostile, axis: hostile, of: [hostile] },
        {
          kind: "lines",
          title: hostile,
          x: { label: hostile, scale: "log" },
          y: { label: hostile, scale: "linear" },
          series: [{ label: hostile, points: [[1, Number.NaN]], shape: "steps" }],
          marks: [{ at: 1, label: hostile }],
        },
      ],
      not_measured: [hostile],
      raw: { [hostile]: [[1, 2]] },
      failures: { [hostile]: 3 },
    };
    const page = reportHtml({ header: HEADER, sections: { [hostile]: section }, duration_s: { [hostile]: 1 } });
    const names = new Set(parseElements(page).map(({ name }) => name));
    for (const banned of ["script", "link", "img", "iframe", "b1", "i"]) expect(names.has(banned), banned).toBe(false);
    expect(page).not.toMatch(/(src|href)="(?!#)/);
    expect(page).not.toMatch(/url\(|@import|https?:/);
    expect(page).toContain("default-src 'none'");
    expect(page).not.toContain("NaN");
    expect(page).toContain("NOT MET</b>&lt;i&gt;bar&lt;/i&gt;: –");
  });
});

/** An answered call from 0 to 1 ms, but for what is given. */
function call(given: Partial<Call>, record: Partial<NonNullable<Call["record"]>>): Call {
  const base = { invocation_id: "inv_1", version: 1, cold_start: false, instance_nonce: "a" };
  return { target: 0, due_ms: 0, sent_ms: 0, done_ms: 1, failure: null, record: { ...base, ...record }, ...given };
}

describe("bench classes", () => {
  it("find a cold start of an instance that had served, in this load or before", () => {
    const cold = call({}, { cold_start: true });
    const later = call({ sent_ms: 2, done_ms: 3 }, {});
    expect(checkClasses([cold, later], new Set())).toEqual({ contradictions: {}, warm_first_count: 0 });
    // Answered in the wrong order, but under way at the same time.
    expect(checkClasses([call({ done_ms: 0.9 }, {}), cold], new Set()).contradictions).toEqual({});
    const found = { "cold_start of an instance that had served": 1 };
    const afterwards = call({ sent_ms: 4, done_ms: 5 }, { cold_start: true });
    expect(checkClasses([later, afterwards], new Set()).contradictions).toEqual(found);
    expect(checkClasses([cold, afterwards], new Set()).contradictions).toEqual(found);
    expect(checkClasses([cold], new Set(["a"])).contradictions).toEqual(found);
  });

  it("find an instance of two versions, and count those whose first call was warm", () => {
    const known = new Set(["b"]);
    const calls = [call({}, {}), call({}, { version: 2 }), call({}, { instance_nonce: "b" })];
    expect(checkClasses(calls, known)).toEqual({
      contradictions: { "an instance served two functions or versions": 1 },
      warm_first_count: 1,
    });
    expect([...known]).toEqual(["b", "a"]);
  });
});

describe("bench of rollbacks", () => {
  const moves: readonly Move[] = [
    { kind: "PUT", version: 2, sent_ms: 10, done_ms: 20 },
    { kind: "rollback", version: 1, sent_ms: 30, done_ms: 32 },
  ];
  const at = (sent_ms: number, done_ms: number, version: number): Call => call({ sent_ms, done_ms }, { version });

  it("take a version for current from the moment it is asked for until the next one is answered", () => {
    const explained = [at(0, 5, 1), at(15, 18, 1), at(19, 40, 1), at(11, 12, 2), at(31, 50, 2), at(31, 50, 1)];
    expect(strayCalls(explained, 1, moves)).toEqual([]);
    const strays = [at(0, 9, 2), at(21, 29, 1), at(33, 40, 2), at(33, 40, 3)];
    expect(strayCalls([...explained, ...strays], 1, moves)).toEqual(strays);
  });

  it("count a call for each move that it was under way in", () => {
    const calls = [at(0, 5, 1), at(5, 15, 1), at(25, 31, 2), at(40, 41, 1)];
    expect(callsAfter("PUT", calls, moves)).toEqual([calls[1], calls[2]]);
    expect(callsAfter("rollback", calls, moves)).toEqual([calls[2], calls[3]]);
  });
});

describe("bench statistics", () => {
  it("take the nearest rank, which is always a sample", () => {
    const samples = Array.from({ length: 1000 }, (_, i) => 1000 - i);
    expect(summarize(samples)).toEqual({ count: 1000, p50: 500, p90: 900, p99: 990, p99_9: 999, max: 1000 });
    expect(median([3, 1, 2])).toBe(2);
    expect(percentile([7], 99)).toBe(7);
    expect(percentile([], 50)).toBeNaN();
  });

  it("draw the same Poisson arrivals from the same seed, at the rate that was asked for", () => {
    const arrivals = poissonArrivals(500, 20_000, 7);
    expect(arrivals).toEqual(poissonArrivals(500, 20_000, 7));
    expect(arrivals).not.toEqual(poissonArrivals(500, 20_000, 8));
    // 10,000 expected with a standard deviation of 100.
    expect(Math.abs(arrivals.length - 10_000)).toBeLessThan(500);
    expect([...arrivals]).toEqual([...arrivals].sort((a, b) => a - b));
  });

  it("put axes around what they show, ending at round numbers", () => {
    const span = { from: 0, to: 100 };
    const labels = (scale: ReturnType<typeof logScale>): string[] => scale.ticks.map(({ label }) => label);
    expect(labels(logScale([0.3, 9], span))).toEqual(["0.20", "0.50", "1", "2", "5", "10"]);
    expect(logScale([1, 100], span).position(10)).toBeCloseTo(50);
    expect(labels(linearScale([0, 7], span))).toEqual(["0", "1", "2", "3", "4", "5", "6", "7"]);
    expect(linearScale([-5, 5], span).position(0)).toBeCloseTo(50);
    expect(labels(shareScale(2_000, span))).toEqual(["0 %", "50 %", "90 %", "99 %", "99.9 %"]);
    expect(labels(logScale([], span)).length).toBeGreaterThan(1);
  });
});
