/** Results as text for a terminal, and how a figure is written wherever it stands. */
import { type Header, headerLines } from "./machine.ts";
import { type Bar, type Comparison, isLost, isMet, type Row, type Section } from "./report.ts";
import type { Summary } from "./stats.ts";

/** The columns of every table. */
export const COLUMNS: readonly (readonly [string, keyof Summary])[] = [
  ["p50", "p50"],
  ["p90", "p90"],
  ["p99", "p99"],
  ["p99.9", "p99_9"],
  ["max", "max"],
];

/** Two or three digits that count; a whole number as it is. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size < 1) return value.toPrecision(2);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** A row's label with its unit, where that is not the usual one. */
export function rowLabel({ label, unit }: Row): string {
  return unit === undefined || unit === "ms" ? label : `${label}, ${unit}`;
}

function roundsText(rounds: readonly number[]): string {
  return rounds.length > 1 ? `, rounds ${rounds.map(figure).join(" ")}` : "";
}

/** What came out, and in brackets what was asked for. */
export function barText(bar: Bar): string {
  const wanted = `${bar.compare} ${bar.bar}${bar.unit}`;
  return `${bar.label}: ${figure(bar.value)}${bar.unit} (bar: ${wanted}${roundsText(bar.rounds)})`;
}

export function comparisonText(comparison: Comparison): string {
  const { label, value, better, rounds } = comparison;
  return `${label}: ${figure(value)}× (no bar; ${better} is better${roundsText(rounds)})`;
}

/** Breaks prose at 112 columns, each line indented by two. */
function wrapped(text: string): string {
  return text.replace(/(.{1,110})(\s+|$)/g, "  $1\n").trimEnd();
}

export function headerText(header: Header): string {
  const lines = headerLines(header).map(([name, value]) => name.padEnd(14) + value);
  const missing = header.not_measured.map((text, i) => `${i === 0 ? "not measured" : ""}`.padEnd(14) + text);
  return [...lines, ...missing].join("\n");
}

function line(verdict: string, text: string): string {
  return `  ${verdict.padEnd(8)}${text}`;
}

/** Bars missed, comparisons lost, calls failed. */
export function lostText(sections: readonly Section[]): string {
  const lines = sections.flatMap((section) => [
    ...section.bars.filter((bar) => !isMet(bar)).map((bar) => line("NOT MET", barText(bar))),
    ...(section.comparisons ?? []).filter(isLost).map((one) => line("LOSES", comparisonText(one))),
    ...Object.entries(section.failures).map(([reason, count]) => line("failed", `${count} × ${reason}`)),
  ]);
  return ["", "Where hearth loses", ...(lines.length === 0 ? ["  nowhere in this run"] : lines)].join("\n");
}

export function sectionText(section: Section): string {
  const width = Math.max(...section.rows.map((row) => rowLabel(row).length), 10);
  const column = (text: string): string => text.padStart(9);
  const names = ["samples", "failed", ...COLUMNS.map(([name]) => name)];
  const rows = section.rows.map((row) => {
    const figures = COLUMNS.map(([, key]) => figure(row.summary[key]));
    const cells = [String(row.summary.count), String(row.failed_count), ...figures].map(column).join("");
    return `  ${rowLabel(row).padEnd(width)}${cells}${row.note === "" ? "" : `  ${row.note}`}`;
  });
  return [
    "",
    section.title,
    wrapped(section.method),
    `  ${"".padEnd(width)}${names.map(column).join("")}`,
    ...rows,
    ...section.bars.map((bar) => line(isMet(bar) ? "met" : "NOT MET", barText(bar))),
    ...(section.comparisons ?? []).map((one) => line(isLost(one) ? "LOSES" : "wins", comparisonText(one))),
    ...Object.entries(section.failures).map(([reason, count]) => line("failed", `${count} × ${reason}`)),
    ...(section.not_measured ?? []).map((text) => line("missing", text)),
  ].join("\n");
}
