/**
 * Plots as inline SVG: scales, axes, and one path a series. Colours are classes of the page's style sheet, so that one
 * drawing serves light and dark; series differ in their dashes too. Points closer than a drawing can show are left
 * out, which keeps a plot of ten thousand samples at some kilobytes.
 */
import { type Markup, markup } from "./markup.ts";
import type { Axis, Mark, Plot, Section, Series } from "./report.ts";
import { linearScale, logScale, type Scale, type Span, shareScale } from "./scale.ts";
import { summarize } from "./stats.ts";
import { COLUMNS, figure } from "./text.ts";

const WIDTH = 720;
const HEIGHT = 320;
const X: Span = { from: 62, to: WIDTH - 18 };
const Y: Span = { from: HEIGHT - 48, to: 20 };
/** As many as the style sheet has colours. */
export const COLOURS = 7;
/** A list of more points is told by its percentiles in the table beside its plot. */
const LISTED_MAX = 60;

type Point = readonly [number, number];

interface Drawing {
  readonly title: string;
  readonly description: string;
  readonly x: Scale;
  readonly x_label: string;
  readonly y: Scale;
  readonly y_label: string;
  readonly series: readonly Series[];
  readonly marks: readonly Mark[];
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function seriesPath({ points, shape }: Series, { x, y }: Drawing): string {
  const placed = points
    .filter((point) => point.every(Number.isFinite))
    .map(([a, b]): Point => [round(x.position(a)), round(y.position(b))]);
  if (shape === "points") {
    const cells = new Set(placed.map(([a, b]) => `M${Math.round(a)} ${Math.round(b)}h0`));
    return [...cells].join("");
  }
  if (shape === "steps") {
    const width = (placed[1]?.[0] ?? X.to) - (placed[0]?.[0] ?? X.from);
    const stairs = placed.map(([a, b]) => `L${a} ${b}H${round(a + width)}`).join("");
    return placed.length === 0 ? "" : `M${placed[0]?.[0]} ${Y.from}${stairs}V${Y.from}`;
  }
  const kept: Point[] = [];
  for (const point of placed) {
    const before = kept.at(-1);
    const isNear = before !== undefined && Math.abs(point[0] - before[0]) < 0.4 && Math.abs(point[1] - before[1]) < 0.4;
    if (!isNear || point === placed.at(-1)) kept.push(point);
  }
  return kept.map(([a, b], i) => `${i === 0 ? "M" : "L"}${a} ${b}`).join("");
}

function styleOf({ shape, points }: Series): string {
  return shape === "points" && points.length <= LISTED_MAX ? "points few" : shape;
}

function axes(drawing: Drawing): Markup {
  const across = drawing.x.ticks.map(
    ({ at, label }) => markup`<path class="grid" d="M${round(at)} ${Y.from}V${Y.to}"/>
<text x="${round(at)}" y="${Y.from + 17}" text-anchor="middle">${label}</text>
`,
  );
  const up = drawing.y.ticks.map(
    ({ at, label }) => markup`<path class="grid" d="M${X.from} ${round(at)}H${X.to}"/>
<text x="${X.from - 7}" y="${round(at + 4)}" text-anchor="end">${label}</text>
`,
  );
  const middle = (Y.from + Y.to) / 2;
  return markup`${across}${up}<path class="axis" d="M${X.from} ${Y.to}V${Y.from}H${X.to}"/>
<text class="label" x="${(X.from + X.to) / 2}" y="${HEIGHT - 8}" text-anchor="middle">${drawing.x_label}</text>
<text class="label" x="14" y="${middle}" text-anchor="middle" transform="rotate(-90 14 ${middle})">${drawing.y_label}</text>
`;
}

function svg(drawing: Drawing, id: string): Markup {
  const series = drawing.series.map(
    (one, i) => markup`<path class="${styleOf(one)} s${i % COLOURS}" d="${seriesPath(one, drawing)}"/>
`,
  );
  const marks = drawing.marks.map(({ at, label }) => {
    const x = round(drawing.x.position(at));
    return markup`<path class="mark" d="M${x} ${Y.from}V${Y.to}"/><text x="${x}" y="13" text-anchor="middle">${label}</text>
`;
  });
  return markup`<svg role="img" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-labelledby="${id}-t ${id}-d">
<title id="${id}-t">${drawing.title}</title><desc id="${id}-d">${drawing.description}</desc>
${axes(drawing)}${series}${marks}</svg>`;
}

function legend(series: readonly Series[]): Markup {
  const items = series.map(({ label, shape }, i) => {
    const path = shape === "points" ? "M6 7h0M14 7h0M22 7h0" : "M1 7H27";
    const swatch = `${shape} s${i % COLOURS}`;
    return markup`<li><svg aria-hidden="true" viewBox="0 0 28 14" width="28" height="14"><path class="${swatch}" d="${path}"/></svg> ${label}</li>
`;
  });
  return markup`<ul class="legend">${items}</ul>`;
}

function percentileRows(lists: readonly (readonly [string, readonly number[]])[]): Markup {
  const rows = lists.map(([label, values]) => {
    const summary = summarize(values);
    const cells = COLUMNS.map(([, key]) => markup`<td>${figure(summary[key])}</td>`);
    return markup`<tr><th scope="row">${label}</th><td>${summary.count}</td>${cells}</tr>
`;
  });
  const names = COLUMNS.map(([name]) => markup`<th scope="col">${name}</th>`);
  return markup`<table><thead><tr><td></td><th scope="col">samples</th>${names}</tr></thead><tbody>${rows}</tbody></table>`;
}

function pointRows({ label, points }: Series, x: string, y: string): Markup {
  const rows = points.map(([a, b]) => markup`<tr><td>${figure(a)}</td><td>${figure(b)}</td></tr>`);
  return markup`<table><caption>${label}</caption><thead><tr><th scope="col">${x}</th><th scope="col">${y}</th></tr></thead>
<tbody>${rows}</tbody></table>`;
}

function lineTables(plot: Extract<Plot, { kind: "lines" }>): Markup {
  const short = plot.series.filter(({ points }) => points.length <= LISTED_MAX);
  const long = plot.series.filter(({ points }) => points.length > LISTED_MAX);
  const lists = long.map(({ label, points }) => [`${label} (${plot.y.label})`, points.map(([, b]) => b)] as const);
  return markup`${short.map((one) => pointRows(one, plot.x.label, plot.y.label))}${long.length === 0 ? null : percentileRows(lists)}`;
}

/** Ascending shares and values, of which no drawing can show more. */
function shares(samples: readonly number[]): Point[] {
  const ascending = [...samples].sort((a, b) => a - b);
  return ascending.map((value, i): Point => [(i + 0.5) / ascending.length, value]);
}

function distributionDrawing(plot: Extract<Plot, { kind: "distribution" }>, raw: Section["raw"]): Drawing {
  const lists = plot.of
    .map((label) => [label, (raw[label] ?? []).flat()] as const)
    .filter(([, list]) => list.length > 0);
  const series = lists.map(([label, list]): Series => ({ label, points: shares(list), shape: "line" }));
  const middles = lists.map(([label, list]) => {
    const { p50, p99 } = summarize(list);
    return `${label}: half of them up to ${figure(p50)}, 99 % up to ${figure(p99)}`;
  });
  const all = lists.flatMap(([, list]) => list);
  return {
    title: plot.title,
    description: `Distribution of ${plot.axis}, on a logarithmic scale. ${middles.join("; ")}.`,
    x: shareScale(
      lists.reduce((most, [, list]) => Math.max(most, list.length), 0),
      X,
    ),
    x_label: "share of samples that are at most so high",
    y: logScale(all, Y),
    y_label: plot.axis,
    series,
    marks: [],
  };
}

function lineDrawing(plot: Extract<Plot, { kind: "lines" }>): Drawing {
  const scale = (axis: Axis, values: readonly number[], span: Span): Scale =>
    axis.scale === "log" ? logScale(values, span) : linearScale(values, span);
  const points = plot.series.flatMap((one) => one.points);
  const names = plot.series.map(({ label }) => label).join(", ");
  const marks = plot.marks.length === 0 ? "" : ` Marked: ${plot.marks.map(({ label }) => label).join(", ")}.`;
  return {
    title: plot.title,
    description: `${plot.y.label} over ${plot.x.label} of ${names}.${marks}`,
    x: scale(plot.x, [...points.map(([a]) => a), ...plot.marks.map(({ at }) => at)], X),
    x_label: plot.x.label,
    y: scale(
      plot.y,
      points.map(([, b]) => b),
      Y,
    ),
    y_label: plot.y.label,
    series: plot.series,
    marks: plot.marks,
  };
}

/** A plot with its legend and, folded, its figures as a table. `id` is unique on the page. */
export function plotFigure(plot: Plot, raw: Section["raw"], id: string): Markup {
  const drawing = plot.kind === "distribution" ? distributionDrawing(plot, raw) : lineDrawing(plot);
  const tables =
    plot.kind === "distribution"
      ? percentileRows(drawing.series.map(({ label, points }) => [label, points.map(([, b]) => b)]))
      : lineTables(plot);
  return markup`<figure><figcaption>${plot.title}</figcaption>
<div class="scroll">${svg(drawing, id)}</div>
${legend(drawing.series)}
<details><summary>Figures of this plot</summary><div class="scroll">${tables}</div></details></figure>
`;
}
