/**
 * A strict reader of Prometheus' text format 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/): throws at whatever a scraper might choke on.
 */

export interface Family {
  readonly type: "counter" | "gauge" | "histogram";
  /** By `name{label="value",…}`, labels in the order of their names. */
  readonly samples: Map<string, number>;
}

const NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const LABEL = `([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\\\\n]|\\\\["\\\\n])*)"`;
const SAMPLE = new RegExp(
  `^(${NAME})(?:\\{(${LABEL}(?:,${LABEL})*)\\})? (-?(?:\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?|Inf)|\\+Inf)$`,
);

function fail(line: string, why: string): never {
  throw new Error(`${why}: ${line}`);
}

export function seriesName(name: string, labels: Readonly<Record<string, string>>): string {
  const entries = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.length === 0 ? name : `${name}{${entries.map(([key, value]) => `${key}="${value}"`).join(",")}}`;
}

/** The families of a text. Each has its help and type once, ahead of all of its samples, and no series comes twice. */
export function parseExposition(text: string): Map<string, Family> {
  if (!text.endsWith("\n")) fail(text.slice(-80), "no line break at the end");
  const families = new Map<string, Family>();
  const current: { name: string; helped: string } = { name: "", helped: "" };
  for (const line of text.split("\n")) {
    if (line === "") continue;
    if (line.startsWith("#")) readComment(line, families, current);
    else readSample(line, families.get(current.name), current.name);
  }
  for (const [name, family] of families) checkFamily(name, family);
  return families;
}

function readComment(line: string, families: Map<string, Family>, current: { name: string; helped: string }): void {
  const help = new RegExp(`^# HELP (${NAME}) \\S.*$`).exec(line);
  const type = new RegExp(`^# TYPE (${NAME}) (counter|gauge|histogram)$`).exec(line);
  if (help?.[1] !== undefined) {
    if (families.has(help[1])) fail(line, "a family comes twice");
    current.helped = help[1];
  } else if (type?.[1] !== undefined) {
    if (type[1] !== current.helped) fail(line, "a type without its help");
    current.name = type[1];
    families.set(type[1], { type: type[2] as Family["type"], samples: new Map() });
  } else {
    fail(line, "neither help nor type");
  }
}

function readSample(line: string, family: Family | undefined, of: string): void {
  const match = SAMPLE.exec(line);
  if (match === null || family === undefined) throw new Error(`no sample of a family: ${line}`);
  const [, name = "", labels = ""] = match;
  const suffix = name.slice(of.length);
  const isOfFamily = family.type === "histogram" ? ["_bucket", "_sum", "_count"].includes(suffix) : suffix === "";
  if (!name.startsWith(of) || !isOfFamily) fail(line, `not a sample of ${of}`);
  const pairs = [...labels.matchAll(new RegExp(LABEL, "g"))].map(([, key = "", value = ""]) => [key, value] as const);
  if (new Set(pairs.map(([key]) => key)).size !== pairs.length) fail(line, "a label comes twice");
  const series = seriesName(name, Object.fromEntries(pairs));
  if (family.samples.has(series)) fail(line, "a series comes twice");
  family.samples.set(series, Number(line.slice(line.lastIndexOf(" ") + 1).replace("Inf", "Infinity")));
}

/** What a name promises, and that a histogram's buckets add up. */
function checkFamily(name: string, { type, samples }: Family): void {
  if (!name.startsWith("hearth_")) fail(name, "a foreign name");
  if (name.endsWith("_total") !== (type === "counter")) fail(name, "only counters end in _total");
  if (type === "counter" && [...samples.values()].some((value) => value < 0)) fail(name, "a negative counter");
  if (type !== "histogram") return;
  const last = new Map<string, { le: number; value: number }>();
  for (const [series, value] of samples) {
    if (!series.startsWith(`${name}_bucket`)) continue;
    const [, text = ""] = /le="([^"]+)"/.exec(series) ?? fail(series, "a bucket without its bound");
    const le = Number(text.replace("Inf", "Infinity"));
    const key = series
      .replace(/,?le="[^"]+"/, "")
      .replace("{,", "{")
      .replace("{}", "");
    const before = last.get(key);
    if (before !== undefined && (le <= before.le || value < before.value)) fail(series, "buckets out of order");
    last.set(key, { le, value });
  }
  for (const [key, { le, value }] of last) {
    if (le !== Number.POSITIVE_INFINITY) fail(key, "no bucket without a bound");
    if (samples.get(key.replace("_bucket", "_count")) !== value) fail(key, "buckets and count differ");
    if (!samples.has(key.replace("_bucket", "_sum"))) fail(key, "no sum");
  }
}
